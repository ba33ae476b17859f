# SPDX-License-Identifier: Apache-2.0
"""The methods of TPUEstimator that a Trainer has, and what a forward function finds."""

import gc
import itertools
import logging
import types

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.trainer import (
    EvalSpec,
    KerasTrainer,
    ModeKeys,
    Outputs,
    Trainer,
    TrainSpec,
    activations_of,
    train_and_evaluate,
)
from tpu_estimator_embedding.trainer.metrics import StreamingMetrics, mean

v1 = tf.compat.v1
TABLE = "input_layer/words_embedding/embedding_weights"
IDS = np.arange(8) % 5
ROWS = np.float32([[1, 2], [3, 5], [7, 11], [13, 17], [19, 23]])
SCALES = np.float32([1, 10, 100, 1000])
LABELS = (np.arange(8) % 2).astype(np.float32)


@pytest.fixture(autouse=True)
def warnings_are_logged(caplog):
    """Whatever level other tests have left."""
    with caplog.at_level(logging.INFO, logger="tensorflow"):
        yield


def feature_config(global_step=None):
    table = mid_level.TableConfig(5, 2, optimizer=mid_level.SGD(0.5), name="tbl_words",
                                  initializer=tf.constant_initializer(0.5))
    return {"words": mid_level.FeatureConfig(table)}


CONFIG = types.SimpleNamespace(
    feature_config=feature_config, PIPELINED=False, WEIGHT_KEYS={}, ONE_ID_FEATURES=["words"],
    TABLE_VARIABLES={"tbl_words": TABLE})


def model_fn(features, labels, mode, params):
    kernel = v1.get_variable("kernel", [2, 1], initializer=v1.ones_initializer(),
                             regularizer=lambda value: params["decay"] * tf.reduce_sum(value ** 2))
    v1.get_variable("unused", [3], initializer=v1.zeros_initializer(), trainable=False)
    logits = tf.matmul(features["words"], kernel)[:, 0]
    step = v1.train.get_or_create_global_step()
    if mode == ModeKeys.PREDICT:
        return Outputs(mode, {"logits": logits, "step": tf.fill([tf.shape(logits)[0]], step)})
    loss = tf.reduce_mean((logits - labels) ** 2) + v1.losses.get_regularization_loss()
    return Outputs(mode, loss=loss, eval_metrics=(
        lambda step, logits: {"step": v1.metrics.mean(step), "mean": v1.metrics.mean(logits)},
        {"step": step, "logits": logits}))


def input_fn(params):
    return tf.data.Dataset.from_tensor_slices(({"words": IDS}, LABELS)).repeat().batch(
        params["batch_size"], drop_remainder=True)


def make(cls=Trainer, forward=model_fn, config=CONFIG,
         make_optimizer=lambda rate, params: v1.train.GradientDescentOptimizer(rate), **options):
    return cls(forward, config, make_optimizer, lambda step, params: 0.1, params={"decay": 0.25},
               train_batch_size=4, eval_batch_size=4, predict_batch_size=4, **options)


def losses(trainer):
    """The loss of every batch of the input, and its mean logit, from the values of variables."""
    logits = (trainer.get_variable_value(TABLE)[IDS] @ trainer.get_variable_value("kernel"))[:, 0]
    decay = 0.25 * np.sum(trainer.get_variable_value("kernel") ** 2)
    return [np.mean((logits[part] - LABELS[part]) ** 2) + decay
            for part in (slice(4), slice(4, 8))], logits


