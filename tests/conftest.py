# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests: quiet TensorFlow, and child processes that import this checkout."""

import os
import pathlib
import signal
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SAID_ONCE = [
    ("tpu_estimator_embedding.config.to_plan", "_warn_once"),
    ("tpu_estimator_embedding.config.to_plan", "_log_once"),
    ("tpu_estimator_embedding.estimator.input.split_features", "_warn_that_zeros_are_dropped"),
]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow loads
# One Keras in this process, whichever test comes first: some call install(), some use tf.keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


@pytest.fixture(autouse=True)
def no_graph_left_behind():
    """Stops at the test that leaves its graph as the default, not at the hundreds after it."""
    yield
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and not tensorflow.executing_eagerly():
        pytest.exit("This test left its graph as the default one: "
                    f"{os.environ['PYTEST_CURRENT_TEST']}", returncode=1)


def pytest_configure(config):
    """Lets Ctrl-C reach the programs that tests start, also where pytest runs in the background.

    A shell starts background commands with SIGINT ignored, and their children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def forget_what_was_said_once():
    """Lets every test hear the warnings that a process gives once, in whatever order they run."""
    for module, function in SAID_ONCE:
        if module in sys.modules:
            getattr(sys.modules[module], function).cache_clear()


@pytest.fixture
def tensorflows_own():
    """Puts TensorFlow's classes back at private paths, where an earlier test installed ours."""
    import tpu_estimator_embedding
    from tpu_estimator_embedding.compat import patch
    was_installed = bool(patch.originals())
    tpu_estimator_embedding.uninstall()
    yield
    if was_installed:
        tpu_estimator_embedding.install()


def pytest_collection_modifyitems(config, items):
    """Leaves out tests of an hour unless `-m` names them."""
    if "soak" in config.option.markexpr:
        return
    soak = [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=soak)
    items[:] = [item for item in items if item not in soak]
