# SPDX-License-Identifier: Apache-2.0
"""What a run of a program leaves, and whether two runs left the same."""

import dataclasses
from typing import Any

import numpy as np

# Float32 keeps 6e-8 of a value; sums in another order, roots and quotients magnify that.
RELATIVE, ABSOLUTE = 1e-4, 2e-5


@dataclasses.dataclass
class Outcome:
    """The numbers of a run.

    Attributes:
        states: number of steps -> name of variable -> value.
        losses: number of steps -> loss of the last of them.
        metrics: of an evaluation; None if it was not run.
        predictions: of the first batches, name -> values; None if not run.
        seen: what the program's host call has noted.
    """

    states: dict[int, dict[str, Any]]
    losses: dict[int, float]
    metrics: dict[str, Any] | None = None
    predictions: dict[str, Any] | None = None
    seen: list[Any] | None = None


def differences(actual: Outcome, expected: Outcome, *, losses: bool = True) -> list[str]:
    """Returns a line for each number that differs, at the first step where it does.

    Args:
        losses: whether losses of training are the same; those of one replica are not.
    """
    found: list[str] = []
    steps = sorted(set(actual.states) & set(expected.states))
    if max(steps, default=0) == 0 or max(actual.states) != max(expected.states):
        return [f"steps: {sorted(actual.states)}, expected {sorted(expected.states)}"]
    for step in steps:
        found += _of_dictionaries(f"after step {step}", actual.states[step], expected.states[step])
        if found:
            break
    if losses:
        both = sorted(set(actual.losses) & set(expected.losses))
        found += [f"no loss in common: {sorted(actual.losses)}, expected {sorted(expected.losses)}"
                  ] * (not both)
        found += _of_dictionaries("loss", {str(step): actual.losses[step] for step in both},
                                  {str(step): expected.losses[step] for step in both})
    for name in ("metrics", "predictions"):
        one, other = getattr(actual, name), getattr(expected, name)
        if one is not None and other is not None:
            both = {key: value for key, value in other.items() if key in one or key != "loss"}
            found += _of_dictionaries(name, one, both)
    return found


def _of_dictionaries(place: str, actual: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    if actual.keys() != expected.keys():
        return [f"{place}: only here {sorted(actual.keys() - expected.keys())}, only there "
                f"{sorted(expected.keys() - actual.keys())}"]
    return [f"{place}: {name}: {worst}" for name in sorted(expected)
            if (worst := _worst(np.asarray(actual[name]), np.asarray(expected[name])))]


def _worst(actual: np.ndarray, expected: np.ndarray) -> str:
    """Returns a sentence on the largest difference, empty if there is none to speak of."""
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if expected.dtype.kind not in "fc":
        return "" if (actual == expected).all() else f"{actual}, expected {expected}"
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    limit = ABSOLUTE + RELATIVE * scale
    gap = np.where(actual == expected, 0.0, np.abs(actual - expected))  # equal infinities
    gap = np.where(np.isnan(actual) & np.isnan(expected), 0.0, gap)
    if not (gap > limit).any() and not np.isnan(gap).any():
        return ""
    place = np.unravel_index(np.nanargmax(np.where(np.isnan(gap), np.inf, gap)), gap.shape)
    return f"{actual[place]:.7g} at {tuple(map(int, place))}, expected {expected[place]:.7g}"
