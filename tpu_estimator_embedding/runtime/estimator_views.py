# SPDX-License-Identifier: Apache-2.0
"""tensorflow_estimator's TPU modules, with this package's classes in them.

The modules themselves keep their own classes: this package's TPUEstimator derives from
theirs, whose methods look their own class up in the module to call `super` of it.
"""

from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

# isort: split
# Only now, because importing TPUEstimator makes tensorflow_estimator importable.
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding as _embedding
from tensorflow_estimator.python.estimator.tpu import tpu_estimator as _estimator

from tpu_estimator_embedding.compat.module_view import ModuleView
from tpu_estimator_embedding.config import optimization_parameters


def _ours(theirs: type) -> type:
    return getattr(optimization_parameters, theirs.__name__)


_PARAMETERS = {optimizer.__name__: _ours(optimizer)
               for optimizer in _embedding._SUPPORTED_OPTIMIZERS}

tpu_estimator = ModuleView(_estimator.__name__, lambda: _estimator, {
    "TPUEstimator": TPUEstimator,
    **{name: ours for name, ours in _PARAMETERS.items() if hasattr(_estimator, name)}})
_tpu_estimator_embedding = ModuleView(_embedding.__name__, lambda: _embedding, {
    "EmbeddingConfigSpec": EmbeddingConfigSpec, **_PARAMETERS,
    "_SUPPORTED_OPTIMIZERS": tuple(map(_ours, _embedding._SUPPORTED_OPTIMIZERS))})
