# SPDX-License-Identifier: Apache-2.0
"""This machine in the place of a TPU system, as upstream's contexts see it."""

import tensorflow as tf

from tpu_estimator_embedding.estimator.upstream import tpu_context


class MachineContext(tpu_context._InternalTPUContext):
    """A TPU system of one host whose cores are this program's replicas.

    Batch sizes, input modes and their checks are upstream's; only where upstream asks a
    TPU system, this machine answers.
    """

    def _get_tpu_system_metadata(self) -> tf.tpu.experimental.TPUSystemMetadata:
        num_replicas = self._config.tpu_config.num_shards or 1
        return tf.tpu.experimental.TPUSystemMetadata(
            num_cores=num_replicas, num_hosts=1, num_of_cores_per_host=num_replicas,
            topology=None, devices=[])

    def _is_running_on_cpu(self, is_export_mode: bool) -> bool:
        # The engine runs in every mode: eval_on_tpu=False has nothing to avoid here.
        return not self._use_tpu

    @property
    def embedding_config(self) -> None:
        """None: upstream's engine is not used."""

    @property
    def master_job(self) -> None:
        """None: everything is placed on this machine."""
