# SPDX-License-Identifier: Apache-2.0
"""This machine as a replacement of a TPU system, in upstream's contexts."""

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat.stand_ins import tpu_cores
from tpu_estimator_embedding.estimator.upstream import model_fn, tpu_context

_EVAL, _PREDICT = model_fn.ModeKeys.EVAL, model_fn.ModeKeys.PREDICT


class MachineContext(tpu_context._InternalTPUContext):
    """A TPU system of one host whose cores are this program's replicas.

    Batch sizes, input modes and their checks are upstream's. Only queries of a TPU system
    are answered with the properties of this machine.
    """

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
        if cores := tpu_cores.chosen():
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
