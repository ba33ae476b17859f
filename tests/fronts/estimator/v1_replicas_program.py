# SPDX-License-Identifier: Apache-2.0
"""Replicas and pipelining in a program without TF2's behaviour; prints "done" at the end."""

import pathlib
import sys

import tensorflow as tf

from tests.fronts.estimator import counting
from tests.fronts.estimator.replica_model import (
    V1,
    V2,
    WIDTH,
    check_replicas_agree,
    inputs_of,
    linear,
    new_model_fn,
    new_spec,
    variable,
)


def in_a_function(features, params):
    """The gradient of a function reads its variables, which no update may change before."""
    kernel = variable("kernel", [WIDTH])
    assert kernel.op.type == "VarHandleOp", "A reference variable, which is none on a TPU."
    return tf.function(lambda inputs: tf.tanh(tf.linalg.matvec(inputs, kernel)))(
        inputs_of(features))


def main(directory: pathlib.Path) -> None:
    tf.compat.v1.disable_v2_behavior()
    model_fn = new_model_fn(linear)
    check_replicas_agree(directory / "shares", model_fn, [2], input_mode=V1)
    check_replicas_agree(directory / "batches", model_fn, [4], input_mode=V2)
    check_replicas_agree(directory / "function", new_model_fn(in_a_function), [2])
    pipelined = {"pipeline_execution_with_tensor_core": True}
    check_replicas_agree(directory / "pipelined", model_fn, [2], spec=new_spec(**pipelined))
    estimator = counting.new_estimator(directory / "counts", spec=counting.new_spec(**pipelined))
    estimator.train(counting.input_of(range(7)), max_steps=100)
    assert counting.counts(estimator) == counting.counts_of(*range(7))
    print("done")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
