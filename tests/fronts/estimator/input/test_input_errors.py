# SPDX-License-Identifier: Apache-2.0
"""An exception in the input comes up when its batch is due, with its own text, and stops all.

That no thread outlives the call is checked after every test here.
"""

import threading

import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    counts,
    counts_of,
    input_of,
    new_estimator,
)
from tests.fronts.estimator.hang import finish


def failing_at(id):
    def fail(value):
        with tf.control_dependencies([tf.debugging.assert_none_equal(
                value, tf.constant(id, tf.int64), message="this record is broken")]):
            return tf.identity(value)
    return fail


def raising_at(id):
    def input_fn(params):
        def generate():
            for value in range(12):
                if value == id:
                    raise KeyError("no such user")
                yield value
        return tf.data.Dataset.from_generator(
            generate, output_signature=tf.TensorSpec([], tf.int64)).batch(2).map(
                lambda ids: {"id": ids})
    return input_fn


INPUTS = {
    "dataset": (lambda id: input_of(range(12), transform=failing_at(id)),
                tf.errors.InvalidArgumentError, "this record is broken"),
    "generator": (raising_at, (tf.errors.InvalidArgumentError, tf.errors.UnknownError),
                  "no such user"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", INPUTS)
def test_exception_in_the_input_of_evaluate_and_predict_surfaces(tmp_path, kind):
    make, types, sentence = INPUTS[kind]
    estimator = new_estimator(tmp_path)
    estimator.train(input_of(range(4)), max_steps=1)
    with pytest.raises(types, match=sentence):
        finish(estimator.evaluate, make(5))
    with pytest.raises(types, match=sentence):
        finish(list, estimator.predict(make(5)))
    assert finish(estimator.evaluate, make(8), steps=4)["loss"] == -0.5  # needs no broken batch


def test_exception_surfaces_while_a_step_waits_for_input(tmp_path):
    may_fail = threading.Event()

    class Allow(tf.compat.v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            threading.Timer(0.3, may_fail.set).start()

    def input_fn(params):
        def generate():
            assert may_fail.wait(30)
            raise KeyError("no such user")
            yield 0
        return tf.data.Dataset.from_generator(
            generate, output_signature=tf.TensorSpec([], tf.int64)).batch(2).map(
                lambda ids: {"id": ids})

    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.UnknownError),
                       match="no such user"):
        finish(new_estimator(tmp_path).train, input_fn, max_steps=3, hooks=[Allow()])


def test_batch_that_breaks_its_static_shape_is_not_needed(tmp_path):
    def input_fn(params):
        def with_shape(features):
            features["id"].set_shape([2])
            return features
        return input_of(range(5))(params).map(with_shape)

    estimator = new_estimator(tmp_path)
    finish(estimator.train, input_fn, steps=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="^Incompatible shapes|^.*shape"):
        finish(estimator.train, input_fn, steps=3)


def test_own_exception_comes_first(tmp_path):
    with pytest.raises(tf.errors.OpError) as raised:
        finish(new_estimator(tmp_path).train, raising_at(3), max_steps=100)
    assert raised.value.message.startswith("KeyError: 'no such user'\n")
    assert "tensorflow/python" not in raised.value.message
    assert "test_input_errors.py" in raised.value.message


def test_exception_in_input_fn_is_its_own(tmp_path):
    class NoSuchFile(Exception):
        pass

    def input_fn(params):
        raise NoSuchFile("where is it")

    with pytest.raises(NoSuchFile, match="where is it") as caught:
        finish(new_estimator(tmp_path).train, input_fn, max_steps=1)
    assert caught.traceback[-1].name == "input_fn"


def test_exception_in_model_fn_is_its_own(tmp_path):
    def model_fn(features, labels, mode, params):
        raise KeyError("no such layer")

    with pytest.raises(KeyError, match="no such layer") as caught:
        finish(new_estimator(tmp_path, model_fn).train, input_of(range(4)), max_steps=1)
    assert caught.traceback[-1].name == "model_fn"


def test_exception_in_a_hook_is_its_own(tmp_path):
    class Fail(tf.compat.v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            raise KeyError("no such metric")

    with pytest.raises(KeyError, match="no such metric"):
        finish(new_estimator(tmp_path).train, lambda params: input_of([0])(params).repeat(),
               max_steps=100, hooks=[Fail()])


def test_predictions_may_be_left_half_read(tmp_path):
    estimator = new_estimator(tmp_path)
    estimator.train(input_of([3]), max_steps=1)

    def read_one():
        predictions = estimator.predict(lambda params: input_of([3])(params).repeat())
        first = next(predictions)["count"]
        predictions.close()
        return first

    assert finish(read_one) == 1


def test_input_may_end_after_training_has(tmp_path):
    """The end of the input then comes to a queue that is closed already."""
    ended = threading.Event()

    class Tell(tf.compat.v1.train.SessionRunHook):
        def end(self, session):
            threading.Timer(0.3, ended.set).start()

    def input_fn(params):
        def generate():
            yield from [0, 1]
            ended.wait(30)
        return tf.data.Dataset.from_generator(
            generate, output_signature=tf.TensorSpec([], tf.int64)).batch(
                2, drop_remainder=True).map(lambda ids: {"id": ids})

    estimator = new_estimator(tmp_path)
    finish(estimator.train, input_fn, max_steps=1, hooks=[Tell()])
    assert counts(estimator) == counts_of(0, 1)


@pytest.mark.parametrize("result, sentence", [
    (lambda ids: (ids, ids, ids), r"The result of input_fn must be features or "
                                  r"\(features, labels\), got"),
    (lambda ids: [ids], r"The result of input_fn must be features or \(features, labels\)")])
def test_input_of_another_form_is_refused(tmp_path, result, sentence):
    with pytest.raises(ValueError, match=sentence):
        new_estimator(tmp_path).train(
            lambda params: result({"id": tf.constant([1])}), max_steps=1)
