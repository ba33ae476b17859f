# SPDX-License-Identifier: Apache-2.0
"""What is exported serves in plain TensorFlow, in a process that does not have this package."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator import columns, counting, linear
from tests.fronts.estimator.counting import TPUEstimatorSpec, count, input_of, new_estimator
from tests.fronts.estimator.examples import example_of, linear_examples
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column

v1 = tf.compat.v1
fc = tf.feature_column
pytestmark = pytest.mark.filterwarnings("ignore:Feature 'd' is dense:UserWarning")

# Serves what it reads in a fresh process, and tells which modules that took.
SERVE = """
import json, sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1], ["serve"])
requests = [bytes.fromhex(text) for text in json.loads(sys.argv[2])]
outputs = model.signatures["serving_default"](tf.constant(requests))
print(json.dumps({
    "outputs": {name: value.numpy().tolist() for name, value in outputs.items()},
    "modules": [name for name in sys.modules if name.startswith("tpu_estimator_embedding")
                or name.startswith("tensorflow_estimator")]}))
"""


def serve(export_dir, examples, tmp_path):
    """Returns the outputs of the default signature for serialized examples."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    requests = json.dumps([example.SerializeToString().hex() for example in examples])
    finished = subprocess.run(
        [sys.executable, "-I", "-c", SERVE, export_dir, requests], cwd=tmp_path,
        env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert finished.returncode == 0, finished.stderr
    answer = json.loads(finished.stdout.splitlines()[-1])
    assert not answer["modules"]
    return answer["outputs"]


def export(estimator, feature_spec, directory, **options):
    receiver = tf_estimator.export.build_parsing_serving_input_receiver_fn(feature_spec)
    return estimator.export_saved_model(str(directory), receiver, **options).decode()


def linear_feature_spec(names):
    spec = {"x": tf.io.FixedLenFeature([linear.X_SIZE], tf.float32)}
    for name in names:
        spec[name] = tf.io.VarLenFeature(tf.int64)
        if weights := linear.FEATURES[name].weights:
            spec[weights] = tf.io.VarLenFeature(tf.float32)
    return spec


def without_holes(data):
    return data._replace(batches=[{name: [
        [entry._replace(position=k) for k, entry in enumerate(entries)] for entries in samples]
        for name, samples in batch.items()} for batch in data.batches])


def with_export_outputs(model_fn):
    def exporting(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        if mode != "infer":
            return spec
        return spec._replace(export_outputs={
            "serving_default": tf_estimator.export.PredictOutput(spec.predictions)})
    return exporting


@pytest.mark.smoke
@pytest.mark.parametrize("from_columns", [True, False])
def test_export_serves_what_the_estimator_predicts(tmp_path, from_columns):
    names = ["b", "c", "s", "w"] if from_columns else ["a", "s", "w"]
    data = without_holes(linear.random_data(names, [4, 4, 4]))
    if from_columns:
        embeddings = columns.new_columns(names)
        spec = EmbeddingConfigSpec(list(embeddings.values()), AdagradParameters(0.1))
    else:
        spec = columns.new_dict_spec(AdagradParameters(0.1), names)

    def activations_of(features):
        if from_columns:
            return columns.apply(embeddings, features)
        return {name: features[name] for name in names}

    estimator = new_estimator(tmp_path / "model", with_export_outputs(
        linear.new_model_fn(activations_of)), spec=spec, batch_size=4)
    estimator.train(lambda params: linear.to_dataset(data, 4), max_steps=100)
    predicted = [prediction["z"] for prediction in estimator.predict(
        lambda params: linear.to_dataset(data, 4))]
    exported = export(estimator, linear_feature_spec(names), tmp_path / "export")
    served = serve(exported, linear_examples(data), tmp_path)
    np.testing.assert_allclose(served["z"], predicted, rtol=1e-6, atol=1e-6)


def counting_model_fn(features, labels, mode, params):
    spec = counting.model_fn(features, labels, mode, params)
    return spec._replace(export_outputs={
        "serving_default": tf_estimator.export.PredictOutput(spec.predictions)})


def load(export_dir):
    """Serves in this process."""
    with v1.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        meta_graph = v1.saved_model.load(session, ["serve"], export_dir)
        signature = meta_graph.signature_def["serving_default"]
        return (signature, {op.type for op in graph.get_operations()},
                {variable.op.name for variable in v1.global_variables()})


def test_export_holds_no_training(tmp_path):
    spec = counting.new_spec()
    estimator = new_estimator(tmp_path / "model", counting_model_fn, spec=EmbeddingConfigSpec(
        table_to_config_dict=spec.table_to_config_dict,
        feature_to_config_dict=spec.feature_to_config_dict,
        optimization_parameters=AdagradParameters(0.1)))
    estimator.train(input_of([0, 1]), max_steps=1)
    signature, kinds, variables = load(export(
        estimator, {"id": tf.io.FixedLenFeature([], tf.int64)}, tmp_path / "export"))
    assert list(signature.outputs) == ["count"]
    assert not {kind for kind in kinds if "Scatter" in kind or "Queue" in kind}
    assert {name.split("/part_")[0] for name in variables} == {"counts", "global_step"}


def test_export_of_any_batch_size_accepts_raw_tensors(tmp_path):
    estimator = new_estimator(tmp_path / "model", counting_model_fn)
    estimator.train(input_of([0, 0, 3]), max_steps=100)

    def receive():
        ids = v1.placeholder(tf.int64, [None], name="ids")
        return tf_estimator.export.ServingInputReceiver({"id": ids}, {"id": ids})

    exported = estimator.export_saved_model(str(tmp_path / "export"), receive).decode()
    signature = tf.saved_model.load(exported, ["serve"]).signatures["serving_default"]
    for ids in ([3, 0, 0], [5], []):
        counted = signature(id=tf.constant(ids, tf.int64))["count"]
        assert counted.numpy()[:, 0].tolist() == [{0: 2, 3: 1}.get(id, 0) for id in ids]


WORDS = ["no", "yes", "maybe"]


def vocabulary_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return fc.categorical_column_with_vocabulary_file("word", str(path))


def word_model_fn(column):
    """Sums the rows of the words, and counts the words of a sequence in hundreds."""
    def model_fn(features, labels, mode, params):
        if "Sequence" in type(column.categorical_column).__name__:
            rows, lengths = tf.keras.experimental.SequenceFeatures([column])(features)
            sums = tf.reduce_sum(rows, 1) + 100.0 * tf.cast(lengths, tf.float32)[:, tf.newaxis]
        else:
            sums = tf.keras.layers.DenseFeatures([column])(features)
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={"sum": sums}, export_outputs={
                "serving_default": tf_estimator.export.PredictOutput({"sum": sums})})
        loss = -tf.reduce_sum(sums)
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))
    return model_fn


