# SPDX-License-Identifier: Apache-2.0
"""Conversions are bit for bit, for every optimizer, format and layout; TensorFlow reads them."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.fronts.checkpoint.saved import (
    SUFFIXES,
    assert_same,
    by_id,
    restore_v1,
    save_v1,
    values_of,
    variables,
)
from tests.spec.oracle_optimizers import suffixes
from tpu_estimator_embedding import checkpoint, mid_level
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.optimizers.registry import rules_of_tf2

LAYOUTS = [(1, "div"), (3, "div"), (3, "mod"), (4, "mod")]
END = "/.ATTRIBUTES/VARIABLE_VALUE"


def reading(num_hosts=1, strategy="div", **options):
    return checkpoint.Reading(from_hosts=num_hosts if strategy == "mod" and num_hosts > 1 else None,
                              **options)


def feature_config():
    return {name: mid_level.FeatureConfig(mid_level.TableConfig(rows, dim, name=name))
            for name, rows, dim in (("words", 13, 4), ("tags", 2, 3))}


@pytest.mark.parametrize("optimizer", SUFFIXES)
def test_v1_to_tf2_to_layer_to_npz_to_v1_is_bit_for_bit(optimizer, tmp_path):
    saved = variables(optimizer)
    source = save_v1(tmp_path / "v1", saved)
    tables = checkpoint.Reading(tables=("words", "tags"))
    checkpoint.convert(source, tmp_path / "tf2", "tf2", from_="v1", reading=tables)
    checkpoint.convert(tmp_path / "tf2", tmp_path / "layer", "tpu-embedding-layer", from_="tf2")
    checkpoint.convert(tmp_path / "layer", tmp_path / "all.npz", "npz",
                       from_="tpu-embedding-layer")
    checkpoint.convert(tmp_path / "all.npz", tmp_path / "back", "v1", from_="npz",
                       layout=(3, "mod"))
    assert_same(restore_v1(tmp_path / "back", saved, 3, "mod"), saved.all)
    with np.load(tmp_path / "all.npz") as arrays:
        assert_same({name: arrays[name] for name in saved.all}, saved.all)


@pytest.mark.parametrize("before, after", [
    *itertools.product(LAYOUTS, LAYOUTS), ((20, "mod"), (2, "mod")), ((4, "div"), (20, "mod"))],
    ids=str)
def test_every_layout_to_every_other_is_bit_for_bit(before, after, tmp_path):
    """Twice: from a TPU's checkpoint, which does not say how it was written, and from ours."""
    saved = variables("Adam")
    source = save_v1(tmp_path / "v1", saved, *before)
    checkpoint.reshard(source, tmp_path / "first", *after, reading=reading(*before))
    assert_same(restore_v1(tmp_path / "first", saved, *after), saved.all)
    checkpoint.reshard(tmp_path / "first", tmp_path / "second", *before)
    assert_same(restore_v1(tmp_path / "second", saved, *before), saved.all)


@pytest.mark.parametrize("optimizer", rules_of_tf2())
@pytest.mark.parametrize("num_hosts, strategy", [(1, "div"), (4, "mod")])
def test_tf2_restores_tables_slots_and_variables(optimizer, num_hosts, strategy, tmp_path):
    saved = variables(optimizer)
    source = save_v1(tmp_path / "v1", saved, num_hosts, strategy)
    checkpoint.convert(source, tmp_path / "tf2", "tf2", reading=reading(num_hosts, strategy))
    embedding = mid_level.TPUEmbedding(feature_config(), getattr(mid_level, optimizer)(0.5))
    embedding.build()
    others = {name: tf.Variable(tf.zeros_like(value)) for name, value in saved.others.items()}
    status = tf.train.Checkpoint(embedding=embedding, variables=others).restore(
        str(tmp_path / "tf2"))
    status.assert_consumed()
    assert_same({name: variable.numpy() for name, variable in others.items()}, saved.others)
    children = embedding._trackable_children()
    found = {f"{table}/{suffixes(optimizer)[slot]}" if slot else table: children[name].numpy()
             for table in ("words", "tags") for slot in ("", *suffixes(optimizer))
             for name in [f"{table}/{slot}" if slot else table]}
    assert_same(found, saved.tables)

    back = tf.train.Checkpoint(embedding=embedding, variables=others).save(tmp_path / "after")
    checkpoint.convert(back, tmp_path / "back", "v1", layout=(num_hosts, strategy))
    assert_same(restore_v1(tmp_path / "back", saved, num_hosts, strategy), saved.all)


