# SPDX-License-Identifier: Apache-2.0
"""What of TensorFlow's log is shown."""

import logging
import os
import re
import sys
import warnings

import pytest
import tensorflow as tf
from absl import logging as absl_logging

from tests import subprocesses
from tpu_estimator_embedding.estimator import tpu_estimator
from tpu_estimator_embedding.runtime import noise

CALLED = "From %s: %s (from %s) is deprecated and will be removed %s.\nInstructions:\n%s"
RENAMED = "From %s: The name %s is deprecated. Please use %s instead.\n"
ARGUMENT = "From %s: calling %s (from %s) with %s is deprecated and will be removed %s.\n%s"


@pytest.fixture(name="logger")
def the_logger_of_tensorflow(monkeypatch):
    """Without filters and at its level again after the test."""
    monkeypatch.setattr(noise, "_chosen", set())
    logger = logging.getLogger("tensorflow")
    filters, level = list(logger.filters), logger.level
    logger.filters.clear()
    logger.setLevel(logging.INFO)
    yield logger
    logger.filters[:] = filters
    logger.setLevel(level)


def log_all(logger):
    for place in ("a.py:1", "b.py:2"):
        logger.warning(CALLED, place, "f", "module", "later", "do this")
        logger.warning(CALLED, place, "g", "module", "later", "do this")
        logger.warning(RENAMED, place, "tf.f", "tf.g")
        logger.warning(ARGUMENT, place, "f", "module", "x", "later", "do this")
        logger.info("loss = %s, step = %s", 1.0, 2)
        logger.warning("%s\nThis flag is deprecated: %d", "Own", 3)
        logger.error("wrong: %(what)s", {"what": "it"})


def test_every_deprecation_is_shown_once(logger, caplog):
    noise.show_once()
    noise.show_once()
    log_all(logger)
    messages = [record.getMessage() for record in caplog.records]
    assert [message for message in messages if message.startswith("From")] == [
        "From a.py:1: f (from module) is deprecated and will be removed later.",
        "From a.py:1: g (from module) is deprecated and will be removed later.",
        "From a.py:1: The name tf.f is deprecated. Please use tf.g instead.",
        "From a.py:1: calling f (from module) with x is deprecated and will be removed later."]
    assert messages.count("loss = 1.0, step = 2") == messages.count("wrong: it") == 2
    assert messages.count("Own\nThis flag is deprecated: 3") == 2
    assert len(logger.filters) == 1


def test_deprecations_that_the_reader_cannot_act_on_are_dropped(logger, caplog):
    noise.show_once()
    for place in (noise.__file__, tf.__file__, tpu_estimator.__file__):
        logger.warning(CALLED, f"{place}:1", "f", "module", "later", "do this")
    for name, module in (("Spec.__new__", "tensorflow_estimator.python.estimator.model_fn"),
                         ("tf.estimator.Estimator", "module"), ("tf.contrib.f", "module")):
        logger.warning(CALLED, "a.py:1", name, module, "later", "do this")
    logger.warning(RENAMED, "a.py:1", "tf.f", "tf.compat.v1.f")
    assert not caplog.records
    logger.warning(CALLED, "a.py:1", "f", "module", "later", "do this")  # now the reader calls it
    assert len(caplog.records) == 1


LAYER = "`tf.layers.dense` is deprecated and will be removed in a future version."
OWN = "tpu_estimator_embedding.config.to_plan"


def shown_warnings():
    """Returns which of Python's warnings are shown, by those who give them."""
    with warnings.catch_warnings(record=True) as shown:
        for message, category, module in (
                (LAYER, UserWarning, "a"), ("the program's", UserWarning, "a"),
                ("old", DeprecationWarning, "__main__"), ("overflow", RuntimeWarning, "a"),
                ("zeros are dropped", UserWarning, OWN), (LAYER, UserWarning, OWN)):
            warnings.warn_explicit(message, category, "a.py", 1, module)
    return [str(warning.message) for warning in shown]


