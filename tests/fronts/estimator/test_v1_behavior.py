# SPDX-License-Identifier: Apache-2.0
"""Programs that begin with `tf.compat.v1.disable_v2_behavior()`, as most legacy ones do."""

import sys

import pytest

from tests.subprocesses import start


@pytest.mark.long
@pytest.mark.smoke
def test_program_with_v1_behavior_trains_evaluates_and_predicts(tmp_path):
    done = start([sys.executable, "-m", "tests.fronts.estimator.v1_program", tmp_path])
    assert done.stdout.endswith("done\n"), done.stderr
