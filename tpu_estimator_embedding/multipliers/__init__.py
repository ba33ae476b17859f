# SPDX-License-Identifier: Apache-2.0
"""Schedules of the gradient multiplier, which scales the gradients of embeddings over time.

    g = m(t) · Σ ∂loss/∂activation

The gradient of every row is multiplied by m(t) of the global step t, before it is clipped
and before the optimizer uses it. A schedule can be used wherever TensorFlow takes a function
of the step:

>>> from tpu_estimator_embedding import multipliers
>>> half = multipliers.freeze_until(500) * 0.5
>>> half, half.text, float(half(499)), float(half(500))
(freeze_until(step 500) * constant(0.5), 'freeze_until:500*0.5', 0.0, 0.5)
>>> multipliers.parse(half.text) == half
True

    EmbeddingConfigSpec(..., experimental_gradient_multiplier_fn=multipliers.linear_warmup(1000))

Single tables may have their own schedules, which replace the common one, m_table(t) instead of
m(t). A mapping selects tables by name, glob or, after `re:`, regular expression. An exact name
takes precedence over patterns; of several patterns the first match is used:

    EmbeddingConfigSpec(..., table_multipliers={"user*": 0.1, "re:ad_(city|zip)": "warmup:1000"})

TPUEmbedding, TPUEmbeddingV2, the Keras layers and PartialTPUEmbedding accept the same argument.
With pipelining, a gradient is scaled by the multiplier of the step in which it was computed.

A multiplier is not a learning rate. Optimizers that divide by the size of past gradients
(Adagrad, Adam, RMSProp, ...) largely cancel a constant multiplier over time. A multiplier of 0
means a gradient of 0, which is not the same as no update. Its effect on the rows that a step
looks up:

===================  ==========================================  ==========================
optimizer            slots                                       rows
===================  ==========================================  ==========================
SGD                  (none)                                      stay
Adagrad              accumulator stays                           stay
ProximalAdagrad      accumulator stays                           shrink by l1 and l2, if any
AdagradMomentum      momenta shrink; accumulator stays, or       move on by the momenta
                     shrinks where beta2 < 1
Momentum             momenta shrink                              move on by the momenta
RMSProp              ms and mom shrink                           move on by mom
Adam                 m and v shrink                              move on by m
FTRL                 accumulator and linear stay                 are what linear says: where
                                                                 it said so before, they stay
ProximalYogi         m shrinks, v stays                          move on by m; l1 and l2
FrequencyEstimator   last_hit_step is the step                   are estimated as always: it
                                                                 reads no gradient
===================  ==========================================  ==========================

Weight decay, clip_weight_min and clip_weight_max apply as in every other step. A momentum of 0
moves nothing, so a multiplier that is 0 from the start leaves rows unchanged, except with FTRL
(which computes a row from its slots alone), FrequencyEstimator, and decay or penalties.
"""

from tpu_estimator_embedding.multipliers.schedule import Constant as constant
from tpu_estimator_embedding.multipliers.schedule import Schedule, to_schedule
from tpu_estimator_embedding.multipliers.schedules import Cosine as cosine
from tpu_estimator_embedding.multipliers.schedules import Cyclic as cyclic
from tpu_estimator_embedding.multipliers.schedules import ExponentialDecay as exponential_decay
from tpu_estimator_embedding.multipliers.schedules import FreezeAfter as freeze_after
from tpu_estimator_embedding.multipliers.schedules import FreezeUntil as freeze_until
from tpu_estimator_embedding.multipliers.schedules import LinearWarmup as linear_warmup
from tpu_estimator_embedding.multipliers.schedules import Piecewise as piecewise
from tpu_estimator_embedding.multipliers.table_multipliers import TableMultipliers
from tpu_estimator_embedding.multipliers.text_format import parse

__all__ = [
    "Schedule", "TableMultipliers", "constant", "cosine", "cyclic", "exponential_decay",
    "freeze_after", "freeze_until", "linear_warmup", "parse", "piecewise", "to_schedule"]
