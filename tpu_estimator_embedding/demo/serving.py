# SPDX-License-Identifier: Apache-2.0
"""Predicts with the demo's model, from the estimator and from its SavedModel."""

import itertools
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.inputs import make_input_fn, record_spec


def predict(estimator: Any, logs: ClickLogs, count: int) -> np.ndarray:
    """Returns the predicted click probabilities of the first held-out records: `[count]`."""
    predictions = estimator.predict(make_input_fn(logs.eval_files))
    first = [item["probability"][0] for item in itertools.islice(predictions, count)]
    predictions.close()
    return np.array(first)


def export(estimator: Any, directory: pathlib.Path) -> pathlib.Path:
    """Writes a SavedModel whose input is serialized records; returns its path."""
    receiver_fn = tf.compat.v1.estimator.export.build_parsing_serving_input_receiver_fn(
        record_spec())
    path = estimator.export_saved_model(str(directory), receiver_fn)
    return pathlib.Path(tf.compat.as_str(path))


def serve(saved_model: pathlib.Path, logs: ClickLogs, count: int) -> np.ndarray:
    """Returns the predictions of a SavedModel, loaded with TensorFlow only."""
    serialized = list(tf.data.TFRecordDataset(str(logs.eval_files[0])).take(count))
    model = tf.saved_model.load(str(saved_model), tags=[tf.saved_model.SERVING])
    serving_default = model.signatures["serving_default"]
    return serving_default(examples=tf.stack(serialized))["probability"].numpy()[:, 0]
