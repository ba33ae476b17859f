# SPDX-License-Identifier: Apache-2.0
"""The Keras layers under Keras 2 and Keras 3: what they compute, train, save and refuse."""

import importlib
import json

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import SGD, Adagrad
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class


def ones_table(rows, dim=2, **options):
    return TableConfig(rows, dim, initializer=tf.compat.v1.ones_initializer(), **options)


def partial(keras, **options):
    """Returns a layer with a small table of 5 rows and a large one of 50."""
    config = {"small": FeatureConfig(ones_table(5, combiner="sum", name="small")),
              "large": FeatureConfig(ones_table(50, combiner="sum", name="large"))}
    return partial_layer_class(keras)(config, SGD(0.5), **{"size_threshold": 10, **options})


def table_of(layer):
    [table] = layer.embedding_tables.values()
    return table.numpy()


@pytest.mark.parametrize("training, expected", [(True, 0.99), (None, 0.99), (False, 1.0)])
def test_tables_stay_as_they_are_without_training(keras, training, expected):
    layer = embedding_layer_class(keras)({"a": FeatureConfig(ones_table(5))}, "sgd")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer({"a": tf.constant([1])}, training=training)["a"])
    [gradient] = tape.gradient(loss, layer.trainable_variables)
    if training is False:
        assert gradient is None
    else:
        layer.apply_gradients([gradient])
    assert table_of(layer)[1, 0] == pytest.approx(expected)


def test_dense_inputs_have_a_row_for_each_entry(keras):
    layer = embedding_layer_class(keras)({"a": FeatureConfig(ones_table(5))}, SGD(1.0))
    ids = tf.constant([[[1, 2]], [[3, 1]], [[0, 0]]])
    with tf.GradientTape() as tape:
        activations = layer({"a": ids})["a"]
        loss = tf.reduce_sum(activations)
    assert activations.shape == [3, 1, 2, 2]
    layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))
    np.testing.assert_array_equal(table_of(layer)[:, 0], [-1.0, -1.0, 0.0, 0.0, 1.0])


def test_checkpoint_of_a_pipelined_layer_misses_no_update(keras, tmp_path):
    table = ones_table(5, name="words")
    layer = embedding_layer_class(keras)({"a": FeatureConfig(table)}, SGD(0.25), True)

    def train():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer({"a": tf.constant([1])})["a"])
        layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))

    train()
    path = tf.train.Checkpoint(layer=layer).write(str(tmp_path / "checkpoint"))
    [table] = [key for key, _ in tf.train.list_variables(path) if "words" in key]
    assert tf.train.load_variable(path, table)[1, 0] == 0.75
    train()  # whose update waits, and is not one of the tables that are restored
    tf.train.Checkpoint(layer=layer).restore(path)
    assert table_of(layer)[1, 0] == 0.75


def test_threshold_is_an_int_or_none():
    with pytest.raises(TypeError, match="`size_threshold` must be an int or None, got 'all'"):
        partial(tf.keras, size_threshold="all")
    with pytest.raises(ValueError, match="`size_threshold` must be at least 0, or None, got -1"):
        partial(tf.keras, size_threshold=-1)
    with pytest.raises(TypeError, match="`batch_size` must be an int or None, got 'x'"):
        partial(tf.keras, batch_size="x")
    with pytest.raises(ValueError, match="`batch_size` must be an int of at least 1, got 0"):
        partial(tf.keras, batch_size=0, size_threshold=None)


@pytest.mark.parametrize("threshold, small", [
    (0, set()), (4, set()), (5, {"small"}), (49, {"small"}), (50, {"small", "large"}),
    (None, {"small", "large"})])
def test_tables_above_the_threshold_are_large(keras, threshold, small):
    layer = partial(keras, size_threshold=threshold)
    assert set(layer.keras_embedding_layers) == small
    assert (layer.tpu_embedding is None) == (len(small) == 2)


