# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of TPUEstimator itself: read by the tools, and trained on after them."""

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.fronts.estimator import counting
from tpu_estimator_embedding import checkpoint, mid_level
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import AdamParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.runtime import install_table

pytestmark = pytest.mark.every_tensorflow

IDS = [1, 4, 4, 9]


def new_estimator(model_dir, num_hosts, strategy):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["word"] ** 2)
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(
            loss, tf.compat.v1.train.get_global_step())
        return counting.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    spec = EmbeddingConfigSpec(
        table_to_config_dict={"words": TableConfig(11, 2, combiner=None)},
        feature_to_config_dict={"word": FeatureConfig("words")},
        optimization_parameters=AdamParameters(0.1), partition_strategy=strategy)
    return counting.new_estimator(model_dir, model_fn, spec=spec, batch_size=4,
                                  num_hosts=num_hosts)


def train(estimator, steps=2):
    estimator.train(lambda params: tf.data.Dataset.from_tensors(
        ({"word": IDS}, [0.0] * 4)).repeat(), steps=steps)
    return tables_of(estimator)


def tables_of(estimator):
    return {name: estimator.get_variable_value(name)
            for name in ("words", "words/Adam/m", "words/Adam/v")}


@pytest.fixture(scope="module", autouse=True)
def installed():
    """As under `run`: Savers write the record of layouts. Then the process is as it was."""
    was_installed = install_table.SERVER[0] in patch.originals()
    tpu_estimator_embedding.install()
    yield
    if not was_installed:
        tpu_estimator_embedding.uninstall()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model directory of two hosts under `mod`, and its tables by id."""
    directory = tmp_path_factory.mktemp("model")
    return directory, train(new_estimator(directory, 2, "mod"))


def assert_equal(found, expected):
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_inspect_detects_how_it_was_written(trained):
    report = checkpoint.inspect(trained[0])
    [words] = report.tables
    assert (report.global_step, words.name, words.optimizer) == (2, "words", "Adam")
    assert (words.partition_strategy, words.num_hosts) == ("mod", 2)
    assert words.statistics.never_trained == 11 - len(set(IDS))


def test_tf2_restores_what_the_estimator_trained(trained, tmp_path):
    checkpoint.convert(trained[0], tmp_path / "ckpt", "tf2")
    embedding = mid_level.TPUEmbedding({"word": mid_level.FeatureConfig(mid_level.TableConfig(
        11, 2, name="words"))}, mid_level.Adam(0.1))
    embedding.build()
    tf.train.Checkpoint(embedding=embedding).restore(
        str(tmp_path / "ckpt")).assert_existing_objects_matched()
    children = embedding._trackable_children()
    assert_equal({"words": children["words"].numpy(),
                  "words/Adam/m": children["words/momenta"].numpy(),
                  "words/Adam/v": children["words/velocities"].numpy()}, trained[1])


@pytest.mark.parametrize("num_hosts, strategy", [(3, "div"), (3, "mod")])
def test_estimator_trains_on_after_resharding(num_hosts, strategy, trained, tmp_path):
    done = checkpoint.reshard(trained[0], tmp_path, num_hosts, strategy)
    assert done.output == tmp_path / "model.ckpt-2"
    estimator = new_estimator(tmp_path, num_hosts, strategy)
    assert_equal(tables_of(estimator), trained[1])
    once_more = train(estimator, steps=1)
    assert estimator.get_variable_value("global_step") == 3
    whole = tmp_path / "whole"
    checkpoint.convert(trained[0], whole / "model.ckpt-2")
    assert_equal(train(new_estimator(whole, 2, "mod"), steps=1), once_more)
    assert checkpoint.compare(whole, tmp_path).agree
