# SPDX-License-Identifier: Apache-2.0
"""The aliases that signatures in this package share."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import tensorflow as tf


class Tensor(Protocol):
    """What this package uses of a `tf.Tensor`, for which TensorFlow ships no types.

    Results of TensorFlow's functions are `Any`, which is a `Tensor`, too.
    """

    @property
    def dtype(self) -> "tf.DType": ...

    @property
    def shape(self) -> "tf.TensorShape": ...

    @property
    def name(self) -> str: ...

    @property
    def op(self) -> "tf.Operation": ...

    @property
    def graph(self) -> "tf.Graph": ...

    @property
    def device(self) -> str: ...

    @property
    def value_index(self) -> int: ...

    def consumers(self) -> "list[tf.Operation]": ...

    def numpy(self) -> Any: ...

    def ref(self) -> Hashable: ...

    def set_shape(self, shape: object) -> None: ...

    def __getitem__(self, slices: object) -> "Tensor": ...

    def __iter__(self) -> Iterator["Tensor"]: ...

    def __bool__(self) -> bool: ...

    def __int__(self) -> int: ...

    def __float__(self) -> float: ...

    def __neg__(self) -> "Tensor": ...

    def __add__(self, other: object) -> "Tensor": ...

    def __radd__(self, other: object) -> "Tensor": ...

    def __sub__(self, other: object) -> "Tensor": ...

    def __rsub__(self, other: object) -> "Tensor": ...

    def __mul__(self, other: object) -> "Tensor": ...

    def __rmul__(self, other: object) -> "Tensor": ...

    def __matmul__(self, other: object) -> "Tensor": ...

    def __truediv__(self, other: object) -> "Tensor": ...

    def __rtruediv__(self, other: object) -> "Tensor": ...

    def __floordiv__(self, other: object) -> "Tensor": ...

    def __mod__(self, other: object) -> "Tensor": ...

    def __pow__(self, other: object) -> "Tensor": ...

    def __lt__(self, other: object) -> "Tensor": ...

    def __le__(self, other: object) -> "Tensor": ...

    def __gt__(self, other: object) -> "Tensor": ...

    def __ge__(self, other: object) -> "Tensor": ...

    def __and__(self, other: object) -> "Tensor": ...

    def __or__(self, other: object) -> "Tensor": ...

    def __invert__(self) -> "Tensor": ...

    def __abs__(self) -> "Tensor": ...


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


# A nested structure of a program: features, labels, params, predictions, what an input_fn returns.
# Its containers and leaves are the program's choice.
Structure = Any


class FeatureColumn(Protocol):
    """What this package uses of any feature column; their classes are TensorFlow's."""

    @property
    def name(self) -> str: ...

    @property
    def parse_example_spec(self) -> Mapping[str, Any]: ...


class RunConfig(Protocol):
    """What this package uses of tensorflow_estimator's `RunConfig`, and of the one for a TPU."""

    @property
    def checkpoint_save_graph_def(self) -> bool: ...

    @property
    def cluster_spec(self) -> "tf.train.ClusterSpec": ...

    @property
    def device_fn(self) -> "Callable[[tf.Operation], str] | None": ...

    @property
    def is_chief(self) -> bool: ...

    @property
    def keep_checkpoint_every_n_hours(self) -> float: ...

    @property
    def keep_checkpoint_max(self) -> int: ...

    @property
    def log_step_count_steps(self) -> int | None: ...

    @property
    def master(self) -> str: ...

    @property
    def model_dir(self) -> str: ...

    @property
    def num_ps_replicas(self) -> int: ...

    @property
    def save_checkpoints_secs(self) -> float | None: ...

    @property
    def save_checkpoints_steps(self) -> int | None: ...

    @property
    def save_summary_steps(self) -> int | None: ...

    @property
    def session_config(self) -> "tf.compat.v1.ConfigProto | None": ...

    @property
    def session_creation_timeout_secs(self) -> float | None: ...

    @property
    def task_id(self) -> int: ...

    @property
    def task_type(self) -> str: ...

    @property
    def tf_random_seed(self) -> int | None: ...

    @property
    def tpu_config(self) -> Any: ...

    def replace(self, **changes: Any) -> "RunConfig": ...


class EstimatorSpec(Protocol):
    """What this package uses of both an `EstimatorSpec` and a `TPUEstimatorSpec`."""

    @property
    def mode(self) -> str: ...

    @property
    def predictions(self) -> Structure: ...

    @property
    def loss(self) -> Tensor: ...

    @property
    def train_op(self) -> "tf.Operation | Tensor": ...

    @property
    def export_outputs(self) -> Mapping[str, Any] | None: ...

    @property
    def training_hooks(self) -> "Sequence[tf.compat.v1.train.SessionRunHook]": ...

    @property
    def evaluation_hooks(self) -> "Sequence[tf.compat.v1.train.SessionRunHook]": ...

    @property
    def prediction_hooks(self) -> "Sequence[tf.compat.v1.train.SessionRunHook]": ...

    def _asdict(self) -> dict[str, Any]: ...

    def _replace(self, **changes: Any) -> "EstimatorSpec": ...
