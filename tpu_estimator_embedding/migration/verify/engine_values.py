# SPDX-License-Identifier: Apache-2.0
"""The activations that the engine of a TPUEstimator computes, and the names of its variables."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from tpu_estimator_embedding.estimator.step import engine_step
from tpu_estimator_embedding.runtime.estimator_methods import replaced


@dataclasses.dataclass
class EngineValues:
    """Known once the graph of a training step is built.

    Attributes:
        activations: feature -> activations in the graph; of several replicas the first one's.
        table_variables: "table" or "table/slot" -> its name in a checkpoint.
    """

    activations: dict[str, Any] = dataclasses.field(default_factory=dict)
    table_variables: dict[str, str] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def collected() -> Iterator[EngineValues]:
    """Collects them from the first step that is built."""
    found = EngineValues()
    split = engine_step.split_activations

    def split_activations(*args: Any, **kwargs: Any) -> Any:
        activations = split(*args, **kwargs)
        found.activations = found.activations or dict(activations)
        return activations

    def warm_start(original: Any, estimator: Any, arguments: dict[str, Any]) -> None:
        for table, names in arguments["step"].names.items():
            found.table_variables[table] = names.table
            found.table_variables.update(
                {f"{table}/{slot}": name for slot, name in names.slots.items()})
        original(**arguments)

    engine_step.split_activations = split_activations
    try:
        with replaced("_warm_start", warm_start):
            yield found
    finally:
        engine_step.split_activations = split
