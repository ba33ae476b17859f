# SPDX-License-Identifier: Apache-2.0
"""Ids that were looked up, with the tensors that their update needs."""

import typing
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import EnqueueDatas
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
    PartitionedCsrFormatTensor,
)
from tpu_estimator_embedding.types import Tensor

Fields = Mapping[str, object]  # fields of a PartitionedCsrFormatTensor

_CLASSES: dict[str, type] = {kind.__name__: kind for kind in (EnqueueData, RaggedEnqueueData)}


class PreservedIds(PartitionedCsrFormatTensor):
    """Ids of one stack that were looked up, with the tensors that their update needs.

    Attributes:
        features: class name and field names of the EnqueueData of each feature, in the order of
            the plan; empty if the ids were looked up from the arrays.
        inputs: the tensors of these EnqueueDatas; if features is empty, ids, rows and gains.
        prepared: the tensors of the prepared ids of the step; empty with several replicas,
            whose ids are prepared together.
    """

    __name__ = "tpu_estimator_embedding.PreservedIds"

    features: typing.Tuple[typing.Tuple[str, ...], ...]  # noqa: UP006 - ExtensionType needs it
    inputs: typing.Tuple[tf.Tensor, ...]  # noqa: UP006
    prepared: typing.Tuple[tf.Tensor, ...]  # noqa: UP006


def fields_of(partition: PartitionedCsrFormatTensor) -> Fields:
    """Returns the arrays of a stack by name."""
    return {name: getattr(partition, name) for name in PartitionedCsrFormatTensor.__annotations__}


def preserve_features(partition: PartitionedCsrFormatTensor, datas: EnqueueDatas,
                      prepared: Sequence[Tensor]) -> PreservedIds:
    """Returns the preserved ids of features; `datas` are in the order of the plan."""
    given = [{name: tensor for name, tensor in data._asdict().items() if tensor is not None}
             for data in datas.values()]
    return PreservedIds(
        **fields_of(partition), prepared=tuple(prepared),
        features=tuple((type(data).__name__, *fields)
                       for data, fields in zip(datas.values(), given, strict=True)),
        inputs=tuple(tensor for fields in given for tensor in fields.values()))


def preserved_features(preserved: PreservedIds, names: Sequence[str]) -> EnqueueDatas:
    """Returns feature name -> ids, as passed to `preserve_features`."""
    tensors = iter(preserved.inputs)
    return {name: _CLASSES[kind](**{field: next(tensors) for field in fields})
            for name, (kind, *fields) in zip(names, preserved.features, strict=True)}
