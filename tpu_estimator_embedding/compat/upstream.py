# SPDX-License-Identifier: Apache-2.0
"""The parts of tensorflow_estimator that this package builds on.

Importing it changes nothing in TensorFlow: names that tensorflow_estimator needs and TensorFlow
removed exist only during the import.
"""

# ruff: noqa: E402  (what makes it importable comes before the imports)

from tpu_estimator_embedding.compat import restored_modules

restored_modules.import_estimator()

from tensorflow_estimator.python.estimator import estimator, model_fn, run_config, training
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_context, tpu_estimator
from tensorflow_estimator.python.estimator.tpu.util import (
    check_positive_integer,
    parse_iterations_per_loop,
)
from tensorflow_estimator.python.estimator.util import fn_args

__all__ = ["check_positive_integer", "estimator", "fn_args", "model_fn",
           "parse_iterations_per_loop", "run_config", "tpu_config", "tpu_context",
           "tpu_estimator", "training"]