def test_features_of_one_small_table_share_a_layer(keras):
    table = ones_table(5)
    layers = partial_layer_class(keras)(
        {"a": FeatureConfig(table), "b": FeatureConfig(table)}, "sgd").keras_embedding_layers
    assert layers["a"] is layers["b"]


def test_upstreams_small_tables_take_dense_inputs_alone(keras):
    layer = partial(keras, combine_small_tables=False)
    ids = tf.constant([[3], [4]])
    assert layer({"small": ids, "large": ids})["small"].shape == [2, 1, 2]
    with pytest.raises(ValueError, match="Input of feature 'small' must be a Tensor if "
                                         "combine_small_tables is False, got 'SparseTensor'"):
        layer({"small": tf.sparse.from_dense([[1]]), "large": ids})


@pytest.mark.parametrize("inputs, sentence", [
    ({"small": [1, 2], "large": [1, 2], "more": [1]}, "Not configured: .*more"),
    ({"small": [1, 2]}, "Missing: .*large"),
    ({"small": [1, 2], "large": [1, 2, 3]}, "Batch of feature 'large' must be .* 2, got 3")])
def test_wrong_inputs_change_no_table(keras, inputs, sentence):
    layer = partial(keras, size_threshold=0, batch_size=2)
    before = [table.numpy() for table in layer.tpu_embedding.embedding_tables.values()]
    with pytest.raises(ValueError, match=sentence):
        layer({name: tf.constant(ids) for name, ids in inputs.items()})
    for table, values in zip(layer.tpu_embedding.embedding_tables.values(), before, strict=True):
        np.testing.assert_array_equal(table, values)


@pytest.mark.parametrize("small, sentence", [
    (None, "Input of feature 'small' must be a Tensor, SparseTensor or RaggedTensor, got 'None"),
    (tf.constant([1.5, 2.0]), "Ids of feature 'small' must be integers, got 'float32'"),
    (tf.ragged.constant([[[1]], [[2]]]), "Only rank 2 ragged tensor is supported, but got rank 3")])
def test_wrong_inputs_of_small_tables_are_refused(keras, small, sentence):
    layer, ids = partial(keras, size_threshold=None), tf.constant([1, 2])
    with pytest.raises(ValueError, match=sentence):
        layer({"small": small, "large": ids})
    with pytest.raises(ValueError, match="Not configured: .*more"):  # which upstream drops
        layer({"small": ids, "large": ids, "more": ids})


def test_id_outside_the_vocabulary_is_refused(keras):
    layer = embedding_layer_class(keras)({"a": FeatureConfig(ones_table(5))}, "sgd")
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be in .0, 5., its vocab"):
        layer({"a": tf.constant([2**40 + 3], tf.int64)})


@pytest.mark.parametrize("arguments, sentence", [
    ({"optimizer": "rmsprop"}, "`optimizer` must be one of 'sgd', 'adagrad', 'adam', 'ftrl', "
                               "got 'rmsprop'"),
    ({"optimizer": 3.0}, "Optimizer of table 't' must be one of SGD, Adagrad"),
    ({"optimizer": tf.compat.v1.train.AdagradOptimizer(0.1)},
     "Optimizer of table 't' must be one of SGD, .*got <.*AdagradOptimizer"),
    ({"batch_size": 0}, "`batch_size` must be an int of at least 1, got 0"),
    ({"batch_size": "8"}, "`batch_size` must be an int of at least 1, got '8'"),
    ({"sparse_core_embedding_config": {}}, "`sparse_core_embedding_config` must be None, got {}"),
    ({"embedding_feature": "v1"}, "`embedding_feature` must be None, got 'v1'")])
def test_arguments_are_checked(keras, arguments, sentence):
    config = {"a": FeatureConfig(ones_table(5, name="t"))}
    with pytest.raises(ValueError, match=sentence):
        embedding_layer_class(keras)(config, **{"optimizer": "sgd", **arguments})
    with pytest.raises(ValueError, match="`feature_config` must be a dictionary"):
        partial_layer_class(keras)([], "sgd")


