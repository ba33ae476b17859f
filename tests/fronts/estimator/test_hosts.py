# SPDX-License-Identifier: Apache-2.0
"""Tables that are split over hosts, by either strategy, compute what one table does."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator import columns, linear
from tests.fronts.estimator.counting import input_of, new_estimator, new_spec
from tests.fronts.estimator.examples import linear_examples
from tests.spec.oracle import cut
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

NAMES = ["b", "c", "w"]
DATA = linear.random_data(NAMES, [4] * 3)
CASES = [(3, "div"), (1, "mod"), (3, "mod")]


def make_estimator(model_dir, num_hosts, strategy, **options):
    embeddings = columns.new_columns(NAMES)

    def model_fn(features, labels, mode, params):
        spec = linear.new_model_fn(lambda features: columns.apply(embeddings, features))(
            features, labels, mode, params)
        if mode != "infer":
            return spec
        return spec._replace(export_outputs={
            "serving_default": tf_estimator.export.PredictOutput(spec.predictions)})

    return new_estimator(model_dir, model_fn, num_hosts=num_hosts, batch_size=4,
                         spec=EmbeddingConfigSpec(list(embeddings.values()),
                                                  AdagradParameters(0.1),
                                                  partition_strategy=strategy), **options)


def input_fn(params):
    return linear.to_dataset(DATA, 4)


def predicted(estimator):
    return np.array([prediction["z"] for prediction in estimator.predict(input_fn)])


def served(estimator, directory):
    """Exports, and returns what the SavedModel says about the same samples."""
    example_spec = {"x": tf.io.FixedLenFeature([linear.X_SIZE], tf.float32),
                    "ww": tf.io.VarLenFeature(tf.float32),
                    **{name: tf.io.VarLenFeature(tf.int64) for name in NAMES}}
    exported = estimator.export_saved_model(
        str(directory),
        tf_estimator.export.build_parsing_serving_input_receiver_fn(example_spec)).decode()
    examples = [example.SerializeToString() for example in linear_examples(DATA)]
    return tf.saved_model.load(exported, ["serve"]).signatures["serving_default"](
        tf.constant(examples))["z"].numpy()


class Assign(tf.compat.v1.train.SessionRunHook):
    """Gives tables the values of another checkpoint, dealt out to hosts by the oracle."""

    def __init__(self, checkpoint, num_hosts, strategy):
        self._reader = tf.train.load_checkpoint(checkpoint)
        self._hosts, self._strategy = num_hosts, strategy

    def begin(self):
        self._assignments = []
        for variable in tf.compat.v1.global_variables():
            name, _, part = variable.op.name.partition("/part_")
            value = self._reader.get_tensor(name)
            if part:
                value = cut(value, self._hosts, self._strategy)[int(part)]
            self._assignments.append(variable.assign(value, read_value=False))

    def after_create_session(self, session, coord):
        session.run(self._assignments)


@pytest.fixture(scope="module")
def one_host(tmp_path_factory):
    estimator = make_estimator(tmp_path_factory.mktemp("one_host"), 1, "div")
    estimator.train(input_fn, max_steps=100)
    return estimator


@pytest.mark.parametrize("num_hosts, strategy", CASES)
def test_every_mode_gives_what_one_host_gives(tmp_path, one_host, num_hosts, strategy):
    estimator = make_estimator(tmp_path / "model", num_hosts, strategy)
    first = f"{one_host.model_dir}/model.ckpt-0"
    estimator.train(input_fn, max_steps=100, hooks=[Assign(first, num_hosts, strategy)])
    for name in one_host.get_variable_names():
        np.testing.assert_allclose(
            estimator.get_variable_value(name), one_host.get_variable_value(name), rtol=1e-5,
            atol=1e-6, err_msg=name)
    np.testing.assert_allclose(
        estimator.evaluate(input_fn)["loss"], one_host.evaluate(input_fn)["loss"], rtol=1e-5)
    expected = predicted(one_host)
    np.testing.assert_allclose(predicted(estimator), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(served(estimator, tmp_path / "export"), expected,
                               rtol=1e-4, atol=1e-5)


def test_mod_evaluates_where_it_is_said_to_run_without_a_tpu(tmp_path):
    estimator = new_estimator(tmp_path, spec=new_spec(partition_strategy="mod"), num_hosts=3,
                              eval_on_tpu=False)
    estimator.train(input_of(range(8)), max_steps=100)
    assert estimator.evaluate(input_of([1, 7]))["loss"] == -2.0


def test_mod_is_refused_without_the_engine(tmp_path):
    with pytest.raises(ValueError, match="Mod sharding of embedding tables not supported"):
        new_estimator(tmp_path, spec=new_spec(partition_strategy="mod"), use_tpu=False)
