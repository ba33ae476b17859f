# SPDX-License-Identifier: Apache-2.0
"""Names of slot variables: those of TPUEstimator's checkpoints, for every rule."""

import pytest

from tpu_estimator_embedding.checkpoint.names import slot_variable_names
from tpu_estimator_embedding.config import slot_variable_names as tuples
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adagrad_momentum import AdagradMomentum
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.optimizers.ftrl import FTRL
from tpu_estimator_embedding.optimizers.momentum import Momentum
from tpu_estimator_embedding.optimizers.proximal_adagrad import ProximalAdagrad
from tpu_estimator_embedding.optimizers.proximal_yogi import ProximalYogi
from tpu_estimator_embedding.optimizers.rmsprop import RMSProp
from tpu_estimator_embedding.optimizers.sgd import SGD

# Rule -> field of its SlotVariableNames -> name, in the order of both.
NAMES = {
    SGD(): {},
    Adagrad(): {"accumulator": "T/Adagrad"},
    AdagradMomentum(): {"accumulator": "T/AdagradMomentum/Accumulator",
                        "momenta": "T/AdagradMomentum/Momentum"},
    ProximalAdagrad(): {"accumulator": "T/ProximalAdagrad"},
    Adam(): {"m": "T/Adam/m", "v": "T/Adam/v"},
    FTRL(): {"accumulator": "T/Ftrl", "linear": "T/Ftrl_1"},
    ProximalYogi(): {"v": "T/ProximalYogi", "m": "T/ProximalYogi_1"},
    Momentum(): {"momenta": "T/Momentum"},
    RMSProp(0.9, 0.0, 1e-7): {"ms": "T/RMSProp/ms", "mom": "T/RMSProp/mom"},
    FrequencyEstimator(0.1, 100.0, 5.0): {"last_hit_step": "T/FrequencyEstimator"},
}


@pytest.mark.parametrize("rule", NAMES, ids=lambda rule: type(rule).__name__)
def test_slots_of_a_rule_have_the_names_of_tpu_checkpoints(rule):
    names = slot_variable_names("T", rule)
    assert list(names) == list(rule.slot_initial_values)
    assert list(names.values()) == list(NAMES[rule].values())


@pytest.mark.parametrize("rule", [rule for rule in NAMES if NAMES[rule]],
                         ids=lambda rule: type(rule).__name__)
def test_fields_of_the_tuples_stand_in_the_order_of_the_slots(rule):
    name = f"{type(rule).__name__.replace('FTRL', 'Ftrl')}SlotVariableNames"
    assert list(getattr(tuples, name)._fields) == list(NAMES[rule])


def test_table_name_may_have_a_scope():
    assert slot_variable_names("input_layer/words_embedding/embedding_weights", Adagrad()) == {
        "accumulators": "input_layer/words_embedding/embedding_weights/Adagrad"}


def test_unknown_rule_raises():
    class Lion(SGD):
        pass

    with pytest.raises(ValueError, match=r"^`rule` must be one of SGD, Adagrad, .*, got .*Lion"):
        slot_variable_names("T", Lion())
