# SPDX-License-Identifier: Apache-2.0
"""Old module names, importable again."""

import importlib

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tpu_estimator_embedding.compat import modules, patch, patch_table
from tpu_estimator_embedding.config import optimization_parameters, slot_variable_names
from tpu_estimator_embedding.engine import enqueue_data

modules.restore()

IS_TF_215 = tf.__version__.startswith("2.15.")


@pytest.mark.parametrize("name", [row.path for row in patch_table.MODULES])
def test_module_is_importable_and_an_attribute(name):
    module = importlib.import_module(name)
    package, _, last = name.rpartition(".")
    assert getattr(importlib.import_module(package), last) is module


@pytest.mark.parametrize("name", ["TableConfig", "FeatureConfig", *patch_table.PARAMETERS])
def test_config_classes_are_this_packages(name):
    from tensorflow.python.tpu import tpu_embedding
    assert getattr(tpu_embedding, name) is getattr(tpu_estimator_embedding, name)


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
    from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding
    ours = getattr(tpu_estimator_embedding, name)
    assert getattr(tf.compat.v1.tpu.experimental, name) is ours
    assert getattr(experimental, name) is ours
    assert getattr(_tpu_estimator_embedding, name) is ours
    assert ours in _tpu_estimator_embedding._SUPPORTED_OPTIMIZERS


def test_restoring_again_changes_nothing():
    before = patch.originals()
    modules.restore()
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


@pytest.mark.skipif(not IS_TF_215, reason="later versions have none of their own")
def test_tensorflows_own_modules_stay_on_215():
    for name in ("distribute.estimator_training", "tpu.session_support", "tpu.tpu_embedding",
                 "tpu.tpu_embedding_gradient", "tpu.async_checkpoint", "tpu.tpu_config"):
        module = importlib.import_module(f"tensorflow.python.{name}")
        assert module.__name__ == f"tensorflow.python.{name}"
    from tensorflow.python.tpu import tpu_embedding
    assert tpu_embedding.TPUEmbedding.__module__ == "tensorflow.python.tpu.tpu_embedding"


@pytest.mark.skipif(not IS_TF_215, reason="only there TensorFlow has an engine of its own")
def test_tensorflows_own_engine_takes_this_packages_words_on_215():
    from tensorflow.python.tpu import tpu_embedding
    with tf.Graph().as_default():
        engine = tpu_embedding.TPUEmbedding(
            {"words": tpu_embedding.TableConfig(10, 4)},
            {"title": tpu_embedding.FeatureConfig("words")}, batch_size=2,
            mode=tpu_embedding.TRAINING, master=None,
            optimization_parameters=tpu_embedding.AdagradParameters(0.1, clip_weight_min=-1.0),
            device_config=tpu_embedding.DeviceConfig(num_hosts=1, num_cores=1, job_name="worker"))
        (table,) = engine.config_proto.table_descriptor
    assert table.vocabulary_size == 10
    assert table.optimization_parameters.HasField("adagrad")
    assert table.optimization_parameters.clipping_limits.lower.value == -1.0
