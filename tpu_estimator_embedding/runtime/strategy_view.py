# SPDX-License-Identifier: Apache-2.0
"""A view of `tensorflow.python.distribute.tpu_strategy` with the strategies for this machine.

The module itself is not patched, because TensorFlow's modules test strategies against its classes.
"""

from tensorflow.python.distribute import tpu_strategy as _upstream

from tpu_estimator_embedding.compat.stubs.tpu_strategy import (
    ExperimentalTPUStrategy,
    TPUStrategy,
)
from tpu_estimator_embedding.patches.module_view import ModuleView

tpu_strategy = ModuleView(_upstream.__name__, lambda: _upstream, {
    "TPUStrategy": ExperimentalTPUStrategy, "TPUStrategyV2": TPUStrategy})
