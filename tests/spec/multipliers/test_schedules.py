# SPDX-License-Identifier: Apache-2.0
"""Schedules against their equations, in every way that a step comes."""

import copy
import math
import pickle

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding import multipliers as m
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

STEPS = [0, 1, 2, 7, 249, 250, 499, 500, 501, 999, 1000, 1001, 4999, 5000, 10_000, 2**25 + 1]


def then(step):
    if step < 500:
        return min(step / 250, 1)
    return 0.1 + 0.9 * (1 + math.cos(math.pi * min((step - 500) / 1000, 1))) / 2


# Schedule, its equation in Python, how it prints, its short form.
CASES = [
    (m.constant(0.1), lambda t: 0.1, "constant(0.1)", "0.1"),
    (m.linear_warmup(1000), lambda t: min(t / 1000, 1), "linear_warmup(0→1, 1000 steps)",
     "warmup:1000"),
    (m.linear_warmup(1000, 0.5, 2), lambda t: 0.5 + 1.5 * min(t / 1000, 1),
     "linear_warmup(0.5→2, 1000 steps)", "warmup:1000:0.5:2"),
    (m.cosine(0.1, 10_000), lambda t: 0.1 + 0.45 * (1 + math.cos(math.pi * min(t / 1e4, 1))),
     "cosine(1→0.1, 10000 steps)", "cosine:0.1:10000"),
    (m.exponential_decay(0.5, 1000, 2), lambda t: 2 * 0.5 ** (t / 1000),
     "exponential_decay(×0.5 every 1000 steps, from 2)", "exponential:0.5:1000:2"),
    (m.piecewise([250, 1000], [1, 0.1, 1e-05]),
     lambda t: 1 if t < 250 else 0.1 if t < 1000 else 1e-05,
     "piecewise(1, from step 250: 0.1, from step 1000: 1e-05)",
     "piecewise:1:250:0.1:1000:1e-05"),
    (m.freeze_until(500), lambda t: float(t >= 500), "freeze_until(step 500)",
     "freeze_until:500"),
    (m.freeze_after(2**25 + 1), lambda t: float(t < 2**25 + 1), "freeze_after(step 33554433)",
     "freeze_after:33554433"),
    (m.cyclic(1000, 0.2), lambda t: 0.2 + 0.8 * (1 - abs(2 * math.modf(t / 1000)[0] - 1)),
     "cyclic(0.2↔1, 1000 steps)", "cyclic:1000:0.2"),
    (m.freeze_until(500) * 0.5 * m.linear_warmup(1000),
     lambda t: 0.5 * min(t / 1000, 1) * (t >= 500),
     "freeze_until(step 500) * constant(0.5) * linear_warmup(0→1, 1000 steps)",
     "freeze_until:500*0.5*warmup:1000"),
    (m.linear_warmup(250).then(500, m.cosine(0.1, 1000)), then,
     "linear_warmup(0→1, 250 steps).then(500, cosine(1→0.1, 1000 steps))",
     "warmup:250,then:500:cosine:0.1:1000"),
    (0.5 * m.constant(1).then(250, 0.1).then(1000, m.constant(2).then(1, 3)),
     lambda t: 0.5 * (1 if t < 250 else 0.1 if t < 1000 else 2 if t < 1001 else 3),
     "constant(0.5) * constant(1).then(250, constant(0.1))"
     ".then(1000, constant(2).then(1, constant(3)))",
     "0.5*(1,then:250:0.1,then:1000:(2,then:1:3))"),
]
SCHEDULES = pytest.mark.parametrize("schedule, equation, printed, text", CASES,
                                    ids=[case[3] for case in CASES])


def in_session(schedule):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.placeholder(tf.int64, [])
        value = schedule(step)
        assert value.dtype == tf.float32
        return [session.run(value, {step: number}) for number in STEPS]


@SCHEDULES
def test_every_way_of_calling_gives_the_equation(schedule, equation, printed, text):
    expected = np.array([equation(step) for step in STEPS], np.float32)
    traced = tf.function(schedule, input_signature=[tf.TensorSpec([], tf.int64)])
    ways = {
        "numbers": [schedule(step) for step in STEPS],
        "array": schedule(np.array(STEPS)),
        "eager": [schedule(tf.constant(step, tf.int64)).numpy() for step in STEPS],
        "variable": [schedule(tf.Variable(step, dtype=tf.int64)).numpy() for step in STEPS],
        "function": [traced(tf.constant(step, tf.int64)).numpy() for step in STEPS],
        "session": in_session(schedule)}
    for way, values in ways.items():
        assert np.asarray(values).dtype == np.float32, way
        np.testing.assert_allclose(values, expected, rtol=3e-7, atol=1e-7, err_msg=way)


