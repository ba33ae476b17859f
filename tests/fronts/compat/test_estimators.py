# SPDX-License-Identifier: Apache-2.0
"""Both releases of tensorflow_estimator have the same names after `install()`."""

import importlib

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.subprocesses import run_python
from tpu_estimator_embedding import versions
from tpu_estimator_embedding.patches import patch_table

tpu_estimator_embedding.install()


@pytest.mark.parametrize("row", patch_table.NAMES_OF_NIGHTLY, ids=lambda row: row.path)
def test_either_estimator_has_the_names_of_the_nightly(row):
    value = getattr(importlib.import_module(row.module), row.name)
    if row.name == "ESTIMATOR_API_NAME":
        assert value == "estimator"
    else:
        assert issubclass(value.layers.Layer, tf.Module)
        assert value.layers.Layer.__module__ == tf.keras.layers.Layer.__module__


@pytest.mark.long
@pytest.mark.skipif(not versions.installed_version(versions.ESTIMATOR_DISTRIBUTION)
                    or versions.tensorflow_minor() < (2, 16),
                    reason="the stable release has no such names without install(), and "
                           "TensorFlow 2.15 no Keras 3")
def test_keras_of_the_nightly_is_keras_2_without_install():
    done = run_python("""
        from tpu_estimator_embedding import TPUEstimator
        from tensorflow_estimator.python.estimator import util
        import tensorflow as tf
        for keras in (util.tf_keras, util.tf_keras_v1, util.tf_keras_v2):
            print(keras.initializers.get("zeros").__class__.__module__.split(".")[0])
        print(tf.keras.__version__[0])
    """)
    assert done.stdout.split() == ["tf_keras"] * 3 + ["3"]
