# SPDX-License-Identifier: Apache-2.0
"""What an estimator refuses: the kind of error, its sentence, and that no table changes."""

import contextlib
import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import columns, counting
from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
)
from tests.fronts.estimator.hang import finish
from tests.fronts.estimator.replica_model import cross_shard_sgd, minimize
from tpu_estimator_embedding import checks
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column

fc = tf.feature_column


def sparse(values=(1, 2), dtype=np.int64):
    return tf.SparseTensor([[row, 0] for row in range(len(values))],
                           tf.constant(values, dtype), [len(values), 1])


def dict_spec(combiner="mean", length=0, weights=None):
    return EmbeddingConfigSpec(
        table_to_config_dict={"t": TableConfig(9, 2, combiner=combiner)},
        feature_to_config_dict={"f": FeatureConfig("t", length, weights)},
        optimization_parameters=AdagradParameters(0.1))


def train(model_dir, spec, features):
    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["f"])
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    finish(new_estimator(model_dir, model_fn, spec=spec).train, lambda params: features(),
           steps=1)


@pytest.mark.smoke
@pytest.mark.parametrize("id", [12, 99, 2**40])
def test_id_beyond_the_vocabulary_is_named_and_changes_no_table(tmp_path, id):
    estimator = new_estimator(tmp_path)
    estimator.train(input_of([0, 1]), max_steps=1)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        finish(estimator.train, input_of([2, id]), max_steps=2)
    assert str(caught.value).startswith(
        f"Ids of feature 'id' must be in [0, 12), its vocabulary_size, got {id}. Raise "
        "vocabulary_size, or map the ids into the vocabulary in input_fn.")
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__  # else TensorFlow's traces bury the sentence
    assert counts(estimator) == counts_of(0, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="its vocabulary_size"):
        finish(estimator.evaluate, input_of([2, id]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="its vocabulary_size"):
        finish(list, estimator.predict(input_of([2, id])))


def without(key):
    return {name: value for name, value in {
        "f": sparse(), "w": sparse((1.0, 2.0), np.float32)}.items() if name != key}


WHEN_BUILT = {
    "strings": (dict_spec, lambda: {"f": sparse(("a", "b"), np.bytes_)}, ValueError,
                r"^SparseTensor with string as values are not supported\. Ids of feature 'f' "
                "must be integers.*map strings to ids in input_fn"),
    "floats": (dict_spec, lambda: {"f": tf.constant([1.0])}, ValueError,
               r"Ids of feature 'f' must be integers, got 'float32'\."),
    "scalar": (dict_spec, lambda: {"f": tf.constant(1)}, ValueError,
               r"Feature 'f': the ids are a scalar.* Batch the dataset"),
    "doubly ragged": (dict_spec, lambda: {"f": tf.ragged.constant([[[1, 2], []], [[3]]])},
                      ValueError, "Feature 'f': .* of ragged rank 2.*merge_dims"),
    "missing feature": (dict_spec, lambda: {"g": sparse()}, ValueError,
                        r"`features` must have the embedding feature 'f', got \['g'\]\. "
                        "Return it from input_fn"),
    "missing weights": (lambda: dict_spec(weights="w"), lambda: without("w"), ValueError,
                        r"`features` must have the weights 'w' of feature 'f', got \['f'\]\."),
    "dense weights": (lambda: dict_spec(weights="w"),
                      lambda: {"f": sparse(), "w": tf.ones([2, 1])}, ValueError,
                      "has dense weights. Dense weights are not supported on TPU. Give the weights "
                      "of feature 'f' as a SparseTensor"),
    "ragged weights of sparse ids": (
        lambda: dict_spec(weights="w"),
        lambda: {"f": sparse(), "w": tf.ragged.constant([[1.0], [2.0]])}, ValueError,
        "Weights 'w' of feature 'f' must be"),
    "weights that are texts": (
        lambda: dict_spec(weights="w"),
        lambda: {"f": sparse(), "w": sparse(("1", "2"), np.bytes_)}, ValueError,
        r"^Cast string to float is not supported\. Weights of feature 'f' must be numbers, floats "
        r"for instance, got 'string'\. Convert them in input_fn, strings with tf\.strings\.to_num"),
    "complex weights": (
        lambda: dict_spec(weights="w"),
        lambda: {"f": sparse(), "w": sparse((1j, 2j), np.complex64)}, ValueError,
        "Weights of feature 'f' must be numbers, floats for instance, got 'complex64'"),
    "weights of dense ids": (lambda: dict_spec(weights="w"),
                             lambda: {"f": tf.constant([[1]]), "w": tf.ones([1, 1])}, ValueError,
                             "Dense ids and dense weights cannot be aligned"),
    "dense sequence": (lambda: dict_spec(length=3), lambda: {"f": tf.constant([[1, 2]])},
                       ValueError, "Ids of sequence feature 'f' must be a SparseTensor or "
                       "RaggedTensor, got .*Convert them in input_fn"),
    "several dense ids without combiner": (
        lambda: dict_spec(combiner=None), lambda: {"f": tf.constant([[1, 2]])}, ValueError,
        r"Dense ids of feature 'f' with combiner None must be of shape \[batch\] or "
        r"\[batch, 1\], got"),
    "no dictionary": (dict_spec, lambda: sparse(), TypeError, "`features` must be a dictionary"),
}


@pytest.mark.parametrize("case", WHEN_BUILT)
def test_input_that_cannot_be_looked_up_is_refused(tmp_path, case):
    make_spec, features, error, sentence = WHEN_BUILT[case]
    with pytest.raises(error, match=sentence):
        train(tmp_path, make_spec(), features)
    assert not list(tmp_path.glob("*.index"))


RESULTS = {
    "list": (lambda step: [0.1, 0.2], r"\[0.1, 0.2\]"), "text": (lambda step: "0.1", "'0.1'"),
    "vector": (lambda step: tf.constant([0.1, 0.2]), r"<tf.Tensor .*shape=\(2,\)"),
    "one in a list": (lambda step: [0.1], r"\[0.1\]"), "nothing": (lambda step: None, "None"),
    "complex": (lambda step: 0.1j, "0.1j"), "dictionary": (lambda step: {"rate": 0.1}, "{'rate'")}


@pytest.mark.parametrize("case", RESULTS)
@pytest.mark.parametrize("kind", ["learning rate", "multiplier"])
def test_function_of_the_step_that_returns_no_number_is_refused(tmp_path, kind, case):
    function, received = RESULTS[case]
    spec = dict_spec()
    if kind == "multiplier":
        spec = spec._replace(experimental_gradient_multiplier_fn=function)
        sentence = ("Result of the gradient multiplier of table 't' must be one number, a scalar, "
                    f"got {received}.* Return one number from `experimental_gradient_mul")
    else:
        spec = spec._replace(table_to_config_dict={"t": TableConfig(
            9, 2, learning_rate_fn=function)})
        sentence = ("Result of the learning rate function of table 't' must be one number, a "
                    f"scalar, got {received}.* Return one number from `learning_rate_fn`")
    with pytest.raises(ValueError, match=sentence):
        train(tmp_path, spec, lambda: {"f": sparse()})
    assert not list(tmp_path.glob("*.index"))


@pytest.mark.parametrize("is_graph", [True, False])
def test_learning_rate_of_another_graph_is_refused(is_graph, tmp_path):
    with tf.Graph().as_default() if is_graph else contextlib.nullcontext():
        rate = tf.constant(0.1)
    spec = dict_spec()._replace(table_to_config_dict={"t": TableConfig(
        9, 2, learning_rate_fn=lambda step: rate)})
    with pytest.raises(ValueError, match="table 't' must be a number, or a tensor of the graph "
                                         "of the step, got .*Compute it inside the function"):
        train(tmp_path, spec, lambda: {"f": sparse()})
    assert not list(tmp_path.glob("*.index"))


@pytest.mark.parametrize("function, signature", [
    (lambda: 0.1, r"\(\)"), (lambda step, rate: 0.1, r"\(step, rate\)"),
    (lambda *, step: 0.1, r"\(\*, step\)")])
def test_function_of_the_step_with_other_arguments_is_refused(function, signature):
    received = f"must be a function of global_step, got 'a function of {signature}'"
    with pytest.raises(ValueError, match=f"^`learning_rate_fn` {received}"):
        TableConfig(9, 2, learning_rate_fn=function)
    with pytest.raises(ValueError, match=f"^`learning_rate_fn` {received}"):
        embedding_column(fc.categorical_column_with_identity("a", 9), 2,
                         learning_rate_fn=function)
    with pytest.raises(ValueError, match=f"`experimental_gradient_multiplier_fn` {received}"):
        EmbeddingConfigSpec(
            list(columns.new_columns(["a"]).values()), AdagradParameters(0.1),
            experimental_gradient_multiplier_fn=function)
    column = tf.compat.v1.tpu.experimental.embedding_column(
        fc.categorical_column_with_identity("a", 9), 2, learning_rate_fn=function)
    with pytest.raises(ValueError, match=f"^`learning_rate_fn` {received}"):
        new_estimator("unused", spec=EmbeddingConfigSpec([column], AdagradParameters(0.1)))


def test_functions_whose_arguments_fit_are_accepted():
    class Rate:
        def __call__(self, step, scale=0.1):
            return scale

    for function in (Rate(), Rate().__call__, functools.partial(Rate().__call__, scale=0.5),
                     tf.function(lambda step: 0.1), lambda *steps: 0.1, float):
        assert TableConfig(9, 2, learning_rate_fn=function).learning_rate_fn is function


def outside(row):
    rows = sorted([0, row])
    return tf.SparseTensor([[row, 0] for row in rows], tf.constant([1, 2], tf.int64), [4, 3])


@pytest.mark.parametrize("row", [7, -1])
@pytest.mark.parametrize("length, num_shards", [(0, 1), (3, 1), (0, 2), (3, 2)])
def test_sample_outside_of_the_dense_shape_is_named(tmp_path, row, length, num_shards):
    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["f"])
        return TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss, cross_shard_sgd(0.5)))

    tpu_config = counting.upstream.tpu_config.TPUConfig(num_shards=num_shards)
    estimator = new_estimator(tmp_path, model_fn, spec=dict_spec(length=length), batch_size=4,
                              config=counting.run_config(tpu_config))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        finish(estimator.train, lambda params: {"f": outside(row)}, steps=1)
    assert re.match(r"Sample indices of feature 'f' must be in \[0, 4\), .*, got "
                    rf"\[{min(row, 0)} {max(row, 0)}\]\. ", str(caught.value))


