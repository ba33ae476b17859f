# SPDX-License-Identifier: Apache-2.0
"""AutoGraph, which rewrites what a `tf.function` calls."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def not_converted(function: _Function) -> _Function:
    """Returns the function, called as it is: conversion is slow and changes nothing here."""
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))
