# SPDX-License-Identifier: Apache-2.0
"""A small regression whose model can be anything, trained on any number of replicas.

One table of ten rows is looked up with up to three ids per sample. All randomness is
seeded, so that runs that differ in the number of replicas start from the same values.
"""

import numpy as np
import tensorflow as tf

from tests.fronts.estimator.counting import TPUEstimatorSpec, new_estimator, run_config
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

v1 = tf.compat.v1
V1 = upstream.tpu_config.InputPipelineConfig.PER_HOST_V1
V2 = upstream.tpu_config.InputPipelineConfig.PER_HOST_V2
BATCH_SIZE, ROWS, DIM, X_SIZE = 8, 10, 3, 2
WIDTH = DIM + X_SIZE


def uniform(seed=1):
    return v1.random_uniform_initializer(-1, 1, seed=seed)


def new_spec(parameters=None, **options):
    return EmbeddingConfigSpec(
        table_to_config_dict={"t": TableConfig(ROWS, DIM, uniform(), "mean")},
        feature_to_config_dict={"id": FeatureConfig("t")},
        optimization_parameters=parameters or AdagradParameters(0.1), **options)


def arrays(num_samples):
    """Returns ids `[n, 3]` with -1 for padding, x `[n, 2]` and y `[n]`."""
    rng, most = np.random.default_rng(0), 128
    drawn = {"id": rng.integers(-1, ROWS, [most, 3]),
             "x": rng.uniform(-1, 1, [most, X_SIZE]).astype(np.float32),
             "y": rng.uniform(-1, 1, most).astype(np.float32)}
    return {name: values[:num_samples] for name, values in drawn.items()}


def to_features(arrays):
    places = tf.where(arrays["id"] >= 0)
    ids = tf.SparseTensor(places, tf.gather_nd(arrays["id"], places),
                          tf.shape(arrays["id"], tf.int64))
    return {"id": ids, "x": arrays["x"]}, arrays["y"]


def input_of(num_samples=3 * BATCH_SIZE, batch_size=None, drop_remainder=False):
    """Returns an input_fn; `batch_size` goes before that of `params`."""
    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices(arrays(num_samples))
        return dataset.batch(batch_size or params["batch_size"], drop_remainder).map(to_features)
    return input_fn


def inputs_of(features):
    """Returns `[batch, WIDTH]`: the activations and x."""
    return tf.concat([features["id"], features["x"]], 1)


def variable(name, shape, seed=2):
    return v1.get_variable(name, shape, initializer=uniform(seed))


def linear(features, params):
    return tf.linalg.matvec(inputs_of(features), variable("kernel", [WIDTH]))


def cross_shard_adam():
    return v1.tpu.CrossShardOptimizer(v1.train.AdamOptimizer(0.01))


def cross_shard_sgd(learning_rate):
    return lambda: v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(learning_rate))


def minimize(loss, new_optimizer=cross_shard_adam):
    step = v1.train.get_global_step()
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return new_optimizer().minimize(loss, global_step=step)


def new_model_fn(predict, train_op=minimize):
    """Returns a model_fn with the mean squared error of `predict(features, params)`."""
    def model_fn(features, labels, mode, params):
        predictions = predict(features, params)
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={"y": predictions})
        loss = tf.reduce_mean(tf.square(predictions - labels)) + v1.losses.get_regularization_loss()
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=train_op(loss) if mode == "train" else None,
            eval_metrics=(metrics_of, [labels, predictions]))
    return model_fn


def metrics_of(labels, predictions):
    return {"error": v1.metrics.mean_squared_error(labels, predictions),
            "auc": v1.metrics.auc(labels > 0, tf.sigmoid(predictions))}


class Values(v1.train.SessionRunHook):
    """Keeps the values of all variables, before the first step and after every step.

    Attributes:
        of_step: for every number of steps, name -> value; parts are put together.
    """

    def begin(self):
        self._parts = {}
        for variable in v1.global_variables():
            name = variable.op.name.split("/part_")[0]
            self._parts.setdefault(name, []).append(variable)

    def after_create_session(self, session, coord):
        self.of_step = [self._read(session)]

    def after_run(self, run_context, run_values):
        self.of_step.append(self._read(run_context.session))

    def _read(self, session):
        return {name: parts[0] if len(parts) == 1 else np.concatenate(parts)
                for name, parts in session.run(self._parts).items()}


def new_replicated(model_dir, model_fn, num_replicas, *, input_mode=V1, spec=None,
                   batch_size=BATCH_SIZE, config=None, **options):
    tpu_config = upstream.tpu_config.TPUConfig(
        num_shards=num_replicas, per_host_input_for_training=input_mode, iterations_per_loop=1)
    config = run_config(tpu_config, tf_random_seed=1, **(config or {}))
    return new_estimator(model_dir, model_fn, spec=spec or new_spec(), config=config,
                         batch_size=batch_size, **options)


def train(model_dir, model_fn, num_replicas, input_fn=None, *, max_steps=100, hooks=(),
          **options):
    """Trains, saves nothing and returns the values of every step."""
    values = Values()
    options.setdefault("config", {"save_checkpoints_secs": None, "save_checkpoints_steps": None})
    estimator = new_replicated(model_dir, model_fn, num_replicas, **options)
    estimator.train(input_fn or input_of(), max_steps=max_steps, hooks=[values, *hooks])
    return values.of_step


def assert_same_values(actual, expected, rtol=1e-6, atol=1e-6):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol, atol, err_msg=name)


def check_replicas_agree(tmp_path, model_fn, num_replicas=(2, 4), **options):
    """Trains on one replica and on several, and compares all variables after each step."""
    expected = train(tmp_path / "1", model_fn, 1, **options)
    assert len(expected) > 2
    for number in num_replicas:
        actual = train(tmp_path / str(number), model_fn, number, **options)
        assert len(actual) == len(expected)
        for values, wanted in zip(actual, expected, strict=True):
            assert_same_values(values, wanted)
    return expected
