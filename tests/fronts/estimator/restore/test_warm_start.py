# SPDX-License-Identifier: Apache-2.0
"""Tables, and the slots that are there, start from another model's checkpoint."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import counting
from tests.fronts.estimator.counting import TPUEstimatorSpec, new_estimator
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
)
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column

v1 = tf.compat.v1
WarmStartSettings = upstream.estimator.WarmStartSettings
A, B = (f"{layer}/{name}_embedding/embedding_weights"
        for layer, name in (("first", "a"), ("second", "b")))


def train(model_dir, layers=("first", "second"), use_tpu=True, parameters=None,
          warm_start_from=None, steps=1, rows=5, num_hosts=1, strategy="div"):
    """Trains a program with the tables of two columns, Adagrad slots, and a kernel."""
    cat = tf.feature_column.categorical_column_with_identity
    columns = [embedding_column(cat("a", rows), 2), embedding_column(cat("b", 4), 3)]

    def model_fn(features, labels, mode, params):
        inputs = tf.concat([tf.keras.layers.DenseFeatures([column], name=layer)(features)
                            for column, layer in zip(columns, layers, strict=True)], 1)
        kernel = v1.get_variable("kernel", [5], initializer=v1.truncated_normal_initializer())
        loss = tf.reduce_sum(tf.linalg.matvec(inputs, kernel))
        return TPUEstimatorSpec(mode, loss=loss, train_op=v1.train.AdagradOptimizer(
            0.1).minimize(loss, global_step=v1.train.get_global_step()))

    def input_fn(params):
        ids = tf.sparse.from_dense([[1, 2], [3, 0]])
        return {"a": ids, "b": ids}

    estimator = new_estimator(
        model_dir, model_fn, use_tpu=use_tpu, warm_start_from=warm_start_from, num_hosts=num_hosts,
        spec=EmbeddingConfigSpec(columns, parameters or AdagradParameters(0.1),
                                 partition_strategy=strategy))
    estimator.train(input_fn, steps=steps)
    return estimator


def values(checkpoint):
    reader = tf.train.load_checkpoint(str(checkpoint))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
            if name != TABLE_LAYOUTS_KEY}


def same(one, other):
    """Returns the names under which two checkpoints hold the same values of many numbers."""
    return sorted(name for name in one.keys() & other.keys()
                  if name != "global_step" and np.array_equal(one[name], other[name]))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model_dir of use_tpu=True; its Adagrad slots are no longer what they start from."""
    model_dir = tmp_path_factory.mktemp("source")
    train(model_dir, steps=2)
    return str(model_dir)


def started_from(source, model_dir, **options):
    """Returns the names of what started from the checkpoint of `source`."""
    train(model_dir, **options)
    return same(values(model_dir / "model.ckpt-0"), values(source))


ALL = sorted([A, B, f"{A}/Adagrad", f"{B}/Adagrad", "kernel"])


@pytest.mark.parametrize("settings, started", [
    (lambda source: source, ALL),
    (lambda source: tf.train.latest_checkpoint(source), ALL),
    (lambda source: WarmStartSettings(source), ALL),
    (lambda source: WarmStartSettings(source, "first"), [A, f"{A}/Adagrad"]),
    (lambda source: WarmStartSettings(source, "first.*weights$"), [A]),
    (lambda source: WarmStartSettings(source, ["first/", "kernel"]),
     [A, f"{A}/Adagrad", "kernel", "kernel/Adagrad"]),
    (lambda source: WarmStartSettings(source, None), []),
    (lambda source: WarmStartSettings(source, "nothing is called this"), []),
])
def test_what_matches_starts_from_the_checkpoint(tmp_path, source, settings, started):
    assert started_from(source, tmp_path, warm_start_from=settings(source)) == started


def test_tables_start_under_other_names(tmp_path, source):
    train(tmp_path, layers=("first", "new"), warm_start_from=WarmStartSettings(
        source, ".*", var_name_to_prev_var_name={
            "new/b_embedding/embedding_weights": B,
            "new/b_embedding/embedding_weights/Adagrad": f"{B}/Adagrad"}))
    start, saved = values(tmp_path / "model.ckpt-0"), values(source)
    for slot in ("", "/Adagrad"):
        np.testing.assert_array_equal(
            start[f"new/b_embedding/embedding_weights{slot}"], saved[B + slot])
        np.testing.assert_array_equal(start[A + slot], saved[A + slot])


def test_former_name_that_is_not_in_the_checkpoint_is_refused(tmp_path, source):
    with pytest.raises(ValueError, match="no such table"):
        train(tmp_path, warm_start_from=WarmStartSettings(
            source, ".*", var_name_to_prev_var_name={A: "no such table"}))


def test_table_that_is_new_starts_afresh(tmp_path, source):
    started = started_from(source, tmp_path, layers=("first", "new"), warm_start_from=source)
    assert started == [A, f"{A}/Adagrad", "kernel"]


