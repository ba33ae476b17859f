# SPDX-License-Identifier: Apache-2.0
"""Native tests are skipped where nothing can be compiled, but not under CI."""

import pytest

from tests.kernel_choice import choose_kernels, found_compiler
from tpu_estimator_embedding.kernels import compiler, load


@pytest.fixture(name="no_kernels")
def without_kernels(monkeypatch):
    def fail():
        raise RuntimeError("no kernels")

    monkeypatch.setattr(load, "native_ops", fail)
    monkeypatch.setattr(compiler, "find", lambda: None)


@pytest.mark.parametrize("value, outcome", [
    ("true", pytest.fail.Exception), ("1", pytest.fail.Exception),
    ("", pytest.skip.Exception), ("false", pytest.skip.Exception)])
def test_missing_kernels_and_compilers(no_kernels, monkeypatch, value, outcome):
    monkeypatch.setenv("CI", value)
    with pytest.raises(outcome, match="no kernels"):
        choose_kernels("native", monkeypatch)
    with pytest.raises(outcome, match=r"no C\+\+17 compiler"):
        found_compiler()
