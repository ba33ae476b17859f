# SPDX-License-Identifier: Apache-2.0
"""Saving TPUEmbeddingV2, restoring it into any layout, exporting it, and its dictionaries."""

import numpy as np
import pytest
import tensorflow as tf

from tests.subprocesses import run_python
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import Adam
from tpu_estimator_embedding.mid_level.config.sparse_core_embedding_config import (
    SparseCoreEmbeddingConfig,
)
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.serving.tpu_embedding_for_serving import (
    TPUEmbeddingForServing,
)
from tpu_estimator_embedding.mid_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

ROWS = {"a": 11, "b": 70, "c": 9}
ADAM = Adam(0.5)
IDS = {name: tf.range(8, dtype=tf.int64) for name in ROWS}


class Case:
    """Three tables of random rows, of which `a` and `b` share an optimizer and a width."""

    def __init__(self, seed, optimizer=ADAM, rows=ROWS, **options):
        rng = np.random.default_rng(seed)
        self.tables = {name: TableConfig(
            count, 12 if name == "c" else 3, name=name,
            initializer=tf.compat.v1.constant_initializer(rng.normal(size=[count, 12])[
                :, :12 if name == "c" else 3])) for name, count in rows.items()}
        config = SparseCoreEmbeddingConfig(disable_table_stacking=options.pop("apart", False))
        self.embedding = TPUEmbeddingV2({
            name: FeatureConfig(table, output_shape=[8]) for name, table in self.tables.items()},
            optimizer, options.pop("pipelined", False), config, **options)

    def train(self):
        activations, preserved = self.embedding(IDS)
        self.embedding.apply_gradients(activations, preserved)
        return self

    def values(self):
        variables = self.embedding.variables
        return {(name, slot): value.numpy() for name, table in self.tables.items()
                for slot, value in variables[table].items()}

    @property
    def checkpoint(self):
        return tf.train.Checkpoint(embedding=self.embedding)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns the path of a checkpoint of one chip, and what it holds."""
    case = Case(0).train()
    return case.checkpoint.save(str(tmp_path_factory.mktemp("v2") / "saved")), case.values()


def check_equal(found, expected):
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, err_msg=str(key))


def test_keys_are_those_of_a_tpu(saved):
    names = {name for name, _ in tf.train.list_variables(saved[0])}
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    assert names - {"_CHECKPOINTABLE_OBJECT_GRAPH", f"save_counter{end}"} == {
        f"embedding/{name}{end}" for name in (
            "_sparse_core_table_layouts", "a_b", "a_b.Smomenta", "a_b.Svelocities", "c",
            "c.Smomenta", "c.Svelocities")}
    assert tf.train.load_checkpoint(saved[0]).get_tensor(f"embedding/a_b{end}").shape == (128, 8)


@pytest.mark.parametrize("before_build", [True, False])
@pytest.mark.parametrize("options", [
    {}, {"num_chips": 2}, {"num_chips": 4, "num_sc_per_chip": 2}, {"apart": True}])
def test_checkpoint_restores_into_any_layout(saved, options, before_build):
    case = Case(5, **options)
    if not before_build:
        case.embedding.build()
    status = case.checkpoint.restore(saved[0])
    case.embedding.build()
    check_equal(case.values(), saved[1])
    status.assert_nontrivial_match()
    if "apart" not in options:
        status.assert_consumed()
        return
    with pytest.raises(AssertionError, match="not bound to checkpointed values"):
        status.assert_existing_objects_matched()  # these stacks are not in the checkpoint


def test_tables_that_were_not_saved_stay_as_they_are(tmp_path):
    saved = Case(0, rows={"a": 11, "c": 9})
    saved.embedding.build()
    path = saved.checkpoint.save(str(tmp_path / "saved"))
    case = Case(5)  # which has `a` in a stack with `b`
    before = case.values()
    case.checkpoint.restore(path)
    check_equal(case.values(), {**before, **saved.values()})


def test_checkpoints_of_different_layouts_restore_one_after_another(saved, tmp_path):
    other = Case(1, num_chips=2).train()
    path = other.checkpoint.save(str(tmp_path / "other"))
    case = Case(2, num_chips=4)
    case.embedding.build()
    for source, values in ((saved[0], saved[1]), (path, other.values()), (saved[0], saved[1])):
        case.checkpoint.restore(source)
        check_equal(case.values(), values)


def test_slots_are_left_out_without_an_optimizer(saved):
    case = Case(5, optimizer=None)
    case.checkpoint.restore(saved[0]).expect_partial()
    check_equal(case.values(), {key: values for key, values in saved[1].items()
                                if key[1] == "parameters"})


def test_table_of_another_vocabulary_is_refused(saved):
    case = Case(5, rows={**ROWS, "a": 12}, num_chips=2)
    case.embedding.build()
    with pytest.raises(ValueError, match=r"Saved table 'a' must be of the configured shape "
                                         r"\[12, 3\], got \[11, 3\]"):
        case.checkpoint.restore(saved[0])


def test_restoring_drops_an_update_that_waits(saved):
    case = Case(5, pipelined=True).train()
    case.checkpoint.restore(saved[0])
    check_equal(case.values(), saved[1])


def test_tensorflows_reader_reads_our_checkpoint(saved):
    adapter = pytest.importorskip(
        "tensorflow.python.tpu.tpu_embedding_v3_checkpoint_adapter",
        reason="TensorFlow 2.15 has no TPUEmbeddingV2")
    from tensorflow.core.tpu.kernels import sparse_core_layout_pb2
    from tensorflow.python.tpu import tpu_embedding_v3_utils
    del adapter
    reader = tf.train.load_checkpoint(saved[0])
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    layouts = sparse_core_layout_pb2.SparseCoreTableLayouts.FromString(
        reader.get_tensor(f"embedding/_sparse_core_table_layouts{end}"))
    for layout in layouts.tables:
        stacked = tf.constant(reader.get_tensor(f"embedding/{layout.stacked_table_name}{end}"))
        rows = tpu_embedding_v3_utils.unshuffle_from_sc_to_cpu(
            stacked, layout.num_sparse_cores, layout.sparse_core_shard_row_offset,
            layout.unsharded_padded_shape[0] // layout.num_sparse_cores,
            layout.sparse_core_shard_rotation)
        expected = saved[1][layout.table_name, "parameters"]
        np.testing.assert_array_equal(
            rows[:expected.shape[0], :expected.shape[1]], expected)


def test_dictionaries_take_stacks_and_tables():
    case = Case(3, num_chips=2)
    embedding, table = case.embedding, case.tables["b"]
    stack = embedding.embedding_tables["a_b"]
    assert list(embedding.embedding_tables) == ["a_b", "c"] and len(embedding.variables) == 2
    assert stack.shape == (192, 8) and stack.numpy().shape == (192, 8)
    np.testing.assert_array_equal(tf.convert_to_tensor(stack), stack.numpy())
    rows = embedding.embedding_tables[table]
    assert rows.shape == (70, 3)
    # b is the second table of two chips: id 5 lies on core (5 + 4) mod 8, after a's 8 rows.
    np.testing.assert_array_equal(stack.numpy()[1 * 24 + 8 + 0, :3], rows[5])
    shards = embedding.embedding_table_shards
    np.testing.assert_array_equal(
        np.concatenate([shard for _, shard in shards["a_b"]]), stack.numpy())
    assert [shard.shape for _, shard in shards[table]] == [(64, 3), (64, 3)]
    assert "CPU:0" in shards[table][0][0]
    np.testing.assert_array_equal(shards[table][0][1][16], rows[5])
    with pytest.raises(KeyError):
        embedding.embedding_tables[TableConfig(70, 3)]


def test_parts_are_read_by_the_device_of_their_chip():
    stack = Case(3, num_chips=2).embedding.embedding_tables["a_b"]
    assert [part.shape for part in stack.values] == [(96, 8)] * 2
    np.testing.assert_array_equal(stack.read_from_device("/TPU:1"), stack.numpy()[96:])
    np.testing.assert_array_equal(
        stack.read_from_device("/job:worker/replica:0/task:0/device:TPU:0"), stack.numpy()[:96])
    with pytest.raises(ValueError, match="`device` must be a device with an index from 0 to 1"):
        stack.read_from_device("/TPU:2")


@pytest.mark.parametrize("options", [{}, {"num_chips": 2}, {"apart": True}])
def test_initializers_are_not_called_for_tables_about_to_be_restored(saved, options):
    path, values = saved
    called = []

    def initializer_of(name):
        return lambda shape, dtype: (called.append(name), tf.ones(shape, dtype))[1]

    config = SparseCoreEmbeddingConfig(disable_table_stacking=options == {"apart": True})
    tables = {name: TableConfig(rows, 12 if name == "c" else 3, initializer_of(name), name=name)
              for name, rows in {**ROWS, "new": 6}.items()}
    embedding = TPUEmbeddingV2({name: FeatureConfig(table, output_shape=[8])
                                for name, table in tables.items()}, ADAM, False, config,
                               num_chips=options.get("num_chips", 1))
    tf.train.Checkpoint(embedding=embedding).restore(path)
    embedding.build()
    embedding.build()
    assert called == ["new"]
    found = embedding.embedding_tables
    for name in ROWS:
        np.testing.assert_array_equal(found[tables[name]], values[name, "parameters"])
    assert (found[tables["new"]].numpy() == 1).all()


def test_initializers_may_ask_for_their_shard():
    seen = []

    def initializer(shape, dtype, *, shard_info):
        seen.append((tuple(shape), tuple(shard_info.shape), tuple(shard_info.offset)))
        return tf.cast(tf.reshape(tf.range(shape[0] * shape[1]), shape), dtype)

    table = TableConfig(10, 3, initializer=initializer, name="rows")
    embedding = TPUEmbeddingV2({"f": FeatureConfig(table, output_shape=[4])}, num_chips=2)
    np.testing.assert_array_equal(embedding.embedding_tables[table],
                                  np.arange(30.0).reshape([10, 3]))
    assert seen == [((10, 3), (10, 3), (0, 0))]


def test_preprocess_features_sorts_for_layouts_made_elsewhere():
    case = Case(3, num_chips=2)
    stacks = case.embedding._stacks
    tables = {name: [case.tables[layout.name] for layout in stack.tables]
              for name, stack in stacks.stacks.items()}
    offsets = {layout.name: (name, layout.row_offset * 8, layout.rotation)
               for name, stack in stacks.stacks.items() for layout in stack.tables}
    features = list(case.embedding._feature_config.items())
    arguments = (2, 64, 64, 4, 8, tables, offsets, {"a_b": 16, "c": 8},
                 {"a": 0, "b": 8, "c": 0}, features)
    found = TPUEmbeddingV2.preprocess_features(*arguments, list(IDS.values()))
    for name, (tensor, *counts) in case.embedding.enqueue(IDS).items():
        other, *other_counts = found[name]
        tf.nest.map_structure(np.testing.assert_array_equal, (tensor, counts),
                              (other, other_counts), expand_composites=True)
    with pytest.raises(ValueError, match="`num_sc_shards` must be num_replicas_in_sync"):
        TPUEmbeddingV2.preprocess_features(4, *arguments[1:], list(IDS.values()))


@pytest.mark.long
def test_export_needs_no_package(tmp_path):
    case = Case(4).train()

    class Served(tf.Module):
        def __init__(self):
            self.embedding = case.embedding

        @tf.function(input_signature=[{name: tf.TensorSpec([8], tf.int64) for name in ROWS}])
        def __call__(self, features):
            return self.embedding(features)[0]

    tf.saved_model.save(Served(), str(tmp_path))
    done = run_python(f"""
        import sys
        import tensorflow as tf
        served = tf.saved_model.load({str(tmp_path)!r})
        ids = tf.range(8, dtype=tf.int64)
        print(served({{name: ids for name in "abc"}})["b"].numpy().tolist())
        assert not any(name.startswith("tpu_estimator") for name in sys.modules)
    """)
    np.testing.assert_array_equal(
        np.array(eval(done.stdout), np.float32), case.values()["b", "parameters"][:8])


@pytest.mark.parametrize("options", [{}, {"apart": True}], ids=["same layout", "other layout"])
def test_embedding_may_be_the_root_of_a_checkpoint(tmp_path, options):
    case = Case(0).train()
    path = tf.train.Checkpoint(case.embedding, step=tf.Variable(7)).save(str(tmp_path / "root"))
    other, step = Case(1, **options).train(), tf.Variable(0)
    status = tf.train.Checkpoint(other.embedding, step=step).restore(path)
    if not options:
        status.assert_consumed()
    assert int(step) == 7
    check_equal(other.values(), case.values())


@pytest.mark.parametrize("is_built", [True, False], ids=["built", "built later"])
@pytest.mark.parametrize("apart", [False, True], ids=["stacked", "one table in each stack"])
@pytest.mark.parametrize("optimizer", [ADAM, None], ids=["slots", "no slots"])
def test_tables_for_serving_restore_stacks(tmp_path, is_built, apart, optimizer):
    case = Case(0, apart=apart, rows={"a": 32, "b": 70, "c": 9}).train()
    path = case.checkpoint.save(str(tmp_path / "stacks"))
    tables = {name: TableConfig(len(values), values.shape[1], name=name)
              for (name, slot), values in case.values().items() if slot == "parameters"}
    serving = TPUEmbeddingForServing(
        {name: FeatureConfig(table) for name, table in tables.items()}, optimizer)
    if is_built:
        serving.build()
    tf.train.Checkpoint(embedding=serving).restore(path)
    found = {(name, slot): variable.numpy() for name, slots in serving.variables.items()
             for slot, variable in slots.items()}
    check_equal(found, {key: values for key, values in case.values().items() if key in found})
    assert len(found) == (9 if optimizer else 3)


def test_tables_for_serving_restore_plain_tables_after_stacks(tmp_path, saved):
    tables = {name: TableConfig(count, 12 if name == "c" else 3, name=name)
              for name, count in ROWS.items()}
    features = {name: FeatureConfig(table) for name, table in tables.items()}
    plain, serving = TPUEmbedding(features, ADAM), TPUEmbeddingForServing(features, ADAM)
    plain.build(8)
    serving.build()
    path = tf.train.Checkpoint(embedding=plain).save(str(tmp_path / "plain"))
    for checkpoint in (saved[0], path, saved[0], path):
        tf.train.Checkpoint(embedding=serving).restore(checkpoint)
    for table in tables.values():
        np.testing.assert_array_equal(serving.embedding_tables[table],
                                      plain.embedding_tables[table])