def test_model_dir_that_is_a_file_is_refused(tmp_path):
    file = tmp_path / "model"
    file.write_text("mine")
    for path, reason in ((file, "It"), (file / "below" / "it", repr(str(file)))):
        sentence = (f"`model_dir` must be a directory or a new path, got {str(path)!r}. {reason} "
                    "is a file. Give another path, or move the file away.")
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            new_estimator(path)
    with pytest.raises(TypeError, match="`model_dir` must be a path, got 3"):
        checks.check_can_be_directory("model_dir", 3)
    assert file.read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "missing")
    with pytest.raises(ValueError, match="It is a link to a missing path. .* move the link away"):
        new_estimator(link)


@pytest.mark.all_cases
@pytest.mark.parametrize("name, is_found", [
    ("rate[0.1]", False), ("a[!b]", False), (r"a\b", False), ("a[]b", True), ("a[b", True),
    ("a]b", True), ("a*b?", True)])
def test_model_dir_is_one_in_which_tensorflow_finds_checkpoints(name, is_found, tmp_path):
    path = tmp_path / name
    if is_found:
        new_estimator(path)
    else:
        with pytest.raises(ValueError, match="`model_dir` must be a path without brackets and "
                                             "backslashes, got .*finds no checkpoint there"):
            new_estimator(path)
        assert not path.exists()
    tf.train.Checkpoint(step=tf.Variable(1)).save(str(path / "ckpt"))
    assert (tf.train.latest_checkpoint(str(path)) is not None) == is_found


