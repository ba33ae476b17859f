# SPDX-License-Identifier: Apache-2.0
"""The canned Estimators that tensorflow_estimator no longer has."""

from tpu_estimator_embedding.compat.contrib import reasons
from tpu_estimator_embedding.compat.contrib.missing import Missing

NAMES = ("BoostedTreesClassifier", "BoostedTreesEstimator", "BoostedTreesRegressor")


def __getattr__(name: str) -> Missing:
    """Returns what stands for one of the names."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return Missing(name, __getattr__, lambda path: (
        f"There is no tf.estimator.{path} any more. {reasons.INSTEAD['boosted_trees']}"))
