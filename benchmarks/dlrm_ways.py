# SPDX-License-Identifier: Apache-2.0
"""The ways of training a DLRM with v1 graphs and this package.

Each returns seconds after the first loop, and the log odds of the evaluation.
"""

import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import tpu_estimator_embedding
from benchmarks import dlrm_model as model
from benchmarks.dlrm import (
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    NUM_NUMBERS,
    Batch,
    Settings,
    initial_table,
    initial_weights,
)

tpu_estimator_embedding.install()
Trained = tuple[float, np.ndarray]


def _weights(settings: Settings) -> list[Any]:
    return [tf.get_variable(f"weights_{number}", initializer=values, use_resource=True)
            for number, values in enumerate(initial_weights(settings))]


def _name(table: int) -> str:
    return f"table_{table:02}"


def _initializer(size: int, dim: int) -> Any:
    return tf.constant_initializer(initial_table(size, dim))


def stock_graph(settings: Settings, training: Sequence[Batch],
                evaluation: Sequence[Batch]) -> Trained:
    """A v1 graph of TensorFlow's own ops, with one optimizer for everything."""
    with tf.Graph().as_default(), tf.Session() as session:
        numbers, ids, labels = _placeholders(settings)
        tables = [tf.get_variable(_name(table), initializer=initial_table(size, settings.dim),
                                  use_resource=True) for table, size in enumerate(settings.sizes)]
        vectors = [tf.nn.embedding_lookup(table, ids[number])
                   for number, table in enumerate(tables)]
        log_odds = model.log_odds(numbers, vectors, _weights(settings))
        train = tf.train.AdagradOptimizer(LEARNING_RATE).minimize(model.mean_loss(log_odds, labels))
        session.run(tf.global_variables_initializer())
        for step, batch in enumerate(training):
            if step == settings.loop:
                start = time.perf_counter()
            session.run(train, dict(zip((numbers, ids, labels), batch, strict=True)))
        seconds = time.perf_counter() - start
        return seconds, np.concatenate([session.run(log_odds, {numbers: batch[0], ids: batch[1]})
                                        for batch in evaluation])


def _placeholders(settings: Settings) -> tuple[Any, Any, Any]:
    return (tf.placeholder(tf.float32, [settings.batch_size, NUM_NUMBERS]),
            tf.placeholder(tf.int32, [len(settings.sizes), settings.batch_size]),
            tf.placeholder(tf.float32, [settings.batch_size]))


