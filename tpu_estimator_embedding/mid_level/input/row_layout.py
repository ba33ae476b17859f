# SPDX-License-Identifier: Apache-2.0
"""The rows of activations of each feature in a batch of the engine.

The engine has one batch size for all features, and for each a number of rows per sample.
The batch is the largest number that divides the samples of every feature, so that the
usual case, features of one batch size, is the engine's own.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.input import output_shapes
from tpu_estimator_embedding.mid_level.input.output_shapes import OutputShape


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """The shapes of all features of one replica's batch.

    Attributes:
        shapes: path of the feature -> its shape, all sizes known.

    >>> layout = RowLayout({"a": OutputShape((4,)), "b": OutputShape((4, 3), 3),
    ...                     "c": OutputShape((4, 2), is_stated=True)})
    >>> layout.batch_size, layout.rows_per_sample
    (4, {'a': 0, 'b': 3, 'c': 2})
    """

    shapes: Mapping[str, OutputShape]

    @property
    def batch_size(self) -> int:
        """Samples of the batch, as the engine sees it."""
        return math.gcd(*(_samples(shape) for shape in self.shapes.values()))

    @property
    def rows_per_sample(self) -> dict[str, int]:
        """Path -> rows of activations of each sample; 0 stands for 1 row, no sequence."""
        return {path: self._rows_per_sample(shape) for path, shape in self.shapes.items()}

    def is_sequence(self, path: str) -> bool:
        """Whether rows of a sample are the positions of its sequence."""
        shape = self.shapes[path]
        return bool(shape.sequence_length) and shape.dims[0] == self.batch_size

    def num_rows(self, path: str) -> int:
        """Rows of activations of a feature."""
        return _num_rows(self.shapes[path])

    def _rows_per_sample(self, shape: OutputShape) -> int:
        if shape.sequence_length and shape.dims[0] == self.batch_size:
            return shape.sequence_length
        count = _num_rows(shape) // self.batch_size
        return 0 if count == 1 else count


def resolve(shapes: Mapping[str, OutputShape]) -> RowLayout:
    """Returns the layout of features, some of whose batch sizes may be unknown.

    An unknown batch size is that of the other features, where they have the same.

    Raises:
        RuntimeError: if no feature tells the batch size, or another size is unknown.
    """
    batch_size = _common_batch_size(shapes)
    known = {path: shape if shape.is_stated or shape.dims[0] is not None
             else shape._replace(dims=(batch_size, *shape.dims[1:]))
             for path, shape in shapes.items()}
    for path, shape in known.items():
        if None in shape.dims:
            raise RuntimeError(checks.complaint(
                f"batch size of feature {path!r}", "known", list(shape.dims),
                "Batch with drop_remainder=True, or call build(per_replica_batch_size=...) "
                "before the first enqueue."))
    return RowLayout(known)


def check_unchanged(layout: RowLayout, shapes: Mapping[str, OutputShape]) -> None:
    """Raises ValueError if known sizes differ from those of earlier calls."""
    for path, shape in shapes.items():
        expected = layout.shapes[path]
        checks.check(output_shapes.accepts(expected, shape), f"batch of feature {path!r}",
                     f"{list(expected.dims)} as in earlier calls", list(shape.dims),
                     "Batch with drop_remainder=True.")


def _common_batch_size(shapes: Mapping[str, OutputShape]) -> int | None:
    known = {shape.dims[0] for shape in shapes.values()
             if not shape.is_stated and shape.dims[0] is not None}
    return known.pop() if len(known) == 1 else None


def _samples(shape: OutputShape) -> Any:
    return _num_rows(shape) if shape.is_stated else shape.dims[0]


def _num_rows(shape: OutputShape) -> Any:
    return math.prod(size or 0 for size in shape.dims)
