# SPDX-License-Identifier: Apache-2.0
"""Configurations and classes of TensorFlow 2 refuse with TensorFlow's sentences.

Where TensorFlow has the case without a TPU, it is tried on TensorFlow's own classes, too.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import (
    tpu_embedding_for_serving,
    tpu_embedding_v2,
    tpu_embedding_v2_utils,
)

from tests.fronts.error_parity.refusals import check_refusal
from tpu_estimator_embedding import mid_level

DENSE = tf.constant([1, 2])
RAGGED = tf.ragged.constant([[1], [2, 3]])
SPARSE = tf.sparse.from_dense([[1], [2]])
CUBE = tf.ragged.constant([[[1]], [[2]]])

WORDS = [
    (lambda api: api.TableConfig(0, 4), "Argument `vocabulary_size` must be an int and must be >= "
                                        "1. Received: 0"),
    (lambda api: api.TableConfig(10, 0.5), "Argument `dim` (embedding dimension) must be an int "
                                           "and must be >= 1. Received: 0.5"),
    (lambda api: api.TableConfig(10, 4, 3),
     "Argument `initializer` must be a callable (or None). Received: 3"),
    (lambda api: api.TableConfig(10, 4, combiner="max"), "Argument `combiner` must be one of "),
    (lambda api: api.FeatureConfig("words"), "Argument `table` has invalid type <class 'str'>."),
    (lambda api: api.FeatureConfig(api.TableConfig(10, 4), -1),
     "Argument `max_sequence_length` must be an int and must be >= 0. Received: -1"),
    (lambda api: api.FeatureConfig(api.TableConfig(10, 4), validate_weights_and_indices=3),
     "Argument `validate_weights_and_indices` must be a boolean. Received: 3"),
    (lambda api: api.SGD(use_gradient_accumulation=False, clipvalue=1.0),
     "When `use_gradient_accumulation` is False, gradient clipping cannot be used and `clipvalue` "
     "should be left as None."),
    (lambda api: api.Adagrad(slot_variable_creation_fn=3),
     "Argument `slot_variable_creation_fn` must be either None or a callable. Received: 3"),
    (lambda api: api.Adagrad(initial_accumulator_value=0.0),
     "Argument `initial_accumulator_value` must be a positive float. Received: 0.0"),
    (lambda api: api.FTRL(initial_accumulator_value=-1.0),
     "Argument `initial_accumulator_value` must be a positive float. Received: -1.0"),
    (lambda api: api.AdagradMomentum(epsilon=0.0), "Adagrad momentum: epsilon must be positive"),
    (lambda api: api.AdagradMomentum(exponent=0.0),
     "Adagrad momentum: Precondition exponent must >0"),
    (lambda api: api.Adam(beta_1=1.0), "Argument `beta_1` must be >= 0 and < 1. Received: 1.0."),
    (lambda api: api.Adam(beta_2=-1.0), "Argument `beta_2` must be >= 0 and < 1. Received: "),
    (lambda api: api.Adam(epsilon=0.0), "epsilon must be positive"),
    (lambda api: api.Adam(lazy_adam=False, use_gradient_accumulation=False),
     "When disabling lazy Adam (`lazy_adam=False`), gradient accumulation must be used."),
    (lambda api: api.QuantizationConfig(1, 0.0, 1.0),
     "num_buckets is 1, must be at least 2 for simulated quantization."),
]


def lookup(embedding, value, weights=None, **options):
    table = mid_level.TableConfig(10, 4, tf.zeros_initializer())
    embedding({"a": mid_level.FeatureConfig(table, **options)}, None).embedding_lookup(
        {"a": value}, None if weights is None else {"a": weights})


def named_twice(embedding):
    tables = [mid_level.TableConfig(10, 4, name="words") for _ in range(2)]
    embedding([mid_level.FeatureConfig(table) for table in tables], mid_level.SGD())


LOOKUPS = [
    (lambda embedding: lookup(embedding, DENSE, DENSE),
     "Weight specified for a, but input is dense."),
    (lambda embedding: lookup(embedding, RAGGED, SPARSE), "Weight for a is of type "),
    (lambda embedding: lookup(embedding, SPARSE, SPARSE, max_sequence_length=2),
     "Weight specified for a, but this is a sequence feature."),
    (lambda embedding: lookup(embedding, DENSE, max_sequence_length=2),
     "Feature a is a sequence feature but a dense tensor was passed."),
    (lambda embedding: lookup(embedding, "ids"), "Input a is type <class 'str'>. Tensor, "
                                                  "SparseTensor or RaggedTensor expected."),
    (lambda embedding: lookup(embedding, CUBE),
     "Only rank 2 ragged tensor is supported, but got rank 3"),
    (lambda embedding: lookup(embedding, RAGGED, output_shape=[5]),
     "Output shape set in the FeatureConfig should be the factor of the input data batch size. "
     "But instead got output shape "),
    (named_twice, "Tables must have a unique name. Multiple tables with name words found."),
    (lambda embedding: embedding(mid_level.FeatureConfig(mid_level.TableConfig(10, 4)), "adam"),
     "<class 'str'> is an unsupported optimizer class. Please pass an instance of one of the "
     "optimizer classes under tf.tpu.experimental.embedding."),
]


@pytest.mark.parametrize("trigger, beginning", WORDS)
@pytest.mark.parametrize("api", [mid_level, tpu_embedding_v2_utils], ids=["ours", "tensorflows"])
def test_config_classes(api, trigger, beginning):
    if api is tpu_embedding_v2_utils and "combiner" in beginning and "CustomCombiner" in vars(api):
        pytest.skip("since TensorFlow 2.21 a combiner may be a computation, so the sentence is new")
    check_refusal(lambda: trigger(api), ValueError, beginning)


@pytest.mark.parametrize("trigger, beginning", LOOKUPS)
def test_lookups_for_serving(trigger, beginning):
    check_refusal(lambda: trigger(mid_level.TPUEmbeddingForServing), ValueError, beginning)


@pytest.mark.usefixtures("tensorflows_own")
def test_lookups_for_serving_in_tensorflow(monkeypatch):
    for name in ("FeatureConfig", "TableConfig", "SGD"):
        monkeypatch.setattr(mid_level, name, getattr(tpu_embedding_v2_utils, name))
    for trigger, beginning in LOOKUPS:
        check_refusal(lambda trigger=trigger: trigger(tensorflows_serving()), ValueError, beginning)


def tensorflows_serving():
    """Returns TensorFlow's class, which install() may have hidden."""
    return next(cls for cls in (tpu_embedding_for_serving.TPUEmbeddingForServing,
                                *tpu_embedding_v2.TPUEmbedding.__mro__)
                if cls.__module__.startswith("tensorflow."))


