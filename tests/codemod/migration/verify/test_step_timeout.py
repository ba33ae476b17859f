# SPDX-License-Identifier: Apache-2.0
"""A program that hangs under `verify` is ended with the reason."""

import sys
import textwrap

import pytest

from tests.subprocesses import start
from tpu_estimator_embedding.migration.verify.tf2_run import STATUS

HANG = """
    import threading
    from tpu_estimator_embedding.migration.verify.tf2_run import StepTimeout

    def wait_for_ever():
        threading.Event().wait(60)

    timeout = StepTimeout("train.py", 0.2)
    timeout.start_step(6)
    timeout.stop()
    StepTimeout("other.py", 0).start_step(1)
    timeout.start_step(7)
    wait_for_ever()
"""


@pytest.mark.long
def test_a_step_that_hangs_ends_the_program_and_says_where():
    done = start([sys.executable, "-c", textwrap.dedent(HANG)])
    assert done.returncode == STATUS
    assert "in wait_for_ever" in done.stderr
    assert "train.py has not ended step 7 0.2 s after it asked for a batch." in done.stderr
    assert "--step-timeout" in done.stderr
