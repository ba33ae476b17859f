# SPDX-License-Identifier: Apache-2.0
"""The input of one step, prepared for the engine and for the replicas of the model.

In training, an input_fn has to return ids. A serving request may have strings, which the
categorical column under each embedding column maps to ids.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as fc
from tensorflow.python.util import nest

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.step import StepIds
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.estimator.input.input_reader import Batch
from tpu_estimator_embedding.estimator.input.split_features import (
    pad_tensor_core_features,
    split_features,
)
from tpu_estimator_embedding.feature_column.column_checks import EmbeddingColumn
from tpu_estimator_embedding.ops.assertion import sentence_of
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import FeatureColumn, Structure, Tensor


class ReplicaInput(NamedTuple):
    """The input of one replica of the model.

    Attributes:
        features: the features that are not embedding ids.
        labels: the labels, or None.
        batch_size: samples: an int if it is known, else a scalar tensor.
    """

    features: Structure
    labels: Structure
    batch_size: Tensor | int


class StepInput(NamedTuple):
    """Everything a step consumes.

    Attributes:
        ids: the ids of the step, of all replicas, ready for the engine.
        replicas: the input of each replica of the model.
        exists: scalar bool; False in the marker after the last step of an input.
        counted: see `StepBatches`.
    """

    ids: StepIds
    replicas: tuple[ReplicaInput, ...]
    exists: Tensor
    counted: Tensor | None = None

    def without_labels(self) -> "StepInput":
        """Returns the input of a prediction."""
        return self._replace(replicas=tuple(
            replica._replace(labels=None) for replica in self.replicas))


def to_step_input(plan: EmbeddingPlan, batches: Sequence[Batch], *, training: bool,
                  tensor_core_columns: Sequence[EmbeddingColumn] = (), portable: bool = False,
                  on_servers: bool = False, sums_only: bool = False) -> StepInput:
    """Splits features and distributes ids over tables and hosts; raises the errors in them.

    Args:
        plan: the tables and features.
        batches: `(features, labels)` of every replica.
        training: whether gradients will follow.
        tensor_core_columns: columns whose padded ids the model_fn gets.
        portable: whether the graph may use only TensorFlow's own ops.
        on_servers: whether the tables are on parameter servers.
        sums_only: whether servers may return sums only; see `prepare_replicas`.

    Raises:
        ValueError: if the inputs of two replicas differ in more than the values of tensors.
        TypeError: likewise, in the types of their containers.
    """
    with tf.device(THIS_PROCESS):
        splits = [split_features(plan, pad_tensor_core_features(
            tensor_core_columns, features, labels), labels) for features, labels in batches]
        ids = prepare_replicas(plan, [(split.enqueue_datas, split.batch_size) for split in splits],
                               training=training, portable=portable, on_servers=on_servers,
                               sums_only=sums_only)
        replicas = tuple(
            ReplicaInput(split.others, labels, split.batch_size if split.static_batch_size is None
                         else split.static_batch_size)
            for split, (_, labels) in zip(splits, batches, strict=True))
        for index, replica in enumerate(replicas[1:], start=1):
            _check_alike(replicas[0], replica, index)
        return StepInput(ids, replicas, tf.constant(True))


def _check_alike(first: ReplicaInput, replica: ReplicaInput, index: int) -> None:
    """Checks that the model of the first replica is that of another, too."""
    fix = (f"Replica {index} must get features and labels of the same structure, dtypes and "
           "shapes as replica 0: return the same from every call of input_fn.")
    try:
        tf.nest.assert_same_structure(first, replica, expand_composites=True)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}\n\n{fix}") from None  # TensorFlow's sentence comes first
    for (path, one), other in zip(
            nest.flatten_with_joined_string_paths(first, expand_composites=True),
            tf.nest.flatten(replica, expand_composites=True), strict=True):
        checks.check(_kind(one) == _kind(other), path, f"{_kind(one)} in every replica",
                     _kind(other), fix)


def _kind(leaf: Any) -> object:
    """Returns what a model_fn sees of a tensor when it builds a graph; another leaf as it is."""
    return (leaf.dtype.name, str(leaf.shape)) if tf.is_tensor(leaf) else leaf


def received_input(plan: EmbeddingPlan, features: Structure, labels: Structure, *, training: bool,
                   columns: Sequence[EmbeddingColumn],
                   tensor_core_columns: Sequence[EmbeddingColumn]) -> StepInput:
    """Returns the input of a graph to export.

    Args:
        plan: the tables and the features that are present.
        features: those of a serving_input_receiver_fn.
        labels: the labels of an exported training or evaluation.
        training: whether gradients will follow.
        columns: embedding columns of the plan.
        tensor_core_columns: columns whose padded ids the model_fn gets.
    """
    if isinstance(features, dict):
        features = lookup_vocabularies(columns, features)
    return to_step_input(plan, [(features, labels)], training=training,
                         tensor_core_columns=tensor_core_columns, portable=True)


def lookup_vocabularies(columns: Sequence[EmbeddingColumn],
                        features: Mapping[str, Structure]) -> dict[str, Structure]:
    """Returns the features with the strings of embedding columns turned into ids.

    Args:
        columns: embedding columns.
        features: tensors by feature name.
    """
    cache = fc.FeatureTransformationCache(dict(features))
    ids = {}
    for column in columns:
        name = column.get_feature_key_name()
        if name in features and features[name].dtype == tf.string:
            ids[name] = cache.get(_unweighted(column.categorical_column), None)
    return {**features, **ids}


def _unweighted(column: FeatureColumn) -> FeatureColumn:
    while isinstance(column, fc.WeightedCategoricalColumn | fc.SequenceCategoricalColumn):
        column = column.categorical_column
    return column


@contextlib.contextmanager
def translate_id_errors() -> Iterator[None]:
    """Re-raises errors about invalid ids without TensorFlow's stack traces.

    >>> with translate_id_errors():
    ...     raise tf.errors.InvalidArgumentError(None, None, "assertion failed: "
    ...         "[tpu_estimator_embedding: Ids of feature 'a' must be in [0, 9), got 9.]")
    Traceback (most recent call last):
    ...
    tensorflow.python.framework.errors_impl.InvalidArgumentError: Ids of feature 'a' must ...
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        sentence = sentence_of(error.message or "")
        if sentence is None:
            raise
        raise tf.errors.InvalidArgumentError(error.node_def, None, sentence) from None
