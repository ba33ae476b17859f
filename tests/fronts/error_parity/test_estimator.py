# SPDX-License-Identifier: Apache-2.0
"""A TPUEstimator refuses with the sentences of tensorflow_estimator's."""

import pytest
import tensorflow as tf

from tests.fronts.error_parity.refusals import check_refusal
from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    input_of,
    model_fn,
    new_estimator,
    new_spec,
    run_config,
)
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column

EstimatorSpec = upstream.model_fn.EstimatorSpec
TPUConfig = upstream.tpu_config.TPUConfig
V1, V2 = (upstream.tpu_config.InputPipelineConfig.PER_HOST_V1,
          upstream.tpu_config.InputPipelineConfig.PER_HOST_V2)


@pytest.fixture
def new(tmp_path):
    """Makes an estimator in the test's directory."""
    return lambda *args, **options: new_estimator(tmp_path, *args, **options)


def replicated(**options):
    return run_config(TPUConfig(**{"num_shards": 2, "per_host_input_for_training": V2, **options}))


def spec_of(**parts):
    """A model_fn whose spec has these parts."""
    def parted_model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(mode, **{"loss": loss, "train_op": count(loss), **parts})
    return parted_model_fn


def returned(make, **parts):
    """A model_fn that returns `make(...)`, or None."""
    def returning_model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"])
        train_op = count(loss) if mode == "train" else None
        return make and make(mode, loss=loss, train_op=train_op,
                             predictions={"count": features["id"]}, **parts)
    return returning_model_fn


def columns(*columns):
    return EmbeddingConfigSpec(list(columns), AdagradParameters(0.1))


def column(name="id", weights=None):
    categorical = tf.feature_column.categorical_column_with_identity(name, 12)
    if weights:
        categorical = tf.feature_column.weighted_categorical_column(categorical, weights)
    return embedding_column(categorical, 1)


def sparse(ids):
    return tf.sparse.from_dense(tf.reshape(ids, [-1, 1]))


def features(make):
    return lambda params: tf.data.Dataset.from_tensors(make()).repeat()


IDS = input_of([1, 2, 3, 4])

CONSTRUCTORS = [
    (lambda new: TPUEstimator(model_fn, "/nowhere", None, train_batch_size=2), ValueError,
     "`config` must be provided with type `tpu_config.RunConfig`"),
    (lambda new: new(params={"batch_size": 2}), ValueError,
     "['batch_size', 'context'] are reserved keys but existed in params "),
    (lambda new: new(train_batch_size=None), ValueError, "`train_batch_size` cannot be `None`"),
    (lambda new: new(train_batch_size=2.0), TypeError, "train_batch_size must be int"),
    (lambda new: new(eval_batch_size=0), ValueError, "eval_batch_size must be positive"),
    (lambda new: new(config=run_config(TPUConfig(per_host_input_for_training=False))), ValueError,
     "Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding; got "),
    (lambda new: new(use_tpu=False, spec=new_spec(partition_strategy="mod")), ValueError,
     "Mod sharding of embedding tables not supported on CPU."),
    (lambda new: new(export_saved_model_api_version=3), ValueError,
     "export_saved_model_api_version should be 1 or 2; got 3."),
    (lambda new: new(spec=columns(column(), column())), ValueError,
     "Feature column id is used with multiple embeddings and this is not supported."),
    (lambda new: new(spec=columns(tf.feature_column.numeric_column("x"))), TypeError,
     "Unsupported feature column "),
    (lambda new: TPUConfig(input_partition_dims=[1, 2, 3]), ValueError,
     "input_partition_dims must be a list/tuple with one or two elements."),
    (lambda new: TPUConfig(num_cores_per_replica=3), ValueError,
     "num_cores_per_replica must be 1, 2, 4, 8, 16, 32, 64, 128; got 3"),
    (lambda new: TPUConfig(iterations_per_loop="soon"), ValueError,
     "Invalid TPUConfig `iterations_per_loop` value."),
    (lambda new: TPUConfig(eval_training_input_configuration=V2), ValueError,
     "eval_training_input_configuration must be PER_HOST_V1 or SLICED; got "),
]

