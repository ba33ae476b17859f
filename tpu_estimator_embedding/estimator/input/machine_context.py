# SPDX-License-Identifier: Apache-2.0
"""This machine as a replacement of a TPU system, in upstream's contexts and in a RunConfig."""

import math
from typing import Any, Self

import tensorflow as tf

from tpu_estimator_embedding import checks, settings
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.compat.stubs import tpu_cores
from tpu_estimator_embedding.compat.upstream import model_fn, tpu_context
from tpu_estimator_embedding.types import RunConfig, Structure, Tensor

_EVAL, _PREDICT = model_fn.ModeKeys.EVAL, model_fn.ModeKeys.PREDICT
_Recorder = upstream.tpu_estimator._InputPipeline.InputsStructureRecorder


class MachineContext(tpu_context._InternalTPUContext):
    """A TPU system of one host whose cores are this program's replicas.

    Batch sizes, input modes and their checks are upstream's. Only queries of a TPU system
    are answered with the properties of this machine.
    """

    @classmethod
    def instead_of(cls, context: Any, config: RunConfig, eval_on_tpu: bool) -> Self:
        """Returns a context with upstream's settings, which its constructor has logged."""
        made = cls.__new__(cls)
        made.__dict__.update(vars(context), _config=config, _eval_on_tpu=eval_on_tpu)
        return made

    def _get_tpu_system_metadata(self) -> tf.tpu.experimental.TPUSystemMetadata:
        cores = self._cores()
        return tf.tpu.experimental.TPUSystemMetadata(
            num_cores=cores, num_hosts=1, num_of_cores_per_host=cores,
            topology=tpu_cores.topology(cores), devices=[])

    def _cores(self) -> int:
        """Returns the number of cores requested, or else the number that the replicas need."""
        of_replica = self._config.tpu_config.num_cores_per_replica or 1
        if not self._has_replicas():
            return of_replica
        if cores := settings.num_cores():
            return cores
        replicas = self._config.tpu_config.num_shards or max(1, tpu_cores.count() // of_replica)
        return replicas * of_replica

    def _get_device_assignment(self) -> tf.tpu.experimental.DeviceAssignment:
        # Not kept as upstream does: PREDICT has fewer replicas.
        return tf.tpu.experimental.DeviceAssignment.build(
            self._get_tpu_system_metadata().topology,
            computation_shape=tpu_cores.mesh(self._config.tpu_config.num_cores_per_replica),
            num_replicas=self.num_replicas)

    def _has_replicas(self) -> bool:
        # Predictions of a sample do not depend on other samples, so PREDICT needs one replica only,
        # and never has to drop a batch that would not fill several. With eval_on_tpu=False a
        # model_fn may return an EstimatorSpec, whose metrics are of one replica.
        return self._mode != _PREDICT and (self._mode != _EVAL or self._eval_on_tpu)

    def _validate_tpu_configuration(self) -> None:
        if self._has_replicas():
            super()._validate_tpu_configuration()
            return
        name, call, batch_size = (
            ("predict_batch_size", ".predict", self._predict_batch_size)
            if self._mode == _PREDICT else ("eval_batch_size", ".evaluate", self._eval_batch_size))
        checks.check_with_sentence(
            batch_size is not None, f"{name} in TPUEstimator constructor cannot be `None` if "
            f"{call} is running on TPU.", f"Pass {name}, or use_tpu=False.")

    def _is_running_on_cpu(self, is_export_mode: bool) -> bool:
        # The engine runs in every mode, so eval_on_tpu=False does not disable it.
        return not self._use_tpu

    @property
    def embedding_config(self) -> None:
        """None: upstream's engine is not used."""

    @property
    def master_job(self) -> None:
        """None: everything is placed on this machine."""


def check_config(config: object) -> None:
    """Checks the type of a TPUEstimator's config.

    Raises:
        ValueError: if it is no RunConfig of a TPUEstimator, as in TensorFlow.
        TypeError: if its `tpu_config` is no TPUConfig.
    """
    if isinstance(config, upstream.tpu_config.RunConfig):
        checks.check_type(upstream.tpu_config.TPUConfig, "tpu_config of config", "a TPUConfig",
                          config.tpu_config, "It is the first argument of RunConfig. Pass other "
                          "arguments by name, as in RunConfig(model_dir=...).")
        return
    fix = "Pass tf.compat.v1.estimator.tpu.RunConfig(...)."
    if isinstance(config, upstream.run_config.RunConfig):
        fix = ("That is tf.estimator.RunConfig, for an ordinary Estimator. Pass tf.compat.v1."
               "estimator.tpu.RunConfig(...), which takes the same arguments and `tpu_config`.")
    elif isinstance(config, type) and issubclass(config, upstream.tpu_config.RunConfig):
        fix = "Pass an object, not the class: RunConfig(...)."
    raise ValueError(f"`config` must be provided with type `tpu_config.RunConfig`, got {config!r}. "
                     f"{fix}")


def check_can_honour(config: RunConfig | None) -> None:
    """Logs settings that only a TPU uses; ValueError for those that would change results."""
    tpu_config = getattr(config, "tpu_config", None)
    if tpu_config is None:
        return
    if tpu_config.num_cores_per_replica:
        tf.compat.v1.logging.info(
            "tpu_estimator_embedding: num_cores_per_replica=%d is not used: it partitions a model "
            "for the memory of TPU cores, and each replica has one device "
            "here.", tpu_config.num_cores_per_replica)
    if tpu_config.experimental_feed_hook is not None:
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: experimental_feed_hook=%r is not used: there is no infeed or "
            "outfeed of a TPU to hook into. A SessionRunHook or host_call sees every step.",
            tpu_config.experimental_feed_hook)
    for name in ("train_distribute", "eval_distribute"):
        strategy = getattr(config, name)
        checks.check(strategy is None, name, "None when use_tpu=True", strategy,
                     "TPUConfig(num_shards=...) sets the number of replicas.")


