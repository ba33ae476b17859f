# SPDX-License-Identifier: Apache-2.0
"""TF2's TPU strategies and TPUEmbedding classes after install(), where there is no TPU."""


import pytest

from tests.subprocesses import run_python
from tpu_estimator_embedding.compat.stubs import tpu_embedding_classes, tpu_strategy

SPELLINGS = """
        import tensorflow as tf
        import tensorflow.compat.v2 as tf2
        import tensorflow.compat.v1 as tf1

        def names():
            strategies = [tf.distribute.TPUStrategy, tf2.distribute.TPUStrategy,
                          tf.distribute.experimental.TPUStrategy,
                          tf2.distribute.experimental.TPUStrategy]
            spaces = [api.tpu.experimental.embedding for api in (
                tf, tf2, tf1, tf.compat.v1, tf.compat.v2)]
            return [*(strategy.__module__ for strategy in strategies),
                    *(getattr(space, name).__module__ for space in spaces
                      for name in ("TPUEmbedding", "TPUEmbeddingV2") if hasattr(space, name))]
"""


@pytest.mark.long
def test_every_spelling_is_ours_between_install_and_uninstall():
    done = run_python(SPELLINGS + """
        before = names()
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        print(sorted(set(names())), len(names()))
        print(tf.tpu.experimental.embedding.SparseCoreEmbeddingConfig.__name__)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver("")
        strategy = tf.distribute.TPUStrategy(resolver)  # made outside of any call that asks for two
        print(strategy.num_replicas_in_sync, strategy.cluster_resolver is resolver)
        print(int(strategy.run(lambda: strategy.experimental_replicate_to_logical_devices(
            strategy.experimental_split_to_logical_devices(
                strategy.experimental_assign_to_logical_device(tf.constant(7), 0), [1])))))
        tpu_estimator_embedding.uninstall()
        print(names() == before, any("tpu_estimator_embedding" in name for name in before))
    """)
    assert done.stdout == (
        "['tpu_estimator_embedding.compat.stubs.tpu_embedding_classes', "
        "'tpu_estimator_embedding.compat.stubs.tpu_strategy'] 14\n"
        "SparseCoreEmbeddingConfig\n1 True\n7\nTrue False\n")


EIGHT_CORES = """
        import os
        import tensorflow as tf
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver("")
        tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
        metadata = resolver.get_tpu_system_metadata()
        print(resolver.num_accelerators(), metadata.num_cores, metadata.num_of_cores_per_host,
              topology.num_tpus_per_task, strategy.num_replicas_in_sync)
        total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(
            "sum", tf.constant(1.0)))
        print(float(strategy.reduce("mean", total, axis=None)))
        feature = strategy.extended.tpu_hardware_feature.embedding_feature
        print(feature.value, strategy.extended.num_hosts, strategy.extended.num_replicas_per_host)

        pairs = tf.tpu.experimental.DeviceAssignment.build(
            topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
        for kind in (tf.distribute.TPUStrategy, tf.distribute.experimental.TPUStrategy):
            half = kind(resolver, pairs)
            print(half.num_replicas_in_sync, int(half.experimental_assign_to_logical_device(7, 1)),
                  int(half.experimental_split_to_logical_devices(8, [1, 2])))
        for call in (lambda: half.experimental_assign_to_logical_device(1, 2),
                     lambda: half.experimental_split_to_logical_devices(1, [4])):
            try:
                call()
            except ValueError as error:
                print(str(error)[:40])
        os.environ["TPU_ESTIMATOR_EMBEDDING_CORES"] = "9"
        try:
            tf.distribute.TPUStrategy(resolver)
        except RuntimeError as error:
            print(str(error)[:78])
"""


@pytest.mark.long
def test_cores_are_those_of_the_variable_everywhere():
    done = run_python(EIGHT_CORES, TPU_ESTIMATOR_EMBEDDING_CORES="8")
    assert done.stdout.splitlines() == [
        "{'TPU': 8} 8 8 8 8", "8.0", "V1 1 8", "4 7 8", "4 7 8",
        "`logical_core_id` to assign must be lowe", "Product of `partition_dimensions` must b",
        "9 cores need as many devices, but TensorFlow has initialized 8 CPU. Create the"]


KERAS_MODEL = """
        import numpy as np
        import tensorflow as tf
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        from tpu_estimator_embedding.mid_level import FeatureConfig, TableConfig, TPUEmbeddingLayer

        strategy = tf.distribute.STRATEGY(tf.distribute.cluster_resolver.TPUClusterResolver(""))
        ids, labels = np.arange(8), np.ones([8, 1], np.float32)
        with strategy.scope():
            tables = TPUEmbeddingLayer(FeatureConfig(TableConfig(8, 2, name="t")), "sgd")
            model = tf.keras.Sequential([
                tf.keras.Input([], dtype="int64"), tables, tf.keras.layers.Dense(1)])
            model.compile("adam", "mse", metrics=["mae", tf.keras.metrics.AUC()])
        for ending in ("", ".h5"):
            paths = [f"DIRECTORY/{name}{ending}" for name in ("by_callback", "by_model")]
            model.fit(ids, labels, batch_size=4, verbose=0, callbacks=[
                tf.keras.callbacks.ModelCheckpoint(paths[0], save_weights_only=True)])
            model.save_weights(paths[1])
            expected = model.predict(ids, batch_size=4, verbose=0)
            assert np.isfinite(model.evaluate(ids, labels, verbose=0)).all()
            for path in paths:
                model.set_weights([0 * values for values in model.get_weights()])
                assert not np.allclose(model.predict(ids, verbose=0), expected)
                model.load_weights(path)
                print(len(expected), np.allclose(model.predict(ids, verbose=0), expected))
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["TPUStrategy", "experimental.TPUStrategy"])
def test_models_of_keras_2_save_and_load_weights(name, tmp_path):
    done = run_python(KERAS_MODEL.replace("STRATEGY", name).replace("DIRECTORY", str(tmp_path)),
                      TPU_ESTIMATOR_EMBEDDING_CORES="2")
    assert done.stdout == "8 True\n" * 4, done.stderr


@pytest.mark.long
def test_cores_are_the_logical_devices_by_default():
    done = run_python("""
        import tensorflow as tf
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver("")
        print(resolver.num_accelerators(), tf.distribute.TPUStrategy().num_replicas_in_sync)
    """)
    assert done.stdout == "{'TPU': 2} 2\n"


def test_with_a_tpu_the_classes_are_those_of_tensorflow(monkeypatch):
    made = []
    monkeypatch.setattr(tpu_strategy.tpu_system, "is_present", lambda: True)
    monkeypatch.setattr(tpu_strategy.TPUStrategy, "_upstream",
                        lambda *args: made.append(("strategy", args)))
    monkeypatch.setattr(tpu_embedding_classes, "_UpstreamTPUEmbedding",
                        lambda *args: made.append(("embedding", args)))
    tpu_strategy.TPUStrategy("resolver")
    tpu_embedding_classes.TPUEmbedding("config", "optimizer")
    assert made == [("strategy", ("resolver",)), ("embedding", ("config", "optimizer"))]
