# SPDX-License-Identifier: Apache-2.0
"""Installs this package under the names by which programs use Estimators, TPUs and embeddings."""

from tpu_estimator_embedding.compat import legacy_keras, modules, patch
from tpu_estimator_embedding.compat.contrib import finder
from tpu_estimator_embedding.runtime import (
    contrib_table,
    environment,
    estimator_table,
    mid_level_table,
    noise,
    server_table,
    tpu_system_table,
)

# Applied in this order, once tensorflow_estimator can be imported.
ROWS = (
    *estimator_table.ESTIMATOR, *tpu_system_table.TPU_SYSTEM, *estimator_table.FORMER_SPELLINGS,
    *estimator_table.FORMER_HOMES, *estimator_table.TRACKING, *contrib_table.CONTRIB,
    *mid_level_table.MID_LEVEL, *server_table.SERVER)


def install() -> None:
    """Makes programs for `tf.estimator` and TPUs run unchanged.

    Afterwards these work, whatever the version of TensorFlow: `tf.estimator`,
    `tf.compat.v1.estimator`, `import tensorflow_estimator`, the private modules that
    programs import (`tensorflow.python.tpu.tpu_embedding`, ...), the spellings of
    TensorFlow 1.15 and what programs for TPUs used of `tf.contrib`. `TPUEstimator`,
    `EmbeddingConfigSpec` and the `*Parameters` classes are this package's under every name.
    Where a program sets up a TPU system and none answers, this machine stands in for it.
    Calling it again changes nothing; `uninstall` undoes it.

    From TensorFlow 2.16 on it makes `tf.keras` the package tf_keras, so it has to be
    called before the program first uses `tf.keras`.

    Raises:
        RuntimeError: something is missing, of the wrong version, or `tf.keras` is already
            Keras 3; the text says what to do. Nothing is changed then.

    >>> install()
    >>> import tensorflow as tf
    >>> tf.compat.v1.estimator.tpu.TPUEstimator.__module__
    'tpu_estimator_embedding.estimator.tpu_estimator'
    """
    for finding in environment.requirements():
        if finding.advice and finding.is_needed:
            raise RuntimeError(finding.advice)
    modules.restore()
    # Imports TensorFlow, so after Keras.
    from tpu_estimator_embedding.compat.stand_ins import tpu_ops
    tpu_ops.stand_in()
    for row in ROWS:
        patch.apply(row)
    finder.install()
    noise.show_once()


def uninstall() -> None:
    """Restores every name that `install` changed; further calls change nothing.

    The names of this package go on working. What TensorFlow has loaded meanwhile stays
    loaded; a `tf.keras` that was used is Keras 2 to the end of the process.

    >>> install()
    >>> uninstall()
    >>> from tpu_estimator_embedding.compat import patch
    >>> patch.originals()
    {}
    >>> install()
    """
    patch.undo_all()
    finder.uninstall()
    legacy_keras.forget()
    noise.forget()
