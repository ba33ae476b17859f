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

tpu_estimator = ModuleView(_estimator.__name__, lambda: _estimator,
                           {"TPUEstimator": TPUEstimator})
_tpu_estimator_embedding = ModuleView(_embedding.__name__, lambda: _embedding,
                                      {"EmbeddingConfigSpec": EmbeddingConfigSpec})