def test_serving_config_looks_other_features_up(keras):
    table = ones_table(5, combiner="sum")
    layer = embedding_layer_class(keras)({"a": FeatureConfig(table)}, "sgd")
    ids = tf.ragged.constant([[1, 2], [3]], dtype=tf.int64)
    values = layer([ids], serving_config=[FeatureConfig(table)])[0]
    np.testing.assert_array_equal(values, [[2.0, 2.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="Table of feature '0' must be a TableConfig of the"):
        layer([ids], serving_config=[FeatureConfig(ones_table(5))])


def model_of(keras, layer):
    inputs = {name: keras.Input([1], dtype="int64", name=name) for name in ("small", "large")}
    both = keras.layers.Concatenate()(list(layer(inputs).values()))
    model = keras.Model(inputs, keras.layers.Dense(1)(both))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def dataset():
    rng = np.random.default_rng(0)
    ids = {name: rng.integers(0, rows, [21, 1]) for name, rows in (("small", 5), ("large", 50))}
    return tf.data.Dataset.from_tensor_slices((ids, rng.normal(size=[21, 1]))).batch(8)


@pytest.mark.slow
def test_model_fits_saves_loads_and_exports(keras, tmp_path):
    layer = partial(keras, name="partial")
    model = model_of(keras, layer)
    model.fit(dataset(), epochs=1, verbose=0)
    table = table_of(layer.tpu_embedding)
    touched = np.unique(np.concatenate([ids["large"].numpy() for ids, _ in dataset()]))
    assert np.all(table[touched] != 1.0)
    np.testing.assert_array_equal(np.delete(table, touched, axis=0), 1.0)
    expected = model.predict(dataset(), verbose=0)

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(dataset(), verbose=0), expected, rtol=1e-5)
    np.testing.assert_array_equal(table_of(loaded.get_layer("partial").tpu_embedding), table)

    model.save_weights(tmp_path / "model.weights.h5")
    other = model_of(keras, partial(keras, name="partial"))
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(other.predict(dataset(), verbose=0), expected, rtol=1e-5)

    model.export(str(tmp_path / "export"))
    serve = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    names = list(serve.structured_input_signature[1])
    ids = next(iter(dataset()))[0]
    by_input = {name: ids["small" if "small" in name else "large"] for name in names}
    if set(names) != {"small", "large"}:  # Keras 2 numbers them, in the order of the names
        by_input = dict(zip(sorted(names), (ids["large"], ids["small"]), strict=True))
    [served] = serve(**by_input).values()
    np.testing.assert_allclose(served, expected[:8], rtol=1e-5, atol=1e-6)


def test_checkpoint_has_tables_and_slots(keras, tmp_path):
    config = {"a": FeatureConfig(ones_table(5, name="words"))}
    model = keras.Sequential([embedding_layer_class(keras)(config, Adagrad(0.5))])
    [layer] = model.layers
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer({"a": tf.constant([1])})["a"])
    layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))
    path = tf.train.Checkpoint(layer=layer).save(str(tmp_path / "checkpoint"))
    other = embedding_layer_class(keras)(config, Adagrad(0.5))
    tf.train.Checkpoint(layer=other).restore(path).expect_partial()
    np.testing.assert_array_equal(table_of(other), table_of(layer))
    np.testing.assert_array_equal(other._tables.variables["words/accumulators"][:, 0],
                                  np.float32([0.1, 1.1, 0.1, 0.1, 0.1]))