@SCHEDULES
def test_prints_as_what_it_is_and_reads_back(schedule, equation, printed, text):
    assert (str(schedule), repr(schedule), schedule.text) == (printed, printed, text)
    assert m.parse(text) == schedule
    assert m.parse(text).text == text


@SCHEDULES
def test_is_a_value(schedule, equation, printed, text):
    for other in (copy.deepcopy(schedule), pickle.loads(pickle.dumps(schedule)), m.parse(text)):
        assert other == schedule
        assert hash(other) == hash(schedule)


def test_names_of_python_are_read_too():
    assert m.parse("linear_warmup:10") == m.linear_warmup(10)
    assert m.parse("exponential_decay:0.5:10") == m.exponential_decay(0.5, 10)
    assert m.parse("constant:-1e-3") == m.constant(-0.001)


@pytest.mark.parametrize("text, sentence", [
    ("wramup:1000", "got 'wramup:1000'. Nearest to 'wramup': warmup"),
    ("freeze_till:5", "Nearest to 'freeze_till': freeze_until"),
    ("nan", "got 'nan'\\.$"),
    ("-inf", "got '-inf'\\.$"),
    ("xyz", "Nearest to 'xyz': constant, warmup, cosine"),
    ("", "`multiplier` must be a number, warmup:STEPS"),
    ("warmup", "got 'warmup'"),
    ("warmup:1:2:3:4", "got 'warmup:1:2:3:4'"),
    ("warmup:ten", "`multiplier` must be made of numbers, got 'ten'"),
    ("warmup:0", "`steps` must be an int of at least 1, got 0"),
    ("warmup:0.5", "`steps` must be an int of at least 1, got 0.5"),
    ("cosine:0.1", "got 'cosine:0.1'"),
    ("cyclic:1", "`steps` must be an int of at least 2, got 1"),
    ("exponential:0:10", "`rate` must be above 0, got 0"),
    ("piecewise:1:100", "`values` must be one more than the 1 boundaries"),
    ("piecewise:1:200:2:100:3", "`boundaries` must be increasing steps, got \\[200, 100\\]"),
    ("piecewise", "`values` must be one more than the 0 boundaries"),
    ("1e999", "`multiplier` must be finite, got inf"),
    ("0.1*", "got '0.1\\*'"),
    ("(0.1", "got '\\(0.1'"),
    ("0.1)", "At '\\)'"),
    ("0.1,then:x:1", "At ',then:x:1'"),
    ("0.1,then:0:1", "`step` must be an int of at least 1, got 0"),
    ("0.1 0.2", "At ' 0.2'"),
])
def test_bad_text_names_what_is_wrong(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        m.parse(text)


@pytest.mark.parametrize("make", [
    lambda: m.constant("0.1"), lambda: m.linear_warmup(10, start=None),
    lambda: m.constant(1) * "warmup:10", lambda: m.constant(1).then(5, None)])
def test_wrong_types_are_type_errors(make):
    with pytest.raises(TypeError, match="must be a number"):
        make()


@pytest.mark.parametrize("arguments, sentence", [
    ((1000, [1, 0.1]), "`boundaries` must be a list of steps, got 1000"),
    (([1000], 0.1), "`values` must be a list of multipliers, got 0.1")])
def test_parts_of_a_piecewise_schedule_are_lists(arguments, sentence):
    with pytest.raises(TypeError, match=sentence):
        m.piecewise(*arguments)


def test_a_plan_prints_the_schedule_and_says_that_there_is_a_function():
    plan = EmbeddingPlan((), (), gradient_multiplier_fn=m.linear_warmup(1000))
    assert ", gradient multiplier linear_warmup(0→1, 1000 steps), " in str(plan)
    plan = EmbeddingPlan((), (), gradient_multiplier_fn=lambda step: 1.0)
    assert ", gradient multiplier, " in str(plan)
