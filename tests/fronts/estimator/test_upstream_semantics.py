# SPDX-License-Identifier: Apache-2.0
"""What a program may rely on beyond its numbers: when, with which params, and what is logged."""

import os
import sys

import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
)
from tests.fronts.estimator.test_host_functions import receive
from tests.subprocesses import start

v1 = tf.compat.v1
@pytest.mark.parametrize("has_table, export_to_cpu, expected", [
    (False, True, [False, True]), (False, False, [True]), (True, True, [True, True])])
def test_exports_for_a_tpu_only_say_use_tpu_where_no_table_needs_it(tmp_path, has_table,
                                                                    export_to_cpu, expected):
    seen = []

    def watching_model_fn(features, labels, mode, params):
        if mode == "infer":
            seen.append(params["use_tpu"])
            assert params["rate"] == 0.5
        values = features["id"] if has_table else tf.cast(features["id"], tf.float32)
        factor = v1.get_variable("factor", initializer=1.0)
        loss = -tf.reduce_sum(values * factor)
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=count(loss) if mode == "train" else None,
            predictions={"count": values}, export_outputs={
                "serving_default": tf_estimator.export.PredictOutput({"count": values})})

    options = {} if has_table else {"embedding_config_spec": None}
    estimator = new_estimator(tmp_path / "model", watching_model_fn, params={"rate": 0.5},
                              export_to_cpu=export_to_cpu, **options)
    estimator.train(input_of([1, 2]), max_steps=1)
    estimator.export_saved_model(str(tmp_path / "export"), receive)
    assert seen == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_queues_feed_training_and_are_warned_of(tmp_path, logged):
    def queues(params):
        [ids] = v1.train.slice_input_producer([tf.range(4, dtype=tf.int64)], num_epochs=1,
                                              shuffle=False)
        return {"id": v1.train.batch([ids], 2)}

    estimator = new_estimator(tmp_path)
    estimator.train(queues, max_steps=100)
    assert counts(estimator) == counts_of(0, 1, 2, 3)
    [line] = logged("Input pipeline contains one or more QueueRunners. It could be slow")
    estimator.train(input_of(range(4)), steps=1)
    assert logged("QueueRunners") == [line]


PROGRAM = """
import sys
from tests.fronts.estimator.counting import input_of, new_estimator
estimator = new_estimator(sys.argv[1])
estimator.train(input_of(range(8)), max_steps=100)
estimator.evaluate(input_of(range(4)))
print(len(list(estimator.predict(input_of(range(4))))))
"""


@pytest.mark.long
def test_end_of_the_input_ends_quietly(tmp_path):
    done = start([sys.executable, "-c", PROGRAM, tmp_path], TF_CPP_MIN_LOG_LEVEL="0",
                 PYTHONPATH=os.environ["PYTHONPATH"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4"]
    assert "I0000" in done.stderr or "tensorflow/" in done.stderr  # C++ code logs
    for noise in ("rendezvous is aborting", "OUT_OF_RANGE", "End of sequence", "Traceback"):
        assert noise not in done.stderr
