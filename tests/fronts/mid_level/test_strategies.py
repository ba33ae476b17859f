# SPDX-License-Identifier: Apache-2.0
"""One update from all replicas, whatever the strategy and wherever enqueue stands."""

import pathlib
import sys

from tests import subprocesses

PROGRAM = pathlib.Path(__file__).parent / "strategy_program.py"


def test_every_strategy_and_way_to_call_gives_the_tables_of_the_oracle():
    done = subprocesses.start([sys.executable, PROGRAM])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "mirrored, outside", "mirrored, inside", "mirrored, eager", "mirrored, by device",
        "mirrored, by device, eager", "one device, outside",
        "default, outside", "unaccumulated", "ragged with weights, pipelined or not", "errors"]
