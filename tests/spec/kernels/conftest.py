# SPDX-License-Identifier: Apache-2.0
"""A library that compiles in a moment: one unit without TensorFlow, and its own cache."""

import pytest
import tensorflow as tf

from tests.kernel_choice import found_compiler
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.kernels import compiler, library, load, tensorflow_build, units

SOURCE = """
extern "C" const char* tpu_embedding_simd_level() { return "baseline"; }
extern "C" const char* tpu_embedding_rules() { return "SGD|||0\\nAdam|momenta velocities||1\\n"; }
"""


@pytest.fixture
def sources(tmp_path, monkeypatch, request):
    """The directory of the sources, of which there is one; without a compiler, skips the test."""
    if "no_compiler" not in request.fixturenames:
        found_compiler()
    directory = tmp_path / "src"
    directory.mkdir()
    (directory / "level.cc").write_text(SOURCE)
    monkeypatch.setattr(units, "SOURCES", directory)
    monkeypatch.setattr(library, "INSTALLED", tmp_path / "lib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(settings.KERNELS.variable, raising=False)
    load._kernels.cache_clear()
    yield directory
    load._kernels.cache_clear()  # what the next test finds is no longer this library


@pytest.fixture
def tensorflow():
    """The TensorFlow that runs the tests."""
    return tensorflow_build.of_imported(tf)


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(compiler, "find", lambda: None)
