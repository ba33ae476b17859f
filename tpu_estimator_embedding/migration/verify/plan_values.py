# SPDX-License-Identifier: Apache-2.0
"""An EmbeddingPlan as text, value by value, so that plans of two processes can be compared."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tpu_estimator_embedding.migration.equal_plans import values_at_steps
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


def plan_values(plan: EmbeddingPlan) -> dict[str, str]:
    """Returns where a value stands in a plan -> the value; rates as values at some steps."""
    return dict(_values("", plan))


def _values(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(value):
        if path:  # of an optimizer, its rule
            yield path, type(value).__name__
        for field in dataclasses.fields(value):
            yield from _values(f"{path}.{field.name}".lstrip("."), getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _values(f"{path}[{key!r}]", one)
    elif isinstance(value, tuple | list):
        for index, one in enumerate(value):
            yield from _values(f"{path}[{getattr(one, 'name', index)!r}]", one)
    else:
        yield path, _text(path, value)


def _text(path: str, value: Any) -> str:
    if hasattr(value, "get_config"):
        return f"{type(value).__name__}({value.get_config()})"
    if not callable(value):
        return repr(value)
    if path.endswith(("learning_rate", "gradient_multiplier_fn")):
        return str(values_at_steps(value))
    return getattr(value, "__qualname__", type(value).__qualname__)
