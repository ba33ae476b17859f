# SPDX-License-Identifier: Apache-2.0
"""A migrated program exports what the legacy program exports."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.subprocesses import start
from tpu_estimator_embedding.migration import captured_config, captured_file
from tpu_estimator_embedding.migration.rewrite import rewrite

pytestmark = pytest.mark.long

PROGRAM = '''
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.tpu import tpu_embedding

SPEC = {"words": tf.VarLenFeature(tf.int64), "weights": tf.VarLenFeature(tf.float32),
        "history": tf.VarLenFeature(tf.int64), "user": tf.FixedLenFeature([1], tf.int64),
        "age": tf.FixedLenFeature([1], tf.float32)}


def embedding_config_spec():
    tables = {
        "words": tpu_embedding.TableConfig(50, 4, combiner="mean"),
        "users": tpu_embedding.TableConfig(20, 4, combiner="sqrtn"),
    }
    features = {
        "words": tpu_embedding.FeatureConfig("words", weight_key="weights"),
        "history": tpu_embedding.FeatureConfig("words", max_sequence_length=3),
        "user": tpu_embedding.FeatureConfig("users"),
    }
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        table_to_config_dict=tables, feature_to_config_dict=features,
        optimization_parameters=tpu_embedding.AdagradParameters(0.1))


def input_fn(params):
    rng = np.random.default_rng(1)
    words, history = rng.integers(0, 50, [40, 3]), rng.integers(0, 50, [40, 5])
    users, ages = rng.integers(1, 20, [40, 1]), rng.random([40, 1], np.float32)
    weights = rng.random([40, 3], np.float32)

    def to_features(words, weights, history, user, age):
        sparse = {name: tf.RaggedTensor.from_tensor(tensor).to_sparse() for name, tensor in (
            ("words", words), ("weights", weights), ("history", history))}
        return {**sparse, "user": user, "age": age}, age[:, 0]

    return tf.data.Dataset.from_tensor_slices((words, weights, history, users, ages)).repeat(
        ).batch(params["batch_size"], drop_remainder=True).map(to_features)


def model_fn(features, labels, mode, params):
    history = tf.reshape(features["history"], [-1, 12])
    inputs = tf.concat([features["words"], features["user"], features["age"], history], axis=1)
    hidden = tf.layers.dense(inputs, 3, name="hidden")
    logits = tf.layers.dense(hidden, 1, name="logits")
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"logits": logits, "hidden": hidden}
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions=outputs, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput(outputs),
            "score": tf.estimator.export.RegressionOutput(tf.nn.sigmoid(logits)),
        })
    loss = tf.losses.mean_squared_error(labels, logits[:, 0])
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdagradOptimizer(0.1))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main(model_dir, exports):
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=tf.estimator.tpu.RunConfig(model_dir=model_dir),
        train_batch_size=8, predict_batch_size=8, embedding_config_spec=embedding_config_spec())
    estimator.train(input_fn, max_steps=10)
    estimator.export_savedmodel(
        exports, tf.estimator.export.build_parsing_serving_input_receiver_fn(SPEC),
        strip_default_attrs=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
'''
# What the migrated program does instead of training.
RESTORE = 'estimator.restore_estimator_checkpoint("model/model.ckpt-10", input_fn)'


def example(words, weights, history, user):
    def ints(values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def floats(values):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    return tf.train.Example(features=tf.train.Features(feature={
        "words": ints(words), "weights": floats(weights), "history": ints(history),
        "user": ints([user]), "age": floats([0.5])})).SerializeToString()


REQUESTS = [example([1, 2], [0.5, 2.0], [3, 4, 5, 6], 7), example([], [], [], 0),
            example([3], [0.0], [49], 19), example([4, 4, 5], [1.0, -1.0, 0.25], [1], 3)]


def run(directory, *command):
    done = start([sys.executable, *command], cwd=directory, timeout=300)
    assert done.returncode == 0, done.stderr


def served(directory, signature, requests=REQUESTS):
    [model] = {file.parent for file in directory.rglob("saved_model.pb")}
    functions = tf.saved_model.load(str(model), tags=["serve"]).signatures
    assert sorted(functions) == ["score", "serving_default"]
    [name] = functions[signature].structured_input_signature[1]
    assert name == ("inputs" if signature == "score" else "examples")
    return {name: value.numpy() for name, value in functions[signature](
        **{name: tf.constant(requests)}).items()}


@pytest.fixture(name="legacy", scope="module")
def directory_with_the_legacy_program_and_its_export(tmp_path_factory):
    directory = tmp_path_factory.mktemp("legacy")
    (directory / "before.py").write_text(PROGRAM)
    run(directory, "-m", "tpu_estimator_embedding", "run", "before.py", "model", "exports")
    found = captured_config.capture(str(directory / "before.py"), ["never", "written"], steps=1)
    text, findings = captured_file.written(found, "tf2")
    assert not [one for one in findings if one.about.kind == "left"]
    (directory / "embedding_config.py").write_text(text)
    return directory


@pytest.mark.parametrize("stage", ["tf2", "layers"])
def test_both_exports_serve_the_same(stage, legacy):
    result = rewrite(PROGRAM.encode(), "before.py", to=stage)
    assert not [one for one in result.findings if one.about.kind in ("left", "decision")]
    text = result.data.decode()
    assert "tf_estimator" not in text
    (legacy / f"{stage}.py").write_text(
        text.replace("estimator.train(input_fn, max_steps=10)", RESTORE))
    run(legacy, f"{stage}.py", f"{stage}_model", f"{stage}_exports")
    for signature, names in (("serving_default", {"hidden", "logits"}), ("score", {"outputs"})):
        expected = served(legacy / "exports", signature)
        found = served(legacy / f"{stage}_exports", signature)
        assert found.keys() == expected.keys() == names
        for name, value in expected.items():
            assert value.shape[0] == len(REQUESTS)
            np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-7)