CALLS = [
    (lambda new: new().train(IDS), ValueError,
     "For TPU training, one of `steps` or `max_steps` must be set. Cannot be both `None`."),
    (lambda new: new().train(IDS, steps=1.0), TypeError, "Train steps must be int"),
    (lambda new: new().train(IDS, max_steps=2.5), TypeError, "Train max_steps must be int"),
    (lambda new: new().train(IDS, steps=0), ValueError, "Must specify steps > 0, given: 0"),
    (lambda new: new().train(lambda: None, steps=1), ValueError, "input_fn ("),
    (lambda new: new(lambda features, mode: None).train(IDS, steps=1), ValueError, "model_fn ("),
    (lambda new: new(lambda features, mode, params: None).train(
        lambda params: IDS(params).map(lambda features: (features, features["id"])), steps=1),
     ValueError, "model_fn does not take labels, but input_fn returns labels."),
    (lambda new: new(config=replicated(), batch_size=3).train(IDS, steps=1), ValueError,
     "train batch size 3 must be divisible by number of replicas 2"),
    (lambda new: new(config=replicated(), eval_batch_size=3).evaluate(IDS, steps=1), ValueError,
     "eval batch size 3 must be divisible by number of replicas 2"),
    (lambda new: new(eval_batch_size=None).evaluate(IDS, steps=1), ValueError,
     "eval_batch_size in TPUEstimator constructor cannot be `None` if .evaluate is running on "
     "TPU."),
    (lambda new: new(eval_batch_size=None, eval_on_tpu=False).evaluate(IDS, steps=1), ValueError,
     "eval_batch_size in TPUEstimator constructor cannot be `None` if .evaluate is running on "
     "TPU."),
    (lambda new: list(new(predict_batch_size=None).predict(IDS)), ValueError,
     "predict_batch_size in TPUEstimator constructor cannot be `None` if .predict is running on "
     "TPU."),
    (lambda new: new().evaluate(IDS, steps=0), ValueError, "Eval steps must be positive, got 0"),
    (lambda new: new().evaluate(IDS, steps=-1), ValueError, "Eval steps must be positive, got -1"),
    (lambda new: new().evaluate(IDS, steps=2.0), TypeError,
     "Eval steps must be int, got <class 'float'>"),
    (lambda new: new(returned(None)).train(IDS, steps=1), ValueError,
     "model_fn should return an EstimatorSpec."),
    (lambda new: new(returned(EstimatorSpec)).evaluate(IDS, steps=1), RuntimeError,
     "estimator_spec used by TPU evaluation must have type`TPUEstimatorSpec`. Got <class "),
    (lambda new: next(new(returned(EstimatorSpec)).predict(IDS)), RuntimeError,
     "estimator_spec used by TPU prediction must have type`TPUEstimatorSpec`. Got <class "),
    (lambda new: new(returned(EstimatorSpec, training_chief_hooks=[
        tf.compat.v1.train.StopAtStepHook(1)])).train(IDS, steps=1), ValueError,
     "training_chief_hooks returned by EstimatorSpec is not supported in TPUEstimator."),
    (lambda new: new(spec_of(host_call=3)).train(IDS, steps=1), ValueError,
     "host_call should be tuple or list"),
    (lambda new: new(spec_of(host_call=(abs,))).train(IDS, steps=1), ValueError,
     "host_call should have two elements."),
    (lambda new: new(spec_of(host_call=(3, []))).train(IDS, steps=1), TypeError,
     "host_call[0] should be callable."),
    (lambda new: new(spec_of(host_call=(abs, 3))).train(IDS, steps=1), ValueError,
     "host_call[1] should be tuple or list, or dict."),
    (lambda new: new(spec_of(host_call=(lambda one: one, [1, 2]))).train(IDS, steps=1),
     RuntimeError, "In TPUEstimatorSpec.host_call, length of tensors 2 does not match method args "
                   "of the function, which takes 1."),
    (lambda new: new(spec_of(training_hooks=[3])).train(IDS, steps=1), TypeError,
     "All hooks must be SessionRunHook instances, given: 3"),
    (lambda new: new(spec=columns(column())).train(
        features(lambda: {"id": sparse(["a", "b"])}), steps=1), ValueError,
     "SparseTensor with string as values are not supported."),
    (lambda new: new(spec=columns(column(weights="w"))).train(
        features(lambda: {"id": sparse([1, 2])}), steps=1), ValueError,
     "Cannot find weights w for weighted_categorical_column. Please check if the weights are "
     "present in feature dict."),
    (lambda new: new(spec=columns(column(weights="w"))).train(
        features(lambda: {"id": sparse([1, 2]), "w": tf.ones([2])}), steps=1), ValueError,
     "weighted_categorical_column with weight key name w has dense weights. Dense weights are not "
     "supported on TPU."),
    (lambda new: new(spec=columns(column(weights="w"))).train(
        features(lambda: {"id": tf.constant([1, 2]), "w": sparse([1.0, 1.0])}), steps=1),
     ValueError, "Found weights w for weighted_categorical_column, which is not"),
    (lambda new: new(config=replicated()).train(IDS, steps=1), ValueError,
     "CrossShardOptimizer must be used for model training on TPUs."),
]


@pytest.mark.parametrize("trigger, error, beginning", [*CONSTRUCTORS, *CALLS])
def test_said(new, trigger, error, beginning):
    check_refusal(lambda: trigger(new), error, beginning)
