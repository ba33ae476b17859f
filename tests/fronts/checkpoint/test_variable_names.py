# SPDX-License-Identifier: Apache-2.0
"""Names of slot variables: their tuples, and the names that are made of a table's.

Those of every rule are in fronts/low_level/test_variables.py and estimator/step.
"""

import pytest

from tpu_estimator_embedding.checkpoint.names import slot_variable_names
from tpu_estimator_embedding.config import slot_variable_names as tuples
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.sgd import SGD

FIELDS = {"Adagrad": ["accumulator"], "AdagradMomentum": ["accumulator", "momenta"],
          "ProximalAdagrad": ["accumulator"], "Adam": ["m", "v"], "Ftrl": ["accumulator", "linear"],
          "ProximalYogi": ["v", "m"], "Momentum": ["momenta"], "RMSProp": ["ms", "mom"],
          "FrequencyEstimator": ["last_hit_step"]}


@pytest.mark.parametrize("optimizer", FIELDS)
def test_fields_of_the_tuples_stand_in_the_order_of_the_slots(optimizer):
    assert list(getattr(tuples, f"{optimizer}SlotVariableNames")._fields) == FIELDS[optimizer]


def test_table_name_may_have_a_scope():
    assert slot_variable_names("input_layer/words_embedding/embedding_weights", Adagrad()) == {
        "accumulators": "input_layer/words_embedding/embedding_weights/Adagrad"}


def test_unknown_rule_raises():
    class Lion(SGD):
        pass

    with pytest.raises(ValueError, match=r"^`rule` must be one of SGD, Adagrad, .*, got .*Lion"):
        slot_variable_names("T", Lion())