@pytest.mark.parametrize("keras", [tf_keras, *([] if tf.__version__ < "2.16" else ["keras"])])
def test_layers_restore_tables_and_slots(keras, tmp_path):
    keras = pytest.importorskip(keras) if isinstance(keras, str) else keras
    saved = variables("Adam")
    checkpoint.convert(save_v1(tmp_path / "v1", saved), tmp_path / "layer",
                       "tpu-embedding-layer")
    layer = embedding_layer_class(keras)(feature_config(), mid_level.Adam(0.5))
    status = tf.train.Checkpoint(layer=layer).restore(str(tmp_path / "layer"))
    status.assert_existing_objects_matched()
    found = layer._tables.variables
    np.testing.assert_array_equal(found["words"].numpy(), saved.tables["words"])
    np.testing.assert_array_equal(found["tags/velocities"].numpy(), saved.tables["tags/Adam/v"])
    again = tf.train.Checkpoint(layer=layer).save(tmp_path / "again")
    assert checkpoint.compare(again, tmp_path / "v1", tables_only=True).agree


def test_columns_tables_are_called_as_their_columns(tmp_path):
    key = "input_layer/words_embedding/embedding_weights"
    saved = variables(table=key)
    source = save_v1(tmp_path / "v1", saved)
    checkpoint.convert(source, tmp_path / "tf2", "tf2")
    values = values_of(tmp_path / "tf2")
    np.testing.assert_array_equal(values[f"embedding/words{END}"], saved.tables[key])
    np.testing.assert_array_equal(values[f"embedding/words.Saccumulators{END}"],
                                  saved.tables[f"{key}/Adagrad"])
    checkpoint.convert(tmp_path / "tf2", tmp_path / "back", "v1")
    assert_same(restore_v1(tmp_path / "back", saved), saved.all)


def test_names_may_be_given(tmp_path):
    saved = variables()
    names = {"words": "terms", "dense/kernel": "model/dense/kernel"}
    checkpoint.convert(save_v1(tmp_path / "v1", saved), tmp_path / "tf2", "tf2", names=names)
    keys = values_of(tmp_path / "tf2").keys()
    assert {f"embedding/terms{END}", f"model/dense/kernel{END}",
            f"variables/dense.Sbias{END}"} <= keys
    checkpoint.convert(tmp_path / "tf2", tmp_path / "back", "v1", names=names)
    assert_same(restore_v1(tmp_path / "back", saved), saved.all)


class Program(tf.Module):
    """A program of TF2 whose variables and dense optimizer are called as in the Estimator."""

    def __init__(self):
        self.embedding = mid_level.TPUEmbedding(feature_config(), mid_level.Adagrad(0.5))
        self.embedding.build()
        self.kernel = tf.Variable(tf.zeros([4, 2]), name="dense/kernel")
        self.bias = tf.Variable(tf.zeros([2]), name="dense/bias")
        self.step = tf.Variable(np.int64(0), name="global_step")
        self.optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
        self.optimizer._create_slots([self.kernel, self.bias])


def test_template_has_every_variable_where_the_program_has_it(tmp_path):
    saved = variables()
    program = Program()
    template = tf.train.Checkpoint(program=program).save(tmp_path / "template")
    done = checkpoint.convert(save_v1(tmp_path / "v1", saved), tmp_path / "tf2", "tf2",
                              template=template)
    assert done.left_out == ("beta1_power",)
    assert done.kept == ("dense/bias/Adagrad",)
    tf.train.Checkpoint(program=program).restore(str(tmp_path / "tf2")).assert_consumed()
    by_name = {variable.name: variable.numpy() for variable in (
        program.kernel, program.bias, program.step, *program.optimizer.variables())}
    for name in ("dense/kernel", "dense/bias", "dense/kernel/Adagrad", "global_step"):
        np.testing.assert_array_equal(by_name[f"{name}:0"], saved.others[name])
    tables = program.embedding._trackable_children()
    np.testing.assert_array_equal(tables["words/accumulators"], saved.tables["words/Adagrad"])
    after = tf.train.Checkpoint(program=program).save(tmp_path / "after")
    checkpoint.convert(after, tmp_path / "back", "v1")
    found = values_of(tmp_path / "back")
    for name in ("words", "tags/Adagrad", "dense/kernel", "dense/kernel/Adagrad", "global_step"):
        np.testing.assert_array_equal(found[name], saved.all[name])


