# SPDX-License-Identifier: Apache-2.0
"""C++ output to standard error is hidden, but not Python's output, nor errors."""

import sys

import pytest

from tests.subprocesses import start

PROGRAM = """
import os, sys
from tpu_estimator_embedding.runtime.quiet_start import quiet_start
try:
    with quiet_start({verbose}):
        os.write(2, b"from C++\\n")
        print("from Python", file=sys.stderr)
        {ending}
except RuntimeError as error:
    print(error, file=sys.stderr)
os.write(2, b"later\\n")
print("at last", file=sys.stderr)
"""


@pytest.mark.parametrize("verbose, ending, lines", [
    (False, "", ["from Python", "later", "at last"]),
    (True, "", ["from C++", "from Python", "later", "at last"]),
    (False, "raise RuntimeError('the error')",
     ["from Python", "from C++", "the error", "later", "at last"])])
def test_lines(verbose, ending, lines):
    done = start([sys.executable, "-c", PROGRAM.format(verbose=verbose, ending=ending or "pass")])
    assert done.returncode == 0
    assert done.stderr.splitlines() == lines


def test_log_handlers_that_were_made_inside_go_on_working():
    done = start([sys.executable, "-c", """
import logging
from tpu_estimator_embedding.runtime.quiet_start import quiet_start
with quiet_start(False):
    logging.basicConfig()
    logging.warning("inside")
logging.warning("later")
"""])
    assert done.stderr.splitlines() == ["WARNING:root:inside", "WARNING:root:later"]
