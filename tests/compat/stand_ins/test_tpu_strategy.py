# SPDX-License-Identifier: Apache-2.0
"""TF2's TPU strategies and TPUEmbedding classes after install(), where there is no TPU."""

import pytest

from tests.subprocesses import run_python
from tpu_estimator_embedding.compat.stand_ins import (
    tpu_embedding as tpu_embedding_stand_ins,
)
from tpu_estimator_embedding.compat.stand_ins import (
    tpu_strategy,
)
from tpu_estimator_embedding.mid_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2
from tpu_estimator_embedding.runtime import mid_level_table

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
        "['tpu_estimator_embedding.compat.stand_ins.tpu_embedding', "
        "'tpu_estimator_embedding.compat.stand_ins.tpu_strategy'] 14\n"
        "SparseCoreEmbeddingConfig\n1 True\n7\nTrue False\n")


def test_stand_ins_are_the_classes_of_the_package():
    assert issubclass(tpu_embedding_stand_ins.TPUEmbedding, TPUEmbedding)
    assert issubclass(tpu_embedding_stand_ins.TPUEmbeddingV2, TPUEmbeddingV2)


@pytest.mark.parametrize("make", [
    lambda: tpu_strategy.TPUStrategy(None, object()),
    lambda: tpu_strategy.ExperimentalTPUStrategy(device_assignment=object())])
def test_device_assignments_are_refused(make):
    with pytest.raises(ValueError, match="`device_assignment` must be None without a TPU"):
        make()


@pytest.mark.parametrize("call, message", [
    (lambda strategy: strategy.experimental_assign_to_logical_device(1, 1),
     "`logical_device_id` must be one of 0, got 1"),
    (lambda strategy: strategy.experimental_split_to_logical_devices(1, [1, 2]),
     "`partition_dimensions` must be 1 throughout without a TPU")])
def test_devices_that_a_replica_has_not(call, message):
    with pytest.raises(ValueError, match=message):
        call(tpu_strategy.TPUStrategy())


def test_with_a_tpu_the_classes_are_those_of_tensorflow(monkeypatch):
    made = []
    monkeypatch.setattr(tpu_strategy.tpu_system, "is_present", lambda: True)
    monkeypatch.setattr(tpu_strategy.TPUStrategy, "_upstream",
                        lambda *args: made.append(("strategy", args)))
    monkeypatch.setattr(tpu_embedding_stand_ins.upstream, "TPUEmbedding",
                        lambda *args: made.append(("embedding", args)))
    tpu_strategy.TPUStrategy("resolver")
    tpu_embedding_stand_ins.TPUEmbedding("config", "optimizer")
    assert made == [("strategy", ("resolver",)), ("embedding", ("config", "optimizer"))]


def test_table_has_every_name_once():
    paths = [row.path for row in mid_level_table.MID_LEVEL]
    assert len(set(paths)) == len(paths)
