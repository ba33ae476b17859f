# SPDX-License-Identifier: Apache-2.0
"""TPUEmbeddingV2 and the Keras layers under strategies of tf.distribute."""

import pathlib
import sys

from tests.subprocesses import start


def test_replicas_make_one_update_together():
    program = pathlib.Path(__file__).with_name("v2_strategies_program.py")
    done = start([sys.executable, program])
    assert done.returncode == 0, done.stderr
    assert "use_gradient_accumulation=False is ignored by TPUEmbeddingV2" in done.stderr
    assert done.stdout.splitlines() == [
        "V2 inside OneDeviceStrategy", "V2 inside MirroredStrategy",
        "V2 that ignores a setting MirroredStrategy",
        "V2 outside MirroredStrategy", "V2 pipelined MirroredStrategy",
        "layer 0 MirroredStrategy", "layer None MirroredStrategy"]
