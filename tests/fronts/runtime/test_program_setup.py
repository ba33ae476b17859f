# SPDX-License-Identifier: Apache-2.0
"""Processes that a program spawns are set up as the program is."""

import sys

import pytest

from tests import subprocesses
from tpu_estimator_embedding.runtime.program_setup import ProgramSetup

PROGRAM = """
import multiprocessing
import sys
import tensorflow as tf
import tensorflow.compat.v1.estimator.tpu  # what a process without install() has not

def work(queue):
    import logging
    queue.put([tf.contrib.tpu.TPUEstimator.__module__, len(sys.argv), hasattr(tf, "Session"),
               [type(f).__name__ for f in logging.getLogger("tensorflow").filters]])

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get(timeout=120))
    process.join()
"""


@pytest.mark.long
@pytest.mark.parametrize("method, options, expected", [
    ("spawn", ["--tf1", "--quiet"], "True, ['DeprecationsOnce', 'NoChatter']"),
    ("forkserver", [], "False, ['DeprecationsOnce']")])
def test_spawned_processes_are_installed_too(method, options, expected, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocesses.start([sys.executable, "-m", "tpu_estimator_embedding", "run", *options,
                               "program.py", method], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"['tpu_estimator_embedding.estimator.tpu_estimator', 2, {expected}]\n")


def test_setup_is_what_its_pickle_repeats():
    function, arguments = ProgramSetup(True, "quiet").__reduce__()
    assert arguments == (True, "quiet") and callable(function)
    assert ProgramSetup() == ProgramSetup(False, "normal")
