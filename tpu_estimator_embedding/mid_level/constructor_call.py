# SPDX-License-Identifier: Apache-2.0
"""The arguments of TPUEmbedding, in the signature of TensorFlow 2.3 or of 2.4 and later."""

import inspect
from typing import Any, NamedTuple

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers
from tpu_estimator_embedding.types import Structure

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _signature(*names: str, **defaults: object) -> inspect.Signature:
    return inspect.Signature(
        [inspect.Parameter(name, _POSITIONAL) for name in names] +
        [inspect.Parameter(name, _POSITIONAL, default=value)
         for name, value in defaults.items()] +
        [inspect.Parameter("table_multipliers", inspect.Parameter.KEYWORD_ONLY, default=None)])


_RELEASE_2_3 = _signature("feature_config", "batch_size", "optimizer",
                          pipeline_execution_with_tensor_core=False,
                          initialize_tpu_embedding=True)
_RELEASE_2_4 = _signature("feature_config", "optimizer",
                          pipeline_execution_with_tensor_core=False)


class ConstructorCall(NamedTuple):
    """The arguments of a constructor call, in either signature.

    Attributes:
        batch_size: samples of all replicas; None in the signature of release 2.4.
        table_multipliers: accepted in both signatures; TensorFlow does not have it.
    """

    feature_config: Structure
    optimizer: TableOptimizer | None
    pipeline_execution_with_tensor_core: bool = False
    batch_size: int | None = None
    initialize_tpu_embedding: bool = True
    table_multipliers: Multipliers = None


def read_call(arguments: tuple[object, ...], keywords: dict[str, Any]) -> ConstructorCall:
    """Reads the arguments of a call.

    A call uses the signature of release 2.3 if its second argument is an int, or if it has a
    keyword that only release 2.3 had.

    Raises:
        TypeError: if arguments are missing or unknown.
        ValueError: if batch_size is not a positive int.

    >>> read_call(("features", 32, "sgd"), {}).batch_size
    32
    >>> read_call(("features", "sgd"), {}).batch_size
    """
    is_former = bool({"batch_size", "initialize_tpu_embedding"} & set(keywords)) or (
        len(arguments) > 1 and isinstance(arguments[1], int))
    signature = _RELEASE_2_3 if is_former else _RELEASE_2_4
    call = ConstructorCall(**_bind(signature, arguments, keywords))
    if is_former:
        checks.check_positive_int("batch_size", call.batch_size)
    return call


def _bind(signature: inspect.Signature, arguments: tuple[object, ...],
          keywords: dict[str, object]) -> dict[str, Any]:
    try:
        return signature.bind(*arguments, **keywords).arguments
    except TypeError as error:
        raise TypeError(f"TPUEmbedding{signature}: {error}.") from error