@pytest.mark.slow
def test_weights_of_models_have_tables_and_slots(keras, tmp_path):
    config = FeatureConfig(ones_table(5, name="words"))

    def new_model():
        model = keras.Sequential([keras.Input([1], dtype="int64"),
                                  embedding_layer_class(keras)(config, Adagrad(0.5))])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    class Weights(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            after.append(self.model.get_weights())

    def is_first(found):
        return all(np.array_equal(*pair) for pair in zip(after[0], found, strict=True))

    model, after = new_model(), []
    stopping = keras.callbacks.EarlyStopping(  # after epoch 1, whose weights it restores
        "loss", mode="max", restore_best_weights=True)
    model.fit(np.array([[1], [2]]), np.zeros([2, 2]), epochs=3, verbose=0,
              callbacks=[Weights(), stopping])
    assert len(after) == 2 and is_first(model.get_weights())
    np.testing.assert_allclose(table_of(model.layers[-1])[:3, 0], [
        1, *2 * [1 - 0.5 * 0.5 / np.sqrt(0.1 + 0.25)]], rtol=1e-6)
    copy = new_model()
    copy.set_weights(model.get_weights())
    assert is_first(copy.get_weights())
    model.save(str(tmp_path / "model.h5"))
    loaded = keras.models.load_model(str(tmp_path / "model.h5"), compile=False)
    assert is_first(loaded.get_weights())


@pytest.mark.parametrize("make", [
    lambda keras: tf.compat.v1.constant_initializer(0.5),
    lambda keras: tf.compat.v2.constant_initializer(np.float32(0.25)),
    lambda keras: tf.compat.v2.random_uniform_initializer(-0.1, 0.3, seed=5),
    lambda keras: keras.initializers.Constant(0.75),
    lambda keras: keras.initializers.GlorotUniform(seed=7),
    lambda keras: keras.initializers.Orthogonal(seed=7)])
@pytest.mark.parametrize("new_layer", [
    lambda keras, config: embedding_layer_class(keras)(config, SGD(0.1)),
    lambda keras, config: partial_layer_class(keras)(config, SGD(0.1), size_threshold=3)])
def test_clones_have_the_initial_values_of_their_tables(keras, make, new_layer):
    layer = new_layer(keras, {"a": FeatureConfig(TableConfig(5, 2, make(keras), name="words"))})
    clone = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    assert clone.get_config() == layer.get_config()
    ids = {"a": np.array([0, 3, 4])}
    np.testing.assert_array_equal(clone(ids)["a"], layer(ids)["a"])


@pytest.mark.parametrize("initializer", [
    lambda shape, dtype=None: tf.ones(shape), tf.constant_initializer(np.ones([5, 2]))])
def test_config_without_the_initializer_is_said(keras, initializer):
    config = {"a": FeatureConfig(TableConfig(5, 2, initializer, name="words"))}
    layer = embedding_layer_class(keras)(config, SGD(0.1))
    sentence = ("The initializer of table 'words' is a function or holds an array.* "
                "create the layer with its TableConfig instead")
    with pytest.warns(UserWarning, match=sentence):
        type(layer).from_config(layer.get_config())


def test_config_gives_the_same_layer(keras):
    table = TableConfig(50, 4, optimizer=Adagrad(0.5, clipvalue=(None, 2.0)), combiner="sqrtn")
    config = {"a": FeatureConfig(table, max_sequence_length=3), "b": FeatureConfig(table)}
    layer = partial_layer_class(keras)(config, "adam", batch_size=4, size_threshold=7)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    features = again._settings.feature_config
    assert features["a"].table is features["b"].table
    assert features["a"].table.optimizer == table.optimizer


def test_settings_that_are_functions_cannot_be_saved(keras):
    layer = embedding_layer_class(keras)({"a": FeatureConfig(ones_table(5))}, SGD(lambda: 0.5))
    with pytest.raises(ValueError, match="`learning_rate` of SGD must be a number, to be saved"):
        layer.get_config()


def test_sparse_inputs_of_scalars_have_an_id_or_none():
    legacy = tf.keras if tf.__version__.startswith("2.15") else importlib.import_module("tf_keras")
    inputs = {name: legacy.Input((), sparse=True, dtype=tf.int64, name=name)
              for name in ("small", "large")}
    model = legacy.Model(inputs, partial(legacy)(inputs))
    ids = tf.SparseTensor([[0], [2]], tf.constant([3, 4], tf.int64), [3])
    for values in model({"small": ids, "large": ids}).values():
        np.testing.assert_array_equal(values, [[1, 1], [0, 0], [1, 1]])
