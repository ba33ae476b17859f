# SPDX-License-Identifier: Apache-2.0
"""Embedding columns among other columns, and the ways a model_fn gets activations."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import columns, linear
from tests.fronts.estimator.counting import TPUEstimatorSpec, count, new_estimator
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

v1 = tf.compat.v1
fc = tf.feature_column
NAMES = ["a", "r", "w"]
DATA = linear.random_data([*NAMES, "s"], [4, 4], seed=1)


def predict(model_dir, outputs_of, columns_of_spec):
    """Trains once; returns name -> what `outputs_of(features)` gives for all samples."""
    def model_fn(features, labels, mode, params):
        outputs = outputs_of(features)
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions=outputs)
        loss = tf.add_n([tf.reduce_sum(tf.cast(output, tf.float32))
                         for output in outputs.values()])
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    def input_fn(params):
        def with_others(features, y):
            return {**features, "city": tf.where(y > 0, "Oslo", "Rome"), "id": tf.cast(
                tf.round(4 + 4 * y), tf.int64)}
        return linear.to_dataset(DATA, 4).map(with_others)

    estimator = new_estimator(model_dir, model_fn, batch_size=4,
                              spec=EmbeddingConfigSpec(columns_of_spec, AdagradParameters(0.1)))
    estimator.train(input_fn, max_steps=1)
    batches = list(estimator.predict(input_fn, yield_single_examples=False))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@pytest.mark.slow
def test_layers_and_feature_names_give_the_same_activations(tmp_path):
    embeddings = columns.new_columns(NAMES)

    def outputs_of(features):
        layer = tf.keras.layers.DenseFeatures(list(embeddings.values()), name="inputs")
        with v1.variable_scope("inputs", auxiliary_name_scope=False):
            return {"layer": layer(features),
                    "names": tf.concat([features[name] for name in NAMES], 1)}

    outputs = predict(tmp_path, outputs_of, list(embeddings.values()))
    assert outputs["layer"].shape == (8, 3 + 2 + 3)
    np.testing.assert_array_equal(outputs["layer"], outputs["names"])
    assert np.any(outputs["layer"] != 0)


@pytest.mark.slow
def test_sequence_layer_gives_activations_and_lengths(tmp_path):
    """A length counts the positions up to the last id, holes included, up to the maximum."""
    [column] = columns.new_columns(["s"]).values()

    def outputs_of(features):
        activations, lengths = tf.keras.experimental.SequenceFeatures([column])(features)
        return {"layer": activations, "lengths": lengths, "names": features["s"],
                "raw lengths": features["s_seq_length_"]}

    outputs = predict(tmp_path, outputs_of, [column])
    expected = [min(3, max((entry.position + 1 for entry in entries), default=0))
                for batch in DATA.batches for entries in batch["s"]]
    assert outputs["lengths"].tolist() == expected
    assert outputs["raw lengths"].tolist() == expected
    assert set(expected) == {0, 1, 2, 3}
    assert outputs["layer"].shape == (8, 3, 2)
    np.testing.assert_array_equal(outputs["layer"], outputs["names"])


@pytest.mark.slow
@pytest.mark.parametrize("use", ["DenseFeatures", "input_layer"])
def test_ordinary_columns_stand_beside_embedding_columns(tmp_path, use):
    """Numbers, indicators, and tables that the model's own optimizer trains."""
    embeddings = columns.new_columns(["a"])
    city = fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"])
    ordinary = [fc.numeric_column("x", shape=[2]), fc.indicator_column(city),
                fc.embedding_column(fc.categorical_column_with_identity("id", 9), 2)]
    every = [*embeddings.values(), *ordinary]

    def outputs_of(features):
        if use == "input_layer":
            return {"layer": v1.feature_column.input_layer(features, every)}
        return {"layer": tf.keras.layers.DenseFeatures(every)(features)}

    outputs = predict(tmp_path, outputs_of, list(embeddings.values()))
    # Columns are sorted by name: a_embedding, city_indicator, id_embedding, x.
    assert outputs["layer"].shape == (8, 3 + 2 + 2 + 2)
    ys = np.concatenate(DATA.ys)
    np.testing.assert_array_equal(outputs["layer"][:, 3], ys > 0)
    np.testing.assert_array_equal(outputs["layer"][:, 7:], np.concatenate(DATA.xs))
    names = [name for name, _ in tf.train.list_variables(str(tmp_path))]
    scope = "dense_features" if use == "DenseFeatures" else "input_layer"
    assert sorted(names) == sorted([
        "global_step", f"{scope}/a_embedding/embedding_weights",
        f"{scope}/a_embedding/embedding_weights/Adagrad",
        f"{scope}/id_embedding/embedding_weights",
        "tpu_estimator_embedding/table_layouts"])
