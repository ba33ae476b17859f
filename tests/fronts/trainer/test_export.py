# SPDX-License-Identifier: Apache-2.0
"""SavedModels that a Trainer exports."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.subprocesses import run_python
from tpu_estimator_embedding import mid_level, tf_estimator
from tpu_estimator_embedding.trainer import (
    ClassificationOutput,
    EvalSpec,
    KerasTrainer,
    ModeKeys,
    Outputs,
    PredictOutput,
    RegressionOutput,
    ServingInputReceiver,
    Trainer,
    TrainSpec,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
    train_and_evaluate,
)

v1 = tf.compat.v1
IDS = np.array([[1, 2], [0, 4], [3, 3], [2, 0]])
CLASSES = [b"no", b"yes"]
EXAMPLES = build_parsing_serving_input_receiver_fn({"words": tf.io.VarLenFeature(tf.int64)})


def feature_config(global_step=None):
    table = mid_level.TableConfig(5, 2, optimizer=mid_level.Adagrad(0.5), name="tbl_words",
                                  combiner="mean")
    return {"words": mid_level.FeatureConfig(table)}


CONFIG = types.SimpleNamespace(feature_config=feature_config, PIPELINED=False, WEIGHT_KEYS={},
                               ONE_ID_FEATURES=[], TABLE_VARIABLES={"tbl_words": "words"})


def model_fn(features, labels, mode, params):
    hidden = v1.layers.batch_normalization(features["words"], training=mode == ModeKeys.TRAIN,
                                           momentum=0.5)
    logits = v1.layers.dense(hidden, 1, name="dense")[:, 0]
    if mode == ModeKeys.PREDICT:
        return Outputs(mode, predictions={"logits": logits}, export_outputs=params["outputs"](
            logits))
    return Outputs(mode, loss=tf.reduce_mean((logits - labels) ** 2))


def input_fn(params):
    labels = np.float32([0, 1, 1, 0])
    return tf.data.Dataset.from_tensor_slices((IDS, labels)).repeat().batch(4).map(
        lambda ids, labels: ({"words": tf.RaggedTensor.from_tensor(ids).to_sparse()}, labels))


def make(cls=Trainer, outputs=lambda logits: None, config=CONFIG, **options):
    return cls(model_fn, config,
               lambda rate, params: v1.train.GradientDescentOptimizer(rate),
               lambda step, params: 0.1, params={"outputs": outputs}, train_batch_size=4,
               predict_batch_size=4, eval_batch_size=4, **options)


def predicted(trainer, **options):
    return np.array([row["logits"] for row in trainer.predict(
        lambda params: input_fn(params).take(1).map(lambda features, labels: features),
        **options)])


def example(ids):
    values = tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
    return tf.train.Example(features=tf.train.Features(
        feature={"words": values})).SerializeToString()


def served(path, **inputs):
    return tf.saved_model.load(path.decode()).signatures["serving_default"](**inputs)


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_an_export_serves_predictions_without_this_package(cls, pipelined, tmp_path):
    config = types.SimpleNamespace(**{**vars(CONFIG), "PIPELINED": pipelined})
    trainer = make(cls, config=config).train(input_fn, steps=5)
    (tmp_path / "words.txt").write_text("a b")
    before = {name: trainer.get_variable_value(name) for name in trainer.get_variable_names()}
    path = trainer.export_saved_model(str(tmp_path / "exports"), EXAMPLES,
                                      assets_extra={"names/words.txt": str(tmp_path / "words.txt")})
    assert [child.name for child in (tmp_path / "exports").iterdir()] == [
        path.decode().rpartition("/")[2]]
    assert (tmp_path / "exports").joinpath(
        path.decode(), "assets.extra", "names", "words.txt").read_text() == "a b"
    (tmp_path / "requests").write_text(json.dumps([example(ids).hex() for ids in IDS]))
    done = run_python(f"""
        import json, pathlib, sys
        import tensorflow as tf
        model = tf.saved_model.load({path.decode()!r})
        requests = [bytes.fromhex(one) for one in json.loads(
            pathlib.Path({str(tmp_path / "requests")!r}).read_text())]
        results = model.signatures["serving_default"](examples=tf.constant(requests))
        assert "tpu_estimator_embedding" not in sys.modules
        print(json.dumps(results["logits"].numpy().tolist()))
    """)
    np.testing.assert_allclose(json.loads(done.stdout), predicted(trainer), rtol=1e-6)
    for name, value in before.items():  # averages of batch normalization, for example
        np.testing.assert_array_equal(trainer.get_variable_value(name), value)
    trainer.train(input_fn, steps=1)


def test_raw_inputs_any_batch_size_and_a_receiver_of_the_program(tmp_path):
    trainer = make().train(input_fn, steps=2)
    raw = trainer.export_saved_model(tmp_path, build_raw_serving_input_receiver_fn(
        {"words": tf.zeros([1, 2], tf.int64)}))

    def receiver_fn():
        ids = v1.placeholder(tf.int64, [None, 2], "ids")
        return ServingInputReceiver({"words": tf.RaggedTensor.from_tensor(ids)}, ids)

    own = trainer.export_saved_model(tmp_path, receiver_fn)
    expected = predicted(trainer)
    for size in (1, 3):
        ids = IDS[1:1 + size]
        np.testing.assert_allclose(served(own, input=tf.constant(ids))["logits"],
                                   expected[1:1 + size], rtol=1e-6)
        # Of dense ids, 0 is padding. A negative id of a ragged feature counts as little.
        np.testing.assert_allclose(
            served(raw, words=tf.constant(ids))["logits"],
            served(own, input=tf.constant(np.where(ids == 0, -1, ids)))["logits"], rtol=1e-6)


@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_lookup_tables_are_exported(cls, tmp_path):
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("a\nb\nc\nd\ne")

    def table():
        return tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
            str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER), -1)

    def receiver_fn():
        words = v1.placeholder(tf.string, [None, 2])
        return ServingInputReceiver(
            {"words": tf.RaggedTensor.from_tensor(table().lookup(words))}, {"words": words})

    trainer = make(cls, outputs=lambda logits: {"serving_default": PredictOutput({
        "logits": logits, "of a": tf.fill([tf.size(logits)], table().lookup(tf.constant("c")))})})
    trainer.train(input_fn, steps=2)
    path = trainer.export_saved_model(tmp_path / "exports", receiver_fn)
    vocabulary.unlink()
    results = served(path, words=tf.constant([["a", "e"], ["d", "d"]]))
    np.testing.assert_allclose(results["logits"], predicted(trainer)[1:3], rtol=1e-6)
    assert results["of a"].numpy().tolist() == [2, 2]


def test_signatures_are_those_of_export_outputs(tmp_path):
    def outputs(logits):
        return {"serving_default": PredictOutput(logits), "named": PredictOutput({"l": logits}),
                "classes": ClassificationOutput(tf.stack([1 - logits, logits], 1),
                                                tf.tile([CLASSES], [tf.shape(logits)[0], 1]))}

    trainer = make(outputs=outputs).train(input_fn, steps=2)
    path = trainer.export_saved_model(tmp_path, EXAMPLES).decode()
    signatures = tf.saved_model.load(path).signatures
    requests = tf.constant([example(ids) for ids in IDS])
    results = {key: function(**{"inputs" if key == "classes" else "examples": requests})
               for key, function in signatures.items()}
    expected = predicted(trainer)
    np.testing.assert_allclose(results["serving_default"]["output"], expected, rtol=1e-6)
    np.testing.assert_allclose(results["named"]["l"], expected, rtol=1e-6)
    np.testing.assert_allclose(results["classes"]["scores"][:, 1], expected, rtol=1e-6)
    assert results["classes"]["classes"].numpy().tolist() == [CLASSES] * 4
    alone = make(outputs=lambda logits: {"mine": PredictOutput(logits)}).train(input_fn, steps=1)
    assert set(tf.saved_model.load(alone.export_saved_model(tmp_path, EXAMPLES).decode()).signatures
               ) == {"mine", "serving_default"}


@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_a_checkpoint_is_exported(cls, tmp_path):
    trainer = make(cls, model_dir=tmp_path / "model", save_checkpoints_steps=2)
    trainer.train(input_fn, steps=4)
    second = str(tmp_path / "model" / "ckpt-2")
    requests = tf.constant([example(ids) for ids in IDS])
    newest = predicted(trainer)
    for found, expected in ((second, predicted(trainer, checkpoint_path=second)), (None, newest)):
        path = trainer.export_saved_model(tmp_path, EXAMPLES, checkpoint_path=found)
        np.testing.assert_allclose(served(path, examples=requests)["logits"], expected, rtol=1e-6)
    assert trainer.get_variable_value("global_step") == 4
    another = make(cls, model_dir=tmp_path / "model")  # a program that only exports
    path = another.export_saved_model(tmp_path, EXAMPLES)
    np.testing.assert_allclose(served(path, examples=requests)["logits"], newest, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_exporters_of_the_estimator_export_after_evaluations(cls, pipelined, tmp_path):
    config = types.SimpleNamespace(**{**vars(CONFIG), "PIPELINED": pipelined})
    trainer = make(cls, config=config, model_dir=str(tmp_path), save_checkpoints_steps=2,
                   tf_random_seed=1)
    exporters = [tf_estimator.FinalExporter("final", EXAMPLES), tf_estimator.BestExporter(
        "best", EXAMPLES, exports_to_keep=2), tf_estimator.LatestExporter("latest", EXAMPLES)]
    results, exports = train_and_evaluate(
        trainer, TrainSpec(input_fn, max_steps=5),
        EvalSpec(input_fn, steps=1, throttle_secs=0, exporters=exporters))
    assert results["global_step"] == 5 and len(exports) == 3
    counts = {name: len(list((tmp_path / "export" / name).glob("[0-9]*")))
              for name in ("final", "latest", "best")}
    assert counts["final"] == 1 and counts["latest"] == 3 and 1 <= counts["best"] <= 2
    requests = tf.constant([example(ids) for ids in IDS])
    for path in (exports[0], exports[2]):
        np.testing.assert_allclose(served(path, examples=requests)["logits"], predicted(trainer),
                                   rtol=1e-6)
    alone = make(cls, config=config, tf_random_seed=1).train(input_fn, max_steps=5)
    np.testing.assert_array_equal(predicted(alone), predicted(trainer))


@pytest.mark.parametrize("exporters, error, message", [
    ([1], TypeError, "`exporters` must be objects with a name and a method export"),
    (1, TypeError, "`exporters` must be objects with a name and a method export"),
    ([tf_estimator.FinalExporter("a", EXAMPLES)] * 2, ValueError, "must be of different names")])
def test_wrong_exporters_are_refused(exporters, error, message):
    with pytest.raises(error, match=message):
        EvalSpec(input_fn, exporters=exporters)


def test_a_spec_keeps_exporters_that_can_be_read_once_or_that_change():
    made = [tf_estimator.FinalExporter(name, EXAMPLES) for name in "ab"]
    given = list(made)
    of_list, of_generator = EvalSpec(input_fn, exporters=given), EvalSpec(
        input_fn, exporters=(one for one in made))
    given.clear()
    assert of_list.exporters == of_generator.exporters == tuple(made)
    assert EvalSpec(input_fn, exporters=made[0]).exporters == (made[0],)
    assert EvalSpec(input_fn).exporters == ()


def test_exporters_need_a_directory():
    spec = EvalSpec(input_fn, exporters=tf_estimator.FinalExporter("a", EXAMPLES))
    with pytest.raises(ValueError, match="`model_dir` must be a directory, to which exporters"):
        train_and_evaluate(make(), TrainSpec(input_fn, max_steps=1), spec)


def sparse_receiver():
    words = v1.sparse_placeholder(tf.int64, [None, None])
    return ServingInputReceiver({"words": words}, {"words": words})


def receiver_with_alternatives():
    receiver = EXAMPLES()
    return receiver._replace(receiver_tensors_alternatives={"raw": receiver.features})


def receiver_with_a_dash():
    ids = v1.placeholder(tf.int64, [None, 2])
    return ServingInputReceiver({"words": tf.RaggedTensor.from_tensor(ids)}, {"word-ids": ids})


@pytest.mark.parametrize("arguments, error, message", [
    ((receiver_with_a_dash,), ValueError, "must be named with letters, digits .* got 'word-ids'"),
    ((EXAMPLES, None, True), ValueError, "`as_text` must be False"),
    ((lambda: None,), ValueError, "^Result of the input receiver function must be a ServingInput"),
    ((sparse_receiver,), TypeError, r"receiver_tensors\['words'\]` must be a dense tensor"),
    ((receiver_with_alternatives,), ValueError, "`receiver_tensors_alternatives` must be None"),
    ((EXAMPLES, {"a": "missing"}), tf.errors.NotFoundError, "missing"),
])
def test_what_cannot_be_exported_leaves_no_folder(arguments, error, message, tmp_path):
    trainer = make().train(input_fn, steps=1)
    with pytest.raises(error, match=message):
        trainer.export_saved_model(tmp_path / "exports", *arguments)
    assert not list((tmp_path / "exports").glob("*"))


def test_a_signature_that_does_not_fit_the_inputs_is_left_out(tmp_path, caplog):
    def outputs(logits):
        return {"serving_default": PredictOutput(logits), "score": RegressionOutput(logits)}

    raw = build_raw_serving_input_receiver_fn({"words": tf.zeros([1, 2], tf.int64)})
    with caplog.at_level("WARNING", logger="tensorflow"):  # whatever other tests have left
        path = make(outputs=outputs).train(input_fn, steps=1).export_saved_model(tmp_path, raw)
    assert [*tf.saved_model.load(path.decode()).signatures] == ["serving_default"]
    assert "The export has no signature 'score': " in caplog.text


@pytest.mark.parametrize("outputs, error, message", [
    (lambda logits: [logits], TypeError, "`export_outputs` must be a dictionary"),
    (lambda logits: {}, ValueError, "`export_outputs` must have the signature 'serving_default'"),
    (lambda logits: {"a": logits}, TypeError, r"export_outputs\['a'\]` must be a PredictOutput"),
    (lambda logits: {"a": PredictOutput(logits), "b": PredictOutput(logits)}, ValueError,
     "`export_outputs` must have the signature 'serving_default'"),
])
def test_outputs_that_cannot_be_exported(outputs, error, message, tmp_path):
    with pytest.raises(error, match=message):
        make(outputs=outputs).train(input_fn, steps=1).export_saved_model(tmp_path, EXAMPLES)


def test_an_export_without_a_signature_that_fits_is_refused(tmp_path):
    raw = build_raw_serving_input_receiver_fn({"words": tf.zeros([1, 2], tf.int64)})
    trainer = make(outputs=lambda logits: {"score": RegressionOutput(logits)})
    with pytest.raises(ValueError, match=(r"`export_outputs` must be for the inputs \['words'\], "
                                          r"got \['score'\]. Classification and regression")):
        trainer.train(input_fn, steps=1).export_saved_model(tmp_path, raw)


def test_an_untrained_model_is_not_exported(tmp_path):
    with pytest.raises(ValueError, match="^Couldn't find trained model at None"):
        make().export_saved_model(tmp_path, EXAMPLES)
