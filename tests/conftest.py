# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests: quiet TensorFlow, and child processes that import this checkout."""

import collections
import os
import pathlib
import random
import signal
import subprocess
import sys
import zlib

import hypothesis
import pytest

from tpu_estimator_embedding import __version__

ROOT = pathlib.Path(__file__).parent.parent
SAID_ONCE = [
    ("tpu_estimator_embedding.config.to_plan", "_warn_once"),
    ("tpu_estimator_embedding.config.to_plan", "_log_once"),
    ("tpu_estimator_embedding.estimator.input.split_features", "_warn_that_zeros_are_dropped"),
]

# What runs on the oldest TensorFlow as well as on the newest: tests of what differs between them,
# which is TensorFlow's names, errors, graphs, estimators and Keras, and so every front door.
EVERY_TENSORFLOW = [ROOT / "tests" / folder for folder in (
    "compat", "estimator", "feature_column", "mid_level", "runtime", "error_parity",
    "low_level")]

# Files whose tests mostly start processes that train, install or compile for ten seconds and more.
# Others mark single tests.
LONG = [ROOT / "tests" / file for file in (
    "benchmarks/test_checkpoints.py", "benchmarks/test_cluster.py", "benchmarks/test_command.py",
    "benchmarks/test_dlrm.py", "checkpoint/test_keras_rs_jax.py",
    "checkpoint/test_keras_rs_sparse_cores.py", "checkpoint/test_memory.py",
    "cluster/test_coordinator.py", "cluster/test_examples.py", "cluster/test_faults.py",
    "cluster/test_synchronous.py", "cluster/test_training.py", "engine/test_same_bits.py",
    "examples/test_contrib_ranking.py", "examples/test_hand_driven.py", "examples/test_programs.py",
    "examples/test_rating_ensemble.py", "experiments/test_accessibility.py",
    "experiments/test_estimator_sweep.py", "experiments/test_explorer.py",
    "experiments/test_search.py", "experiments/test_sweep.py", "experiments/test_watching.py",
    "kernels/test_malformed_ops.py", "kernels/test_sanitizers.py",
    "mid_level/test_v2_strategies.py", "migration/guide/test_pairs.py", "migration/test_capture.py",
    "migration/test_dlrm.py", "migration/test_examples_imports.py",
    "migration/test_examples_tf2.py", "migration/test_examples_verified.py",
    "migration/test_keras3.py", "migration/test_keras3_optimizers.py",
    "migration/verify/test_keras3_verified.py", "migration/verify/test_verify.py",
    "packaging/test_pip.py", "packaging/test_release.py")]
assert all(path.exists() for path in EVERY_TENSORFLOW + LONG), "a folder or file was renamed"

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow loads
# One Keras in this process, whichever test comes first: some call install(), some use tf.keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


# The seed decides the examples, and repeats them, so nothing is kept between runs. Compiling and a
# busy machine make single examples slow, which says nothing about them.
hypothesis.settings.register_profile(
    "quick", max_examples=60, derandomize=False, database=None, deadline=None, print_blob=False,
    suppress_health_check=[hypothesis.HealthCheck.too_slow,
                           hypothesis.HealthCheck.function_scoped_fixture])
hypothesis.settings.register_profile(
    "thorough", hypothesis.settings.get_profile("quick"), max_examples=5_000)
hypothesis.settings.load_profile("quick")


@pytest.fixture(autouse=True)
def no_graph_left_behind():
    """Stops at the test that leaves its graph as the default, not at the hundreds after it."""
    yield
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and not tensorflow.executing_eagerly():
        pytest.exit("This test left its graph as the default one: "
                    f"{os.environ['PYTEST_CURRENT_TEST']}", returncode=1)


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
    parser.addoption("--cases", type=int, metavar="N", help="run at most N cases of each "
                     "parametrized test and a sixth of the tests marked long, chosen by the "
                     "seed, but all of smoke tests")
    parser.addoption("--share", type=int, metavar="N", default=1, help="with --cases: of N tests "
                     "run one, chosen by the seed, but all smoke tests")


@pytest.fixture(scope="session")
def seed(pytestconfig) -> int:
    """The seed of all random cases of this run: another one for every commit."""
    return int(pytestconfig.getoption("hypothesis_seed"))


def pytest_report_header(config):
    return f"seed of random cases: --hypothesis-seed={config.getoption('hypothesis_seed')}"


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
    from tpu_estimator_embedding.compat import patch
    was_installed = bool(patch.originals())
    tpu_estimator_embedding.uninstall()
    yield
    if was_installed:
        tpu_estimator_embedding.install()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Marks tests by folder and file; leaves out soak tests unless `-m` names them, and cases."""
    for item in items:
        if item.get_closest_marker("smoke") or any(
                folder in item.path.parents for folder in EVERY_TENSORFLOW):
            item.add_marker("every_tensorflow")
        if item.path in LONG:
            item.add_marker("long")
    if "soak" not in config.option.markexpr:
        _keep(config, items, {item for item in items if not item.get_closest_marker("soak")})
    if config.option.share < 1 or (config.option.share > 1 and not config.option.cases):
        raise pytest.UsageError("`--share` must be at least 1, and needs `--cases`, got "
                                f"{config.option.share}.")
    yield  # `-m` and `-k` select
    if config.option.cases:
        _keep(config, items, _some_cases(items, config.option.cases, config.option.share,
                                         config.option.hypothesis_seed))


def _keep(config, items, kept):
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _some_cases(items, most, share, seed):
    """Returns cases of one in `share` tests, a sixth of long ones, and all of smoke tests."""
    of_each_test = collections.defaultdict(list)
    for item in items:
        is_whole = item.get_closest_marker("smoke") or item.get_closest_marker("all_cases")
        of_each_test[item.nodeid if is_whole else item.nodeid.partition("[")[0]].append(item)
    rng = random.Random(seed)
    left_out = set()
    for is_long, kept in ((True, max(share, 6)), (False, share)):
        tests = [test for test, [case, *_] in of_each_test.items()
                 if bool(case.get_closest_marker("long")) == is_long
                 and not case.get_closest_marker("smoke")]
        left_out |= set(rng.sample(tests, len(tests) - -(-len(tests) // kept)))
    return {item for test, cases in of_each_test.items() if test not in left_out
            for item in rng.sample(cases, min(most, len(cases)))}