@pytest.mark.all_cases
@pytest.mark.parametrize("name", ["my words", "words:0", "Wörter", "_words", "-words", ""])
def test_name_of_a_table_that_no_variable_can_have_is_refused(name, tmp_path):
    spec = EmbeddingConfigSpec(
        table_to_config_dict={name: TableConfig(9, 2)},
        feature_to_config_dict={"f": FeatureConfig(name)},
        optimization_parameters=AdagradParameters(0.1))
    with pytest.raises(ValueError, match=r"^Name of a table must be of ASCII letters, digits and "
                                         rf"_\./\\>-, .*, got {name!r}\. It names a variable"):
        train(tmp_path, spec, lambda: {"f": sparse()})
    assert not list(tmp_path.iterdir())


def test_key_of_a_column_that_no_variable_can_have_is_refused(tmp_path):
    column = embedding_column(fc.categorical_column_with_identity("my words", 9), 2)
    spec = EmbeddingConfigSpec([column], optimization_parameters=AdagradParameters(0.1))
    with pytest.raises(ValueError, match="got 'tbl_my words'.* has the key of the column"):
        train(tmp_path, spec, lambda: {"my words": sparse()})


def test_features_of_different_batch_sizes_are_refused(tmp_path):
    spec = EmbeddingConfigSpec(
        table_to_config_dict={"t": TableConfig(9, 2)},
        feature_to_config_dict={"f": FeatureConfig("t"), "g": FeatureConfig("t")},
        optimization_parameters=AdagradParameters(0.1))
    with pytest.raises(ValueError, match="Embedding features must have one batch size, got "
                                         r"{'f': 2, 'g': 3}"):
        train(tmp_path, spec, lambda: {"f": sparse(), "g": sparse((1, 2, 3))})


@pytest.mark.slow
def test_column_that_model_fn_does_not_use_is_missed_in_training(tmp_path):
    embeddings = columns.new_columns(["a", "r"])
    spec = EmbeddingConfigSpec(list(embeddings.values()), AdagradParameters(0.1))

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(tf.keras.layers.DenseFeatures([embeddings["a"]])(features))
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    def input_fn(params):
        return {"a": sparse(), "r": sparse()}

    with pytest.raises(RuntimeError, match=r"`feature_columns` of the embedding_config_spec must "
                                           r"all be used by model_fn, got no use of the columns "
                                           r"of \['r'\]"):
        new_estimator(tmp_path, model_fn, spec=spec).train(input_fn, steps=1)


@pytest.mark.all_cases
@pytest.mark.parametrize("options", [{}, {"num_hosts": 2}])
def test_variable_of_the_model_with_the_name_of_a_table_is_named(tmp_path, options):
    def model_fn(features, labels, mode, params):
        loss = tf.compat.v1.get_variable("counts", []) * tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    estimator = new_estimator(tmp_path, model_fn, **options)
    with pytest.raises(ValueError, match="The program has a variable 'counts', which is a name of "
                       "the table 'counts'. Give one of them another name.$"):
        finish(estimator.train, input_of([0, 1]), max_steps=1)
