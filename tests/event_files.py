# SPDX-License-Identifier: Apache-2.0
"""What event files hold."""

import pathlib

import tensorflow as tf


def events(directory):
    """Returns tag -> {step: value} of all event files."""
    found = {}
    for path in sorted(pathlib.Path(directory).glob("events.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                found.setdefault(value.tag, {})[event.step] = getattr(value, kind)
    return found