def hand_driven(settings: Settings, training: Sequence[Batch],
                evaluation: Sequence[Batch]) -> Trained:
    """Loops on one core, fed by a thread; predictions come from the outfeed."""
    from tensorflow.python.tpu import tpu_embedding, tpu_embedding_gradient, training_loop
    from tensorflow.python.tpu.ops import tpu_ops
    configs = {_name(table): tpu_embedding.TableConfig(
        size, settings.dim, _initializer(size, settings.dim), combiner=None)
        for table, size in enumerate(settings.sizes)}
    engine = tpu_embedding.TPUEmbedding(
        configs, {name: tpu_embedding.FeatureConfig(name) for name in configs},
        settings.batch_size, tpu_embedding.TRAINING, "",
        tpu_embedding.AdagradParameters(LEARNING_RATE))
    shapes = [[settings.batch_size, NUM_NUMBERS], [settings.batch_size]]

    def feed() -> None:
        with tf.Graph().as_default(), tf.Session() as session:
            numbers, ids, labels = _placeholders(settings)
            infeed = tpu_ops.infeed_enqueue_tuple([numbers, labels], shapes, device_ordinal=0)
            enqueue = [tpu_ops.enqueue_tpu_embedding_integer_batch(
                tf.unstack(ids), 0, mode_override=mode) for mode in ("unspecified", "inference")]
            for batches, of_mode in ((training, enqueue[0]), (evaluation, enqueue[1])):
                for batch in batches:
                    session.run([infeed, of_mode],
                                dict(zip((numbers, ids, labels), batch, strict=True)))

    collected: list[np.ndarray] = []

    def collect() -> None:
        with tf.Graph().as_default(), tf.Session() as session:
            dequeue = tpu_ops.outfeed_dequeue(tf.float32, [settings.batch_size], 0)
            collected.extend(session.run(dequeue) for _ in evaluation)

    with tf.Graph().as_default(), tf.Session() as session:
        variables = engine.create_variables_and_ops()
        weights = _weights(settings)

        def train() -> Any:
            numbers, labels = tpu_ops.infeed_dequeue_tuple([tf.float32] * 2, shapes)
            activations = engine.get_activations()
            log_odds = model.log_odds(numbers, list(activations.values()), weights)
            loss = model.mean_loss(log_odds, labels)
            optimizer = tf.train.AdagradOptimizer(LEARNING_RATE)
            gradients = tpu_embedding_gradient.get_gradients_through_compute_gradients(
                optimizer, loss, activations)
            return (optimizer.minimize(loss, var_list=weights),
                    engine.generate_send_gradients_op(gradients))

        def predict() -> Any:
            numbers, _ = tpu_ops.infeed_dequeue_tuple([tf.float32] * 2, shapes)
            return tpu_ops.outfeed_enqueue(
                model.log_odds(numbers, list(engine.get_activations().values()), weights))

        trained = tf.tpu.shard(lambda: training_loop.repeat(settings.loop, train))
        predicted = tf.tpu.shard(lambda: training_loop.repeat(settings.eval_steps, predict))
        session.run(tf.global_variables_initializer())
        session.run(variables.load_ops())
        threads = [threading.Thread(target=target, daemon=True) for target in (feed, collect)]
        for thread in threads:
            thread.start()
        session.run(trained)
        start = time.perf_counter()
        for _ in range(settings.steps // settings.loop - 1):
            session.run(trained)
        seconds = time.perf_counter() - start
        session.run(predicted)
        for thread in threads:
            thread.join()
    return seconds, np.concatenate(collected)


class _Clock(tf.train.SessionRunHook):
    """The times at which runs ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.times.append(time.perf_counter())


def estimator(settings: Settings, training: Sequence[Batch],
              evaluation: Sequence[Batch]) -> Trained:
    """This package's TPUEstimator with dictionaries of tables and features."""
    from tensorflow.python.tpu import tpu_embedding
    api = tf.estimator.tpu
    tables = {_name(table): tpu_embedding.TableConfig(
        size, settings.dim, _initializer(size, settings.dim), combiner=None)
        for table, size in enumerate(settings.sizes)}
    spec = api.experimental.EmbeddingConfigSpec(
        table_to_config_dict=tables,
        feature_to_config_dict={name: tpu_embedding.FeatureConfig(name) for name in tables},
        optimization_parameters=tf.tpu.experimental.AdagradParameters(LEARNING_RATE))

    def input_fn_of(batches: Sequence[Batch]) -> Any:
        def input_fn(params: Any) -> Any:
            numbers, ids, labels = _placeholders(settings)
            dataset = tf.data.Dataset.from_generator(
                lambda: iter(batches), output_types=(tf.float32, tf.int32, tf.float32),
                output_shapes=tuple(value.shape for value in (numbers, ids, labels)))
            return dataset.map(lambda numbers, ids, labels: (
                {"numbers": numbers, **{_name(table): ids[table]
                                        for table in range(len(settings.sizes))}},
                labels)).prefetch(8)
        return input_fn

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        log_odds = model.log_odds(features["numbers"], [features[name] for name in tables],
                                  _weights(settings))
        if mode == tf.estimator.ModeKeys.PREDICT:
            return api.TPUEstimatorSpec(mode, predictions={"log_odds": log_odds})
        loss = model.mean_loss(log_odds, labels)
        optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdagradOptimizer(LEARNING_RATE))
        return api.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, tf.train.get_global_step()))

    clock = _Clock()
    with tempfile.TemporaryDirectory() as directory:
        made = api.TPUEstimator(
            model_fn, use_tpu=True, embedding_config_spec=spec,
            config=api.RunConfig(
                model_dir=directory, save_checkpoints_steps=settings.steps, save_summary_steps=0,
                log_step_count_steps=None,
                tpu_config=api.TPUConfig(iterations_per_loop=settings.loop, num_shards=1)),
            **{f"{part}_batch_size": settings.batch_size
               for part in ("train", "eval", "predict")})
        made.train(input_fn_of(training), hooks=[clock], steps=settings.steps)
        log_odds = [each["log_odds"] for each in made.predict(input_fn_of(evaluation))]
    # The checkpoint is written within the last run.
    runs = settings.steps // settings.loop - 1
    return (clock.times[-2] - clock.times[0]) * runs / (runs - 1), np.array(log_odds)


def mid_level(settings: Settings, training: Sequence[Batch],
              evaluation: Sequence[Batch]) -> Trained:
    """The TF2 class with a GradientTape in a `tf.function`."""
    from tpu_estimator_embedding import mid_level as tf2
    configs = {_name(table): tf2.FeatureConfig(tf2.TableConfig(
        size, settings.dim, _initializer(size, settings.dim), combiner="sum",
        name=_name(table)), output_shape=[settings.batch_size])
        for table, size in enumerate(settings.sizes)}
    embedding = tf2.TPUEmbedding(configs, tf2.Adagrad(LEARNING_RATE, INITIAL_ACCUMULATOR))
    weights = [tf.Variable(values) for values in initial_weights(settings)]
    accumulators = [tf.Variable(np.full_like(values, INITIAL_ACCUMULATOR))
                    for values in initial_weights(settings)]

    def features(ids: Any) -> Any:
        return {name: ids[table][:, tf.newaxis] for table, name in enumerate(configs)}

    @tf.function
    def train(numbers: Any, ids: Any, labels: Any) -> None:
        embedding.enqueue(features(ids))
        activations = embedding.dequeue()
        with tf.GradientTape() as tape:
            tape.watch(activations)
            log_odds = model.log_odds(numbers, [activations[name] for name in configs], weights)
            loss = model.mean_loss(log_odds, labels)
        of_weights, of_activations = tape.gradient(loss, (weights, activations))
        embedding.apply_gradients(of_activations)
        for weight, accumulator, gradient in zip(weights, accumulators, of_weights, strict=True):
            accumulator.assign_add(tf.square(gradient))
            weight.assign_sub(LEARNING_RATE * gradient * tf.math.rsqrt(accumulator))

    @tf.function
    def predict(numbers: Any, ids: Any) -> Any:
        embedding.enqueue(features(ids), training=False)
        activations = embedding.dequeue()
        return model.log_odds(numbers, [activations[name] for name in configs], weights)

    for step, batch in enumerate(training):
        if step == settings.loop:
            start = time.perf_counter()
        train(*map(tf.constant, batch))
    weights[0].numpy()
    return time.perf_counter() - start, np.concatenate(
        [predict(*map(tf.constant, batch[:2])).numpy() for batch in evaluation])
