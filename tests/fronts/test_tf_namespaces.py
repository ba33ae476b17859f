# SPDX-License-Identifier: Apache-2.0
"""tf_estimator and tf_tpu: TensorFlow's names without a patched TensorFlow."""

import pytest
import tensorflow as tf

from tests.subprocesses import run_python
from tpu_estimator_embedding import tf_estimator, tf_tpu
from tpu_estimator_embedding.config import optimization_parameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

pytestmark = pytest.mark.every_tensorflow


def test_tpu_names_are_this_packages():
    assert tf_estimator.tpu.TPUEstimator is tf_tpu.TPUEstimator is TPUEstimator
    assert tf_estimator.tpu.experimental.EmbeddingConfigSpec is EmbeddingConfigSpec
    assert (tf_tpu.experimental.AdamParameters is tf_tpu.tpu_embedding.AdamParameters
            is optimization_parameters.AdamParameters)


def test_v2_has_the_classes_of_tensorflow_2():
    assert tf_estimator.v2.DNNClassifier is not tf_estimator.DNNClassifier
    assert tf_estimator.v2.RunConfig is tf_estimator.RunConfig
    assert tf_estimator.v2.tpu is tf_estimator.tpu


@pytest.mark.parametrize("module", [tf_estimator, tf_tpu, tf_estimator.tpu, tf_tpu.experimental])
def test_every_listed_name_loads(module):
    for name in [name for name in dir(module) if not name.startswith("_")]:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("module", [tf_estimator, tf_tpu])
def test_unknown_name_raises_attribute_error(module):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'no'"):
        _ = module.no


def test_this_machine_stands_in_for_a_tpu_that_does_not_answer():
    resolver = tf_tpu.TPUClusterResolver("grpc://127.0.0.1:1")
    assert isinstance(resolver, tf.distribute.cluster_resolver.TPUClusterResolver)
    assert resolver.master() == ""
    assert tf_tpu.experimental.initialize_tpu_system(resolver).num_tasks == 1
    assert tf_estimator.tpu.RunConfig(cluster=resolver).master == ""
    assert tf_estimator.tpu.RunConfig(master="grpc://127.0.0.1:1").replace().master == ""


@pytest.mark.slow
def test_namespaces_patch_no_name_of_tensorflow():
    done = run_python("""
        from tpu_estimator_embedding import RunConfig, TPUClusterResolver, tf_estimator, tf_tpu
        import tensorflow as tf
        from tpu_estimator_embedding.patches import patch
        found = {row.path for row in patch.originals()}
        print(any("TPUClusterResolver" in path or ".estimator" in path and "python" not in path
                  or "Session" in path or "contrib" in path for path in found))
        print(hasattr(tf.compat.v1, "contrib"), tf_estimator.ModeKeys.TRAIN)
    """)
    assert done.stdout == "False\nFalse train\n"


@pytest.mark.long
def test_savers_know_the_tables_of_the_v1_engine_before_a_graph_is_built(tmp_path):
    done = run_python("""
        import os
        from tpu_estimator_embedding import tf_tpu
        te = tf_tpu.tpu_embedding
        import tensorflow as tf
        from tpu_estimator_embedding.patches import patch
        before = patch.originals()
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            engine = te.TPUEmbedding(
                {"words": te.TableConfig(10, 2)}, {"title": te.FeatureConfig("words")}, 2,
                te.TRAINING, "", te.AdagradParameters(0.1))
            engine.create_variables_and_ops()
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver().save(session, os.environ["MODEL"])
        print(patch.originals() == before)
        print(*(name for name, _ in tf.train.list_variables(os.environ["MODEL"])))
    """, MODEL=str(tmp_path / "model"))
    assert done.stdout == "True\ntpu_estimator_embedding/table_layouts words words/Adagrad\n"