def train_on_word_ids(model_dir, column):
    """Returns an estimator that was trained, and the value of each word in its table."""
    def input_fn(params):
        ids = tf.sparse.from_dense(tf.constant([[1, 2], [2, 0]], tf.int64))
        weights = tf.SparseTensor(ids.indices, tf.ones([3]), ids.dense_shape)
        return {"word": ids, "weight": weights}

    estimator = new_estimator(model_dir, word_model_fn(column), spec=EmbeddingConfigSpec(
        [column], AdagradParameters(0.1)))
    estimator.train(input_fn, steps=2)
    [table] = [estimator.get_variable_value(name) for name in estimator.get_variable_names()
               if name.endswith("embedding_weights")]
    return estimator, dict(zip(WORDS, table[:, 0].tolist(), strict=True))


REQUESTS = [["yes"], ["maybe", "no"], ["unheard of"], []]


@pytest.mark.parametrize("make_column, weight, hundreds", [
    (lambda tmp_path: fc.categorical_column_with_vocabulary_list("word", WORDS), 1, 0),
    (vocabulary_file, 1, 0),
    (lambda tmp_path: fc.weighted_categorical_column(
        fc.categorical_column_with_vocabulary_list("word", WORDS), "weight"), 2, 0),
    (lambda tmp_path: fc.sequence_categorical_column_with_vocabulary_list("word", WORDS), 1, 1),
])
def test_export_looks_strings_up_in_the_vocabulary_of_their_column(
        tmp_path, make_column, weight, hundreds):
    """In training, ids are given; a request has the words themselves."""
    column = embedding_column(make_column(tmp_path), 1, "sum", max_sequence_length=2 * hundreds)
    estimator, values = train_on_word_ids(tmp_path / "model", column)
    exported = export(estimator, {"word": tf.io.VarLenFeature(tf.string),
                                  "weight": tf.io.VarLenFeature(tf.float32)}, tmp_path / "export")
    moved = pathlib.Path(exported).rename(tmp_path / "moved")  # with its vocabulary
    (tmp_path / "words.txt").unlink(missing_ok=True)
    examples = [example_of(word=words, weight=[float(weight)] * len(words)).SerializeToString()
                for words in REQUESTS]
    model = tf.saved_model.load(str(moved), ["serve"])
    served = model.signatures["serving_default"](tf.constant(examples))
    expected = [weight * sum(values.get(word, 0.0) for word in words)
                + 100.0 * hundreds * len(words) for words in REQUESTS]
    np.testing.assert_allclose(served["sum"][:, 0], expected, rtol=1e-6, atol=1e-6)


