# SPDX-License-Identifier: Apache-2.0
"""What the programs import that `migrate --to tf2` and `layers` write.

A `Trainer` has the methods of TPUEstimator: `train`, `evaluate`, `predict`, `export_saved_model`
and those that read variables, and `train_and_evaluate` takes it. It trains with
`mid_level.TPUEmbedding`, `KerasTrainer` with `Model.fit` and `mid_level.TPUEmbeddingLayer`. A
program keeps its model: a forward function that returns `Outputs`, a learning rate, an optimizer.

Importing this module makes `tf.keras` Keras 2, whose layers have the variables of `tf.layers`.
Names are loaded on first use.

>>> from tpu_estimator_embedding.trainer import ModeKeys, Outputs
>>> Outputs(ModeKeys.PREDICT, predictions={"logits": 0.5}).loss is None
True
"""

import importlib
from typing import Any

from tpu_estimator_embedding.compat import legacy_keras

legacy_keras.use()  # before a class derives from one of Keras 2

_MODULE_OF = {
    "ClassificationOutput": "export",
    "EvalSpec": "training_specs",
    "KerasTrainer": "keras_trainer",
    "ModeKeys": "forward",
    "Outputs": "forward",
    "PredictOutput": "export",
    "RegressionOutput": "export",
    "ServingInputReceiver": "export",
    "TrainSpec": "training_specs",
    "Trainer": "trainer",
    "activations_of": "columns",
    "build_parsing_serving_input_receiver_fn": "export",
    "build_raw_serving_input_receiver_fn": "export",
    "sequences_of": "columns",
    "train_and_evaluate": "training_specs",
}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
