# SPDX-License-Identifier: Apache-2.0
"""What every test shares: quiet TensorFlow, and child processes that see this checkout."""

import os
import pathlib

ROOT = pathlib.Path(__file__).parent.parent

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow loads
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
