# SPDX-License-Identifier: Apache-2.0
"""`embedding_config.py` builds the plan that was captured, and a plan that differs is told."""

import dataclasses
import functools

import pytest
import tensorflow as tf

from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradMomentumParameters,
    AdagradParameters,
    AdamParameters,
    FtrlParameters,
    MomentumParameters,
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.config.to_plan import to_plan
from tpu_estimator_embedding.migration import function_text, plan_comparison
from tpu_estimator_embedding.migration.captured_config import CapturedConfig
from tpu_estimator_embedding.migration.captured_file import written
from tpu_estimator_embedding.migration.verify import plan_values

PARAMETERS = {
    "adagrad": AdagradParameters(0.1, initial_accumulator=0.2, clip_gradient_max=2.0),
    "adagrad momentum": AdagradMomentumParameters(0.1, momentum=0.9, use_nesterov=True,
                                                  exponent=3, beta2=0.9, epsilon=1e-8),
    "adam": AdamParameters(0.1, beta1=0.8, beta2=0.9, epsilon=1e-6, lazy_adam=False,
                           sum_inside_sqrt=False, clip_weight_min=-1.0),
    "ftrl": FtrlParameters(0.1, learning_rate_power=-0.6, initial_accumulator_value=0.3,
                           l1_regularization_strength=0.01, l2_regularization_strength=0.02,
                           multiply_linear_by_learning_rate=True, beta=0.5),
    "sgd": StochasticGradientDescentParameters(
        0.1, weight_decay_factor=0.01, multiply_weight_decay_factor_by_learning_rate=True,
        clip_gradient_min=-1.0, clip_gradient_max=1.0),
    "not accumulated": AdagradParameters(0.1, use_gradient_accumulation=False),
}
INITIALIZERS = [
    tf.compat.v1.truncated_normal_initializer(stddev=0.1), tf.compat.v1.zeros_initializer(),
    tf.compat.v1.constant_initializer(2.0), tf.compat.v1.random_uniform_initializer(-1, 1, seed=3),
    tf.compat.v1.variance_scaling_initializer(mode="fan_out"),
    tf.compat.v1.glorot_uniform_initializer(), tf.keras.initializers.RandomNormal(0.0, 0.3, 1),
    tf.keras.initializers.GlorotNormal(seed=2),
    tf.compat.v1.keras.initializers.RandomNormal(stddev=0.05, seed=5),
    tf.compat.v1.keras.initializers.he_normal(seed=5), tf.compat.v1.keras.initializers.Zeros()]


def rate(step):
    return 0.5 / (1.0 + tf.cast(step, tf.float32))


def multiplier(step):
    return tf.minimum(1.0, tf.cast(step, tf.float32) / 50.0)


class Rate:
    """A function without text."""

    def __call__(self, step):
        return 0.1


class Filled:
    """An initializer of a program's own class."""

    def __call__(self, shape, dtype=None, partition_info=None):
        return tf.ones(shape, dtype)

    def get_config(self):
        return {}


def captured(parameters=None, *, table=None, **options):
    tables = {"words": table or TableConfig(1000, 8, combiner="sum")}
    features = {"title": FeatureConfig("words"),
                "body": FeatureConfig("words", max_sequence_length=5, weight_key="scores")}
    plan = to_plan(tables, features, parameters or AdagradParameters(0.1), **options)
    return CapturedConfig("train.py", plan, 64, {"words": "words"})


def codes_of(findings):
    return [finding.code for finding in findings]


@pytest.mark.parametrize("name", PARAMETERS)
def test_optimizer_is_equal(name):
    text, findings = written(captured(PARAMETERS[name]))
    assert codes_of(findings) == ["TEE301"], findings
    assert "mid_level." in text


def texts_of_modules(initializer):
    """Returns what modules have in place of an initializer, which draws the same in each."""
    text = function_text.Texts().expression(initializer)
    assert plan_comparison._initial_values(initializer, [3, 4]) == (
        plan_comparison._initial_values(eval(text), [3, 4]))
    return text


@pytest.mark.parametrize("initializer", INITIALIZERS, ids=lambda one: type(one).__name__)
def test_initializer_is_equal(initializer):
    table = TableConfig(1000, 8, initializer, "mean")
    text, findings = written(captured(table=table))
    assert codes_of(findings) == ["TEE301"]
    assert f"initializer={texts_of_modules(initializer)}," in text


