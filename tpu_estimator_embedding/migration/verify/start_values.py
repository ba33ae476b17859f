# SPDX-License-Identifier: Apache-2.0
"""Whether the initial values of two programs may come from equal initializers."""

import numpy as np

_STANDARD_ERRORS = 6.0
_FEWEST = 8  # with fewer values, random ones are not compared


def start_difference(legacy: np.ndarray, migrated: np.ndarray) -> str:
    """Returns how two initial values differ; empty if they do not.

    >>> import numpy as np
    >>> draw = np.random.default_rng(1).normal
    >>> start_difference(draw(0.0, 0.1, 1000), draw(0.0, 0.1, 1000))
    ''
    >>> start_difference(draw(0.0, 0.1, 1000), draw(0.0, 0.2, 1000))
    'standard deviation 0.0973, migrated 0.205'
    >>> start_difference(np.zeros(3), np.ones(3))
    'mean 0, migrated 1'
    >>> start_difference(np.zeros(3), draw(0.0, 0.1, 3))
    'constant 0, migrated random'
    """
    if legacy.shape != migrated.shape or legacy.dtype.kind != "f" or not legacy.size:
        return ""
    a, b = legacy.astype(np.float64).ravel(), migrated.astype(np.float64).ravel()
    if a.size > 1 and bool(np.ptp(a)) != bool(np.ptp(b)):
        return f"{_described(a)}, migrated {_described(b)}"
    if np.ptp(a) and a.size < _FEWEST:
        return ""
    noise = (a.std() + b.std()) / np.sqrt(a.size)
    if abs(a.mean() - b.mean()) > _STANDARD_ERRORS * noise:
        return f"mean {a.mean():.3g}, migrated {b.mean():.3g}"
    if abs(a.std() - b.std()) > _STANDARD_ERRORS * noise / 2:
        return f"standard deviation {a.std():.3g}, migrated {b.std():.3g}"
    return ""


def _described(values: np.ndarray) -> str:
    return "random" if np.ptp(values) else f"constant {values[0]:.3g}"
