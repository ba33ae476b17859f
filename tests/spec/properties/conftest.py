# SPDX-License-Identifier: Apache-2.0
"""Every property holds for both backends of the engine."""

import pytest

from tests.kernel_choice import choose_kernels


@pytest.fixture(params=["tf", "native"], autouse=True)
def kernels(request, monkeypatch):
    """Holds TensorFlow's own ops and the compiled ones to the same properties."""
    choose_kernels(request.param, monkeypatch)
