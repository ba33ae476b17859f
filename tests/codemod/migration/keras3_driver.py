# SPDX-License-Identifier: Apache-2.0
"""Trains a program of the stage `keras3` from a checkpoint, for a separate process.

    KERAS_BACKEND=... python keras3_driver.py PROGRAM_DIRECTORY DIRECTORY CONVERT ...

It saves an untrained model in DIRECTORY/template, runs the command CONVERT, which makes
DIRECTORY/start of it, goes on from there for 20 steps, and saves DIRECTORY/end and what an
evaluation and predictions give.
"""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, sys.argv[1])

import before as program  # noqa: E402  # as `migrate` has written it
import keras  # noqa: E402
import keras_training  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


def with_wrong_ids(params):
    return program.input_fn(params).map(lambda features, labels: (
        {**features, "users": tf.sparse.map_values(lambda ids: ids + 20, features["users"])},
        labels))


def with_feature_that_nothing_reads(params):
    return program.input_fn(params).map(lambda features, labels: (
        {**features, "another": tf.ones([params["batch_size"], 1])}, labels))


def message_of(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:
        return str(error)
    return ""


directory, *convert = sys.argv[2:]
training = program.make_estimator(f"{directory}/model")
training.build(program.input_fn)
training.save(f"{directory}/template")
subprocess.run(convert, check=True)
training.restore(f"{directory}/start")
training.train(program.input_fn, max_steps=20)
training.save(f"{directory}/end")
metrics = training.evaluate(program.input_fn, steps=5)
unread = training.evaluate(with_feature_that_nothing_reads, steps=5)
[first, *_] = training.predict(lambda params: program.input_fn(params).take(1))
again = program.make_estimator(f"{directory}/model")  # which goes on where this one ended
again.build(program.input_fn)
(pathlib.Path(again.model_dir) / "checkpoints.json").unlink()  # killed before it was written
saved_again = message_of(again.save_in_model_dir)
third = program.make_estimator(f"{directory}/model")
third.build(program.input_fn)
images = program.make_estimator(f"{directory}/images")
images._forward = lambda features, params: keras.layers.BatchNormalization()(
    keras.ops.expand_dims(keras.ops.expand_dims(features["users"], 1), 1))
named = program.make_estimator(f"{directory}/named")
named._forward = lambda features, params: keras.layers.Dense(1, name="users")(features["users"])
accuracies = [float(keras.ops.mean(keras_training.equal(np.array(labels), np.array(predictions))))
              for labels, predictions in ([[[1], [0], [1]], [1, 0, 0]], [[1, 0], [[1], [1]]])]
with open(f"{directory}/results.json", "w", encoding="utf-8") as file:
    json.dump({"metrics": {name: float(value) for name, value in metrics.items()},
               "unread": {name: float(value) for name, value in unread.items()},
               "prediction": float(first["probabilities"]), "again": again.step,
               "saved_again": saved_again, "third": third.step,
               "backend": keras.backend.backend(),
               "wrong_ids": message_of(training.evaluate, with_wrong_ids, steps=1),
               "both_limits": message_of(training.train, program.input_fn, steps=1, max_steps=2),
               "accuracies": accuracies, "images": message_of(images.build, program.input_fn),
               "named": message_of(named.build, program.input_fn),
               "unequal": message_of(keras_training.equal, np.zeros([3, 2]), np.zeros([3, 4])),
               "is_alone": not any(name.startswith("tpu_estimator") for name in sys.modules)},
              file)
