# SPDX-License-Identifier: Apache-2.0
r"""Alternates training and evaluation until the evaluation no longer improves.

Shows `tf.estimator.train_and_evaluate` with early stopping, `BestExporter` and `LatestExporter`,
Keras layers in a model_fn, and `FtrlParameters` with clipped gradients.

    python examples/synthetic_data.py visits /tmp/visits
    tpu-estimator-embedding run examples/continuous_evaluation.py --data_dir=/tmp/visits \
        --job_dir=/tmp/visits/job --eval_every=100 --patience=100
"""

import json
import os
import sys

import tensorflow as tf
from absl import app, flags, logging

FLAGS = flags.FLAGS
flags.DEFINE_string("tpu", "local-tpu", "The Cloud TPU to use.")
flags.DEFINE_string("data_dir", None, "Where train.csv and eval.csv are.")
flags.DEFINE_string("job_dir", None, "Where everything goes.")
flags.DEFINE_integer("max_steps", 2000, "Steps, if it does not stop earlier.")
flags.DEFINE_integer("eval_every", 50, "Steps between checkpoints.")
flags.DEFINE_integer("patience", 150, "Steps without a better AUC before it stops.")
flags.DEFINE_integer("batch_size", 256, "Global batch size.")

COLUMNS = ["country", "device", "hour", "visits", "bought"]
DEFAULTS = [[0], [0], [0], [0.0], [0.0]]
VOCABULARY_SIZES = {"country": 200, "device": 50, "hour": 25}
fc = tf.feature_column


def embedding_columns():
    # Ids begin with 1: 0 is left for padding.
    return [
        tf.compat.v1.tpu.experimental.embedding_column(
            fc.categorical_column_with_identity(name, size), dimension=4)
        for name, size in VOCABULARY_SIZES.items()
    ]


def input_fn_of(filename, is_training):
    def parse(lines):
        features = dict(zip(COLUMNS, tf.io.decode_csv(lines, DEFAULTS)))  # noqa: B905
        label = features.pop("bought")
        for name in VOCABULARY_SIZES:
            features[name] = tf.expand_dims(features[name], axis=-1)
        return features, label

    def input_fn(params):
        path = os.path.join(FLAGS.data_dir, filename)
        dataset = tf.data.TextLineDataset(path).skip(1)
        if is_training:
            dataset = dataset.shuffle(5000).repeat()
        dataset = dataset.batch(params["batch_size"], drop_remainder=True)
        return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(1)

    return input_fn


def serving_input_fn():
    inputs = {
        name: tf.compat.v1.placeholder(tf.int64, [None, 1], name=name)
        for name in VOCABULARY_SIZES
    }
    inputs["visits"] = tf.compat.v1.placeholder(tf.float32, [None], name="visits")
    return tf.estimator.export.ServingInputReceiver(inputs, inputs)


def build_network(features, columns, training):
    embedded = tf.keras.layers.DenseFeatures(columns)(features)
    visits = tf.math.log1p(features["visits"])[:, tf.newaxis]
    inputs = tf.keras.layers.Input(tensor=tf.concat([embedded, visits], axis=1))
    net = tf.keras.layers.Dense(32, activation="relu")(inputs)
    net = tf.keras.layers.Dropout(0.2)(net, training=training)
    net = tf.keras.layers.Dense(16, activation="relu")(net)
    outputs = tf.keras.layers.Dense(1)(net)
    model = tf.keras.Model(inputs=inputs, outputs=outputs)
    model.summary(print_fn=logging.info)
    return tf.squeeze(model.outputs[0], axis=1)


def metrics_fn(labels, probabilities):
    return {
        "auc": tf.compat.v1.metrics.auc(labels, probabilities),
        "mean_label": tf.compat.v1.metrics.mean(labels),
    }


def model_fn(features, labels, mode, config, params):
    del config
    training = mode == tf.estimator.ModeKeys.TRAIN
    logits = build_network(features, params["columns"], training)
    probabilities = tf.sigmoid(logits)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"probability": probabilities}
        return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
            mode=mode, predictions=predictions,
            export_outputs={"predict": tf.estimator.export.PredictOutput(predictions)})
    loss = tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    if training:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
            tf.compat.v1.train.AdamOptimizer(params["learning_rate"]))
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
    return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
        mode=mode, loss=loss,
        eval_metrics=(metrics_fn, {"labels": labels, "probabilities": probabilities}))


def is_better(best_eval_result, current_eval_result):
    return current_eval_result["auc"] > best_eval_result["auc"]


def create_estimator():
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=FLAGS.tpu)
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    columns = embedding_columns()
    parameters = tf.compat.v1.tpu.experimental.FtrlParameters(
        learning_rate=0.3, l1_regularization_strength=0.001, clip_gradient_min=-1.0,
        clip_gradient_max=1.0)
    return tf.compat.v1.estimator.tpu.TPUEstimator(
        model_fn=model_fn,
        config=tf.compat.v1.estimator.tpu.RunConfig(
            cluster=resolver, model_dir=FLAGS.job_dir, tf_random_seed=2,
            save_checkpoints_steps=FLAGS.eval_every, keep_checkpoint_max=20,
            tpu_config=tf.compat.v1.estimator.tpu.TPUConfig(iterations_per_loop=25)),
        params={"columns": columns, "learning_rate": 0.005},
        use_tpu=True,
        train_batch_size=FLAGS.batch_size, eval_batch_size=FLAGS.batch_size,
        predict_batch_size=1,
        embedding_config_spec=tf.compat.v1.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns, optimization_parameters=parameters))


def main(unused_argv):
    estimator = create_estimator()
    early_stopping = tf.estimator.experimental.stop_if_no_increase_hook(
        estimator, "auc", max_steps_without_increase=FLAGS.patience,
        run_every_secs=None, run_every_steps=FLAGS.eval_every)
    train_spec = tf.estimator.TrainSpec(
        input_fn_of("train.csv", True), max_steps=FLAGS.max_steps, hooks=[early_stopping])
    eval_spec = tf.estimator.EvalSpec(
        input_fn_of("eval.csv", False), steps=8, start_delay_secs=0, throttle_secs=0,
        exporters=[
            tf.estimator.BestExporter("best", serving_input_fn, compare_fn=is_better,
                                      exports_to_keep=1),
            tf.estimator.LatestExporter("latest", serving_input_fn, exports_to_keep=2),
        ])
    metrics, _ = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
    json.dump({name: float(value) for name, value in metrics.items()}, sys.stdout)


if __name__ == "__main__":
    logging.set_verbosity(logging.INFO)
    flags.mark_flags_as_required(["data_dir", "job_dir"])
    app.run(main)
