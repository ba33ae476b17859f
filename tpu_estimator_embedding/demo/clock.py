# SPDX-License-Identifier: Apache-2.0
"""Measures the time of each phase of the demo."""

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Seconds that each phase took.

    Attributes:
        seconds: name of the phase -> total seconds, in the order in which phases first ended.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phase = ""
        self._start = 0.0

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures the time inside the context."""
        self._begin(name)
        yield
        self._end()

    def go_on_as(self, name: str) -> None:
        """Ends the current phase; the rest of the context counts for another phase."""
        self._end()
        self._begin(name)

    def _begin(self, name: str) -> None:
        self._phase, self._start = name, time.perf_counter()

    def _end(self) -> None:
        seconds = time.perf_counter() - self._start
        self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + seconds
