# SPDX-License-Identifier: Apache-2.0
"""The aliases that signatures in this package share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Tensor(Protocol):
    """What this package uses of a `tf.Tensor`, for which TensorFlow ships no types.

    Results of TensorFlow's functions are `Any`, which is a `Tensor`, too.
    """

    @property
    def dtype(self) -> Any: ...

    @property
    def shape(self) -> Any: ...

    @property
    def name(self) -> str: ...

    @property
    def op(self) -> Any: ...

    @property
    def graph(self) -> Any: ...

    @property
    def device(self) -> str: ...

    @property
    def value_index(self) -> int: ...

    def consumers(self) -> list[Any]: ...

    def numpy(self) -> Any: ...

    def ref(self) -> Any: ...

    def set_shape(self, shape: Any) -> None: ...

    def __getitem__(self, slices: Any) -> "Tensor": ...

    def __iter__(self) -> Iterator["Tensor"]: ...

    def __bool__(self) -> bool: ...

    def __int__(self) -> int: ...

    def __float__(self) -> float: ...

    def __neg__(self) -> "Tensor": ...

    def __add__(self, other: Any) -> "Tensor": ...

    def __radd__(self, other: Any) -> "Tensor": ...

    def __sub__(self, other: Any) -> "Tensor": ...

    def __rsub__(self, other: Any) -> "Tensor": ...

    def __mul__(self, other: Any) -> "Tensor": ...

    def __rmul__(self, other: Any) -> "Tensor": ...

    def __matmul__(self, other: Any) -> "Tensor": ...

    def __truediv__(self, other: Any) -> "Tensor": ...

    def __rtruediv__(self, other: Any) -> "Tensor": ...

    def __floordiv__(self, other: Any) -> "Tensor": ...

    def __mod__(self, other: Any) -> "Tensor": ...

    def __pow__(self, other: Any) -> "Tensor": ...

    def __lt__(self, other: Any) -> "Tensor": ...

    def __le__(self, other: Any) -> "Tensor": ...

    def __gt__(self, other: Any) -> "Tensor": ...

    def __ge__(self, other: Any) -> "Tensor": ...

    def __and__(self, other: Any) -> "Tensor": ...

    def __or__(self, other: Any) -> "Tensor": ...

    def __invert__(self) -> "Tensor": ...


# Called as `initializer(shape, dtype)`; returns a tensor of that shape.
Initializer = Callable[..., Any]

# A float, or a function of the global step that returns a scalar tensor.
LearningRate = float | Callable[[Tensor], Tensor]

# How the ids of one sample become one activation; None: a sample has exactly one id.
COMBINERS = ("mean", "sum", "sqrtn", None)

# Before the name of a feature column, the name of its table.
COLUMN_TABLE_PREFIX = "tbl_"

# Slot name -> rows of that slot, `[rows, dim]` float32 each.
SlotRows = Mapping[str, Tensor]


class Quantization(NamedTuple):
    """Levels that looked-up values are rounded to: `num_buckets` of them in [lower, upper]."""

    num_buckets: int
    lower: float
    upper: float


# A nested structure of a program: features, labels, params, predictions. Its leaves are the
# program's, so it can be anything.
Structure = Any


class FeatureColumn(Protocol):
    """What this package uses of any feature column; their classes are TensorFlow's."""

    @property
    def name(self) -> str: ...

    @property
    def parse_example_spec(self) -> Mapping[str, Any]: ...


class RunConfig(Protocol):
    """What this package uses of tensorflow_estimator's `RunConfig`, and that for a TPU."""

    @property
    def model_dir(self) -> str: ...

    @property
    def session_config(self) -> Any: ...

    @property
    def cluster_spec(self) -> Any: ...

    @property
    def master(self) -> str: ...

    @property
    def task_type(self) -> str: ...

    @property
    def task_id(self) -> int: ...

    @property
    def is_chief(self) -> bool: ...

    @property
    def num_ps_replicas(self) -> int: ...

    @property
    def num_worker_replicas(self) -> int: ...

    @property
    def save_checkpoints_secs(self) -> float | None: ...

    @property
    def save_checkpoints_steps(self) -> int | None: ...

    def replace(self, **changes: Any) -> "RunConfig": ...


class EstimatorSpec(Protocol):
    """What this package uses of an `EstimatorSpec` or `TPUEstimatorSpec`."""

    @property
    def mode(self) -> str: ...

    @property
    def predictions(self) -> Any: ...

    @property
    def loss(self) -> Any: ...

    @property
    def train_op(self) -> Any: ...

    @property
    def training_hooks(self) -> Sequence[Any] | None: ...

    @property
    def evaluation_hooks(self) -> Sequence[Any] | None: ...

    @property
    def prediction_hooks(self) -> Sequence[Any] | None: ...

    def _replace(self, **changes: Any) -> "EstimatorSpec": ...