V1, V2 = tf.compat.v1.keras.initializers, tf.compat.v2.keras.initializers


@pytest.mark.parametrize("old, new, is_same", [
    (V1.RandomNormal(stddev=0.05), V2.RandomNormal(stddev=0.05), True),
    (V1.he_normal(), V2.HeNormal(), True), (V1.Zeros(), V2.Zeros(), True),
    (tf.compat.v1.truncated_normal_initializer(stddev=0.05), V2.TruncatedNormal(), True),
    (tf.compat.v1.random_normal_initializer(stddev=0.05, seed=5), V1.RandomNormal(seed=5), True),
    (V1.RandomNormal(stddev=0.05), V2.RandomNormal(stddev=0.06), False),
    (V1.RandomNormal(seed=5), V2.RandomNormal(seed=5), False),  # which draws other values
    (V1.RandomNormal(), V2.TruncatedNormal(), False),
    (V1.Ones(dtype=tf.float64), V2.Ones(), False),
])
def test_initializers_are_compared_by_what_they_compute(old, new, is_same):
    assert (plan_values.initializer_text(old) == plan_values.initializer_text(new)) is is_same
    table = captured(table=TableConfig(1000, 8, old)).plan.tables[0]
    assert plan_comparison._is_same_initializer(table, new) is is_same


def scaled(shape, dtype=None, partition_info=None, scale=1.0):
    return scale * tf.random.uniform(shape, dtype=dtype, seed=3)


def filled(value):
    return lambda shape, dtype=None: tf.fill(shape, value)


@pytest.mark.parametrize("initializer", [
    functools.partial(scaled, scale=0.5), filled(0.25), scaled],
    ids=["partial", "lambda", "function"])
def test_initializer_that_is_a_function_draws_the_same(initializer):
    table = TableConfig(1000, 8, initializer, "mean")
    text, findings = written(captured(table=table))
    assert codes_of(findings) in (["TEE301"], ["TEE301", "TEE307"])
    for old, new in (("scale=0.5", "scale=0.25"), ("value = 0.25", "value = 0.5"),
                     ("seed=3", "seed=4")):
        if old in text:
            assert "initializer of table 'words'" in plan_comparison.differences(
                captured(table=table), text.replace(old, new))


@pytest.mark.parametrize("old, new, difference", [
    ("dim=8", "dim=4", "dimension of table 'words'"),
    ("learning_rate=0.1", "learning_rate=0.2", "learning rate of table 'words'"),
    ("combiner='sum'", "combiner='mean'", "combiner of table 'words'"),
    ("initial_accumulator_value=0.2", "initial_accumulator_value=0.3",
     "optimizer of table 'words'"),
    ("clipvalue=(None, 2.0)", "clipvalue=2.0", "optimizer of table 'words'"),
    ("zeros_initializer()", "ones_initializer()", "initializer of table 'words'"),
    ("max_sequence_length=5", "max_sequence_length=6", "feature 'body'"),
    ("'scores'", "'weights'", "feature 'body'"),
    ("'title': mid_level.FeatureConfig(words)", "'head': mid_level.FeatureConfig(words)",
     "feature 'title'"),
    ("PIPELINED = False", "PIPELINED = True", "pipelining"),
])
def test_a_planted_difference_is_found(old, new, difference):
    config = captured(PARAMETERS["adagrad"], table=TableConfig(
        1000, 8, tf.compat.v1.zeros_initializer(), "sum"))
    text, _ = written(config)
    assert plan_comparison.differences(config, text) == []
    assert old in text
    assert difference in plan_comparison.differences(config, text.replace(old, new))


def test_other_learning_rate_function_and_multiplier_are_found():
    config = captured(table=TableConfig(1000, 8, combiner="sum", learning_rate_fn=rate),
                      gradient_multiplier_fn=multiplier)
    text, _ = written(config)
    changed = text.replace("0.5 /", "0.4 /").replace("/ 50.0", "/ 40.0")
    assert plan_comparison.differences(config, changed) == [
        "learning rate of table 'words'", "gradient multiplier"]


