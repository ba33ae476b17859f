# SPDX-License-Identifier: Apache-2.0
"""The public names: which they are, that they load, and when."""

import pytest

import tpu_estimator_embedding
from tests.subprocesses import run_python

PUBLIC = {
    "AdagradMomentumParameters", "AdagradParameters", "AdamParameters", "CrossShardOptimizer",
    "EmbeddingConfigSpec", "InputPipelineConfig", "RunConfig", "TPUClusterResolver", "TPUConfig",
    "TPUEstimatorSpec",
    "EmbeddingPlan", "FeatureConfig", "FrequencyEstimatorParameters", "FtrlParameters",
    "MomentumParameters", "PartialTPUEmbedding", "PartitionedCsrFormatTensor",
    "ProximalAdagradParameters", "ProximalYogiParameters", "RMSPropParameters",
    "StochasticGradientDescentParameters", "TPUEmbedding", "TPUEmbeddingForServing",
    "TPUEmbeddingLayer", "TPUEmbeddingV2", "TPUEstimator", "TableConfig", "__version__",
    "embedding_column", "install", "serving_embedding_lookup", "shared_embedding_columns",
    "uninstall"}

LAYERS = {"PartialTPUEmbedding", "TPUEmbeddingLayer"}  # which load Keras: tested beside it


def test_all_lists_the_public_names():
    assert set(tpu_estimator_embedding.__all__) == PUBLIC
    assert set(dir(tpu_estimator_embedding)) >= PUBLIC - LAYERS
    assert not LAYERS & set(dir(tpu_estimator_embedding))  # listing must not load Keras


@pytest.mark.parametrize("name", sorted(PUBLIC - LAYERS))
def test_name_loads(name):
    value = getattr(tpu_estimator_embedding, name)
    assert name == "__version__" or value.__name__ == name


def test_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'tpu_estimator_embedding' has no "
                                             "attribute 'TPUEstimater'"):
        _ = tpu_estimator_embedding.TPUEstimater


@pytest.mark.smoke
def test_import_loads_neither_tensorflow_nor_keras():
    done = run_python("""
        import sys
        import tpu_estimator_embedding
        loaded = {name.split(".")[0] for name in sys.modules}
        print(sorted(loaded & {"tensorflow", "keras", "tf_keras", "tensorflow_estimator"}))
    """)
    assert done.stdout == "[]\n"


def test_words_load_neither_keras_nor_estimators():
    done = run_python("""
        import sys
        from tpu_estimator_embedding import (
            AdagradParameters, EmbeddingConfigSpec, EmbeddingPlan, FeatureConfig, TableConfig,
            embedding_column, shared_embedding_columns)
        import tensorflow as tf
        print("tensorflow_estimator" in sys.modules, type(vars(tf)["keras"]).__name__)
    """)
    assert done.stdout == "False KerasLazyLoader\n"


@pytest.mark.smoke
def test_tpu_estimator_works_without_install():
    done = run_python("""
        from tpu_estimator_embedding import TPUEstimator
        from tensorflow_estimator.python.estimator.tpu import tpu_estimator
        print(issubclass(TPUEstimator, tpu_estimator.TPUEstimator))
    """)
    assert done.stdout == "True\n"
