# SPDX-License-Identifier: Apache-2.0
"""How many examples the two property tests try: 300, or 10,000 with the profile `thorough`.

On the oldest TensorFlow 100: the engine is the same there, and its ops have tests of their own.
"""

import hypothesis
import pytest
import tensorflow as tf

from tests.kernel_choice import choose_kernels

# Compiling and a busy machine make single examples slow, which says nothing about them.
hypothesis.settings.register_profile(
    "quick", max_examples=50 if tf.__version__.startswith("2.15.") else 150, deadline=None,
    derandomize=True, database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow,
                           hypothesis.HealthCheck.function_scoped_fixture])
hypothesis.settings.register_profile(
    "thorough", hypothesis.settings.get_profile("quick"), max_examples=5_000, derandomize=False,
    print_blob=True)
hypothesis.settings.load_profile("quick")


@pytest.fixture(params=["tf", "native"], autouse=True)
def kernels(request, monkeypatch):
    """Holds TensorFlow's own ops and the compiled ones to the same laws."""
    choose_kernels(request.param, monkeypatch)