def test_export_of_evaluation_computes_loss_and_metrics(tmp_path):
    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=count(loss) if mode == "train" else None, eval_metrics=(
                lambda ids: {"mean": v1.metrics.mean(ids)}, [features["id"]]))

    estimator = new_estimator(tmp_path / "model", model_fn)
    estimator.train(input_of([0, 0, 3]), max_steps=100)

    def receive():
        return tf_estimator.experimental.build_raw_supervised_input_receiver_fn(
            {"id": v1.placeholder(tf.int64, [None])},
            {"label": v1.placeholder(tf.int64, [None])})()


    exported = estimator.export_saved_model(
        str(tmp_path / "export"), receive,
        experimental_mode=tf_estimator.ModeKeys.EVAL).decode()
    with v1.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        meta_graph = v1.saved_model.load(session, ["eval"], exported)
        signature = meta_graph.signature_def["eval"]
        loss = session.run(signature.outputs["loss"].name, {
            signature.inputs["id"].name: [0, 3], signature.inputs["label"].name: [1, 1]})
    assert loss == -3.0


@pytest.mark.parametrize("use_tpu", [True, False])
def test_receiver_function_that_returns_nothing_is_refused(use_tpu, tmp_path):
    new_estimator(tmp_path / "model").train(input_of([0, 1]), max_steps=1)
    estimator = new_estimator(tmp_path / "model", use_tpu=use_tpu, embedding_config_spec=(
        counting.new_spec() if use_tpu else None))
    with pytest.raises(ValueError, match="Result of the input receiver function must be a Serving"
                       "InputReceiver or SupervisedInputReceiver, got None"):
        estimator.export_saved_model(str(tmp_path / "export"), lambda: None)
    assert not list((tmp_path / "export").iterdir())


@pytest.mark.slow
def test_failed_export_leaves_the_others(tmp_path):
    estimator = new_estimator(tmp_path / "model", counting_model_fn)
    estimator.train(input_of([0, 0, 3]), max_steps=100)

    def receiver():
        ids = v1.placeholder(tf.int64, [None], name="ids")
        return tf_estimator.export.ServingInputReceiver({"id": ids}, {"id": ids})

    (tmp_path / "export/temp-1").mkdir(parents=True)  # of another process
    exported = estimator.export_saved_model(str(tmp_path / "export"), receiver).decode()
    with pytest.raises(tf.errors.NotFoundError):
        estimator.export_saved_model(str(tmp_path / "export"), receiver,
                                     assets_extra={"words": str(tmp_path / "missing")})
    assert sorted(map(str, (tmp_path / "export").iterdir())) == sorted(
        [exported, f"{tmp_path}/export/temp-1"])


def test_export_below_a_file_is_refused(tmp_path):
    estimator = new_estimator(tmp_path / "model", counting_model_fn)
    estimator.train(input_of([0, 1]), max_steps=1)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="`export_dir_base` must be a directory or a new path, got "
                                         ".*/file'. It is a file. Give another path"):
        estimator.export_saved_model(str(tmp_path / "file"), lambda: None)
    assert (tmp_path / "file").read_text() == "mine"
