# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments that methods of TPUEstimator have."""

from typing import Any

import tensorflow as tf


def check_steps(steps: int | None, max_steps: int | None = None) -> None:
    """Raises ValueError unless at most one limit is given, and is at least 1."""
    if steps is not None and max_steps is not None:
        raise ValueError("Can not provide both steps and max_steps. Give one of them.")
    for name, value in (("steps", steps), ("max_steps", max_steps)):
        if value is not None and value <= 0:
            raise ValueError(f"Must specify {name} > 0, given: {value}")


def check_no_sessions(**given: Any) -> None:
    """Raises ValueError where hooks are given, which run in a session."""
    for name, value in given.items():
        if value:
            raise ValueError(
                f"`{name}` must be empty, got {value!r}: hooks run in a session, which TF2 has "
                "not. Write what they do around the call, or in a subclass that overrides "
                "`train_step`.")


def check_input(dataset: Any) -> tf.data.Dataset:
    """Returns the result of an input_fn, which must be a Dataset."""
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError("`input_fn` must return a tf.data.Dataset, got "
                        f"{type(dataset).__name__}. Return the Dataset itself, without an "
                        "iterator.")
    return dataset
