# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.distribute.tpu_strategy` with the strategies for this machine in it.

A view, because TensorFlow's own modules ask whether a strategy is of the classes that they know.
"""

from tensorflow.python.distribute import tpu_strategy as _upstream

from tpu_estimator_embedding.compat.module_view import ModuleView
from tpu_estimator_embedding.compat.stand_ins.tpu_strategy import (
    ExperimentalTPUStrategy,
    TPUStrategy,
)

tpu_strategy = ModuleView(_upstream.__name__, lambda: _upstream, {
    "TPUStrategy": ExperimentalTPUStrategy, "TPUStrategyV2": TPUStrategy})