@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_reads_and_evaluates_as_the_estimator_does(cls, tmp_path):
    trainer = make(cls, model_dir=tmp_path, save_checkpoints_steps=2)
    assert trainer.latest_checkpoint() is None
    with pytest.raises(ValueError, match="^Could not find trained model in model_dir"):
        trainer.get_variable_names()
    assert trainer.train(input_fn, steps=3) is trainer
    assert trainer.get_variable_names() == ["global_step", TABLE, "kernel", "unused"]
    with pytest.raises(tf.errors.NotFoundError, match="Key other not found in checkpoint"):
        trainer.get_variable_value("other")
    assert trainer.latest_checkpoint() == str(tmp_path / "ckpt-3")
    found, (expected, logits) = trainer.evaluate(input_fn, steps=2, name="x"), losses(trainer)
    np.testing.assert_allclose([found["loss"], found["mean"]],
                               [np.mean(expected), np.mean(logits)], rtol=1e-6)
    assert found["step"] == found["global_step"] == 3
    assert list((tmp_path / "eval_x").glob("*tfevents*"))
    trainer.train(input_fn, max_steps=5)
    again = trainer.evaluate(input_fn, steps=2)
    assert again["step"] == 5 and again["loss"] != found["loss"]
    assert trainer.evaluate(input_fn, steps=2, checkpoint_path=str(tmp_path / "ckpt-3")) == found
    assert trainer.evaluate(input_fn, steps=2) == again
    rows = list(make(cls, model_dir=tmp_path).predict(
        lambda params: input_fn(params).take(2).map(lambda features, labels: features),
        predict_keys="step"))
    assert rows == [{"step": 5}] * 8  # of the newest checkpoint


def test_a_trainer_goes_on_where_another_one_ended(tmp_path):
    make(model_dir=tmp_path).train(input_fn, steps=2)
    second, whole = make(model_dir=tmp_path), make()
    second.predict(input_fn).__next__()  # makes its variables first
    second.train(input_fn, max_steps=4)
    whole.train(lambda params: input_fn(params), steps=2)
    whole.train(input_fn, max_steps=4)
    for name in whole.get_variable_names():
        np.testing.assert_array_equal(second.get_variable_value(name),
                                      whole.get_variable_value(name))


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_saving_does_not_change_pipelined_training(cls, tmp_path):
    def adagrad(global_step=None):
        table = mid_level.TableConfig(5, 2, optimizer=mid_level.Adagrad(0.5), name="tbl_words",
                                      initializer=tf.constant_initializer(0.5))
        return {"words": mid_level.FeatureConfig(table)}

    def trained(steps, **options):
        config = types.SimpleNamespace(**{
            **vars(CONFIG), "PIPELINED": True, "feature_config": adagrad, "TABLE_VARIABLES": {
                "tbl_words": TABLE, "tbl_words/accumulators": f"{TABLE}/Adagrad"}})
        trainer = make(cls, config=config, **options).train(input_fn, steps=steps)
        return [trainer.get_variable_value(name)
                for name in (TABLE, f"{TABLE}/Adagrad", "kernel")], trainer

    saving, trainer = trained(5, model_dir=tmp_path / "saving", save_checkpoints_steps=1)
    for value, expected in zip(saving, trained(5)[0], strict=True):
        np.testing.assert_array_equal(value, expected)
    # A checkpoint has every update.
    third = trained(3)[1].evaluate(input_fn, steps=2)
    assert trainer.evaluate(input_fn, steps=2,
                            checkpoint_path=str(tmp_path / "saving" / "ckpt-3")) == third


def test_gradients_are_transformed():
    class Still(Trainer):
        def transform_gradients(self, gradients, variables):
            assert [variable.name for variable in variables] == ["kernel:0"]
            return [tf.zeros_like(gradient) for gradient in gradients]
    trainer = make(Still).train(input_fn, steps=2)
    np.testing.assert_array_equal(trainer.get_variable_value("kernel"), np.ones([2, 1]))
    assert np.any(trainer.get_variable_value(TABLE) != 0.5)


