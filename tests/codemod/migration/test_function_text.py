# SPDX-License-Identifier: Apache-2.0
"""The text of learning rates and multipliers."""

import functools
import math

import pytest
import tensorflow as tf

from tpu_estimator_embedding import multipliers
from tpu_estimator_embedding.migration.function_text import NoTextError, Texts

BASE = 0.5
SCHEDULE = [(0, 1.0), (10, 0.5)]


def halved(step):
    """Halves."""
    return BASE / (1 + step)


def twice_halved(step):
    return halved(step) / 2 + math.floor(0.5) + SCHEDULE[0][1] - 1


def nested(rate):
    def decayed(step):
        return rate / (1.0 + step)

    return decayed


def doubled(function):
    @functools.wraps(function)
    def twice(step):
        return 2 * function(step)
    return twice


def tripled(function):
    def thrice(step):
        return 3 * function(step)
    return thrice


@doubled
def of_wrapper(step):
    return 1.0 + step


@tripled
def of_plain_wrapper(step, base=BASE):
    return base + step


def decorated_inside():
    @doubled
    @tripled
    def inside(step):
        return 1.5 + step
    return inside


halves = [lambda step: 0.5 * step, lambda step: 0.25 * step]
one = functools.partial(max, 1.0)


class Callable_:
    def __call__(self, step):
        return step


def value_of(function, step, name="rate"):
    """Runs the written text alone."""
    texts = Texts()
    expression = texts.expression(function, name)
    program = "\n".join([*texts.imports.values(), *texts.definitions.values(),
                         f"result = {expression}"])
    names = {}
    exec(program, names)
    return names["result"](step)


@pytest.mark.parametrize("function", [
    halved, twice_halved, nested(0.3), of_wrapper, of_plain_wrapper, decorated_inside(),
    halves[0], halves[1], functools.partial(pow, 2.0),
    lambda step: step + 1,
    multipliers.linear_warmup(10), multipliers.freeze_until(3) * 0.5,
], ids=["function", "uses others", "nested", "decorated", "decorated and unnamed",
        "decorated inside", "lambda", "other lambda", "partial", "inline",
        "schedule", "product"])
def test_written_function_computes_the_same(function):
    if isinstance(function, functools.partial):
        with pytest.raises(NoTextError):  # of a builtin there is no text
            Texts().expression(function)
        return
    for step in (0, 1, 7):
        assert value_of(function, step) == function(step)


def test_partial_of_a_function():
    function = functools.partial(nested_rate, rate=0.25)
    assert value_of(function, 3) == function(3)


def nested_rate(step, rate):
    return rate / (1 + step)


def test_functions_of_one_factory_have_numbers():
    texts = Texts()
    expressions = [texts.expression(nested(rate)) for rate in (0.3, 0.5, 0.3)]
    assert expressions == ["decayed", "decayed_2", "decayed"]
    assert texts.enclosed == [("decayed", "rate", 0.3), ("decayed_2", "rate", 0.5),
                              ("decayed", "rate", 0.3)]
    names = {}
    exec("\n".join(texts.definitions.values()), names)
    assert names["decayed"](1) == 0.15 and names["decayed_2"](1) == 0.25


def test_modules_are_imported_under_their_names():
    texts = Texts()
    texts.expression(uses_tensorflow)
    assert texts.imports == {"tf": "import tensorflow as tf"}
    assert texts.definitions["uses_tensorflow"].startswith("def uses_tensorflow(step):")


def uses_tensorflow(step):
    return tf.cast(step, tf.float32)


@pytest.mark.parametrize("function, reason", [
    (Callable_(), "has no source text"),
    (functools.partial(Callable_(), 1), "has no source text"),
    (eval("lambda step: step"), "not read from a file"),
])
def test_what_has_no_text_reports_why(function, reason):
    with pytest.raises(NoTextError, match=reason):
        Texts().expression(function)


def test_object_of_the_program_in_a_function_is_named():
    instance = Callable_()

    def rate(step):
        return instance(step)

    with pytest.raises(NoTextError, match="Callable_"):
        Texts().expression(rate)


several = (lambda step: 0.1 / tf.sqrt(tf.cast(step, tf.float32) + 1.0), lambda step: 1 + 0 * step)
twice = [lambda step: 2.0 * step, lambda step: 2.0 * step]  # the same text
inside = lambda rate: lambda step: rate * step  # noqa: E731


@pytest.mark.parametrize("function", [*several, *twice, inside(0.5)])
def test_lambda_is_found_by_the_place_of_its_code(function):
    assert float(value_of(function, 3)) == float(function(3))


def test_lambda_without_places_needs_to_be_the_only_one_on_its_line():
    def without_places(function):
        code = function.__code__.replace(co_linetable=b"")
        return function.__class__(code, function.__globals__)

    with pytest.raises(NoTextError, match="cannot be distinguished from others"):
        Texts().expression(without_places(several[0]))
    assert Texts().expression(without_places(twice[0])) == "function"
