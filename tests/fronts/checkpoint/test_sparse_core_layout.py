# SPDX-License-Identifier: Apache-2.0
"""The places of tables in stacks of SparseCores, beside the functions of jax_tpu_embedding."""

import importlib.util
import types

import numpy as np
import pytest

from tpu_estimator_embedding.checkpoint import (
    sparse_core_format,
    sparse_core_layout,
    stacked_tensors,
    stored_tensor,
)
from tpu_estimator_embedding.checkpoint.sparse_core_layout import (
    SparseCores,
    place_tables,
    stack_name,
)
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor

CORES = [(1, 1), (1, 4), (4, 1), (2, 2), (4, 2), (2, 4), (8, 2), (4, 4), (3, 2)]
TABLES = {"a": (130, 6), "b": (3, 3), "c": (65, 8), "d": (1000, 7)}


def oracle(names, tables, devices, per_device, padding):
    """Stacks arrays as docs/checkpoints_keras_rs.rst describes it, one row after another."""
    cores = devices * per_device
    share_rows = [-(-len(tables[name]) // (8 * cores)) * 8 for name in names]
    stacked = padding.reshape(cores, sum(share_rows), -1).copy()
    for position, name in enumerate(names):
        for id_, row in enumerate(tables[name]):
            share = (id_ + position * per_device) % cores
            stacked[share, sum(share_rows[:position]) + id_ // cores, :len(row)] = row
    return stacked.reshape(padding.shape)


def arrays(tables, seed=0):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in tables.items()}


def shape_of(names, devices, per_device):
    multiple = 8 * devices * per_device
    return (sum(-(-TABLES[name][0] // multiple) * multiple for name in names),
            max(-(-TABLES[name][1] // 8) * 8 for name in names))


@pytest.mark.parametrize("devices, per_device", CORES)
@pytest.mark.parametrize("block_bytes", [300, 5000, 8 << 20])
def test_a_stack_has_the_rows_of_its_tables_and_gives_them_back(
        devices, per_device, block_bytes, monkeypatch):
    monkeypatch.setattr(stored_tensor, "BLOCK_BYTES", block_bytes)
    names, given = ["b", "d", "a", "c"], arrays(TABLES)
    shape = shape_of(names, devices, per_device)
    padding = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    placed = place_tables({"b_d_a_c": shape}, TABLES, SparseCores(devices, per_device))["b_d_a_c"]
    assert list(placed) == names
    stacked = stacked_tensors.StackedTensor(ArrayTensor(padding), [
        (placement, ArrayTensor(given[name])) for name, placement in placed.items()])
    expected = oracle(names, given, devices, per_device, padding)
    for _ in range(2):  # its file is written again
        np.testing.assert_array_equal(stacked.read(), expected, strict=True)
    on_disk = stacked_tensors.StackOnDisk(ArrayTensor(expected))
    for name, placement in placed.items():
        tensor = stacked_tensors.UnstackedTensor(on_disk, placement)
        np.testing.assert_array_equal(tensor.read(), given[name], strict=True)
        np.testing.assert_array_equal(tensor.read_rows(1, 3), given[name][1:3], strict=True)


def specs_of(names, devices, per_device):
    """Returns the specifications of a stack that jax_tpu_embedding makes."""
    from jax_tpu_embedding.sparsecore.lib.nn import embedding_spec, table_stacking
    features = {name: embedding_spec.FeatureSpec(
        name=name, input_shape=(16, 1), output_shape=(16, TABLES[name][1]),
        table_spec=embedding_spec.TableSpec(
            vocabulary_size=TABLES[name][0], embedding_dim=TABLES[name][1], initializer=None,
            optimizer=embedding_spec.SGDOptimizerSpec(0.1), combiner="sum", name=name,
            max_ids_per_partition=16, max_unique_ids_per_partition=16)) for name in names}
    if len(names) > 1:
        table_stacking.stack_tables(features, names, devices, per_device)
    return {name: feature.table_spec for name, feature in features.items()}


@pytest.mark.skipif(importlib.util.find_spec("jax_tpu_embedding") is None,
                    reason="`pip install jax-tpu-embedding` beside Keras RS and JAX")
@pytest.mark.parametrize("devices, per_device", CORES)
@pytest.mark.parametrize("names", ["ad", "dab", "cbda", "bdac"])
def test_jax_tpu_embedding_stacks_the_same(names, devices, per_device):
    from jax_tpu_embedding.sparsecore.lib.nn import table_stacking
    names, given = list(names), arrays({name: TABLES[name] for name in names})
    specs = specs_of(names, devices, per_device)
    [(name, stacked)] = table_stacking.stack_and_shard_tables(
        specs, given, devices * per_device, pad_value=np.nan).items()
    stacked = np.asarray(stacked).reshape(-1, stacked.shape[-1])
    placed = place_tables({name: stacked.shape}, {name: TABLES[name] for name in names},
                          SparseCores(devices, per_device))[name]
    for table, placement in placed.items():
        setting = specs[table].setting_in_stack
        assert placement.first_row == setting.row_offset_in_shard
        assert placement.rotation == setting.shard_rotation
        rows = table_stacking.compute_physical_row_ids(
            devices * per_device, len(stacked), setting.shard_rotation,
            setting.row_offset_in_shard, np.arange(TABLES[table][0]))
        assert [placement.row_of(id_) for id_ in range(TABLES[table][0])] == rows.tolist()
    own = stacked_tensors.StackedTensor(ArrayTensor(stacked), [
        (placement, ArrayTensor(given[table])) for table, placement in placed.items()]).read()
    np.testing.assert_array_equal(own, stacked, strict=True)  # NaN where there is padding
    back = table_stacking.unshard_and_unstack_tables(specs, {name: own}, devices * per_device)
    for table, rows in back.items():
        np.testing.assert_array_equal(np.asarray(rows), given[table], strict=True)


LONG = {f"features_of_visits_{number}": (8 * number + 9, 8) for number in range(12)}


def stacks_of(*groups, tables, cores):
    return {stack_name(group): (
        sum(-(-tables[name][0] // (8 * cores)) * 8 * cores for name in group),
        max(-(-tables[name][1] // 8) * 8 for name in group)) for group in groups}


def test_tables_of_shortened_names_are_found_by_the_hash():
    first, second = list(LONG)[:7], list(LONG)[7:]
    stacks = stacks_of(first, second, tables=LONG, cores=4)
    assert all(len(name) == 65 for name in stacks)
    placed = place_tables(stacks, LONG, SparseCores(2, 2))
    assert [list(tables) for tables in placed.values()] == [first, second]


def test_an_order_that_a_hash_does_not_tell_must_be_given():
    mixed = [*LONG][3:] + [*LONG][:3]
    stacks = stacks_of(mixed, tables=LONG, cores=4)
    with pytest.raises(ValueError, match=r"No combination of .* `stacks` \(--stacks .*\) says"):
        place_tables(stacks, LONG, SparseCores(2, 2))
    for tables, groups in ((LONG, {stack_name(mixed): mixed}),
                           ({name: LONG[name] for name in mixed}, None)):
        [placed] = place_tables(stacks, tables, SparseCores(2, 2), groups).values()
        assert list(placed) == mixed


@pytest.mark.skipif(importlib.util.find_spec("jax_tpu_embedding") is None,
                    reason="`pip install jax-tpu-embedding` beside Keras RS and JAX")
def test_jax_tpu_embedding_shortens_names_the_same():
    from jax_tpu_embedding.sparsecore.lib.nn import table_stacking
    for names in (["a", "b"], list(LONG), ["x" * 50], ["x" * 51], ["ä" * 30, "b" * 30]):
        assert stack_name(names) == table_stacking._get_stack_name(names)


@pytest.mark.parametrize("stacks, tables, groups, sentence", [
    ({"a_b": (96, 8)}, {"a": (64, 8), "b": (8, 8), "c": (8, 8)}, None, "exactly one way, got none"),
    ({"a_b": (96, 8), "b": (32, 8)}, {"a": (64, 8), "b": (8, 8)}, None, "one way, got none"),
    ({"a_b": (128, 8)}, {"a": (64, 8), "b": (8, 8)}, None, r"\[128, 8\].*padded for 2 .*\[96, 8\]"),
    ({"a_b": (96, 16)}, {"a": (64, 8), "b": (8, 8)}, None, r"\[96, 16\].*\[96, 8\]"),
    ({"a_b": (64, 8)}, {"a": (64, 8), "c": (8, 8)}, None, "No combination of .* stack 'a_b'"),
    ({"a": (64, 8)}, {"a": (64, 8)}, {"b": ["a"]}, "stacks of the checkpoint.*'b'"),
    ({"a": (64, 8)}, {"a": (64, 8)}, {"a": ["b"]}, r"stack 'a' .* \['b'\], which make 'b'"),
    ({"a_b": (96, 8)}, {"a": (64, 8), "b": (8, 8)}, {"a_b": ["b", "a"]}, "which make 'b_a'"),
    ({"b": (32, 8)}, {"a": (64, 8)}, {"b": ["b"]}, "`stacks` must be made of the tables"),
    ({"a_a_a": (96, 8)}, {"a": (64, 8), "a_a": (8, 8)}, None, "exactly one way, got several")])
def test_tables_that_do_not_fit_are_refused(stacks, tables, groups, sentence):
    with pytest.raises(ValueError, match=sentence):
        place_tables(stacks, tables, SparseCores(2, 2), groups)


def test_an_order_that_a_name_leaves_open_can_be_given():
    tables = {"a": (64, 8), "a_a": (8, 8)}
    for order in (["a", "a_a"], ["a_a", "a"]):
        placed = place_tables({"a_a_a": (96, 8)}, tables, SparseCores(2, 2), {"a_a_a": order})
        assert list(placed["a_a_a"]) == order
    # The other stack leaves only one way.
    placed = place_tables({"a_b_a": (96, 8), "a_b": (64, 8)},
                          {"a": (64, 8), "a_b": (64, 8), "b_a": (32, 8)}, SparseCores(2, 2))
    assert list(placed["a_b_a"]) == ["a", "b_a"]


@pytest.mark.parametrize("stacks", [
    [], {"a": 3}, {"a": [1, 2, 3]}, {"a": [0, 8]}, {"a": [8, True]}, {"a": {"b": 1}},
    {"a": {"b": [8, 8]}, "b": [8, 8]}])
def test_stacks_of_another_form_are_refused(stacks):
    with pytest.raises(ValueError, match="`stacks` must"):
        sparse_core_layout.parse_stacks(stacks)


@pytest.mark.parametrize("text", ["4", "4x", "x2", "0x2", "4x2x2", "-1x2"])
def test_numbers_of_sparse_cores_of_another_form_are_refused(text):
    with pytest.raises(ValueError, match="sparse_cores"):
        sparse_core_layout.read_sparse_cores(text)


STACK = ("trainable_variables", "first", "var:words:table")


@pytest.mark.parametrize("paths, sentence", [
    ([STACK, ("trainable_variables", "second", "var:words:table")], "different names, got 'words'"),
    ([STACK, (*STACK[:2], "var:words:table:slot:mu")], r"one of Adagrad, .*, got \['mu'\]"),
    ([(*STACK[:2], "var:words:table:slot:mu")], "slots of 'words' without the table")])
def test_variables_that_keras_rs_does_not_write_are_refused(paths, sentence):
    with pytest.raises(ValueError, match=sentence):
        sparse_core_format.find_stacks(paths)


def test_stacks_of_several_layers_are_found():
    other = ("trainable_variables", "model", "second")
    found = sparse_core_format.find_stacks([
        STACK, (*STACK[:2], "var:words:table:slot:linear"), (*STACK[:2], "iteration"),
        (*STACK[:2], "var:words:table:slot:accumulator"),
        ("optimizer_variables", "sgd", "iteration"),
        (*other, "var:tags:table"), (*other, "iteration"), (*other, "small", "embeddings")])
    assert {name: stack.optimizer for name, stack in found.stacks.items()} == {
        "words": "FTRL", "tags": None}
    assert found.stacks["words"].leaves["linears"] == (
        "trainable_variables.first.var:words:table:slot:linear")
    assert found.iterations == ("trainable_variables.first.iteration",
                                "trainable_variables.model.second.iteration")


def test_a_full_disk_is_named_before_anything_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(stacked_tensors.shutil, "disk_usage",
                        lambda path: types.SimpleNamespace(free=100))
    on_disk = stacked_tensors.StackOnDisk(ArrayTensor(np.ones((64, 8), np.float32)))
    with pytest.raises(OSError, match=r"2,048 bytes .* has 100 left. Set TMPDIR"):
        on_disk.read(0, 1)