@pytest.mark.parametrize("change, sentence", [
    ({"words": None}, "tables of the checkpoint, .*'tags', 'words'.*got .*'tags'.*`names` maps"),
    ({"words": ("words", 14, 4)}, r"'embedding/words.*\[14, 4\] in the template, .*\[13, 4\]"),
    ({"more": ("more", 3, 2)}, "must have the tables of the checkpoint.*'more'"),
    ({"optimizer": "Adam"},
     "must have the slots of table 'tags' of the checkpoint.*got .*'momenta'")])
def test_template_that_does_not_fit_is_refused(change, sentence, tmp_path):
    configs = {**feature_config(), **{name: change[name] and mid_level.FeatureConfig(
        mid_level.TableConfig(*change[name][1:], name=change[name][0]))
        for name in change if name != "optimizer"}}
    optimizer = getattr(mid_level, change.get("optimizer", "Adagrad"))(0.5)
    embedding = mid_level.TPUEmbedding({name: config for name, config in configs.items()
                                        if config}, optimizer)
    embedding.build()
    template = tf.train.Checkpoint(embedding=embedding).save(tmp_path / "template")
    source = save_v1(tmp_path / "v1", variables())
    with pytest.raises(ValueError, match=sentence):
        checkpoint.convert(source, tmp_path / "out", "tf2", template=template)
    assert not list(tmp_path.glob("out*"))


def test_record_of_layouts_is_written(tmp_path):
    done = checkpoint.reshard(save_v1(tmp_path / "v1", variables()), tmp_path / "new" / "x", 3,
                              "mod")
    record = json.loads(values_of(tmp_path / "new" / "x")["tpu_estimator_embedding/table_layouts"])
    layout = {"partition_strategy": "mod", "num_hosts": 3}
    assert record == {"version": 1, "tables": {
        name: {**layout, "vocabulary_size": rows} for name, rows in (
            ("tags", 2), ("tags/Adagrad", 2), ("words", 13), ("words/Adagrad", 13))}}
    assert done.is_newest
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) == str(tmp_path / "new" / "x")


