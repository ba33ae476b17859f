# SPDX-License-Identifier: Apache-2.0
"""The parts of tensorflow_estimator that this package builds on.

The modules that it needs and TensorFlow removed are restored first, and the stand-ins for
TPU ops put in place, so that importing `TPUEstimator` is enough to use it.
"""

# ruff: noqa: E402  (restoring comes before the imports that need it)

from tpu_estimator_embedding.compat import modules
from tpu_estimator_embedding.compat.stand_ins import tpu_ops

modules.restore()
tpu_ops.stand_in()

from tensorflow_estimator.python.estimator import estimator, model_fn
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_context, tpu_estimator
from tensorflow_estimator.python.estimator.util import fn_args

__all__ = ["estimator", "fn_args", "model_fn", "tpu_config", "tpu_context", "tpu_estimator"]