def without_num_shards(config: Any) -> RunConfig | None:
    """Hides num_shards from checks that compare it with the cores of a TPU."""
    tpu_config = getattr(config, "tpu_config", None)
    if tpu_config is None:
        return config
    return config.replace(tpu_config=tpu_config._replace(num_shards=None))


def check_partition_dims(tpu_config: Any, features: Structure,
                         labels: Structure) -> None:
    """Checks `input_partition_dims`, which splits a replica's tensors over cores of a TPU.

    Nothing is split here, which does not affect results; dims that a TPU rejects are rejected.

    Args:
        tpu_config: the TPUConfig.
        features: those of a replica, except embedding features.
        labels: those of a replica, or None.

    Raises:
        ValueError: if dims and tensors differ in structure or rank, or the product of dims is
            not num_cores_per_replica.
    """
    dims = tpu_config.input_partition_dims
    if not dims:
        return
    recorder = _Recorder(dims)
    recorder.validate_and_record_structure(features, labels)
    tensors = tf.nest.flatten([features, labels])
    for tensor, of_tensor in zip([tensor for tensor in tensors if tensor is not None],
                                 recorder.flattened_input_dims, strict=True):
        if of_tensor is not None:
            _check(tensor, list(of_tensor), tpu_config.num_cores_per_replica)


def _check(tensor: Tensor, dims: list[int], cores: int) -> None:
    if min(dims) < 1:
        raise ValueError(f"All input partition dims must be >= 1. Got {dims}.")
    parts = math.prod(dims)
    if parts == 1:
        return
    if parts != cores:
        raise ValueError(
            "The product of each input partition dim should equal to num_cores_per_replica. "
            f"(dim = {dims}, num_cores_per_replica = {cores})")
    if tensor.shape.rank not in (None, len(dims)):
        raise ValueError(
            "Input partition dims must have the same number of dimensions as the `Tensor` to be "
            f"partitioned. (tensor shape = {tensor.shape}, input partition dims = {dims}).")
