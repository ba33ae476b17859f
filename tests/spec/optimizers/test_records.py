# SPDX-License-Identifier: Apache-2.0
"""The record of every optimizer agrees with everything that has names for it."""

import ctypes
import dataclasses
import sys

import pytest
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2

from tests.kernel_choice import choose_kernels
from tests.runners import to_row_optimizer
from tests.spec.optimizer_cases import CASES
from tests.subprocesses import start
from tpu_estimator_embedding.config import optimization_parameters
from tpu_estimator_embedding.kernels import library, tensorflow_build
from tpu_estimator_embedding.mid_level.config import optimizers as v2
from tpu_estimator_embedding.optimizers.registry import has_record, rules
from tpu_estimator_embedding.optimizers.sgd import SGD

EXAMPLES = {case.kind: to_row_optimizer(case).rule for case in CASES.values()}

every_rule = pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.__name__)


def test_every_rule_has_a_case_for_the_property_tests():
    assert set(EXAMPLES) == {rule.__name__ for rule in rules()}


def test_a_rule_that_extends_another_has_no_record():
    class Own(SGD):
        pass

    assert has_record(SGD) and not has_record(Own)


@every_rule
def test_slots_and_their_suffixes_and_fields_are_distinct(rule):
    slots = rule.record.slots
    for values in ([slot.name for slot in slots], [slot.suffix for slot in slots],
                   [slot.field for slot in slots]):
        assert len(set(values)) == len(values)
    example = EXAMPLES[rule.__name__]
    assert list(example.slot_initial_values) == [slot.name for slot in slots]
    assert all(isinstance(value, float) for value in example.slot_initial_values.values())


@every_rule
def test_fields_of_a_rule_are_settings_of_the_v1_api(rule):
    settings = getattr(optimization_parameters, rule.record.parameters)
    assert ({field.name for field in dataclasses.fields(rule)}
            <= {field.name for field in dataclasses.fields(settings)})


@every_rule
def test_fields_of_a_rule_are_settings_of_the_v2_api_where_that_has_it(rule):
    assert hasattr(v2, rule.__name__) == (rule.record.v2_attributes is not None)
    if rule.record.v2_attributes is not None:
        settings = getattr(v2, rule.__name__)()
        assert all(hasattr(settings, name) for name in rule.tf2_attributes().values())


@every_rule
def test_ranges_and_sentences_are_of_fields(rule):
    fields = {field.name for field in dataclasses.fields(rule)}
    assert set(rule.record.sentences) <= set(rule.record.ranges) <= fields
    assert all(allowed.contains(getattr(EXAMPLES[rule.__name__], field))
               for field, allowed in rule.record.ranges.items())


@every_rule
def test_message_has_the_fields(rule):
    message = getattr(optimization_parameters_pb2.OptimizationParameters(), rule.record.proto)
    assert set(rule.record.proto_fields) <= {field.name for field in message.DESCRIPTOR.fields}


def test_kernels_have_the_same_names(monkeypatch):
    choose_kernels("native", monkeypatch)
    path = library.find(tensorflow_build.of_imported(__import__("tensorflow")))
    describe = ctypes.CDLL(str(path)).tpu_embedding_rules
    describe.restype = ctypes.c_char_p
    lines = describe().decode().splitlines()
    assert sorted(lines) == sorted(
        "|".join([rule.__name__, " ".join(slot.name for slot in rule.record.slots),
                  " ".join(EXAMPLES[rule.__name__].hyperparameters),
                  str(int("updates_untouched_rows" in vars(rule)))]) for rule in rules())


def test_records_need_no_tensorflow():
    done = start([sys.executable, "-c", (
        "import sys\n"
        "from tpu_estimator_embedding.optimizers.registry import rules\n"
        "assert rules() and 'tensorflow' not in sys.modules")])
    assert done.returncode == 0, f"Import TensorFlow inside of `update`: {done.stderr}"
