# SPDX-License-Identifier: Apache-2.0
"""The end of the input ends a session; no other OutOfRangeError does."""

import warnings

import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import TPUEstimatorSpec, count, input_of, new_estimator
from tpu_estimator_embedding.estimator.hooks.input_end import NotTheEndOfInputError

v1 = tf.compat.v1


def model_fn(features, labels, mode, params):
    """A model whose own counter runs out of range at some step."""
    counter = v1.get_variable("counter", [], tf.int64, v1.zeros_initializer(), trainable=False,
                              use_resource=False)
    weight = v1.get_variable("weight", [1])
    with tf.control_dependencies([counter.count_up_to(params.get("limit", 2))]):
        loss = tf.reduce_sum(weight * tf.cast(features["id"], tf.float32))
    return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss) if mode == "train" else None,
                            predictions={"loss": tf.reshape(loss, [1])})


@pytest.mark.parametrize("use_tpu", [True, False])
def test_op_of_the_model_ends_nothing(tmp_path, use_tpu):
    estimator = new_estimator(tmp_path, model_fn, use_tpu=use_tpu, embedding_config_spec=None)
    with pytest.raises(NotTheEndOfInputError, match="CountUpTo ran out of range, which is not "
                                                    "the end of the input: .*Reached limit of 2"):
        estimator.train(input_of(range(12)), max_steps=6)
    assert estimator.latest_checkpoint().endswith("model.ckpt-0")
    with pytest.raises(NotTheEndOfInputError):
        estimator.evaluate(input_of(range(12)))
    with pytest.raises(NotTheEndOfInputError):
        list(estimator.predict(input_of(range(12))))


@pytest.mark.parametrize("use_tpu", [True, False])
def test_end_of_the_input_ends(tmp_path, use_tpu):
    estimator = new_estimator(tmp_path, model_fn, use_tpu=use_tpu, embedding_config_spec=None,
                              params={"limit": 9})
    estimator.train(input_of(range(4)), max_steps=6)
    assert estimator.get_variable_value("global_step") == 2


def test_queue_that_is_empty_ends_without_the_engine(tmp_path):
    def input_fn(params):
        [ids] = v1.train.slice_input_producer([tf.range(4, dtype=tf.int64)], num_epochs=1,
                                              shuffle=False)
        return {"id": v1.train.batch([ids], 2)}

    estimator = new_estimator(tmp_path, model_fn, use_tpu=False, embedding_config_spec=None,
                              params={"limit": 9})
    estimator.train(input_fn, max_steps=6)
    assert estimator.get_variable_value("global_step") == 2


@pytest.mark.skipif(not hasattr(tf.data.experimental, "CheckpointInputPipelineHook"),
                    reason="TensorFlow 2.16 removed the hook")
@pytest.mark.parametrize("of_model", [True, False])
def test_hook_that_saves_the_position_of_the_input_is_warned_of(tmp_path, of_model):
    hooks = []

    def counting_model_fn(features, labels, mode, params):
        weight = v1.get_variable("weight", [1])
        loss = tf.reduce_sum(weight * tf.cast(features["id"], tf.float32))
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss),
                                training_hooks=hooks if of_model else None)

    def train(use_tpu):
        estimator = new_estimator(tmp_path / str(use_tpu), counting_model_fn, use_tpu=use_tpu,
                                  embedding_config_spec=None)
        hooks[:] = [tf.data.experimental.CheckpointInputPipelineHook(estimator)]
        estimator.train(input_of(range(12)), max_steps=2, hooks=None if of_model else hooks)

    with pytest.warns(UserWarning, match="CheckpointInputPipelineHook.*dataset.skip"):
        train(use_tpu=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="CheckpointInputPipelineHook")
        train(use_tpu=False)
