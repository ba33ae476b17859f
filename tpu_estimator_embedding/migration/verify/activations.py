# SPDX-License-Identifier: Apache-2.0
"""The activations of every step, in files beside its checkpoint."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

_FOLDER = "activations"


def save(directory: pathlib.Path, step: int, values: Mapping[str, np.ndarray]) -> None:
    """Writes feature -> activations of a step."""
    path = directory / _FOLDER / f"{step}.npz"
    path.parent.mkdir(exist_ok=True)
    arrays: dict[str, Any] = {f"feature {name}": value for name, value in values.items()}
    np.savez(path, **arrays)


def load(directory: pathlib.Path, step: int) -> dict[str, np.ndarray]:
    """Reads what `save` wrote; nothing where there is no such file."""
    path = directory / _FOLDER / f"{step}.npz"
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return {name.removeprefix("feature "): arrays[name] for name in arrays}


def differences(legacy: Mapping[str, np.ndarray], migrated: Mapping[str, np.ndarray],
                rtol: float, atol: float) -> dict[str, tuple[float, bool]]:
    """Returns feature -> the largest difference and whether all are within the tolerance.

    Activations `[n, dim]` and `[batch, length, dim]` of equal numbers compare. Of several
    replicas the legacy run keeps those of the first one, the first rows of the batch.

    >>> differences({"a": np.zeros([1, 2])}, {"a": np.ones([2, 2])}, 0.0, 0.5)
    {'a': (1.0, False)}
    """
    found = {}
    for name in sorted(legacy.keys() & migrated.keys()):
        a, b = legacy[name].astype(np.float64), migrated[name].astype(np.float64)
        if not a.size or a.shape[-1] != b.shape[-1] or b.size % a.size:
            continue
        b = b.reshape(-1)[:a.size].reshape(a.shape)
        found[name] = float(np.max(np.abs(a - b))), bool(
            np.all(np.abs(a - b) <= atol + rtol * np.abs(b)))
    return found