def embedding(**options):
    table = mid_level.TableConfig(10, 4, name="words")
    return mid_level.TPUEmbedding({"a": mid_level.FeatureConfig(table, **options)},
                                  mid_level.SGD())


def trained(gradient):
    made = embedding()
    made.enqueue({"a": DENSE})
    made.dequeue()
    made.apply_gradients({"a": gradient})


def two_batches(*shapes):
    made = embedding()
    for shape in shapes:
        made.enqueue({"a": tf.zeros(shape, tf.int32)}, training=False)


def v2(**options):
    table = mid_level.TableConfig(16, 4, name="words")
    return mid_level.TPUEmbeddingV2({"a": mid_level.FeatureConfig(table, output_shape=[4])},
                                    **{"optimizer": mid_level.SGD(), **options})


# What TensorFlow's classes say on a TPU.
ENGINES = [
    (lambda: embedding().dequeue(), RuntimeError,
     "dequeue called on unbuilt TPUEmbedding object. Please either call enqueue first or manually "
     "call the build method."),
    (lambda: embedding().apply_gradients({"a": DENSE}), RuntimeError,
     "apply_gradients called on unbuilt TPUEmbedding object. Please either call enqueue first or "
     "manually call the build method."),
    (lambda: embedding().enqueue({"a": DENSE}, {"a": DENSE}), ValueError,
     "Weight specified for dense input a, which is not allowed. Weight will always be 1 in this "
     "case."),
    (lambda: embedding().enqueue({"a": SPARSE}, {"a": RAGGED}), ValueError,
     "Weight for a is type "),
    (lambda: embedding().enqueue({"a": "ids"}), ValueError,
     "Input a is of unknown type <class 'str'>. Please only pass Tensor, SparseTensor or "
     "RaggedTensor as input to enqueue."),
    (lambda: embedding().enqueue({"a": tf.constant(1)}), ValueError,
     "Only rank 1 and above dense tensor is supported, find rank 0 sparse tensor for input a"),
    (lambda: embedding().enqueue({"a": tf.constant([[1, 2]])}), ValueError,
     "Rank 2 or above dense tensor should have last dimension as 1 as the last dimension will "
     "always be reduced. Instead got dense tensor as shape (1, 2)"),
    (lambda: embedding().enqueue({"a": tf.SparseTensor([[0]], [1], [2])}), ValueError,
     "Only rank 2 and above sparse tensor is supported, find rank 1 sparse tensor for input a"),
    (lambda: embedding().enqueue({"a": CUBE}), ValueError,
     "Only rank 2 ragged tensor is supported, find rank 3 ragged tensor for input a"),
    (lambda: embedding().enqueue({"a": DENSE}, device="/GPU:7"), ValueError,
     "Non-TPU device /GPU:7 passed to enqueue."),
    (lambda: embedding().build([tf.TensorShape([])]), ValueError,
     "Received input tensor of shape (). Rank must be 1 and above"),
    (lambda: embedding(output_shape=[None, 2]).enqueue({"a": SPARSE}), ValueError,
     "Input Feature a has output shape set as (None, 2) which is not fully defined."),
    (lambda: embedding(output_shape=[2]).build({"a": [3, None]}), ValueError,
     "Inconsistent shape founded for input feature a, Output shape is set to be "),
    (lambda: two_batches([2], [3]), ValueError, "Inconsistent shape founded for input feature a, "
     "Output shape is set to be [2], But got incoming output shape [3]."),
    (lambda: embedding().enqueue({"b": DENSE}), ValueError,
     "The two structures don't have the same nested structure."),
    (lambda: embedding().enqueue([DENSE]), TypeError,
     "The two structures don't have the same nested structure."),
    (lambda: embedding().enqueue({"a": SPARSE}, {"b": SPARSE}), ValueError,
     "The two structures don't have the same nested structure."),
    (lambda: embedding().build({"b": [3]}), ValueError,
     "The two structures don't have the same nested structure."),
    (lambda: v2().enqueue({"b": DENSE}), ValueError,
     "The two structures don't have the same nested structure."),
    (lambda: trained(np.zeros([2, 4])), ValueError, "found non-tensor type: "),
    (lambda: trained(tf.zeros([3, 4])), ValueError,
     "Found gradient of shape (3, 4) at path a. Expected shape "),
    (lambda: v2().apply_gradients({"a": tf.zeros([4, 4])}, {}), RuntimeError,
     "apply_gradients called on unbuilt TPUEmbeddingV2 object. Please either call the embedding "
     "lookup method first or manually call the build method."),
    (lambda: v2(optimizer=mid_level.SGD(weight_decay_factor=0.1)), NotImplementedError,
     "weight_decay_factor and multiply_weight_decay_factor_by_learning_rate are not supported "
     "yet. But found in table words setting."),
    (lambda: v2().enqueue({"a": "ids"}), ValueError,
     "Input of unknown type <class 'str'>. Please only pass Tensor, SparseTensor or RaggedTensor "
     "as input to embedding lookup."),
    (lambda: v2().enqueue({"a": tf.zeros([4], tf.int32)}, {"a": SPARSE}), ValueError,
     "Expect weight to be Tensor type but got "),
    (lambda: v2().dequeue({"words": DENSE}), ValueError,
     "Expect PartitionedCsrFormatTensor but get "),
    (lambda: v2().enqueue({"a": DENSE}, device="/GPU:7"), ValueError,
     "Non-TPU device /GPU:7 passed to enqueue."),
]


@pytest.mark.parametrize("trigger, error, beginning", ENGINES)
def test_engines(trigger, error, beginning):
    check_refusal(trigger, error, beginning)
