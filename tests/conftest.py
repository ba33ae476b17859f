# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests: quiet TensorFlow, and child processes that import this checkout."""

import os
import pathlib
import signal
import subprocess
import sys
import zlib

import hypothesis
import pytest

from tests import selection
from tpu_estimator_embedding import __version__

ROOT = selection.ROOT
SAID_ONCE = [
    ("tpu_estimator_embedding.config.to_plan", "warn_once"),
    ("tpu_estimator_embedding.config.to_plan", "_log_once"),
    ("tpu_estimator_embedding.estimator.input.split_features", "_warn_that_zeros_are_dropped"),
]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow loads
# One Keras in this process, whichever test comes first: some call install(), some use tf.keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


# The seed decides the examples, and repeats them, so nothing is kept between runs. Compiling and a
# busy machine make single examples slow, which says nothing about them.
hypothesis.settings.register_profile(
    "quick", max_examples=25, derandomize=False, database=None, deadline=None, print_blob=False,
    suppress_health_check=[hypothesis.HealthCheck.too_slow,
                           hypothesis.HealthCheck.function_scoped_fixture])
hypothesis.settings.register_profile(
    "thorough", hypothesis.settings.get_profile("quick"), max_examples=5_000)
hypothesis.settings.load_profile("quick")


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Stops at the test that leaves its graph as the default; unsets the seed of TensorFlow."""
    yield
    tensorflow = sys.modules.get("tensorflow")
    if not tensorflow:
        return
    if not tensorflow.executing_eagerly():
        pytest.exit("This test left its graph as the default one: "
                    f"{os.environ['PYTEST_CURRENT_TEST']}", returncode=1)
    if sys.modules["tensorflow.python.eager.context"].global_seed() is not None:
        tensorflow.random.set_seed(None)


def revision() -> str:
    """Returns what names this state of the source: the commit, or the version outside of git.

    `.ci/run` passes the commit in TEST_REVISION to the tests of the sdist, which has no .git.
    """
    git = ["git", "-C", str(ROOT), "rev-parse", "--verify", "HEAD"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        commit = ""
    return os.environ.get("TEST_REVISION") or commit or __version__


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run everything, in hours; without it, ten "
                     "minutes' worth: one case of each test, few of long ones, none that "
                     "is for a release. Files and tests that are named run whole anyway")
    parser.addoption("--share", type=int, metavar="N", default=1, help="of N tests run one, chosen "
                     "by the seed; without --all, beside the core (tests/selection.py)")


@pytest.fixture(scope="session")
def seed(pytestconfig) -> int:
    """The seed of all random cases of this run: another one for every commit."""
    return int(pytestconfig.getoption("hypothesis_seed"))


def pytest_report_header(config):
    if config.option.all:
        selected = "everything"
    else:
        selected = "a plain run, of about ten minutes; `pytest --all` runs everything"
    if config.option.share > 1:
        selected += f"; of {config.option.share} tests one"
    return [f"seed of random cases: --hypothesis-seed={config.getoption('hypothesis_seed')}",
            f"selected: {selected}"]


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads the seed
def pytest_configure(config):
    """Seeds the property tests by the commit, so that every commit tries new examples.

    Lets Ctrl-C reach the programs that tests start, also where pytest runs in the background:
    a shell starts background commands with SIGINT ignored, and their children inherit that.
    """
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = zlib.crc32(revision().encode())
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
    from tpu_estimator_embedding.patches import patch
    from tpu_estimator_embedding.runtime import install_table
    was_installed = install_table.SERVER[0] in patch.originals()
    tpu_estimator_embedding.uninstall()
    yield
    if was_installed:
        tpu_estimator_embedding.install()


def pytest_ignore_collect(collection_path, config):
    """Passes over files without smoke tests for `-m smoke`: importing them takes longer."""
    if (config.option.markexpr == "smoke" and collection_path.suffix == ".py"
            and b"mark.smoke" not in collection_path.read_bytes()):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Marks tests by folder and file; leaves out soak tests unless `-m` names them, and cases."""
    if config.option.share < 1:
        raise pytest.UsageError(f"`--share` must be at least 1, got {config.option.share}.")
    selection.mark(items)
    if any(map(selection.needs_kernels, items)):
        from tests import kernel_choice
        for item in filter(selection.needs_kernels, items):
            if kernel_choice.cannot_compile():
                item.add_marker(pytest.mark.skip("nothing can be compiled: apt-get install g++"))
    if "soak" not in config.option.markexpr:
        _keep(config, items, {item for item in items if not item.get_closest_marker("soak")})
    yield  # `-m` and `-k` select
    seed, share = config.option.hypothesis_seed, config.option.share
    if config.option.all:
        _keep(config, items, selection.of_full_run(items, seed, share))
    else:
        named = _named_files(config)
        _keep(config, items, {item for item in items if item.path in named} |
              selection.of_plain_run(items, seed, share))


def _named_files(config) -> set[pathlib.Path]:
    """Returns the files of the command line, and of tests there: who names one wants it whole."""
    paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return {path.resolve() for path in paths if path.is_file()}


def _keep(config, items, kept):
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