def test_python_warnings(logger, monkeypatch):
    monkeypatch.setattr(sys, "warnoptions", [])
    monkeypatch.setattr(warnings, "filters", list(warnings.filters))
    warnings.resetwarnings()
    warnings.simplefilter("default")
    assert len(shown_warnings()) == 6
    noise.show_once()
    assert shown_warnings() == ["the program's", "old", "overflow", "zeros are dropped"]
    noise.set_level("quiet")
    assert shown_warnings() == ["overflow", "zeros are dropped"]
    noise.forget()
    assert len(shown_warnings()) == 6
    monkeypatch.setattr(sys, "warnoptions", ["default"])  # python -W default
    noise.show_once()
    noise.set_level("quiet")
    assert len(shown_warnings()) == 6


def test_quiet_keeps_warnings_and_errors(logger, caplog):
    noise.show_once()
    noise.set_level("quiet")
    logger.setLevel(logging.DEBUG)  # as programs do themselves
    log_all(logger)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"] * 2


def test_other_filters_stay(logger):
    own = logging.Filter("tensorflow")
    logger.addFilter(own)
    noise.show_once()
    noise.set_level("quiet")
    noise.forget()
    assert logger.filters == [own]


def test_what_absl_shows_is_not_shown_twice(logger, capsys, monkeypatch):
    handler = logging.StreamHandler(sys.stderr)
    monkeypatch.setattr(logger, "handlers", [handler])
    noise.show_once()
    logger.warning("first")
    monkeypatch.setattr(logging.getLogger(), "handlers", [absl_logging.get_absl_handler()])
    logger.warning("second")
    noise.forget()
    logger.warning("third")
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in shown if line in ("first", "second", "third")] == [
        "first", "third"]
    assert not handler.filters


@pytest.mark.parametrize("level, before, after", [
    ("quiet", None, "2"), ("verbose", None, "0"), ("normal", None, "1"), ("quiet", "1", "1")])
def test_level_of_cpp_is_set_unless_it_is(level, before, after, monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if before:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", before)
    noise.prepare(level)
    assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == after


PROGRAM = """
import tensorflow.compat.v1 as tf
tf.logging.set_verbosity(tf.logging.INFO)

def model_fn(features, labels, mode, params):
    weight = tf.get_variable("weight", initializer=0.0)
    tf.layers.dense(tf.zeros([1, 1]), 1)
    tf.to_float(tf.constant(1))
    loss = tf.reduce_mean((weight * features - 2.0) ** 2)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.5))
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))

config = tf.estimator.tpu.RunConfig(master="grpc://localhost:1")
estimator = tf.estimator.tpu.TPUEstimator(model_fn, config=config, train_batch_size=1)
for steps in (1, 2):
    estimator.train(lambda params: tf.data.Dataset.from_tensors([1.0]).repeat(), max_steps=steps)
"""


@pytest.mark.slow
@pytest.mark.parametrize("options, infos, deprecations", [
    (["--quiet"], 0, 0), ([], 2, 1)], ids=str)
def test_log_of_a_program(options, infos, deprecations, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocesses.start([sys.executable, "-m", "tpu_estimator_embedding", "run", *options,
                               "train.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("this machine stands in for it") == 1
    for chatter in ("oneDNN", "InitializeLog", "cuDNN", "tf.layers", "includes params argument",
                    "RunConfig.__init__", "TPUEstimatorSpec"):
        assert chatter not in done.stderr, done.stderr
    if options:
        assert len(done.stderr.splitlines()) <= 4, done.stderr
    assert len(re.findall("INFO:.*Done calling model_fn", done.stderr)) == infos
    assert ("INFO:" in done.stderr) == bool(infos)
    assert len(re.findall(r"/train.py:\d+: to_float \(from", done.stderr)) == deprecations
