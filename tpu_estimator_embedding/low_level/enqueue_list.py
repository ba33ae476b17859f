# SPDX-License-Identifier: Apache-2.0
"""Checks the list of ids, one dictionary per core, that `generate_enqueue_ops` takes."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import (
    AnyEnqueueData,
    EnqueueData,
    RaggedEnqueueData,
    check_features,
)
from tpu_estimator_embedding.engine.step import EnqueueDatas
from tpu_estimator_embedding.low_level.cores import Cores
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

_FIX = "Make it with EnqueueData.from_sparse_tensor for instance."
_RAGGED_FIX = "Make it with RaggedEnqueueData.from_ragged_tensor for instance."


def checked_enqueue_list(plan: EmbeddingPlan,
                         enqueue_datas_list: Sequence[Mapping[str, AnyEnqueueData]], cores: Cores,
                         ragged: bool) -> dict[int, EnqueueDatas]:
    """Converts the ids of every core, or of every core of one host, to tensors.

    Args:
        plan: the features.
        enqueue_datas_list: for each core, feature name -> ids. A list of as many dictionaries as
            a host has cores is that of the host on whose device the ids are.
        cores: the number of cores and hosts.
        ragged: whether ids are RaggedEnqueueData instead of EnqueueData.

    Raises:
        ValueError: if the list does not have one dictionary per core with every feature, if
            ids are of the wrong class, or if the ids of one host are on several devices.
    """
    is_list = isinstance(enqueue_datas_list, Sequence)
    checks.check(is_list and len(enqueue_datas_list) in (cores.num_cores, cores.per_host),
                 "enqueue_datas_list",
                 f"a list of {cores.num_cores} dictionaries, one for each core",
                 len(enqueue_datas_list) if is_list else enqueue_datas_list)
    lists = [_checked_core(plan, datas, core, ragged)
             for core, datas in enumerate(enqueue_datas_list)]
    devices = [_common_device(datas, core) for core, datas in enumerate(lists)]
    for core, device in enumerate(devices):
        first = core - core % cores.per_host
        checks.check(device == devices[first], f"enqueue_datas_list[{core}]",
                     f"on the device of core {first}, which is on the same host, "
                     f"{devices[first]!r}", device, "Keep the cores of a host together.", sentence=
                     "We expect the `enqueue_datas` which are on the same host to be contiguous "
                     "in `enqueue_datas_list`.")
    first = 0 if len(lists) == cores.num_cores else _first_core(devices[0], cores)
    return dict(enumerate(lists, start=first))


def _first_core(device: str, cores: Cores) -> int:
    """Returns the first core of the host that a device names."""
    task = tf.DeviceSpec.from_string(device).task
    checks.check(task is not None and task < len(cores.hosts), "enqueue_datas_list",
                 f"on the device of one of the {len(cores.hosts)} hosts, if it has the "
                 f"{cores.per_host} cores of a host only", device,
                 "Make the tensors under tf.device('/job:worker/task:1/device:CPU:0'), for "
                 "instance, or give the dictionaries of all cores.")
    return task * cores.per_host


def _checked_core(plan: EmbeddingPlan, datas: Mapping[str, AnyEnqueueData], core: int,
                  ragged: bool) -> EnqueueDatas:
    try:
        check_features(plan, datas)
    except ValueError as error:
        is_complete = {feature.name for feature in plan.features} <= set(datas)
        fault = "has a feature that is not" if is_complete else "misses a feature that is"
        raise ValueError(f"`enqueue_datas_list[{core}]` {fault} in `feature_to_config_dict`. "
                         f"{error}") from error
    kind = RaggedEnqueueData if ragged else EnqueueData
    result = {}
    for name, data in datas.items():
        # Compares the fields, because TensorFlow 2.15's own classes are accepted too.
        checks.check(getattr(data, "_fields", None) == kind._fields,
                     f"enqueue_datas_list[{core}][{name!r}]",
                     f"of class {kind.__name__} for ragged={ragged}", data,
                     _RAGGED_FIX if ragged else _FIX, sentence=
                     f"`enqueue_datas_list[{core}]` has a feature that is not mapped to "
                     "`EnqueueData` or `RaggedEnqueueData`.")
        result[name] = kind._make(None if part is None else tf.convert_to_tensor(part)
                                  for part in data)
    return result


def _common_device(datas: EnqueueDatas, core: int) -> str:
    devices = {name: {tensor.device for tensor in data if tensor is not None}
               for name, data in datas.items()}
    found = sorted(set().union(*devices.values()))
    checks.check(len(found) == 1, f"enqueue_datas_list[{core}]", "all on one device",
                 {name: sorted(own) for name, own in devices.items()},
                 "Make the tensors of a core under one tf.device.", sentence=
                 f"Devices are different between features in `enqueue_datas_list[{core}]`.")
    return found[0]
