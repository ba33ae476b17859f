# SPDX-License-Identifier: Apache-2.0
"""Programs, stopped where their TPUEstimator is constructed or trained."""

import sys
import textwrap

import pytest

from tests.subprocesses import start

PROGRAM = """
    import sys
    import tensorflow.compat.v1 as tf
    tpu = tf.estimator.tpu

    def model_fn(features, labels, mode, params):
        raise AssertionError("the program was not stopped")

    def input_fn(params):
        raise AssertionError("the program was not stopped")

    class Mine(tpu.TPUEstimator):
        def __init__(self, rate, **kwargs):
            words = tf.feature_column.categorical_column_with_identity("words", 100)
            columns = [tf.tpu.experimental.embedding_column(words, 8)]
            super().__init__(embedding_config_spec=tpu.experimental.EmbeddingConfigSpec(
                feature_columns=columns,
                optimization_parameters=tf.tpu.experimental.AdagradParameters(rate)), **kwargs)

    config = tpu.RunConfig(model_dir="model")
    common = dict(model_fn=model_fn, config=config, train_batch_size=4)
    for argument in sys.argv[1:]:
        if argument == "plain":
            tpu.TPUEstimator(**common)
        elif argument == "mine":
            try:
                estimator = Mine(0.5, **common)
                estimator.train(input_fn, max_steps=7)
            except Exception:
                print("caught")
        elif argument == "unused":
            estimator = Mine(0.5, **common)
        else:
            sys.exit(argument)
    """

CAPTURE = """
    import functools, sys
    from tpu_estimator_embedding.runtime import capture, program_runner
    method, *arguments = sys.argv[1:]
    run = functools.partial(program_runner.run_file, "program.py", arguments)
    try:
        captured = capture.capture(run, program_runner.ProgramSetup(), method)
    except capture.NoEstimatorError as error:
        sys.exit(str(error))
    rate = captured.spec.optimization_parameters.learning_rate
    print(type(captured.estimator).__name__, rate, captured.constructor_arguments["use_tpu"],
          captured.method_arguments.get("max_steps"))
    from tpu_estimator_embedding import TPUEstimator
    assert not hasattr(TPUEstimator.__init__, "__wrapped__")  # put back
    assert not hasattr(TPUEstimator.train, "__wrapped__")
    """


@pytest.fixture(name="capture")
def a_program_to_capture(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-c", textwrap.dedent(CAPTURE)]
    return lambda *arguments: start([*command, *arguments], cwd=tmp_path)


@pytest.mark.slow
def test_stops_after_the_constructor_of_the_estimator_with_tables(capture):
    done = capture("__init__", "plain", "mine")
    assert done.stdout == "Mine 0.5 True None\n", done.stderr


@pytest.mark.long
def test_stops_where_it_trains(capture):
    assert capture("train", "unused", "mine").stdout == "Mine 0.5 True 7\n"


@pytest.mark.slow
@pytest.mark.parametrize("arguments, sentence", [
    (["train"], "ended without constructing a TPUEstimator"),
    (["__init__", "plain"], "without a TPUEstimator with an embedding_config_spec"),
    (["train", "unused"], "without a TPUEstimator that calls train()")])
def test_program_that_does_not_get_there(capture, arguments, sentence):
    done = capture(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
