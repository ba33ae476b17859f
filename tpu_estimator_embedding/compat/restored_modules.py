# SPDX-License-Identifier: Apache-2.0
"""Restores the modules that TensorFlow 2.16 removed, under their old names.

tensorflow_estimator imports four of them and reads Keras 2 from `tf.keras`. TensorFlow 2.15 has
all of them; there only the classes of `tpu_embedding` and the functions of
`tpu_embedding_gradient` are replaced. So a process has one `TableConfig`, one `AdagradParameters`
and so on, and a `TPUEmbedding` that needs no TPU.
"""

import importlib

from tpu_estimator_embedding import versions
from tpu_estimator_embedding.compat import legacy_keras
from tpu_estimator_embedding.compat.pause_gc import pause_gc
from tpu_estimator_embedding.patches import patch, patch_table


def import_estimator() -> None:
    """Imports tensorflow_estimator without lasting changes to other modules.

    The modules that it needs have their old names, and `tf.keras` is Keras 2, only during the
    import. The imported modules stay usable.

    Raises:
        RuntimeError: if a package is missing or has the wrong version; the message names the
            package and the fix.

    >>> import_estimator()
    >>> from tensorflow_estimator.python.estimator.tpu import tpu_config
    >>> tpu_config.TPUConfig().iterations_per_loop
    2
    """
    for problem in (legacy_keras.package_problem(), *versions.library_problems()):
        if problem:
            raise RuntimeError(problem)
    with (pause_gc(),
          patch.applied([*patch_table.MODULES, *patch_table.EXPORT_NAMES,
                         *legacy_keras.import_patches()])):
        for module in patch_table.UPSTREAM:
            importlib.import_module(module)


def restore() -> None:
    """Makes tensorflow_estimator importable permanently; further calls change nothing.

    Raises:
        RuntimeError: if `tf.keras` is already Keras 3; see `legacy_keras`.

    >>> restore()
    >>> from tensorflow.python.tpu import tpu_embedding
    >>> tpu_embedding.TableConfig.__module__
    'tpu_estimator_embedding.config.table_config'
    """
    legacy_keras.use()
    for row in (*patch_table.MODULES, *patch_table.EXPORT_NAMES):
        patch.apply(row)
    for module in patch_table.UPSTREAM:  # copy names, so import before patching
        importlib.import_module(module)
    for row in (*patch_table.NAMES_OF_NIGHTLY, *patch_table.EXPERIMENTAL, *patch_table.V1_API,
                *patch_table.V1_ENGINE, *patch_table.SAVERS):
        patch.apply(row)
