# SPDX-License-Identifier: Apache-2.0
"""Installs this package under the names that programs use for Estimators, TPUs and embeddings."""

from tpu_estimator_embedding.compat import legacy_keras, restored_modules
from tpu_estimator_embedding.compat.contrib import finder
from tpu_estimator_embedding.compat.pause_gc import pause_gc
from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.runtime import environment, former_names_table, install_table, noise

# Applied in this order, after tensorflow_estimator was made importable.
ROWS = (
    *install_table.ESTIMATOR, *install_table.TPU_SYSTEM, *install_table.FORMER_SPELLINGS,
    *install_table.FORMER_HOMES, *install_table.TRACKING,
    *former_names_table.FORMER_NAMES, *install_table.CONTRIB, *install_table.MID_LEVEL,
    *install_table.SERVER)


def install() -> None:
    """Makes programs for `tf.estimator` and TPUs run unchanged.

    After the call, these work with every supported TensorFlow: `tf.estimator`,
    `tf.compat.v1.estimator`, `import tensorflow_estimator`, the private modules that
    programs import (`tensorflow.python.tpu.tpu_embedding`, ...), the names of TensorFlow
    1.15, and the parts of `tf.contrib` that TPU programs used. `TPUEstimator`,
    `EmbeddingConfigSpec` and the `*Parameters` classes are this package's under every name.
    If a program sets up a TPU system and no TPU answers, this machine stands in for it.
    Further calls change nothing; `uninstall` reverts the changes.

    With TensorFlow 2.16 and later it makes `tf.keras` the package tf_keras, so call it before
    the program first uses `tf.keras`.

    Raises:
        RuntimeError: if a requirement is missing or has the wrong version, or `tf.keras` is
            already Keras 3; the message names the fix. Nothing is changed then.

    >>> install()
    >>> import tensorflow as tf
    >>> tf.compat.v1.estimator.tpu.TPUEstimator.__module__
    'tpu_estimator_embedding.estimator.tpu_estimator'
    """
    with pause_gc():
        _install()


def _install() -> None:
    for finding in environment.requirements():
        if finding.advice and finding.is_needed:
            raise RuntimeError(finding.advice)
    restored_modules.restore()
    # Imports TensorFlow, so Keras 2 must be selected before.
    from tpu_estimator_embedding.compat.stubs import tpu_ops
    tpu_ops.install_stubs()
    for row in ROWS:
        patch.apply(row)
    finder.install()
    noise.show_once()


def uninstall() -> None:
    """Restores every name that `install` changed; further calls change nothing.

    This package's own names still work. Modules that TensorFlow has loaded stay loaded; if
    `tf.keras` was used, it is Keras 2 until the process ends.

    >>> install()
    >>> uninstall()
    >>> from tpu_estimator_embedding.patches import patch
    >>> patch.originals()
    {}
    >>> install()
    """
    patch.undo_all()
    finder.uninstall()
    legacy_keras.forget()
    noise.forget()
