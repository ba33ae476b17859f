# SPDX-License-Identifier: Apache-2.0
"""Runs programs of the guide one after the other in one process, which loads TensorFlow once.

    python -m tests.migration.guide.run_programs DIRECTORY STAGE PAGE...

What a program writes goes to DIRECTORY/PAGE/STAGE. `before` and `after_imports` train as `verify`
lets them. The programs of the other stages go on from a checkpoint of `before`.
"""

import contextlib
import pathlib
import runpy
import sys

from tests.docs import ROOT
from tpu_estimator_embedding.migration.verify.settings import INITIAL, Settings

GUIDE = ROOT / "migration_guide"
STEPS = 20
ESTIMATORS = ("before", "after_imports")

# Page whose programs do more than train -> the checkpoint that its later stages go on from.
WHOLE = {"evaluation": "model.ckpt-0", "export": "model.ckpt-0", "summaries": "model.ckpt-0",
         "checkpoints": "first/model.ckpt-20"}


def train(page: str, stage: str, output: pathlib.Path, before: pathlib.Path) -> None:
    """Trains a program of Estimators as `verify` does, then runs it whole if it does more."""
    from tpu_estimator_embedding.migration.verify import recorded_run
    output.mkdir(parents=True)
    recorded_run.run(Settings(
        str(GUIDE / page / f"{stage}.py"), (str(output / "model"),), str(output), STEPS,
        is_legacy=stage == "before", reference=None if stage == "before" else str(before)))
    if page in WHOLE:
        run(page, stage, output / "whole")


def go_on(page: str, stage: str, output: pathlib.Path, before: pathlib.Path) -> None:
    """Runs a program of a later stage."""
    import tensorflow as tf
    tf.compat.v1.reset_default_graph()  # names of variables would count up
    keras = sys.modules.get("keras" if stage == "after_keras_rs" else "tf_keras")
    if keras is not None:
        keras.backend.clear_session()
    start = before / "whole" / WHOLE[page] if page in WHOLE else before / INITIAL
    run(page, stage, output, str(start))


def run(page: str, stage: str, output: pathlib.Path, *arguments: str) -> None:
    """Runs a program as its users do, to its end."""
    output.mkdir(parents=True)
    sys.argv = [f"{stage}.py", str(output), *arguments]
    with (output / "stdout.txt").open("w", encoding="utf-8") as stdout, \
            contextlib.redirect_stdout(stdout):
        runpy.run_path(str(GUIDE / page / f"{stage}.py"), run_name="__main__")


def main(directory: str, stage: str, *pages: str) -> None:
    """Runs the programs of a stage."""
    for page in pages:
        print(f"{page}/{stage}.py", file=sys.stderr)
        function = train if stage in ESTIMATORS else go_on
        function(page, stage, pathlib.Path(directory, page, stage),
                 pathlib.Path(directory, page, "before"))


if __name__ == "__main__":
    main(*sys.argv[1:])
