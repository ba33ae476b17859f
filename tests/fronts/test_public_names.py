# SPDX-License-Identifier: Apache-2.0
"""The public names: which they are, that they load, when, and that loading changes nothing."""

import pytest

import tpu_estimator_embedding
from tests.subprocesses import run_python
from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.optimizers.registry import records

pytestmark = pytest.mark.every_tensorflow

PUBLIC = {
    "CrossShardOptimizer", "ClusterConfig", "EmbeddingConfigSpec", "EmbeddingStatisticsHook",
    "FeatureConfig", "InputPipelineConfig", "RunConfig", "TPUClusterResolver", "TPUConfig",
    "TPUEstimator", "TPUEstimatorSpec", "TableConfig", "__version__", "embedding_column", "install",
    "shared_embedding_columns", "uninstall", *(record.parameters for record in records())}

ONLY_MID_LEVEL = sorted(set(mid_level.__all__) - PUBLIC)

# A program that has every name from this package, and TensorFlow's public API.
PROGRAM = """
        from tpu_estimator_embedding import (
            AdagradParameters, CrossShardOptimizer, EmbeddingConfigSpec, RunConfig, TPUConfig,
            TPUEstimator, TPUEstimatorSpec, embedding_column)
        import tensorflow.compat.v1 as tf

        columns = [embedding_column(
            tf.feature_column.categorical_column_with_identity("item", 8), 4)]

        def input_fn(params):
            return tf.data.Dataset.from_tensors((
                {"item": [[i] for i in range(8)]}, [[float(i % 2)] for i in range(8)])).repeat()

        def model_fn(features, labels, mode, params):
            inputs = tf.feature_column.input_layer(features, columns)
            loss = tf.reduce_mean((tf.reduce_sum(inputs, 1, keepdims=True) - labels) ** 2)
            bias = tf.get_variable("bias", initializer=0.0)
            if mode == "eval":
                return TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
                    lambda labels: {"mean": tf.metrics.mean(labels)}, [labels]))
            optimizer = CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1))
            return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
                loss + bias ** 2, tf.train.get_global_step()))

        def losses(num_shards, use_tpu):
            estimator = TPUEstimator(
                model_fn, use_tpu=use_tpu, train_batch_size=8, eval_batch_size=8,
                config=RunConfig(tpu_config=TPUConfig(num_shards=num_shards), tf_random_seed=1),
                embedding_config_spec=EmbeddingConfigSpec(
                    feature_columns=columns, optimization_parameters=AdagradParameters(0.3)))
            for _ in range(2):
                estimator.train(input_fn, steps=20)
                yield float(estimator.evaluate(input_fn, steps=1)["loss"])
"""

# What reading a name could have changed.
CHANGES = """
        import os, sys
        from tensorflow.python.ops import gen_tpu_ops
        from tpu_estimator_embedding.compat import legacy_keras
        from tpu_estimator_embedding.patches import patch

        def changes():
            found = [row.path for row in patch.originals()]
            found += [name for name in os.environ if name not in variables]
            if not tf.__version__.startswith("2.15."):  # which has these itself
                found += legacy_keras.keras_3_names()
                found += [name for name in ("tf_keras.keras", "tensorflow.keras")
                          if name in sys.modules]
                found += [name for name in sys.modules if name.startswith("tensorflow.python.")
                          and name.endswith((".tpu_embedding", ".session_support"))]
                found += ["tf.estimator"] * hasattr(tf, "estimator")
                found += ["tf.keras"] * (type(vars(tf)["keras"]).__name__ != "KerasLazyLoader")
            found += ["gen_tpu_ops"] * (
                "stubs" in gen_tpu_ops.cross_replica_sum.__module__)
            return found
"""


CHOOSE_KERAS_2 = {"CrossShardOptimizer", "InputPipelineConfig", "RunConfig", "TPUClusterResolver",
                  "TPUConfig", "TPUEstimatorSpec"}
# Of the Keras in use.
UNLIKE_OTHERS = CHOOSE_KERAS_2 | {
    "EmbeddingStatisticsCallback", "PartialTPUEmbedding", "TPUEmbeddingLayer"}