def test_multipliers_of_tables_are_equal_and_a_planted_difference_is_found():
    config = captured(table_multipliers={"w*": "warmup:10*0.5"})
    text, findings = written(config)
    assert codes_of(findings) == ["TEE301"]
    assert "    'words': multipliers.parse('warmup:10*0.5'),\n" in text
    assert plan_comparison.differences(config, text.replace("*0.5", "*0.6")) == [
        "gradient multiplier of table 'words'"]


def test_optimizer_that_tf2_lacks_is_left():
    text, findings = written(captured(MomentumParameters(0.1, momentum=0.9)))
    assert codes_of(findings) == ["TEE302", "TEE301"]
    assert "which TF2's TPUEmbedding does not have" in findings[0].message
    compile(text, "embedding_config.py", "exec")


def test_learning_rate_without_text_is_left_and_fails_when_used():
    text, findings = written(captured(table=TableConfig(
        1000, 8, combiner="sum", learning_rate_fn=Rate())))
    assert codes_of(findings) == ["TEE302", "TEE301"]
    assert "raise NotImplementedError" in text


def test_multiplier_without_text_is_left():
    text, findings = written(captured(gradient_multiplier_fn=Rate()))
    assert codes_of(findings) == ["TEE302", "TEE301"]
    assert "raise NotImplementedError" in text


@pytest.mark.parametrize("stage", ["imports", "tf2", "layers", "keras3"])
def test_initializer_of_the_programs_own_class_is_left_and_told_once(stage):
    if stage == "keras3":
        pytest.importorskip("keras.ops")  # of Keras 3
    config = captured(table=TableConfig(1000, 8, Filled(), "sum"))
    text, findings = written(config, stage)
    [about] = [one.message for one in findings if one.code in ("TEE302", "TEE305")]
    assert about.startswith("the initializer of table 'words'")
    assert "except for what is left to write (TEE302)." in text


@pytest.mark.parametrize("old, new, difference", [
    ("0.5 /", "0.4 /", "learning rate of table 'words'"), ("dim=8", "dim=9", "dimension of"),
    ("/ 50.0", "/ 40.0", "gradient multiplier")])
def test_other_differences_of_a_table_are_told_beside_what_is_left(old, new, difference):
    config = captured(table=TableConfig(1000, 8, Filled(), "sum", learning_rate_fn=rate),
                      gradient_multiplier_fn=multiplier)
    text, left = written(config)[0], ["initializer of table 'words'"]
    assert plan_comparison.differences(config, text) == left
    assert plan_comparison.differences(config, text, left) == []
    [found] = plan_comparison.differences(config, text.replace(old, new), left)
    assert found.startswith(difference)


def test_combiner_none_becomes_sum_with_a_note():
    text, findings = written(captured(table=TableConfig(1000, 8, combiner=None)))
    assert codes_of(findings) == ["TEE306", "TEE301"]
    assert "combiner='sum'" in text


@pytest.mark.parametrize("stage, codes", [
    ("imports", []), ("tf2", ["TEE309"]), ("layers", ["TEE309"]), ("keras3", ["TEE309"])])
def test_columns_for_a_tensor_core_are_left_to_do(stage, codes):
    config = dataclasses.replace(captured(), tensor_core_features=("user",))
    _, findings = written(config, stage)
    assert [code for code in codes_of(findings) if code == "TEE309"] == codes
    for finding in findings:
        if finding.code == "TEE309":
            assert "the columns of the features ['user'], which have no table here" in str(finding)


@pytest.mark.parametrize("stage, codes", [
    ("tf2", []), ("layers", []), ("keras3", ["TEE411"])])
@pytest.mark.parametrize("seed", [None, 0, 3])
def test_seeds_from_which_keras_3_draws_other_values_are_a_decision(stage, codes, seed):
    table = TableConfig(1000, 8, tf.compat.v1.random_uniform_initializer(-1, 1, seed=seed), "sum")
    text, findings = written(captured(table=table), stage)
    found = [finding for finding in findings if finding.code == "TEE411"]
    assert codes_of(found) == ([] if seed is None else codes)
    for finding in found:
        assert "the initializers of the tables ['words'] have seeds" in finding.message
        assert f"seed={seed}" in text.splitlines()[finding.line - 1]


def test_unknown_names_in_checkpoints_are_a_decision():
    config = dataclasses.replace(captured(), table_variables=None)
    assert codes_of(written(config)[1]) == ["TEE303", "TEE301"]
