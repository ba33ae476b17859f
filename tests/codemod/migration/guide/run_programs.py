# SPDX-License-Identifier: Apache-2.0
"""Runs programs of the guide one after the other in one process, which loads TensorFlow once.

    python -m tests.codemod.migration.guide.run_programs DIRECTORY STAGE PAGE...

The program is DIRECTORY/programs/PAGE/STAGE.py, and what it writes goes to DIRECTORY/PAGE/STAGE.
Each trains as `verify` lets it. Then those of stage 2 that are written by hand run once more,
whole: they go on from a checkpoint of `before`.
"""

import contextlib
import pathlib
import runpy
import sys

from tests.codemod.migration.guide.written import is_by_hand
from tpu_estimator_embedding.migration.verify.recording import INITIAL, RecordingSettings

STEPS = 20
ESTIMATORS = ("before", "after_imports")

# Page whose programs do more than train -> the checkpoint that its later stages go on from.
WHOLE = {"evaluation": "model.ckpt-0", "export": "model.ckpt-0", "summaries": "model.ckpt-0",
         "checkpoints": "first/model.ckpt-20"}


def goes_on(page: str, stage: str) -> bool:
    """Whether a program takes a checkpoint of `before`, and a number of steps."""
    return stage not in ESTIMATORS and is_by_hand(page)


def verify(program: pathlib.Path, output: pathlib.Path, before: pathlib.Path) -> None:
    """Trains a program as `verify` does."""
    from tpu_estimator_embedding.migration.verify import recorded_run
    output.mkdir(parents=True)
    arguments = [str(output / "model")]
    if goes_on(program.parent.name, program.stem):  # these stop at a batch after their last step
        arguments += [str(before / INITIAL), str(STEPS + 3)]
    recorded_run.run(RecordingSettings(
        str(program), tuple(arguments), str(output), STEPS, is_legacy=output == before,
        reference=None if output == before else str(before)))


def reset() -> None:
    """Forgets names of variables, which would count up from program to program."""
    import tensorflow as tf
    tf.compat.v1.reset_default_graph()
    sys.modules.pop("embedding_config", None)  # each page has its own
    if "tf_keras" in sys.modules:
        sys.modules["tf_keras"].backend.clear_session()


def run(program: pathlib.Path, output: pathlib.Path, *arguments: str) -> None:
    """Runs a program as its users do, to its end."""
    output.mkdir(parents=True)
    sys.argv = [program.name, str(output), *arguments]
    with (output / "stdout.txt").open("w", encoding="utf-8") as stdout, \
            contextlib.redirect_stdout(stdout):
        runpy.run_path(str(program), run_name="__main__")


def main(directory: str, stage: str, *pages: str) -> None:
    """Runs the programs of a stage."""
    is_estimator = stage in ESTIMATORS
    for page in pages:
        print(f"{page}/{stage}.py", file=sys.stderr)
        output, before = (pathlib.Path(directory, page, name) for name in (stage, "before"))
        reset()
        program = pathlib.Path(directory, "programs", page, f"{stage}.py")
        verify(program, output, before)
        if page in WHOLE or goes_on(page, stage):
            reset()
            start = before / "whole" / WHOLE[page] if page in WHOLE else before / INITIAL
            run(program, output / "whole", *[] if is_estimator else [str(start)])


if __name__ == "__main__":
    main(*sys.argv[1:])