def test_all_lists_the_public_names():
    assert set(tpu_estimator_embedding.__all__) == PUBLIC
    assert set(dir(tpu_estimator_embedding)) >= PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_name_loads(name):
    value = getattr(tpu_estimator_embedding, name)
    assert name == "__version__" or value.__name__ == name


@pytest.mark.parametrize("name", sorted(set(mid_level.__all__) - UNLIKE_OTHERS))
def test_name_of_mid_level_loads(name):
    assert getattr(mid_level, name).__name__ == name


def test_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'tpu_estimator_embedding' has no "
                                             "attribute 'TPUEstimater'$"):
        _ = tpu_estimator_embedding.TPUEstimater


@pytest.mark.parametrize("name", ONLY_MID_LEVEL)
def test_name_of_the_other_api_says_where_it_is(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'. It is a name of the TF2 "
                       f"API: `from tpu_estimator_embedding.mid_level import {name}`$"):
        getattr(tpu_estimator_embedding, name)


@pytest.mark.smoke
def test_import_loads_neither_tensorflow_nor_keras():
    done = run_python("""
        import sys
        import tpu_estimator_embedding
        loaded = {name.split(".")[0] for name in sys.modules}
        print(sorted(loaded & {"tensorflow", "keras", "tf_keras", "tensorflow_estimator"}))
    """)
    assert done.stdout == "[]\n"


@pytest.mark.long
def test_configs_load_neither_keras_nor_estimators():
    done = run_python("""
        import sys
        from tpu_estimator_embedding import (
            AdagradParameters, EmbeddingConfigSpec, FeatureConfig, TableConfig,
            embedding_column, shared_embedding_columns)
        import tensorflow as tf
        print("tensorflow_estimator" in sys.modules, type(vars(tf)["keras"]).__name__)
    """)
    assert done.stdout == "False KerasLazyLoader\n"


@pytest.mark.slow
def test_reading_every_name_changes_nothing():
    done = run_python(f"""
        import os
        import tensorflow as tf
        variables = set(os.environ)
        import tpu_estimator_embedding
        from tpu_estimator_embedding import mid_level
        {CHANGES}
        for module in (tpu_estimator_embedding, mid_level):
            for name in module.__all__:
                if name not in {UNLIKE_OTHERS}:
                    getattr(module, name)
        print(changes())
        tpu_estimator_embedding.install()  # which is not too late now
        print(tf.compat.v1.estimator.tpu.TPUEstimator is tpu_estimator_embedding.TPUEstimator,
              tf.keras.layers.Dense.__module__.split(".")[0])
        tpu_estimator_embedding.uninstall()
        print(changes() if tf.__version__.startswith("2.15.") else patch.originals())
    """)
    changes, after_install, after_uninstall = done.stdout.splitlines()
    assert changes == "[]"
    assert after_install in ("True tf_keras", "True keras")
    assert after_uninstall in ("[]", "{}")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(CHOOSE_KERAS_2))
def test_what_only_programs_with_models_need_chooses_keras_2(name):
    done = run_python(f"""
        import tensorflow as tf
        from tpu_estimator_embedding import {name}
        print(tf.keras.layers.Dense.__module__.split(".")[0] in ("tf_keras", "keras"),
              hasattr(tf.keras, "experimental"), hasattr(tf, "estimator"))
    """)
    assert done.stdout in ("True True False\n", "True True True\n")


def test_program_with_this_packages_names_needs_no_install():
    done = run_python(f"""
        import os
        variables = set(os.environ)
        {PROGRAM}
        {CHANGES}
        for num_shards, use_tpu in ((1, True), (2, True), (1, False)):
            first, second = losses(num_shards, use_tpu)
            print(second < first < 0.5, [
                change for change in changes() if "keras" not in change.lower()])
    """)
    assert done.stdout == "True []\n" * 3


@pytest.mark.long
def test_program_with_this_packages_names_runs_after_uninstall():
    done = run_python(f"""
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        tpu_estimator_embedding.uninstall()
        {PROGRAM}
        first, second = losses(1, True)
        print(second < first < 0.5)
    """)
    assert done.stdout == "True\n"
