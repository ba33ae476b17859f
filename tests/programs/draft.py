# SPDX-License-Identifier: Apache-2.0
"""A program that is being written: its text in sections, and what is known about it."""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

BATCH, STEPS, X_SIZE = 8, 4, 3


@dataclasses.dataclass
class Draft:
    """The sections of a program; each is a list of lines, of model_fn without indentation.

    Attributes:
        choose: picks one of its arguments.
        arrays: name -> expression of what the data holds, `[samples, ...]`.
        parsed: name -> expression of a feature in `to_features(row)`.
        functions: definitions at module level.
        tables, features: name -> expression of its config.
        columns: Python name -> expression of a column; empty where there are dictionaries.
        spec: further arguments of the EmbeddingConfigSpec.
        parts: expressions of `[batch, n]` tensors that the model starts from.
        model: the forward pass, from `net` to `net`.
        training: from `loss` to `train_op`.
        label: expression of the labels in `to_features(row)`; None where there are none.
        is_plain: whether the model_fn is one that `migrate` can rewrite in full.
        is_sum: whether the loss is a sum over the batch.
        is_v2: whether the input is PER_HOST_V2: every replica takes its own batch.
        samples: expression of how many there are.
        last_batch: how many of them are in a last batch that is smaller; 0 if there is none.
        swaps: whether evaluation takes moving averages in the place of variables.
        before: what comes before `net`.
        excluded: names of ways that may give other numbers, each with the reason.
    """

    choose: Callable[..., Any]
    arrays: dict[str, str] = dataclasses.field(default_factory=dict)
    parsed: dict[str, str] = dataclasses.field(default_factory=dict)
    functions: list[str] = dataclasses.field(default_factory=list)
    tables: dict[str, str] = dataclasses.field(default_factory=dict)
    features: dict[str, str] = dataclasses.field(default_factory=dict)
    columns: dict[str, str] = dataclasses.field(default_factory=dict)
    spec: dict[str, str] = dataclasses.field(default_factory=dict)
    before: list[str] = dataclasses.field(default_factory=list)
    parts: list[str] = dataclasses.field(default_factory=list)
    model: list[str] = dataclasses.field(default_factory=list)
    training: list[str] = dataclasses.field(default_factory=list)
    excluded: dict[str, str] = dataclasses.field(default_factory=dict)
    is_plain: bool = False
    is_sum: bool = False
    is_v2: bool = False
    samples: str = "BATCH * STEPS"
    last_batch: int = 0
    swaps: bool = False
    label: str | None = None
    last_seed: int = 0

    def maybe(self, one_in: int = 3) -> bool:
        """Whether to do what one in so many programs does."""
        return self.choose(*[False] * (one_in - 1), True)

    def some(self, *options: Any, most: int | None = None) -> list[Any]:
        """Returns different options in random order."""
        left, chosen = list(options), []
        for _ in range(self.choose(*range((most or len(left)) + 1))):
            chosen.append(left.pop(self.choose(*range(len(left)))))
        return chosen

    def seed(self) -> int:
        """Returns a seed that nothing else of the program uses."""
        self.last_seed += 1
        return self.last_seed

    def uniform(self) -> str:
        """Returns the expression of an initializer."""
        return f"tf.random_uniform_initializer(-1.0, 1.0, seed={self.seed()})"

    def exclude(self, reason: str, *ways: str) -> None:
        """Notes that these ways may give other numbers."""
        for way in ways:
            self.excluded.setdefault(way, reason)


def new_draft(seed: int) -> Draft:
    """Returns an empty draft whose choices follow from a number."""
    rng = random.Random(seed)
    return Draft(lambda *options: rng.choice(options))
