# SPDX-License-Identifier: Apache-2.0
"""Views of tensorflow_estimator's TPU modules that show this package's classes.

The modules themselves keep their own classes. This package's TPUEstimator derives from
upstream's, whose methods look up their class in the module to call `super`.
"""

from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

# isort: split
# Imported last, because importing TPUEstimator makes tensorflow_estimator importable.
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding as _embedding
from tensorflow_estimator.python.estimator.tpu import tpu_estimator as _estimator

from tpu_estimator_embedding.config import optimization_parameters
from tpu_estimator_embedding.patches.module_view import ModuleView


def _counterpart(upstream_class: type) -> type:
    return getattr(optimization_parameters, upstream_class.__name__)


_PARAMETERS = {optimizer.__name__: _counterpart(optimizer)
               for optimizer in _embedding._SUPPORTED_OPTIMIZERS}

tpu_estimator = ModuleView(_estimator.__name__, lambda: _estimator, {
    "TPUEstimator": TPUEstimator,
    **{name: counterpart for name, counterpart in _PARAMETERS.items()
       if hasattr(_estimator, name)}})
_tpu_estimator_embedding = ModuleView(_embedding.__name__, lambda: _embedding, {
    "EmbeddingConfigSpec": EmbeddingConfigSpec, **_PARAMETERS,
    "_SUPPORTED_OPTIMIZERS": tuple(map(_counterpart, _embedding._SUPPORTED_OPTIMIZERS))})
