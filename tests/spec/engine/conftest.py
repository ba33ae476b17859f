# SPDX-License-Identifier: Apache-2.0
"""The kernels that a test of the engine runs on."""

import pytest

from tests.kernel_choice import choose_kernels


@pytest.fixture(params=["tf", "native"])
def kernels(request, monkeypatch):
    """Runs a test on TensorFlow's own ops and on the compiled ones."""
    choose_kernels(request.param, monkeypatch)
    return request.param


@pytest.fixture(scope="module")
def tf_kernels():
    with pytest.MonkeyPatch.context() as monkeypatch:
        choose_kernels("tf", monkeypatch)
        yield


@pytest.fixture
def native_kernels(monkeypatch):
    choose_kernels("native", monkeypatch)
