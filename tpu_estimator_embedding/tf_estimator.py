# SPDX-License-Identifier: Apache-2.0
"""`tf.estimator` for explicit imports, as in `tf.compat.v1`, with this package's TPU classes.

Nothing in TensorFlow is patched for it but what `TPUEstimator` itself needs. `tpu` and
`tpu.experimental` are TPUEstimator's names; `v2` has those names whose classes are others
in TensorFlow 2's own `tf.estimator`, such as `v2.DNNClassifier`.

Estimators need Keras 2: import this module before anything of `tf.keras` is used.

>>> from tpu_estimator_embedding import tf_estimator
>>> tf_estimator.ModeKeys.TRAIN
'train'
>>> tf_estimator.tpu.TPUEstimator.__module__
'tpu_estimator_embedding.estimator.tpu_estimator'
"""

from typing import Any

from tpu_estimator_embedding.compat import legacy_keras, upstream
from tpu_estimator_embedding.config import optimization_parameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.estimator.extenders import add_metrics
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator
from tpu_estimator_embedding.patches.module_view import ModuleView
from tpu_estimator_embedding.patches.patch_table import EXPORTED
from tpu_estimator_embedding.runtime import run_config

# isort: split
# Only now, because importing TPUEstimator makes tensorflow_estimator importable.
from tensorflow_estimator.python.estimator.api._v1 import estimator as _v1
from tensorflow_estimator.python.estimator.api._v2 import estimator as _v2

legacy_keras.use()  # the layers of a model_fn are those of Keras 2, as Estimators are

tpu = ModuleView(f"{__name__}.tpu", lambda: _v1.tpu, {
    "RunConfig": run_config.RunConfig,  # not `tf.estimator.RunConfig`
    "TPUContext": upstream.tpu_context.TPUContext,
    "TPUEstimator": TPUEstimator,
    "experimental": ModuleView(f"{__name__}.tpu.experimental", lambda: _v1.tpu.experimental, {
        "EmbeddingConfigSpec": EmbeddingConfigSpec,
        **{name: getattr(optimization_parameters, name) for name in EXPORTED}})})

v2 = ModuleView(f"{__name__}.v2", lambda: _v2, {"add_metrics": add_metrics, "tpu": tpu})


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not hasattr(_v1, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_v1, name)


def __dir__() -> list[str]:
    return sorted({*(name for name in dir(_v1) if not name.startswith("_")), "tpu", "v2"})
