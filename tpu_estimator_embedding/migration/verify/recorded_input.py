# SPDX-License-Identifier: Apache-2.0
"""An input_fn of a recorded run: its batches are recorded; the reference's batches are fed."""

import functools
import inspect
import pathlib
from collections.abc import Callable
from typing import Any

from tpu_estimator_embedding.migration.verify import batches
from tpu_estimator_embedding.migration.verify.batches import Batches
from tpu_estimator_embedding.migration.verify.settings import BATCHES, Settings


class RecordedInput:
    """Replaces an input_fn.

    Attributes:
        inputs: for each call, the structure of the elements as text.
        digests: for each call, a digest of each batch that the program itself would be fed.
        is_repeatable: whether the input of the reference gives the same batches again.
        is_seedless: whether it also does so with another seed of the graph.
    """

    def __init__(self, input_fn: Callable[..., Any], settings: Settings, count: int) -> None:
        self._input_fn = input_fn
        self._accepted = inspect.signature(input_fn).parameters
        self._reference = settings.reference and pathlib.Path(settings.reference, BATCHES)
        self._directory = pathlib.Path(settings.directory, BATCHES)
        self._count = count
        self.inputs: list[str] = []
        self.digests: list[tuple[str, ...]] = []
        self.is_repeatable = self.is_seedless = True

    def input_fn(self, params: Any, config: Any, mode: Any) -> Any:
        """Returns the batches to train on."""
        given = {"params": params, "config": config, "mode": mode}
        call = functools.partial(self._input_fn, **{
            name: value for name, value in given.items() if name in self._accepted})
        own, structure = batches.read(call, self._count)
        name = f"{len(self.inputs)}.pickle"
        self.inputs.append(structure.describe())
        self.digests.append(own.digests())
        if self._reference:
            recorded = self._reference / name
            return batches.play(Batches.load(recorded) if recorded.exists() else own, structure)
        own.save(self._directory / name)
        again, _ = batches.read(call, self._count)
        self.is_repeatable &= again.digests() == own.digests()
        other, _ = batches.read(call, self._count, batches.SEED + 1)
        self.is_seedless &= other.digests() == own.digests()
        return batches.play(own, structure)