def test_directories_stand_for_the_checkpoints_in_them(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    save_v1(tmp_path / "old" / "model.ckpt-7", variables())
    done = checkpoint.reshard(tmp_path / "old", tmp_path / "new", 2, "div")
    assert done.output == tmp_path / "new" / "model.ckpt-1234"
    again = checkpoint.convert(tmp_path / "new", tmp_path / "new", "tf2")
    assert again.output == tmp_path / "new" / "ckpt-1"
    assert not again.is_newest  # the directory goes on naming what it named


def test_without_slots(tmp_path):
    saved = variables()
    checkpoint.convert(save_v1(tmp_path / "v1", saved), tmp_path / "out", without_slots=True)
    assert values_of(tmp_path / "out").keys() == {
        *saved.others, "words", "tags", "tpu_estimator_embedding/table_layouts"}


def test_tf2_without_a_step_needs_one_for_v1(tmp_path):
    embedding = mid_level.TPUEmbedding(feature_config(), mid_level.SGD(0.5))
    embedding.build()
    source = tf.train.Checkpoint(embedding=embedding).save(tmp_path / "tf2")
    with pytest.raises(ValueError, match="no global step.* `global_step`.*--global-step"):
        checkpoint.convert(source, tmp_path / "v1", "v1")
    checkpoint.convert(source, tmp_path / "v1", "v1", global_step=12)
    assert values_of(tmp_path / "v1")["global_step"] == np.int64(12)


def test_tables_without_slots_are_found_by_their_names_in_a_template(tmp_path):
    embedding = mid_level.TPUEmbedding(feature_config(), mid_level.SGD(0.5))
    embedding.build()
    template = tf.train.Checkpoint(mine=embedding).save(tmp_path / "template")
    saved = variables("SGD")
    checkpoint.convert(save_v1(tmp_path / "v1", saved), tmp_path / "tf2", "tf2",
                       template=template)
    tf.train.Checkpoint(mine=embedding).restore(str(tmp_path / "tf2")).assert_consumed()
    for name, values in saved.tables.items():
        np.testing.assert_array_equal(embedding._trackable_children()[name], values)
    assert not checkpoint.inspect(tmp_path / "tf2").tables
    report = checkpoint.inspect(tmp_path / "tf2", reading=checkpoint.Reading(objects=("mine",)))
    assert [table.name for table in report.tables] == ["tags", "words"]


def test_embedding_layers_beside_the_tables_are_ordinary_variables(tmp_path):
    embedding = mid_level.TPUEmbedding(feature_config(), mid_level.Adagrad(0.5))
    embedding.build()
    other = tf.Module()
    other.embedding = tf.Module()
    other.embedding.embeddings = tf.Variable(tf.ones([3, 2]), name="embedding/embeddings")
    source = tf.train.Checkpoint(tables=embedding, model=other).save(tmp_path / "tf2")
    report = checkpoint.inspect(source)
    assert [table.name for table in report.tables] == ["tags", "words"]
    assert report.variables == {"embedding/embeddings": (3, 2)}


def test_optimizer_may_be_said_where_slots_belong_to_two(tmp_path):
    embedding = mid_level.TPUEmbedding(feature_config(), mid_level.Adagrad(0.5))
    embedding.build()
    source = tf.train.Checkpoint(embedding=embedding).save(tmp_path / "tf2")
    checkpoint.convert(source, tmp_path / "v1", "v1", global_step=0, reading=checkpoint.Reading(
        optimizers={"words": "ProximalAdagrad"}))
    assert {"words/ProximalAdagrad", "tags/Adagrad"} <= values_of(tmp_path / "v1").keys()
    with pytest.raises(ValueError, match="'words' has the slots .*`optimizers`"):
        checkpoint.convert(source, tmp_path / "x", "v1", reading=checkpoint.Reading(
            optimizers={"words": "Adam"}))


def test_stacks_of_sparse_cores_are_refused(tmp_path):
    words = mid_level.TableConfig(13, 4, name="words")
    embedding = mid_level.TPUEmbeddingV2(
        mid_level.FeatureConfig(words, output_shape=[4]), mid_level.SGD(0.5))
    embedding.build()
    source = tf.train.Checkpoint(embedding=embedding).save(tmp_path / "v2")
    with pytest.raises(ValueError, match="tables of the checkpoint are stacked"):
        checkpoint.convert(source, tmp_path / "v1", "v1")


def test_chosen_tables_may_not_leave_out_recorded_ones(tmp_path):
    """One that was left out would become a variable whose rows are in the order of `mod`."""
    checkpoint.reshard(save_v1(tmp_path / "v1", variables()), tmp_path / "mod", 3, "mod")
    with pytest.raises(ValueError, match=r"`tables` .*\['dense/kernel', 'tags'\] without "
                                         r"\['words'"):
        checkpoint.convert(tmp_path / "mod", tmp_path / "out", reading=checkpoint.Reading(
            tables=("dense/kernel", "tags")))
    assert not list(tmp_path.glob("out*"))
    checkpoint.convert(tmp_path / "mod", tmp_path / "out", reading=checkpoint.Reading(
        tables=("dense/kernel", "tags", "words")))
    np.testing.assert_array_equal(
        by_id(values_of(tmp_path / "out")["words"], 3, "mod"), variables().tables["words"])


@pytest.mark.parametrize("options, sentence", [
    ({"global_step": -3}, "`global_step` must be an int of at least 0 and below 2[*][*]63, got -3"),
    ({"global_step": 2**63}, "`global_step` must be .*below 2[*][*]63, got 9223372036854775808"),
    ({"to": "tf2", "template": "v1"}, "`template` must be .* an object graph, got .*v1"),
    ({"output": ""}, "`output` must be a non-empty path")])
def test_arguments_that_cannot_be_meant_are_refused_before_anything_is_written(
        options, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = save_v1(tmp_path / "v1", variables())
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=sentence):
        checkpoint.convert(source, **{"output": "out", **options})
    assert sorted(tmp_path.iterdir()) == before