def test_other_optimizer_starts_with_new_slots(tmp_path, source):
    started = started_from(source, tmp_path, parameters=AdamParameters(0.1),
                           warm_start_from=source)
    assert started == sorted([A, B, "kernel"])
    assert not np.any(values(tmp_path / "model.ckpt-0")[f"{A}/Adam/m"])


def test_tables_of_the_engine_start_a_model_without_it(tmp_path, source):
    assert started_from(source, tmp_path, use_tpu=False, warm_start_from=source) == sorted([
        A, B, "kernel"])


def test_tables_of_a_model_without_engine_start_the_engine(tmp_path):
    train(tmp_path / "source", use_tpu=False, steps=2)
    assert started_from(tmp_path / "source", tmp_path / "target",
                        warm_start_from=str(tmp_path / "source")) == ALL


def test_training_that_continues_does_not_start_again(tmp_path, source):
    train(tmp_path, warm_start_from=source)
    trained = values(tmp_path)
    train(tmp_path, warm_start_from=source)
    start = values(tmp_path / "model.ckpt-1")
    assert same(start, trained) == sorted([*ALL, "kernel/Adagrad"])
    assert not same(start, values(source))


def test_evaluation_and_prediction_before_training_start_from_the_checkpoint(tmp_path):
    source = counting.new_estimator(tmp_path / "source")
    source.train(counting.input_of([0, 0, 0, 1]), max_steps=100)
    estimator = counting.new_estimator(tmp_path / "target", warm_start_from=source.model_dir)
    for _ in range(2):
        predictions = estimator.predict(counting.input_of([1, 0, 2]))
        assert [prediction["count"] for prediction in predictions] == [1.0, 3.0, 0.0]


def vocabularies(directory, **options):
    """Returns a VocabInfo: five words before, six after, three of them the same, and a bucket."""
    files = {}
    for name, words in (("old", "abcde"), ("new", "xdaybz")):
        files[name] = directory / name
        files[name].write_text("".join(f"{word}\n" for word in words))
    return upstream.estimator.VocabInfo(**{
        "new_vocab": str(files["new"]), "new_vocab_size": 6, "num_oov_buckets": 1,
        "old_vocab": str(files["old"]), "old_vocab_size": -1, "backup_initializer": None,
        **options})


FORMER = [-1, 3, 0, -1, 1, -1, -1]  # of each row


def moved(old, new_row):
    return np.array([old[row] if row >= 0 else np.full(2, new_row) for row in FORMER])


@pytest.mark.parametrize("chosen", [".*", ["first", "second", "kernel"]], ids=str)
@pytest.mark.parametrize("num_hosts, strategy", [(1, "div"), (2, "div"), (3, "mod")])
def test_rows_follow_the_words_of_a_vocabulary(tmp_path, source, chosen, num_hosts, strategy):
    """New rows are 0, or what their initializer gives; those of slots are as without a start."""
    info = vocabularies(tmp_path, backup_initializer=v1.constant_initializer(7.0))
    estimator = train(tmp_path / "model", rows=7, num_hosts=num_hosts, strategy=strategy,
                      warm_start_from=WarmStartSettings(source, chosen, {A: info}), steps=1)
    checkpoint, old = str(tmp_path / "model" / "model.ckpt-0"), values(source)
    start = {name: estimator._engine_model()._former_value(checkpoint, name) for name in (
        A, f"{A}/Adagrad", B, f"{B}/Adagrad", "kernel")}
    np.testing.assert_array_equal(start[A], moved(old[A], 7.0))
    np.testing.assert_array_equal(start[f"{A}/Adagrad"],
                                  moved(old[f"{A}/Adagrad"], np.float32(0.1)))
    for name in (B, f"{B}/Adagrad", "kernel"):
        np.testing.assert_array_equal(start[name], old[name])


def test_new_words_are_zeros_without_a_backup_initializer(tmp_path, source):
    """As in a plain Estimator, which this test runs, too."""
    info = vocabularies(tmp_path, old_vocab_size=3)  # without "d"
    starts = []
    for use_tpu in (True, False):
        train(tmp_path / str(use_tpu), use_tpu=use_tpu, rows=7,
              warm_start_from=WarmStartSettings(source, ".*", {A: info}))
        starts.append(values(tmp_path / str(use_tpu) / "model.ckpt-0")[A])
    np.testing.assert_array_equal(*starts)
    assert not np.any(starts[0][[0, 1, 3, 5, 6]]) and np.all(starts[0][[2, 4]])


@pytest.mark.parametrize("options, message", [
    ({"num_oov_buckets": 2}, "7 rows .* got 8"), ({"axis": 1}, "xis .* must be 0"),
    ({"new_vocab_size": 7, "num_oov_buckets": 0}, "`?new_vocab`? must be .* got 6")])
def test_vocabulary_that_does_not_fit_its_table_is_refused(tmp_path, source, options, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "model", rows=7, warm_start_from=WarmStartSettings(
            source, ".*", {A: vocabularies(tmp_path, **options)}))
    assert not list((tmp_path / "model").glob("model.ckpt*"))
