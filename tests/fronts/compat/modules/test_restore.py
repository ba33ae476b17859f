# SPDX-License-Identifier: Apache-2.0
"""Old module names, importable again."""

import importlib

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tpu_estimator_embedding.compat import restored_modules
from tpu_estimator_embedding.config import optimization_parameters, slot_variable_names
from tpu_estimator_embedding.engine import enqueue_data
from tpu_estimator_embedding.patches import patch, patch_table

restored_modules.restore()

IS_TF_215 = tf.__version__.startswith("2.15.")


@pytest.mark.parametrize("name", [row.path for row in patch_table.MODULES])
def test_module_is_importable_and_an_attribute(name):
    module = importlib.import_module(name)
    package, _, last = name.rpartition(".")
    assert getattr(importlib.import_module(package), last) is module


def test_other_words_are_this_packages():
    from tensorflow.python.tpu import tpu_embedding
    for home, names in ((slot_variable_names, patch_table.SLOT_VARIABLE_NAMES),
                        (enqueue_data, patch_table.ENQUEUE_DATA),
                        (optimization_parameters, ["_OptimizationParameters"])):
        for name in names:
            assert getattr(tpu_embedding, name) is getattr(home, name)


@pytest.mark.parametrize("name", ["AdagradParameters", "AdamParameters", "FtrlParameters",
                                  "StochasticGradientDescentParameters"])
def test_exported_classes_are_the_same_everywhere(name):
    from tensorflow.compat.v1.tpu import experimental
    tpu_estimator_embedding.install()
    from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding
    ours = getattr(tpu_estimator_embedding, name)
    assert getattr(tf.compat.v1.tpu.experimental, name) is ours
    assert getattr(experimental, name) is ours
    assert getattr(_tpu_estimator_embedding, name) is ours
    assert ours in _tpu_estimator_embedding._SUPPORTED_OPTIMIZERS


def test_restoring_again_changes_nothing():
    before = patch.originals()
    restored_modules.restore()
    assert patch.originals() == before


@pytest.mark.parametrize("name, names", [
    ("tpu_config", ["TPUConfig", "RunConfig", "InputPipelineConfig"]),
    ("tpu_context", ["TPUContext"]), ("error_handling", ["ErrorRendezvous"]),
    ("util", ["check_positive_integer", "parse_iterations_per_loop"]),
    ("tpu_estimator", ["TPUEstimatorSpec", "_create_global_step", "_TPU_ESTIMATOR"])])
def test_second_names_show_the_estimators_modules(name, names):
    second = importlib.import_module(f"tensorflow.python.tpu.{name}")
    first = importlib.import_module(f"tensorflow_estimator.python.estimator.tpu.{name}")
    for word in names:
        assert getattr(second, word) is getattr(first, word)


@pytest.mark.skipif(not IS_TF_215, reason="later versions have none")
def test_tensorflows_own_modules_stay_on_215():
    for name in ("distribute.estimator_training", "tpu.session_support", "tpu.tpu_embedding",
                 "tpu.tpu_embedding_gradient", "tpu.async_checkpoint", "tpu.tpu_config"):
        module = importlib.import_module(f"tensorflow.python.{name}")
        assert module.__name__ == f"tensorflow.python.{name}"


@pytest.mark.parametrize("row", patch_table.V1_ENGINE, ids=lambda row: row.name)
def test_engine_is_this_packages(row):
    own = importlib.import_module(row.source.split(":")[0])
    assert getattr(importlib.import_module(row.module), row.name) is getattr(own, row.name)
    assert getattr(own, row.name).__module__.startswith("tpu_estimator_embedding.low_level.")
