# SPDX-License-Identifier: Apache-2.0
"""This machine in the place of a TPU system, as upstream's contexts see it."""

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.estimator.upstream import model_fn, tpu_context

_EVAL, _PREDICT = model_fn.ModeKeys.EVAL, model_fn.ModeKeys.PREDICT


class MachineContext(tpu_context._InternalTPUContext):
    """A TPU system of one host whose cores are this program's replicas.

    Batch sizes, input modes and their checks are upstream's; only where upstream asks a
    TPU system, this machine answers.
    """

    def _get_tpu_system_metadata(self) -> tf.tpu.experimental.TPUSystemMetadata:
        num_replicas = (self._config.tpu_config.num_shards or 1) if self._has_replicas() else 1
        return tf.tpu.experimental.TPUSystemMetadata(
            num_cores=num_replicas, num_hosts=1, num_of_cores_per_host=num_replicas,
            topology=None, devices=[])

    def _has_replicas(self) -> bool:
        # Predictions of a sample depend on no other one, so PREDICT needs one replica only,
        # and never has to drop a batch that would not fill several. An evaluation that is
        # not to be a TPU's may return an EstimatorSpec, whose metrics are of one replica.
        return self._mode != _PREDICT and (self._mode != _EVAL or self._eval_on_tpu)

    def _validate_tpu_configuration(self) -> None:
        if self._has_replicas():
            super()._validate_tpu_configuration()
            return
        name, batch_size = ("predict", self._predict_batch_size) if self._mode == _PREDICT else (
            "eval", self._eval_batch_size)
        checks.check(batch_size is not None, f"{name}_batch_size",
                     "given to TPUEstimator with use_tpu=True", batch_size)

    def _is_running_on_cpu(self, is_export_mode: bool) -> bool:
        # The engine runs in every mode: eval_on_tpu=False has nothing to avoid here.
        return not self._use_tpu

    @property
    def embedding_config(self) -> None:
        """None: upstream's engine is not used."""

    @property
    def master_job(self) -> None:
        """None: everything is placed on this machine."""
