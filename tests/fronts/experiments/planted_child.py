# SPDX-License-Identifier: Apache-2.0
"""Stands in for a run of a sweep: it writes the curve that a formula plants, without TensorFlow.

The best multiplier is 0.25, and the clipping limit changes the loss by a thousandth only. Real
event files are written, in the time that a real program would need for its imports.
"""

import math
import os
import pathlib
import sys
import time

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tpu_estimator_embedding.experiments import files
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import setting_of

BEST = 0.25
STEPS = 3


def loss(multiplier, limit, step):
    return math.log(multiplier / BEST) ** 2 + 1e-3 * limit + 1 / step


def main(job_path):
    job = files.read_json(pathlib.Path(job_path))
    run = Run(pathlib.Path(job["sweep_directory"]), setting_of(job["setting"]), job["seed"])
    with (run.directory.parent / "started.txt").open("a") as started:
        started.write(f"{run.name}\n")
    directory = run.directory / "model" / "eval"
    directory.mkdir(parents=True, exist_ok=True)
    if "PLANTED_ERROR" in os.environ:
        raise RuntimeError(os.environ["PLANTED_ERROR"])
    multiplier = float(job["setting"]["multiplier"])
    with (directory / "events.out.tfevents.1").open("wb") as file:
        writer = RecordWriter(file)
        for step in range(1, STEPS + 1):
            value = loss(multiplier, float(job["setting"].get("clipping_limit", 0)), step)
            writer.write(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[
                summary_pb2.Summary.Value(tag="loss", simple_value=value)])).SerializeToString())
            writer.flush()
            if step < STEPS:
                time.sleep(float(os.environ.get("PLANTED_SECONDS", "0")))
    run.end({"tables": {}})


if __name__ == "__main__":
    main(sys.argv[1])
