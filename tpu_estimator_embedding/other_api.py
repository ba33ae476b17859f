# SPDX-License-Identifier: Apache-2.0
"""What to import instead, where an object of one API was given to the other.

The Estimator API and that of TensorFlow 2 have classes of the same names. This module
distinguishes them by what they look like, so that neither API imports the other.
"""

from collections.abc import Collection

ESTIMATOR_API = "tpu_estimator_embedding"
TF2_API = "tpu_estimator_embedding.mid_level"

# Optimizer of the TF2 API -> the `*Parameters` of the Estimator API.
_PARAMETERS = {"Adagrad": "AdagradParameters", "AdagradMomentum": "AdagradMomentumParameters",
               "Adam": "AdamParameters", "FTRL": "FtrlParameters",
               "SGD": "StochasticGradientDescentParameters"}
_OPTIMIZERS = {parameters: name for name, parameters in _PARAMETERS.items()}

# Class of the Estimator API -> a field that its namesake, or any other tuple, has not.
_TUPLES = {"TableConfig": "hot_id_replication", "FeatureConfig": "table_id",
           "EmbeddingConfigSpec": "partition_strategy"}

# Class of the TF2 API -> an attribute that its namesake has not.
_CONFIGS = {"TableConfig": "dim", "FeatureConfig": "table"}


def is_of_estimator_api(value: object) -> bool:
    """Whether it is a config, spec or `*Parameters` of the Estimator API, of any library."""
    fields = getattr(value, "_fields", ())
    return "_OptimizationParameters" in _class_names(value) or any(
        field in fields for name, field in _TUPLES.items() if name in _class_names(value))


def is_of_tf2_api(value: object) -> bool:
    """Whether it is a config or an optimizer of the TF2 API, of any library."""
    names = _class_names(value)
    return "_Optimizer" in names and any(name in names for name in _PARAMETERS) or any(
        hasattr(value, attribute) for name, attribute in _CONFIGS.items() if name in names)


def estimator_import(value: object) -> str:
    """Returns the sentence for what the Estimator API refuses; empty unless it is the other's.

    >>> from tpu_estimator_embedding.mid_level import SGD
    >>> estimator_import(SGD(0.1))
    'This SGD belongs to the TF2 API; use the Estimator API here: `from tpu_estimator_embedding \
import StochasticGradientDescentParameters`.'
    """
    if not is_of_tf2_api(value):
        return ""
    name = _known(value, {**_PARAMETERS, **_CONFIGS})
    return (f"This {name} belongs to the TF2 API; use the Estimator API here: "
            f"`from {ESTIMATOR_API} import {_PARAMETERS.get(name, name)}`.")


def tf2_import(value: object) -> str:
    """Returns the sentence for what the TF2 API refuses; empty unless it is the other's.

    >>> from tpu_estimator_embedding import FeatureConfig
    >>> tf2_import(FeatureConfig("words"))
    'This FeatureConfig belongs to the Estimator API; use the TF2 API here: \
`from tpu_estimator_embedding.mid_level import FeatureConfig`.'
    """
    if not is_of_estimator_api(value):
        return ""
    name = _known(value, {**_OPTIMIZERS, **_TUPLES})
    start = f"This {name} belongs to the Estimator API; use the TF2 API here"
    counterpart = "FeatureConfig" if name in _TUPLES and name not in _CONFIGS else name
    counterpart = _OPTIMIZERS.get(name, counterpart)
    if name.endswith("Parameters") and name not in _OPTIMIZERS:
        return f"{start}, which has no such optimizer, only {', '.join(_PARAMETERS)}."
    return f"{start}: `from {TF2_API} import {counterpart}`."


def _known(value: object, names: Collection[str]) -> str:
    """The name of the first class, of its class and the parents, that is among `names`."""
    return next((name for name in _class_names(value) if name in names), type(value).__name__)


def _class_names(value: object) -> list[str]:
    return [base.__name__ for base in type(value).__mro__]
