# SPDX-License-Identifier: Apache-2.0
"""Errors of a session that begin with their cause, such as an exception of the input pipeline.

TensorFlow prepends the location where an op was created, adds its own frames to the traceback of a
Python function, and appends the ops that the error passed through.
"""

import re

import tensorflow as tf

_MARKS = re.compile(r"\{\{function_node [^}]*\}\} ?|\s*\[\[[^\]\n]*\]\]")
_WHERE_MADE = re.compile(r"^Graph execution error:\s*(Detected at [^\n]*\n([ <][^\n]*\n)*"
                         r"(Node: [^\n]*\n)?)*")
_FRAME = re.compile(r'  File "([^"]+)".*\n(?:    .*\n)*\n?')
_OF_TENSORFLOW = "/tensorflow/python/"


def readable(error: Exception, about: str = "") -> Exception:
    """Returns an error to raise instead: of the same type, and shorter.

    Args:
        error: the error raised; returned unchanged unless it is TensorFlow's.
        about: the beginning of the message.

    >>> raise readable(tf.errors.InvalidArgumentError(None, None, '''Graph execution error:
    ...
    ... Detected at node 'IteratorGetNext' defined at (most recent call last):
    ...     File "train.py", line 19, in <module>
    ... Node: 'IteratorGetNext'
    ... KeyError: 'price'
    ... \\t [[{{node PyFunc}}]]'''))
    Traceback (most recent call last):
    ...
    tensorflow.python.framework.errors_impl.InvalidArgumentError: KeyError: 'price'
    """
    if not isinstance(error, tf.errors.OpError) or not error.message:
        return error
    message = error.message.split("\n\nOriginal stack trace for")[0]
    message = _WHERE_MADE.sub("", message)
    message = _FRAME.sub(lambda frame: "" if _OF_TENSORFLOW in frame[1] else frame[0],
                         _MARKS.sub("", message))
    return type(error)(error.node_def, None, about + message.strip())
