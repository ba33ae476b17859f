# SPDX-License-Identifier: Apache-2.0
"""install(): one class under every name, nothing twice, nothing that need not change."""

import importlib

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.subprocesses import run_python
from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.runtime import environment, install_table
from tpu_estimator_embedding.runtime.environment import Diagnosis

tpu_estimator_embedding.install()

IS_TF_215 = tf.__version__.startswith("2.15.")
PARAMETERS = ["AdagradParameters", "AdamParameters", "FtrlParameters",
              "StochasticGradientDescentParameters"]


def test_installing_again_changes_nothing():
    before = patch.originals()
    names = {row: patch.current_attribute(row) for row in before}
    tpu_estimator_embedding.install()
    assert patch.originals() == before
    assert all(patch.current_attribute(row) is value for row, value in names.items())


@pytest.mark.parametrize("module", [
    "tensorflow.compat.v1.estimator.tpu",
    "tensorflow_estimator.python.estimator.api._v1.estimator.tpu",
    "tensorflow_estimator._api.v1.estimator.tpu",
    "tensorflow_estimator.python.estimator.tpu.tpu_estimator",
    "tensorflow.python.tpu.tpu_estimator"])
def test_tpu_estimator_is_this_packages_when_imported(module):
    assert importlib.import_module(module).TPUEstimator is tpu_estimator_embedding.TPUEstimator


@pytest.mark.parametrize("module", [
    "tensorflow.compat.v1.estimator.tpu.experimental",
    "tensorflow_estimator.python.estimator.api._v1.estimator.tpu.experimental",
    "tensorflow_estimator._api.v1.estimator.tpu.experimental",
    "tensorflow_estimator.python.estimator.tpu._tpu_estimator_embedding"])
def test_embedding_config_spec_is_this_packages_when_imported(module):
    assert importlib.import_module(module).EmbeddingConfigSpec is \
        tpu_estimator_embedding.EmbeddingConfigSpec


def test_attributes_are_this_packages():
    import tensorflow.compat.v1 as tf_v1
    import tensorflow_estimator
    from tensorflow.compat.v1 import estimator
    for home in (tf.compat.v1.estimator, tf_v1.estimator, estimator, tf.estimator,
                 tensorflow_estimator.estimator):
        assert home.tpu.TPUEstimator is tpu_estimator_embedding.TPUEstimator
        assert home.tpu.experimental.EmbeddingConfigSpec is \
            tpu_estimator_embedding.EmbeddingConfigSpec


def test_other_names_are_the_estimators():
    from tensorflow_estimator.python.estimator import estimator, model_fn
    from tensorflow_estimator.python.estimator.tpu import tpu_config
    assert tf.estimator.Estimator is estimator.EstimatorV2
    assert tf.compat.v2.estimator.Estimator is estimator.EstimatorV2
    assert tf.compat.v1.estimator.Estimator is estimator.Estimator
    assert tf.compat.v1.estimator.EstimatorSpec is model_fn.EstimatorSpec
    assert tf.compat.v1.estimator.tpu.TPUConfig is tpu_config.TPUConfig


@pytest.mark.parametrize("name", PARAMETERS)
def test_spellings_of_115_lead_to_the_same_classes(name):
    ours = getattr(tpu_estimator_embedding, name)
    assert getattr(tf.compat.v1.tpu.experimental, name) is ours
    assert getattr(tf.tpu.experimental, name) is ours
    assert getattr(tf.estimator.tpu.experimental, name) is ours
    assert getattr(tf.compat.v1.estimator.tpu.experimental, name) is ours


def test_spellings_of_115_lead_to_tensorflows_own():
    v1 = tf.compat.v1.tpu
    assert tf.tpu.experimental.embedding_column is v1.experimental.embedding_column
    assert tf.tpu.experimental.shared_embedding_columns is \
        v1.experimental.shared_embedding_columns
    assert tf.tpu.CrossShardOptimizer is v1.CrossShardOptimizer


@pytest.mark.parametrize("row", (*install_table.FORMER_HOMES, *install_table.TRACKING),
                         ids=lambda row: row.path)
def test_former_homes_show_todays(row):
    former, today = importlib.import_module(row.path), importlib.import_module(row.source)
    names = {"estimator": "Estimator", "model_fn": "EstimatorSpec", "run_config": "RunConfig",
             "canned.head": "_Head", "canned.dnn": "DNNClassifier", "keras": "model_to_estimator",
             "inputs.numpy_io": "numpy_input_fn",
             "training.tracking.base": "Trackable", "training.tracking.util": "TrackableSaver",
             "training.tracking.graph_view": "ObjectGraphView",
             "training.tracking.tracking": "AutoTrackable"}
    shown = row.path.removeprefix("tensorflow.python.").removeprefix("estimator").lstrip(".")
    name = names.get(shown)
    if name:
        assert getattr(former, name) is getattr(today, name)
    parent, _, last = row.path.rpartition(".")
    exec(f"import {row.path} as imported; from {parent} import {last}", {})


def test_signatures_that_the_spec_had_are_accepted_by_position():
    spec_class = tf.estimator.tpu.experimental.EmbeddingConfigSpec
    columns = [tf.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity("item", 4), 2)]
    optimizer = tf.estimator.tpu.experimental.AdagradParameters(0.1)
    until_114 = (columns, optimizer, 1.0, True, len)
    assert spec_class(*until_114)[3:6] == (1.0, True, len)
    table = tpu_estimator_embedding.TableConfig(4, 2)
    dictionaries = {"item": tpu_estimator_embedding.FeatureConfig("items")}, {"items": table}
    until_23 = (None, optimizer, None, False, None, *dictionaries, "mod")
    assert spec_class(*until_23).partition_strategy == "mod"
    since_24 = spec_class(*until_23, "profile")
    assert since_24.profile_data_directory == "profile"
    assert since_24.table_to_config_dict == {"items": table}


