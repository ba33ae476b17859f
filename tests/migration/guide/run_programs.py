# SPDX-License-Identifier: Apache-2.0
"""Runs programs of the guide one after the other in one process, which loads TensorFlow once.

    python -m tests.migration.guide.run_programs DIRECTORY STAGE PAGE...

What a program writes goes to DIRECTORY/PAGE/STAGE. Each trains as `verify` lets it. Then those of
the later stages run once more, whole: they go on from a checkpoint of `before`.
"""

import contextlib
import pathlib
import runpy
import sys

from tests.docs import ROOT
from tpu_estimator_embedding.migration.verify.recording import INITIAL, RecordingSettings

GUIDE = ROOT / "migration_guide"
STEPS = 20
ESTIMATORS = ("before", "after_imports")

# Page whose programs do more than train -> the checkpoint that its later stages go on from.
WHOLE = {"evaluation": "model.ckpt-0", "export": "model.ckpt-0", "summaries": "model.ckpt-0",
         "checkpoints": "first/model.ckpt-20"}


def verify(page: str, stage: str, output: pathlib.Path, before: pathlib.Path) -> None:
    """Trains a program as `verify` does."""
    from tpu_estimator_embedding.migration.verify import recorded_run
    output.mkdir(parents=True)
    arguments = [str(output / "model")]
    if stage not in ESTIMATORS:  # these are stopped by what they read after their last step
        arguments += [str(before / INITIAL), str(STEPS + 3)]
    recorded_run.run(RecordingSettings(
        str(GUIDE / page / f"{stage}.py"), tuple(arguments), str(output), STEPS,
        is_legacy=stage == "before", reference=None if stage == "before" else str(before)))


def reset(stage: str) -> None:
    """Forgets names of variables, which would count up from program to program."""
    import tensorflow as tf
    tf.compat.v1.reset_default_graph()
    keras = sys.modules.get("keras" if stage == "after_keras_rs" else "tf_keras")
    if keras is not None:
        keras.backend.clear_session()


def run(page: str, stage: str, output: pathlib.Path, *arguments: str) -> None:
    """Runs a program as its users do, to its end."""
    output.mkdir(parents=True)
    sys.argv = [f"{stage}.py", str(output), *arguments]
    with (output / "stdout.txt").open("w", encoding="utf-8") as stdout, \
            contextlib.redirect_stdout(stdout):
        runpy.run_path(str(GUIDE / page / f"{stage}.py"), run_name="__main__")


def main(directory: str, stage: str, *pages: str) -> None:
    """Runs the programs of a stage."""
    is_estimator = stage in ESTIMATORS
    for page in pages:
        print(f"{page}/{stage}.py", file=sys.stderr)
        output, before = (pathlib.Path(directory, page, name) for name in (stage, "before"))
        reset(stage)
        verify(page, stage, output, before)
        if page in WHOLE or not is_estimator:
            reset(stage)
            start = before / "whole" / WHOLE[page] if page in WHOLE else before / INITIAL
            run(page, stage, output / "whole", *[] if is_estimator else [str(start)])


if __name__ == "__main__":
    main(*sys.argv[1:])