@pytest.mark.parametrize("call, error, sentence", [
    (lambda trainer: trainer.train(input_fn, hooks=[1]), ValueError, "`hooks` must be empty"),
    (lambda trainer: trainer.train(input_fn, saving_listeners=[1]), ValueError, "`saving_listen"),
    (lambda trainer: trainer.evaluate(input_fn, hooks=[1]), ValueError, "`hooks` must be empty"),
    (lambda trainer: trainer.train(input_fn, steps=0), ValueError,
     "^Must specify steps > 0, given: 0"),
    (lambda trainer: trainer.train(input_fn, steps=1, max_steps=1), ValueError,
     "^Can not provide both steps and max_steps"),
    (lambda trainer: trainer.train(lambda params: 1), TypeError, "must return a tf.data.Dataset"),
    (lambda trainer: trainer.evaluate(lambda params: input_fn(params).take(0)), ValueError,
     "no batch"),
])
def test_what_it_cannot_do_is_an_error(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(make())


def test_checkpoints_of_the_estimator_are_not_taken_over(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("kernel", [2, 1])
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"), 7)
    with pytest.raises(ValueError, match="restore_estimator_checkpoint"):
        make(model_dir=tmp_path).train(input_fn, steps=1)


def bigger_model_fn(features, labels, mode, params):
    outputs = model_fn(features, labels, mode, params)
    with v1.variable_scope("former"):
        return outputs._replace(loss=outputs.loss + v1.get_variable("kernel", []))


def test_values_that_only_training_reads_are_not_missed_in_evaluation(tmp_path, caplog):
    adagrad = {"make_optimizer": lambda rate, params: v1.train.AdagradOptimizer(rate)}
    make(model_dir=tmp_path, **adagrad).train(input_fn, steps=2)
    caplog.clear()
    make(model_dir=tmp_path, **adagrad).evaluate(input_fn, steps=2)
    gc.collect()  # TensorFlow warns where what it has restored from is deleted
    assert "checkpoint" not in caplog.text


def test_values_that_the_model_has_no_more_are_named_in_training(tmp_path, caplog):
    make(forward=bigger_model_fn, model_dir=tmp_path).train(input_fn, steps=2)
    make(model_dir=tmp_path).train(input_fn, steps=1)
    assert ("former/kernel. The model has no variables for it, and checkpoints from now on do not "
            f"have it. The checkpoint is {tmp_path}/ckpt-2.") in caplog.text


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    tf.train.Checkpoint(other=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    with pytest.raises(ValueError, match=r"not bound to checkpointed values.*`model_dir` must have "
                       r"checkpoints of this model's Trainer, got '.*/ckpt-1'. Give another"):
        make(model_dir=tmp_path).train(input_fn, steps=1)


def test_a_regularized_layer_that_is_shared_is_refused():
    def shared(features, labels, mode, params):
        for _ in range(2):
            with v1.variable_scope("tower", reuse=v1.AUTO_REUSE):
                net = v1.layers.dense(features["words"], 1, name="dense",
                                      kernel_regularizer=tf.keras.regularizers.l2(0.1))
        return Outputs(mode, loss=tf.reduce_mean(net) + v1.losses.get_regularization_loss())
    with pytest.raises(NotImplementedError, match="'tower/dense/kernel' is shared by layers"):
        make(forward=shared).train(input_fn, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_model_fn_may_change_its_inputs_in_place(cls, tmp_path):
    """Nested features and labels, in all modes: a tf.function refuses that for its arguments."""
    def changing(features, labels, mode, params):
        features["nested"]["rate"] *= 2.0
        features["words"] = features["words"] * features["nested"].pop("rate")[:, tf.newaxis]
        return model_fn(features, labels.pop("y") if labels else None, mode, params)

    def nested_input_fn(params):
        return input_fn(params).map(lambda features, y: (
            {**features, "nested": {"rate": tf.fill([4], 0.5)}}, {"y": y}))

    outcomes = []
    for name, forward, read in (("plain", model_fn, input_fn),
                                ("changing", changing, nested_input_fn)):
        trainer = make(cls, forward, model_dir=tmp_path / name)
        trainer.train(read, steps=2)
        logits = [one["logits"] for one in itertools.islice(trainer.predict(read), 4)]
        outcomes.append([trainer.evaluate(read, steps=2)["loss"], *logits])
    np.testing.assert_allclose(outcomes[1], outcomes[0], rtol=1e-6)


@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_labels_are_none_where_the_estimator_has_none(cls):
    seen = set()

    def noting(features, labels, mode, params):
        seen.add((mode, labels is None))
        return model_fn(features, 0.0 if labels is None else labels, mode, params)

    def without(params):
        return input_fn(params).take(1).map(lambda features, labels: features)

    trainer = make(cls, noting)
    trainer.train(without, steps=1)
    trainer.evaluate(without)
    next(trainer.predict(input_fn))
    assert seen == {(ModeKeys.TRAIN, True), (ModeKeys.EVAL, True), (ModeKeys.PREDICT, True)}


def test_params_are_copied():
    params = {"decay": 0.25, "inner": [1]}
    seen = []

    def changing(features, labels, mode, params):
        seen.append(list(params["inner"]))
        params["inner"].append(2)
        return model_fn(features, labels, mode, params)

    def reading(params):
        params["inner"].append(3)
        return input_fn(params)

    trainer = Trainer(changing, CONFIG,
                      lambda rate, params: v1.train.GradientDescentOptimizer(rate),
                      lambda step, params: float(len(params["inner"])), params, train_batch_size=4)
    params["inner"].append(4)
    trainer.train(reading, steps=1)
    assert len(seen) > 1 and all(one == [1] for one in seen)
    assert trainer.params["inner"] == [1]


def test_multiplier_of_a_feature_that_the_loss_does_not_use():
    def ignoring(features, labels, mode, params):
        return Outputs(mode, loss=tf.reduce_sum(v1.get_variable("kernel", [2])))

    config = types.SimpleNamespace(**{**vars(CONFIG), "GRADIENT_MULTIPLIER": lambda step: 0.5})
    trainer = Trainer(ignoring, config,
                      lambda rate, params: v1.train.GradientDescentOptimizer(rate),
                      lambda step, params: 0.1, train_batch_size=4)
    with pytest.warns(UserWarning, match="gradient of feature 'words' is None"):
        trainer.train(input_fn, steps=1)
    np.testing.assert_array_equal(trainer.get_variable_value(TABLE), np.full((5, 2), 0.5))


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_evaluation_and_prediction_look_up_as_training_does(cls, combiner, kind):
    """Weights that are negative or zero count, unlike in TensorFlow's lookup for serving."""
    def config(global_step=None):
        table = mid_level.TableConfig(5, 2, optimizer=mid_level.SGD(0.0), name="tbl_words",
                                      combiner=combiner,
                                      initializer=tf.constant_initializer(ROWS))
        return {"words": mid_level.FeatureConfig(table)}

    def forward(features, labels, mode, params):
        logits = features["words"][:, 0]
        unchanged = v1.get_variable("unchanged", [], initializer=v1.zeros_initializer())
        if mode == ModeKeys.PREDICT:
            return Outputs(mode, {"logits": logits})
        return Outputs(mode, loss=tf.tensordot(logits, SCALES, 1) + 0.0 * unchanged)

    def input_fn(params):
        ids, weights = (tf.RaggedTensor.from_row_lengths(values, [2, 3, 0, 1])
                        for values in ([3, 1, 0, 4, 2, 1], [2.0, -1.0, 0.5, 0.0, 1.0, -3.0]))
        features = {"words": ids, "weights": weights}
        if kind == "sparse":
            features = {name: value.to_sparse() for name, value in features.items()}
        return tf.data.Dataset.from_tensors((features, tf.zeros([4])))

    rows = ROWS[:, 0]
    scale = {"sum": lambda weights: 1.0, "mean": np.sum,
             "sqrtn": lambda weights: np.sqrt(np.sum(np.square(weights)))}[combiner]
    expected = [sum(weight * rows[i] for i, weight in zip(ids, weights, strict=True)) /
                scale(weights) for ids, weights in (
                    ([3, 1], [2.0, -1.0]), ([0, 4, 2], [0.5, 0.0, 1.0]), ([1], [-3.0]))]
    expected.insert(2, 0.0)
    settings = types.SimpleNamespace(
        feature_config=config, PIPELINED=False, WEIGHT_KEYS={"words": "weights"},
        ONE_ID_FEATURES=[], TABLE_VARIABLES={"tbl_words": TABLE})
    trainer = make(cls, forward, settings).train(input_fn, steps=1)
    found = [row["logits"] for row in trainer.predict(input_fn)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(trainer.evaluate(input_fn)["loss"],
                               np.dot(expected, SCALES), rtol=1e-6)


def test_a_batch_may_lack_features_of_tables():
    config = {**feature_config(), "others": mid_level.FeatureConfig(mid_level.TableConfig(3, 1))}
    embedding = mid_level.TPUEmbedding(config, None)
    assert embedding.lookup_batch({}, {}) == {}
    [(name, rows)] = embedding.lookup_batch({"words": tf.constant([4, 0, 1])}, {}).items()
    assert name == "words" and rows.numpy().tolist() == [[0.5, 0.5]] * 3


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_every_batch_is_read_once(cls, caplog):
    """An input that cannot be read from its start again, as one of a queue cannot."""
    batches, seen = iter(range(4)), []

    def reading(params):
        return tf.data.Dataset.from_generator(
            lambda: (({"words": [number] * 4}, [0.0] * 4) for number in batches),
            output_signature=({"words": tf.TensorSpec([4], tf.int64)}, tf.TensorSpec([4])))

    def noting(features, labels, mode, params):
        tf.numpy_function(lambda rows: seen.append(rows[0, 0]), [features["words"]], [])
        return model_fn(features, labels, mode, params)

    def numbered(global_step=None):
        table = mid_level.TableConfig(
            5, 2, optimizer=mid_level.SGD(0.0), name="tbl_words",
            initializer=tf.constant_initializer(np.arange(5.0)[:, np.newaxis] * np.ones(2)))
        return {"words": mid_level.FeatureConfig(table)}

    config = types.SimpleNamespace(**{**vars(CONFIG), "feature_config": numbered})
    trainer = make(cls, noting, config)
    trainer.train(reading)
    assert seen == [0, 1, 2, 3]
    with caplog.at_level("WARNING"):
        assert trainer.train(reading) is trainer  # whose input has ended
    assert "ended before the first step" in caplog.text and seen == [0, 1, 2, 3]


def test_a_seed_is_that_of_layers_too():
    def dense(features, labels, mode, params):
        return Outputs(mode, loss=tf.reduce_mean(v1.layers.dense(features["words"], 3)))
    first, second, other = (make(forward=dense, tf_random_seed=seed).train(
        input_fn, steps=1).get_variable_value("dense/kernel") for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, second)
    assert np.any(first != other)


@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_initializers_with_equal_seeds_draw_the_values_of_a_graph(cls):
    """Tables, variables of get_variable and of layers; an eager op would go on with its seed."""
    draw = v1.random_uniform_initializer(-1.0, 1.0, seed=5)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(3)
        expected = {shape: session.run(draw(shape)) for shape in ((5, 2), (2, 1))}
    tables = [mid_level.TableConfig(5, 2, draw, mid_level.SGD(0.5), name=name) for name in "ab"]
    of_keras = v1.keras.initializers.RandomUniform(-1.0, 1.0, seed=5)

    def forward(features, labels, mode, params):
        total = 0.0
        for name in "ab":
            dense = v1.keras.utils.get_or_create_layer(
                f"keras_{name}", lambda: v1.keras.layers.Dense(1, kernel_initializer=of_keras))
            rows = features[name]
            total += dense(rows) + rows @ v1.get_variable(f"of_{name}", [2, 1], initializer=draw)
            total += v1.layers.dense(rows, 1, kernel_initializer=draw, name=f"layer_{name}")
        return Outputs(mode, loss=tf.reduce_mean(total))

    trainer = make(cls, forward, types.SimpleNamespace(
        feature_config=lambda step: {table.name: mid_level.FeatureConfig(table)
                                     for table in tables},
        PIPELINED=False, WEIGHT_KEYS={}, ONE_ID_FEATURES=["a", "b"], TABLE_VARIABLES={}),
        tf_random_seed=3)
    trainer.evaluate(lambda params: tf.data.Dataset.from_tensors(
        ({"a": IDS[:4], "b": IDS[:4]}, LABELS[:4])))
    drawn = [name for name in trainer.get_variable_names() if "bias" not in name]
    assert len(drawn) == 2 + 6 + 1
    for name in set(drawn) - {"global_step"}:
        value = trainer.get_variable_value(name)
        np.testing.assert_array_equal(value, expected[value.shape], err_msg=name)
    assert tables[0].initializer is draw


def test_no_checkpoints_where_run_config_has_none(tmp_path):
    make(model_dir=tmp_path, save_checkpoints_secs=None).train(input_fn, steps=1)
    assert not list(tmp_path.glob("ckpt*"))
    make(model_dir=tmp_path, save_checkpoints_steps=7).train(input_fn, steps=1)
    assert list(tmp_path.glob("ckpt-1.index"))


def test_slots_of_names_that_differ_by_a_slash(tmp_path):
    def forward(features, labels, mode, params):
        values = [v1.get_variable(name, [2], initializer=v1.ones_initializer())
                  for name in ("a/b", "a.b")]
        return Outputs(mode, loss=tf.reduce_sum(
            features["words"] * (values[0] ** 2 + 3.0 * values[1])))

    def made():
        return Trainer(forward, CONFIG, lambda rate, params: v1.train.MomentumOptimizer(rate, 0.9),
                       lambda step, params: 0.1, {}, tmp_path, train_batch_size=4)

    first = made().train(input_fn, steps=2)
    second = made().train(input_fn, max_steps=2)  # which makes and restores the variables
    for name in ("a/b/Momentum", "a.b/Momentum"):
        np.testing.assert_array_equal(second.get_variable_value(name),
                                      first.get_variable_value(name))


def test_what_a_checkpoint_has_in_addition_is_logged(tmp_path, caplog):
    with tf.Graph().as_default(), v1.Session() as session:
        for name, shape in ((TABLE, [5, 2]), ("kernel", [2, 1]), ("unused", [3]),
                            ("kernel/Momentum", [2, 1]), ("beta1_power", []), ("shadow", [])):
            v1.get_variable(name, shape)
        v1.train.create_global_step()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"), 7)
    with caplog.at_level("WARNING"):
        make().restore_estimator_checkpoint(str(tmp_path / "model.ckpt-7"), input_fn)
    assert "no variables for ['beta1_power', 'kernel/Momentum', 'shadow']" in caplog.text


def test_mean_of_losses_is_the_estimators_bit_for_bit():
    losses = np.random.default_rng(1).uniform(0.1, 9.0, 1000).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        given = v1.placeholder(tf.float32, [])
        value, update = v1.metrics.mean(given)
        session.run(v1.local_variables_initializer())
        for loss in losses:
            session.run(update, {given: loss})
        expected = session.run(value)
    assert mean(map(float, losses)) == float(expected)
    assert mean(map(float, losses)) != float(losses.astype(np.float64).mean())


@pytest.mark.slow
def test_features_have_the_order_of_the_estimators():
    """By plan: others, without weights, then activations by table and feature."""
    seen = []

    def tables_of_two(global_step=None):
        first, second = (mid_level.TableConfig(5, 2, optimizer=mid_level.SGD(0.5), name=name)
                         for name in ("a", "b"))
        return {"x": mid_level.FeatureConfig(second), "z": mid_level.FeatureConfig(first),
                "y": mid_level.FeatureConfig(first)}

    def forward(features, labels, mode):
        seen.append(list(features))
        kernel = v1.get_variable("kernel", [2, 1], initializer=v1.ones_initializer())
        net = features["x"] + features["y"] + features["z"]
        return Outputs(mode, loss=tf.reduce_mean(tf.matmul(net, kernel)))

    def weighted(params):
        ids = tf.sparse.from_dense([[1, 2]] * 4)
        values = tf.sparse.map_values(lambda one: tf.cast(one, tf.float32), ids)
        features = {"x": ids, "n": [1.0] * 4, "w": values, "y": ids, "z": ids, "m": [2.0] * 4}
        return tf.data.Dataset.from_tensors((features, LABELS[:4]))

    config = types.SimpleNamespace(
        feature_config=tables_of_two, PIPELINED=False, WEIGHT_KEYS={"x": "w"}, ONE_ID_FEATURES=[],
        TABLE_VARIABLES={})
    for cls in (Trainer, KerasTrainer):
        make(cls, forward, config).train(weighted, steps=1)
    assert {tuple(names) for names in seen} == {("n", "m", "y", "z", "x")}


def test_activations_and_dense_columns_have_the_order_of_input_layer():
    column = tf.feature_column
    words = tpu_estimator_embedding.embedding_column(
        column.categorical_column_with_identity("words", 5), 2)
    age = column.numeric_column("age")
    others = [column.bucketized_column(age, [2.0]), age, column.indicator_column(
        column.categorical_column_with_identity("zone", 2))]
    features = {"words": tf.constant([[5.0, 6.0]]), "age": tf.constant([3.0]),
                "zone": tf.constant([1])}
    found = activations_of(features, [words, *others])
    assert found.numpy().tolist() == [[3.0, 0.0, 1.0, 5.0, 6.0, 0.0, 1.0]]
    assert activations_of(features, age).numpy().tolist() == [[3.0]]
    with pytest.raises(TypeError, match="got the EmbeddingColumn 'zone_embedding'"):
        activations_of(features, column.embedding_column(others[2].categorical_column, 2))


def test_variable_that_only_training_trains_is_refused_after_another_mode():
    def forward(features, labels, mode):
        kernel = v1.get_variable("kernel", [2, 1], initializer=v1.ones_initializer(),
                                 trainable=mode == ModeKeys.TRAIN)
        net = v1.layers.dense(tf.matmul(features["words"], kernel), 1)
        return Outputs(mode, loss=tf.reduce_mean((net - labels) ** 2))

    trainer = make(forward=forward)
    trainer.train(input_fn, steps=1)
    trainer.evaluate(input_fn, steps=1)
    trainer.train(input_fn, steps=1)
    assert not np.array_equal(trainer.get_variable_value("kernel"), np.ones([2, 1]))
    trainer = make(forward=forward)
    trainer.evaluate(input_fn, steps=1)
    with pytest.raises(NotImplementedError, match="'kernel' has trainable=False from an earlier"):
        trainer.train(input_fn, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_updates_run_in_training_only(cls):
    def normalized(features, labels, mode):
        net = v1.layers.batch_normalization(features["words"], training=True)
        if mode == ModeKeys.PREDICT:
            return Outputs(mode, {"net": net})
        return Outputs(mode, loss=tf.reduce_mean(net ** 2))

    def averages(trainer):
        return trainer.get_variable_value("batch_normalization/moving_mean")

    trainer = make(cls, forward=normalized).train(input_fn, steps=2)
    trained = averages(trainer)
    assert np.abs(trained).min() > 0
    trainer.evaluate(input_fn, steps=2)
    assert next(trainer.predict(input_fn))
    np.testing.assert_array_equal(averages(trainer), trained)
    trainer.train(input_fn, steps=1)
    assert np.abs(averages(trainer) - trained).min() > 0


@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
@pytest.mark.parametrize("optimizer", [
    v1.train.AdagradOptimizer, lambda rate: tf.keras.optimizers.Adagrad(rate, epsilon=0.0)])
def test_variable_without_a_gradient_has_no_slot_and_is_restored(cls, optimizer, tmp_path):
    def forward(features, labels, mode):
        kernel = v1.get_variable("kernel", [2, 1], initializer=v1.ones_initializer())
        v1.get_variable("temp", [3], initializer=v1.zeros_initializer())
        return Outputs(mode, loss=tf.reduce_mean(tf.matmul(features["words"], kernel)))

    with tf.Graph().as_default(), v1.Session() as session:
        values = {"global_step": np.int64(5), TABLE: ROWS, "kernel": np.float32([[3], [4]]),
                  "temp": np.float32([1, 2, 3]), "kernel/Adagrad": np.float32([[0.5], [0.25]])}
        variables = {name: v1.get_variable(name, initializer=value)
                     for name, value in values.items()}
        session.run(v1.global_variables_initializer())
        path = v1.train.Saver(variables).save(session, str(tmp_path / "model.ckpt"), 5)
    trainer = cls(forward, CONFIG, lambda rate, params: optimizer(rate), lambda step, params: 0.1,
                  train_batch_size=4, eval_batch_size=4,
                  dense_slots={"_accumulators": "Adagrad"})
    trainer.restore_estimator_checkpoint(path, input_fn)
    assert "temp/Adagrad" not in trainer.get_variable_names()
    np.testing.assert_array_equal(trainer.get_variable_value("temp"), values["temp"])
    trainer.train(input_fn, steps=1)
    gradient = np.mean(ROWS[IDS[:4]], axis=0)[:, np.newaxis]
    np.testing.assert_allclose(
        trainer.get_variable_value("kernel"), values["kernel"] - 0.1 * gradient / np.sqrt(
            values["kernel/Adagrad"] + gradient ** 2), rtol=1e-5)
    np.testing.assert_array_equal(trainer.get_variable_value("temp"), values["temp"])


def evaluated_with(metric_fn, shapes, step=7):
    metrics = StreamingMetrics(metric_fn, step)
    for shape in shapes:
        metrics.update({"values": np.ones(shape, np.float32)})
    return metrics.result()


def test_metric_function_reads_the_step_and_shapes_that_change():
    def metric_fn(values):
        step = v1.train.get_or_create_global_step()
        assert v1.train.get_global_step() is step
        return {"step": v1.metrics.mean(step), "count": v1.metrics.mean(tf.size(values)),
                "rows": v1.metrics.mean(float(values.shape[0]))}

    found = evaluated_with(metric_fn, [[4, 5], [4, 3], [4, 7]])
    assert found == {"step": 7.0, "count": 20.0, "rows": 4.0}  # means over all batches
    assert evaluated_with(lambda values: {"n": v1.metrics.mean(tf.size(values))},
                          [[4], [4], [1]]) == {"n": 3.0}


def test_metric_function_with_a_variable_of_the_model_is_refused():
    with pytest.raises(NotImplementedError, match=r"makes the variables \['kernel'\]"):
        evaluated_with(lambda values: {"n": v1.metrics.mean(v1.get_variable("kernel", [2]))}, [[4]])


@pytest.mark.slow
@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("cls", [Trainer, KerasTrainer])
def test_trains_and_evaluates_by_turns(cls, pipelined, tmp_path):
    config = types.SimpleNamespace(**{**vars(CONFIG), "PIPELINED": pipelined})
    evaluated = []

    def eval_input_fn(params):
        evaluated.append(len(evaluated))
        return input_fn(params)

    for number, (throttle_secs, evaluations) in enumerate([(0, 3), (600, 2)]):
        evaluated.clear()
        trainer = make(cls, config=config, model_dir=str(tmp_path / str(number)),
                       save_checkpoints_steps=2)
        results, exports = train_and_evaluate(
            trainer, TrainSpec(input_fn, max_steps=5),
            EvalSpec(eval_input_fn, steps=2, throttle_secs=throttle_secs))
        assert (len(evaluated), exports, results["global_step"]) == (evaluations, [], 5)
        assert results["loss"] == pytest.approx(np.mean(losses(trainer)[0]), rel=1e-5)
        alone = make(cls, config=config, model_dir=str(tmp_path / f"alone {number}"))
        alone.train(input_fn, max_steps=5)
        for name in alone.get_variable_names():
            np.testing.assert_array_equal(
                trainer.get_variable_value(name), alone.get_variable_value(name), err_msg=name)
        assert train_and_evaluate(trainer, TrainSpec(input_fn, max_steps=5), EvalSpec(
            eval_input_fn, steps=2))[0] == results


@pytest.mark.parametrize("make_spec, error, sentence", [
    (lambda: TrainSpec(input_fn, max_steps=0), ValueError, "Must specify max_steps > 0, given: 0"),
    (lambda: TrainSpec(input_fn, hooks=[1]), ValueError, "`hooks` must be empty"),
    (lambda: EvalSpec(input_fn, steps=0), ValueError, "Must specify steps > 0, given: 0"),
    (lambda: EvalSpec(input_fn, throttle_secs=-1), ValueError,
     "Must specify throttle_secs >= 0, given: -1"),
    (lambda: train_and_evaluate(None, EvalSpec(input_fn), EvalSpec(input_fn)), TypeError,
     "`train_spec` must be a TrainSpec of tpu_estimator_embedding.trainer")])
def test_wrong_specs_are_refused(make_spec, error, sentence):
    with pytest.raises(error, match=sentence):
        make_spec()
