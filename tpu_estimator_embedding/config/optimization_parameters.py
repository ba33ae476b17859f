# SPDX-License-Identifier: Apache-2.0
"""The `*Parameters` classes: the optimizer of a table and its settings.

Names, order of arguments and defaults are those of TensorFlow 2.15. Calls written for earlier
releases work too, except where an error says otherwise.

>>> AdagradParameters(0.1, clip_gradient_max=5.0, use_gradient_accumulation=False)
Traceback (most recent call last):
ValueError: When using gradient clipping limits, gradient  accumulation must be enabled. \
`use_gradient_accumulation` must be True where clip_gradient_min or clip_gradient_max is given, \
got False.
"""

from tpu_estimator_embedding.config.adagrad_parameters import (
    AdagradMomentumParameters,
    AdagradParameters,
    ProximalAdagradParameters,
)
from tpu_estimator_embedding.config.adam_parameters import AdamParameters, ProximalYogiParameters
from tpu_estimator_embedding.config.common_parameters import _OptimizationParameters
from tpu_estimator_embedding.config.frequency_estimator_parameters import (
    FrequencyEstimatorParameters,
)
from tpu_estimator_embedding.config.ftrl_parameters import FtrlParameters
from tpu_estimator_embedding.config.gradient_descent_parameters import (
    MomentumParameters,
    RMSPropParameters,
    StochasticGradientDescentParameters,
)

__all__ = [
    "AdagradMomentumParameters", "AdagradParameters", "AdamParameters",
    "FrequencyEstimatorParameters", "FtrlParameters", "MomentumParameters",
    "ProximalAdagradParameters", "ProximalYogiParameters", "RMSPropParameters",
    "StochasticGradientDescentParameters", "_OptimizationParameters",
]
