# SPDX-License-Identifier: Apache-2.0
"""Running a program by the command, and reading what it leaves behind."""

import pathlib
import sys

import numpy as np
import tensorflow as tf

from tests import subprocesses

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


def run(program, *arguments, cwd, options=()):
    """Runs a program in `cwd` as a user would; returns its output and what it logged."""
    done = subprocesses.start([sys.executable, "-m", "tpu_estimator_embedding", "run", *options,
                               EXAMPLES / program, *arguments], cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def scalars(directory, tag):
    """Returns step -> value from the event files of a directory."""
    values = {}
    for path in sorted(pathlib.Path(directory).glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == tag:
                    is_tensor = value.HasField("tensor")
                    values[event.step] = (tf.make_ndarray(value.tensor).item() if is_tensor
                                          else value.simple_value)
    return values


def variables(checkpoint):
    """Returns name -> value of a checkpoint."""
    reader = tf.train.load_checkpoint(str(checkpoint))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def area_under_curve(labels, scores):
    """The probability that a positive sample scores higher than a negative one."""
    ranks = np.argsort(np.argsort(scores))
    positive = labels.sum()
    return ((ranks[labels == 1].sum() - positive * (positive - 1) / 2)
            / (positive * (labels.size - positive)))


def load_export(directory):
    """Loads the one SavedModel of an exporter."""
    [path] = pathlib.Path(directory).iterdir()
    return tf.saved_model.load(str(path), ["serve"])
