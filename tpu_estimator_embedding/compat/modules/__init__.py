# SPDX-License-Identifier: Apache-2.0
"""Restores the modules that TensorFlow 2.16 removed, under their old names.

tensorflow_estimator imports four of them when it is itself imported, and asks `tf.keras` for
Keras 2. On TensorFlow 2.15 all of them exist and stay; only the classes of `tpu_embedding` and
the functions of `tpu_embedding_gradient` become this package's, so that there is one
`TableConfig`, one `AdagradParameters` and so on in a process, and a `TPUEmbedding` that needs
no TPU.
"""

import importlib

from tpu_estimator_embedding.compat import legacy_keras, patch, patch_table, versions


def import_estimator() -> None:
    """Imports tensorflow_estimator without lasting changes to other modules.

    The modules that it needs are under their old names only meanwhile, and `tf.keras` is
    Keras 2 only meanwhile. What it imported stays valid.

    Raises:
        RuntimeError: if a package is missing or of the wrong version; the text says which,
            and what to do.

    >>> import_estimator()
    >>> from tensorflow_estimator.python.estimator.tpu import tpu_config
    >>> tpu_config.TPUConfig().iterations_per_loop
    2
    """
    for problem in (legacy_keras.package_problem(), *versions.library_problems()):
        if problem:
            raise RuntimeError(problem)
    with patch.applied([*patch_table.MODULES, *legacy_keras.import_patches()]):
        for module in patch_table.UPSTREAM:
            importlib.import_module(module)


def restore() -> None:
    """Makes tensorflow_estimator importable permanently; further calls change nothing.

    Raises:
        RuntimeError: if `tf.keras` cannot be Keras 2 any more; see `legacy_keras`.

    >>> restore()
    >>> from tensorflow.python.tpu import tpu_embedding
    >>> tpu_embedding.TableConfig.__module__
    'tpu_estimator_embedding.config.table_config'
    """
    legacy_keras.use()
    for row in patch_table.MODULES:
        patch.apply(row)
    for module in patch_table.UPSTREAM:  # whose modules thereby copy names from before
        importlib.import_module(module)
    for row in (*patch_table.EXPERIMENTAL, *patch_table.V1_WORDS, *patch_table.V1_ENGINE,
                *patch_table.SAVERS):
        patch.apply(row)
