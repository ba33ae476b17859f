# SPDX-License-Identifier: Apache-2.0
"""The rows of activations of each feature in a batch of the engine.

The engine has one batch size for all features, and a number of rows per sample for each feature.
Its batch size is the greatest common divisor of the features' sample counts; usually all features
have the same batch size, which then is the engine's.
"""

import dataclasses
import math
from collections.abc import Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.input import output_shapes
from tpu_estimator_embedding.mid_level.input.output_shapes import OutputShape


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """The shapes of all features of one replica's batch.

    Attributes:
        shapes: path of the feature -> its shape, with all sizes known.

    >>> layout = RowLayout({"a": OutputShape((4,)), "b": OutputShape((4, 3), 3),
    ...                     "c": OutputShape((4, 2), is_stated=True)})
    >>> layout.batch_size, layout.rows_per_sample
    (4, {'a': 0, 'b': 3, 'c': 2})
    """

    shapes: Mapping[str, OutputShape]

    @property
    def batch_size(self) -> int:
        """The batch size of the engine."""
        return math.gcd(*(_num_rows(shape) if shape.is_stated else shape.dims[0] or 0
                          for shape in self.shapes.values()))

    @property
    def rows_per_sample(self) -> dict[str, int]:
        """Path -> rows of activations per sample; 0 means one row, not a sequence."""
        return {path: self._rows_per_sample(shape) for path, shape in self.shapes.items()}

    def is_sequence(self, path: str) -> bool:
        """Whether the rows of a sample are the positions of a sequence."""
        shape = self.shapes[path]
        return bool(shape.sequence_length) and shape.dims[0] == self.batch_size

    def num_rows(self, path: str) -> int:
        """Number of rows of activations of a feature."""
        return _num_rows(self.shapes[path])

    def _rows_per_sample(self, shape: OutputShape) -> int:
        if shape.sequence_length and shape.dims[0] == self.batch_size:
            return shape.sequence_length
        count = _num_rows(shape) // self.batch_size
        return 0 if count == 1 else count


def resolve(shapes: Mapping[str, OutputShape]) -> RowLayout:
    """Returns the layout of features; some batch sizes may be unknown.

    An unknown batch size is set to that of the other features, if theirs are equal.

    Raises:
        RuntimeError: if the batch size cannot be inferred, or another size is unknown.
        ValueError: if a batch is empty.
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
        checks.check(0 not in shape.dims, f"batch of feature {path!r}", "have at least 1 sample",
                     list(shape.dims), "An empty batch does not determine the shape of later ones.")
    return RowLayout(known)


def check_unchanged(layout: RowLayout, shapes: Mapping[str, OutputShape]) -> None:
    """Raises ValueError if known sizes differ from those of earlier calls."""
    for path, shape in shapes.items():
        expected = layout.shapes[path]
        checks.check(output_shapes.accepts(expected, shape), f"batch of feature {path!r}",
                     f"{list(expected.dims)} as in earlier calls", list(shape.dims),
                     "Batch with drop_remainder=True.", sentence=
                     f"Inconsistent shape founded for input feature {path}, Output shape is set "
                     f"to be {list(expected.dims)}, But got incoming output shape "
                     f"{list(shape.dims)}.")


def _common_batch_size(shapes: Mapping[str, OutputShape]) -> int | None:
    known = {shape.dims[0] for shape in shapes.values()
             if not shape.is_stated and shape.dims[0] is not None}
    return known.pop() if len(known) == 1 else None


def _num_rows(shape: OutputShape) -> int:
    return math.prod(size or 0 for size in shape.dims)
