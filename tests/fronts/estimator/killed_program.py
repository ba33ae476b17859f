# SPDX-License-Identifier: Apache-2.0
"""Trains and dies while it writes the checkpoint of step 16.

    killed_program.py MODEL_DIR {write,replace}
"""

import os
import pathlib
import signal
import sys

from tests.fronts.estimator.test_asynchronous_saving import train
from tpu_estimator_embedding.checkpoint import bundle


def main(model_dir, moment):
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    replace, write = pathlib.Path.replace, bundle.Region.write

    def replace_first(path, target):
        replace(path, target)
        if moment == "replace" and "ckpt-16" in path.name:
            die()  # before the other files

    def write_some(region, file, content):
        write(region, file, content)
        if moment == "write" and "ckpt-16" in str(file.name):
            die()

    pathlib.Path.replace, bundle.Region.write = replace_first, write_some
    train(pathlib.Path(model_dir))


if __name__ == "__main__":
    main(*sys.argv[1:])
