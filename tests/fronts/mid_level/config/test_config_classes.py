# SPDX-License-Identifier: Apache-2.0
"""The config classes of the TF2 API: signatures, checks, equality; both constructor calls."""

import inspect
import math

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.mid_level import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    FeatureConfig,
    QuantizationConfig,
    RowIdInitializer,
    SparseCoreEmbeddingConfig,
    TableConfig,
    TPUEmbedding,
)

upstream = tf.tpu.experimental.embedding

NAMES = ["TableConfig", "FeatureConfig", "QuantizationConfig", "SGD", "Adagrad", "AdagradMomentum",
         "FTRL", "Adam", "RowIdInitializer", "SparseCoreEmbeddingConfig"]


def signature(word):
    parameters = inspect.signature(word).parameters.values()
    return ", ".join(str(parameter.replace(annotation=parameter.empty))
                     for parameter in parameters)


@pytest.mark.all_cases
@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_those_of_the_installed_tensorflow(name):
    if not hasattr(upstream, name):
        assert name in ("RowIdInitializer", "SparseCoreEmbeddingConfig")  # new in 2.21
        return
    ours = signature(getattr(mid_level, name))
    newer = ", layout=None, dtype=tf.float32"  # than TensorFlow 2.15's
    assert signature(getattr(upstream, name)) in (ours, ours.replace(newer, ""))


def table(**options):
    return TableConfig(10, 2, **options)


@pytest.mark.parametrize("make, message", [
    (lambda: TableConfig(10, 2.0), "must be an int and must be >= 1. Received: 2.0"),
    (lambda: table(initializer=0.5), "`initializer` must be a callable .* Received: 0.5"),
    (lambda: table(combiner=None), "`combiner` must be one of 'mean', 'sum', 'sqrtn', got None"),
    (lambda: table(combiner="max", name="t"), "Combiner of table 't' must be one of"),
    (lambda: table(layout=object()), "`layout` must be None"),
    (lambda: table(name=""), "`name` must be a string that is not empty, or None, got ''"),
    (lambda: table(dtype=tf.int32), "`dtype` must be tf.float32, the only trainable dtype, got "),
    (lambda: FeatureConfig(table(), 0, "title"), "`validate_weights_and_indices` must be a boolean."
                                                 " Received: 'title'. Releases up to 2.4 had `"),
    (lambda: QuantizationConfig(4, 0.0, math.inf), "`upper` must be finite, got inf"),
    (lambda: SparseCoreEmbeddingConfig(max_ids_per_chip_per_sample=-1),
     "`max_ids_per_chip_per_sample` must be an int of at least 1, got -1"),
    (lambda: SparseCoreEmbeddingConfig(max_unique_ids_per_table={"t": math.nan}),
     "`max_unique_ids_per_table` must be an int of at least 1, got nan"),
    (lambda: QuantizationConfig(2, 1.0, 1.0), "`lower` must be below upper, 1.0, got 1.0"),
    (lambda: SGD(0.1, -1.0), "`use_gradient_accumulation` must be True or False, got -1.0. Pass"),
    (lambda: SGD(clipvalue=(1.0,)), "`clipvalue` must be a number, .min, max. or None"),
    (lambda: SGD(clipvalue=-1), "`clipvalue` must be at least 0, got -1"),
    (lambda: SGD(clipvalue=(1, -1)), "`clipvalue` must be a number, or .min, max. with min at mo"),
    (lambda: SGD(clipvalue=(None, math.nan)), "`clipvalue` must be a number, got nan"),
    (lambda: SGD(clip_weight_min=1, clip_weight_max=0), "`clip_weight_min` must be at most clip_w"),
    (lambda: SGD(clip_weight_min=math.inf), "`clip_weight_min` must be below infinity, got inf"),
    (lambda: AdagradMomentum(use_nesterov=2), "`use_nesterov` must be True or False, got 2"),
    (lambda: Adagrad(initial_accumulator_value=0), "`initial_accumulator_value` must be a pos"),
    (lambda: Adagrad(slot_variable_creation_fn=1), "`slot_variable_creation_fn` must be either"),
    (lambda: FTRL(initial_accumulator_value=0), "`initial_accumulator_value` must be a pos"),
    (lambda: Adam(epsilon=0.0), "`epsilon` must be above 0, got 0.0"),
    (lambda: Adam(lazy_adam=False, use_gradient_accumulation=False),
     "`use_gradient_accumulation` must be True where lazy_adam is False"),
])
def test_values_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_integers_of_numpy_are_taken():
    limit = np.int64(3)
    assert QuantizationConfig(limit, -1.0, 1.0).num_buckets == 3
    assert SparseCoreEmbeddingConfig(
        max_ids_per_chip_per_sample=limit, max_ids_per_table={"t": limit},
        max_unique_ids_per_table={"t": limit}).max_ids_per_table == {"t": 3}


