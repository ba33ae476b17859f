# SPDX-License-Identifier: Apache-2.0
"""JSON that every reader accepts: Python writes NaN and infinities, which are no JSON."""

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(value: object) -> str:
    """Returns a value as indented JSON; numbers that are not finite become null.

    >>> print(json_text({"loss": float("nan"), "steps": (1, 2.5)}))
    {
      "loss": null,
      "steps": [
        1,
        2.5
      ]
    }
    """
    return json.dumps(finite_values(value), indent=2, ensure_ascii=False, allow_nan=False)


def finite_values(value: object) -> Any:
    """Returns a nest of values in which None stands for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite_values(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_values(one) for one in value]
    return value
