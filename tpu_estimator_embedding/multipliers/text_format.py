# SPDX-License-Identifier: Apache-2.0
"""Parses the short text format of schedules.

    schedule = product { ",then:" step ":" product }
    product  = factor { "*" factor }
    factor   = number | word { ":" number } | "(" schedule ")"
"""

import contextlib
import difflib
import re

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.multipliers import schedules
from tpu_estimator_embedding.multipliers.schedule import Constant, Product, Schedule

_CLASSES: dict[str, type[Schedule]] = {cls.word: cls for cls in (
    Constant, schedules.LinearWarmup, schedules.Cosine, schedules.ExponentialDecay,
    schedules.Piecewise, schedules.FreezeUntil, schedules.FreezeAfter, schedules.Cyclic)}

# The names of the Python functions are accepted too.
_OTHER_NAMES = {"linear_warmup": "warmup", "exponential_decay": "exponential"}

FORMS = ("a number", "warmup:STEPS[:START:END]", "cosine:END:STEPS[:START]",
         "exponential:RATE:STEPS[:START]", "piecewise:VALUE:STEP:VALUE...", "freeze_until:STEP",
         "freeze_after:STEP", "cyclic:STEPS[:LOW:HIGH]", "A*B", "A,then:STEP:B")
_FORMATS = f"{', '.join(FORMS[:-1])} or {FORMS[-1]}"

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_FACTOR = re.compile(rf"(?:{_NUMBER.pattern}|[^\W\d]\w*(?::[^:*,()]+)*)")
_THEN = re.compile(r",then:(\d+):")


def parse(text: str) -> Schedule:
    """Parses a schedule.

    Raises:
        ValueError: if the schedule is unknown (the message has the closest names), or its
            numbers are invalid.
        TypeError: if `text` is not a str.

    >>> parse("warmup:1000"), parse("0.1*freeze_until:500")
    (linear_warmup(0→1, 1000 steps), constant(0.1) * freeze_until(step 500))
    >>> parse("warmup:1000,then:5000:cosine:0.1:10000")
    linear_warmup(0→1, 1000 steps).then(5000, cosine(1→0.1, 10000 steps))
    """
    checks.check_type(str, "text", "a schedule such as '0.1' or 'warmup:1000'", text)
    reader = _Reader(text)
    result = reader.schedule()
    reader.check(reader.position == len(text))
    return result


class _Reader:
    """A recursive descent parser of one text."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def check(self, holds: bool) -> None:
        where = f" At {self.text[self.position:]!r}." if 0 < self.position < len(self.text) else ""
        checks.check(holds, "multiplier", _FORMATS, self.text, where.strip())

    def schedule(self) -> Schedule:
        result = self.product()
        while match := self._next(_THEN):
            result = result.then(int(match[1]), self.product())
        return result

    def product(self) -> Schedule:
        factors = [self.factor()]
        while self._skip("*"):
            factors.append(self.factor())
        if len(factors) == 1:
            return factors[0]
        return Product(tuple(part for factor in factors for part in (
            factor.factors if isinstance(factor, Product) else (factor,))))

    def factor(self) -> Schedule:
        if self._skip("("):
            inner = self.schedule()
            self.check(self._skip(")"))
            return inner
        match = self._next(_FACTOR)
        self.check(match is not None)
        assert match is not None
        return _factor(match[0])

    def _skip(self, symbol: str) -> bool:
        found = self.text.startswith(symbol, self.position)
        self.position += len(symbol) * found
        return found

    def _next(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match


def _factor(text: str) -> Schedule:
    if _NUMBER.fullmatch(text):
        return Constant(_number(text))
    word, *arguments = text.split(":")
    cls = _CLASSES.get(_OTHER_NAMES.get(word, word))
    if cls is None:
        raise ValueError(checks.complaint("multiplier", _FORMATS, text, _nearest(word)))
    numbers = [_number(argument) for argument in arguments]
    try:
        return getattr(cls, "from_arguments", cls)(*numbers)
    except TypeError as error:  # too few arguments, or too many
        raise ValueError(checks.complaint("multiplier", _FORMATS, text)) from error


def _number(text: str) -> float:
    checks.check(_NUMBER.fullmatch(text) is not None, "multiplier", "made of numbers", text)
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def _nearest(word: str) -> str:
    with contextlib.suppress(ValueError):
        float(word)  # nan, inf: no name that is misspelled
        return ""
    names = [*_CLASSES, *_OTHER_NAMES]
    nearest = difflib.get_close_matches(word, names, 3, 0.4) or list(_CLASSES)
    return f"Nearest to {word!r}: {', '.join(nearest)}."