@pytest.mark.parametrize("make, message", [
    (lambda: QuantizationConfig("x", 0.0, 1.0), "`num_buckets` must be an int, got 'x'"),
    (lambda: QuantizationConfig(4, None, 1.0), "`lower` must be a number, got None"),
    (lambda: SparseCoreEmbeddingConfig(max_ids_per_table=3),
     "`max_ids_per_table` must be stack name -> limit, or None, got 3"),
    (lambda: SGD("fast"), "`learning_rate` must be a number or a function without"),
    (lambda: SGD(clipvalue="1"), "`clipvalue` must be a number, got '1'"),
    (lambda: SGD(clipvalue=[-1, 1]), "`clipvalue` must be a number, got "),
    (lambda: SGD(clip_weight_max="1"), "`clip_weight_max` must be a number, got '1'"),
    (lambda: table(name=3), "`name` must be a string or None, got 3"),
    (lambda: table(name="t", quantization_config=3),
     "`quantization_config` of table 't' must be a QuantizationConfig or None, got 3")])
def test_values_of_other_types_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize("clipvalue, limits", [
    (None, (None, None)), (2.0, (-2.0, 2.0)), ((None, 1.0), (None, 1.0))])
@pytest.mark.parametrize("kind", [SGD, Adagrad, AdagradMomentum, Adam, FTRL])
def test_limits_of_gradients_are_those_of_tensorflow(kind, clipvalue, limits):
    for words in (mid_level, upstream):
        optimizer = getattr(words, kind.__name__)(clipvalue=clipvalue)
        assert (optimizer.clip_gradient_min, optimizer.clip_gradient_max) == limits


def test_optimizers_are_equal_by_value_and_tables_by_identity():
    def rate():
        return 0.1

    assert Adam(rate) == Adam(rate) and hash(Adam(rate)) == hash(Adam(rate))
    assert Adam(rate) != Adam(0.1) and SGD(0.1) != Adagrad(0.1)
    assert table() != table() and len({table(), table()}) == 2


def test_row_id_initializer_starts_at_the_part():
    class Part:
        shape, offset = (10, 2), (7, 0)

    assert RowIdInitializer()([2, 2], tf.float32, shard_info=Part).numpy().tolist() == [
        [7.0, 7.0], [8.0, 8.0]]
    with pytest.raises(TypeError, match="`offset` must be a number, got 'x'"):
        RowIdInitializer("x")
    if hasattr(upstream, "RowIdInitializer"):
        np.testing.assert_array_equal(RowIdInitializer(3)([4, 2], tf.float32),
                                      upstream.RowIdInitializer(3)([4, 2], tf.float32))


CONFIG = FeatureConfig(table())


@pytest.mark.parametrize("make, batch_size", [
    (lambda: TPUEmbedding(CONFIG, SGD()), None),
    (lambda: TPUEmbedding(CONFIG, None), None),
    (lambda: TPUEmbedding(CONFIG, SGD(), True), None),
    (lambda: TPUEmbedding(optimizer=SGD(), feature_config=CONFIG), None),
    (lambda: TPUEmbedding(CONFIG, 4, SGD()), 4),
    (lambda: TPUEmbedding(CONFIG, 4, SGD(), True, True), 4),
    (lambda: TPUEmbedding(feature_config=CONFIG, batch_size=4, optimizer=SGD()), 4),
    (lambda: TPUEmbedding(CONFIG, optimizer=SGD(), batch_size=4), 4)])
def test_calls_of_both_releases(make, batch_size):
    embedding = make()
    assert (embedding._batches.layout.batch_size if batch_size else embedding._batches) == (
        batch_size)


@pytest.mark.parametrize("make, error, message", [
    (lambda: TPUEmbedding(CONFIG), TypeError, "missing a required argument: 'optimizer'"),
    (lambda: TPUEmbedding(CONFIG, 4), TypeError, "missing a required argument: 'optimizer'"),
    (lambda: TPUEmbedding(CONFIG, SGD(), False, True), TypeError, "too many positional argum"),
    (lambda: TPUEmbedding(CONFIG, SGD(), speed=2), TypeError, "unexpected keyword argument"),
    (lambda: TPUEmbedding(CONFIG, 0, SGD()), ValueError, "`batch_size` must be an int of at le"),
    (lambda: TPUEmbedding(CONFIG, 4, None), ValueError,
     r"Tables \['table_0'\] have no optimizer"),
    (lambda: TPUEmbedding(CONFIG, "sgd"), ValueError, "Optimizer of table 'table_0' must be on"),
    (lambda: TPUEmbedding({}, SGD()), ValueError, "`feature_config` must have at least one Fea"),
    (lambda: TPUEmbedding({"a": table()}, SGD()), ValueError,
     "`feature_config` of 'a' must be a FeatureConfig, got TableConfig"),
    (lambda: TPUEmbedding([FeatureConfig(table(name="t")), FeatureConfig(table(name="t"))], SGD()),
     ValueError, r"Names of tables must be distinct, got \['t', 't'\]. Share the TableConfig"),
    (lambda: TPUEmbedding({"a": {"b": CONFIG}, "a/b": CONFIG}, SGD()), ValueError,
     r"`feature_config` must have distinct paths"),
])
def test_calls_that_cannot_be(make, error, message):
    with pytest.raises(error, match=message):
        make()