@pytest.mark.parametrize("outer", ["v1", "v2"])
@pytest.mark.parametrize("inner", ["v1", "v2"])
def test_estimator_is_in_every_compat_of_a_compat(outer, inner):
    tf_outer = importlib.import_module(f"tensorflow.compat.{outer}")
    estimator = getattr(tf_outer.compat, inner).estimator
    assert estimator.Estimator is getattr(tf.compat, inner).estimator.Estimator
    assert estimator.tpu.TPUEstimator is tpu_estimator_embedding.TPUEstimator


@pytest.mark.parametrize("private, public", [
    ("tpu.tpu_embedding_v1:TPUEmbeddingV0", "tpu.experimental.embedding.TPUEmbeddingV0"),
    ("tpu.tpu_embedding_v2:TPUEmbedding", "tpu.experimental.embedding.TPUEmbedding"),
    ("tpu.tpu_embedding_v3:TPUEmbeddingV2", "tpu.experimental.embedding.TPUEmbeddingV2"),
    ("tpu.tpu_embedding_for_serving:TPUEmbeddingForServing",
     "tpu.experimental.embedding.TPUEmbeddingForServing"),
    ("distribute.tpu_strategy:TPUStrategyV2", "distribute.TPUStrategy"),
    ("distribute.tpu_strategy:TPUStrategy", "distribute.experimental.TPUStrategy")])
def test_private_paths_have_the_classes_of_the_public_names(private, public):
    module, _, name = private.partition(":")
    if IS_TF_215 and module.endswith("v3"):
        pytest.skip("TensorFlow 2.16 brought this module")
    found = tf
    for part in public.split("."):
        found = getattr(found, part)
    assert getattr(importlib.import_module(f"tensorflow.python.{module}"), name) is found
    assert found.__module__.startswith("tpu_estimator_embedding.")


def test_upstreams_class_keeps_its_module():
    upstream = next(base for base in tpu_estimator_embedding.TPUEstimator.__mro__[1:]
                    if base.__name__ == "TPUEstimator")
    assert upstream.__module__ == "tensorflow_estimator.python.estimator.tpu.tpu_estimator"
    assert upstream.train.__globals__["TPUEstimator"] is upstream


@pytest.mark.skipif(not IS_TF_215, reason="later versions have no tf.estimator")
def test_only_what_must_changes_on_215():
    assert not any(row.name in ("estimator", "keras") for row in patch.originals()
                   if row.module != "tensorflow.contrib")
    assert not patch.originals().keys() & set(patch_table.MODULES)


@pytest.mark.smoke
def test_names_work_right_after_install():
    done = run_python("""
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        from tensorflow.compat.v1 import estimator
        import tensorflow.compat.v1 as tf
        from tensorflow.python.tpu import tpu_config, tpu_embedding, tpu_estimator
        from tensorflow.compat.v1.estimator.tpu.experimental import EmbeddingConfigSpec
        ours = tpu_estimator_embedding
        print(estimator is tf.estimator, tf.estimator.tpu.TPUEstimator is ours.TPUEstimator,
              tpu_estimator.TPUEstimator is ours.TPUEstimator,
              tpu_config.TPUConfig is tf.estimator.tpu.TPUConfig,
              tpu_embedding.TableConfig is ours.TableConfig,
              EmbeddingConfigSpec is ours.EmbeddingConfigSpec)
    """)
    assert done.stdout == "True True True True True True\n"


@pytest.mark.long
def test_names_loaded_before_install_are_replaced():
    done = run_python("""
        import tensorflow as tf
        import tensorflow.compat.v1 as v1
        early = tf.compat.v1  # not the same module as the one above
        if tf.__version__.startswith("2.15."):
            tf.estimator.Estimator, tf.compat.v1.estimator.tpu.TPUEstimator
            import tensorflow.compat.v1.estimator.tpu
            from tensorflow.python.tpu import tpu_estimator
            from tensorflow_estimator.python.estimator.tpu import tpu_estimator as first
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        ours = tpu_estimator_embedding.TPUEstimator
        import tensorflow.compat.v1.estimator.tpu as imported
        from tensorflow.python.tpu import tpu_estimator
        print([home.TPUEstimator is ours for home in (
            early.estimator.tpu, v1.estimator.tpu, tf.compat.v1.estimator.tpu, tpu_estimator,
            tf.estimator.tpu, imported)])
    """)
    assert done.stdout == "[True, True, True, True, True, True]\n"


def test_what_is_wrong_is_raised_before_anything_changes(monkeypatch):
    monkeypatch.setattr(environment, "requirements", lambda: [
        Diagnosis("Python", "3.11.7"), Diagnosis("Keras", "none", "Run `pip install it`.")])
    monkeypatch.setattr(patch, "apply", lambda row: pytest.fail("patched"))
    with pytest.raises(RuntimeError, match="^Run `pip install it`.$"):
        tpu_estimator_embedding.install()


def test_untested_version_is_no_reason_to_stop(monkeypatch):
    monkeypatch.setattr(environment, "requirements", lambda: [
        Diagnosis("TensorFlow", "2.22.0", "It is newer.", is_needed=False)])
    applied = []
    monkeypatch.setattr(patch, "apply", applied.append)
    tpu_estimator_embedding.install()
    assert applied
