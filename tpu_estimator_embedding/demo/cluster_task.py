# SPDX-License-Identifier: Apache-2.0
"""Runs one task of the demo's cluster, which TF_CONFIG selects."""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpu_estimator_embedding import multipliers
from tpu_estimator_embedding.cluster.supervisor import supervise
from tpu_estimator_embedding.cluster.task import new_tasks, run_command
from tpu_estimator_embedding.demo import training
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.model import make_input_fn
from tpu_estimator_embedding.demo.untrained_tables import KeepFirstCheckpoint
from tpu_estimator_embedding.types import Tensor

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

_TASK = "tpu_estimator_embedding.demo.cluster_task"
_RESTARTS = 3
_LINES_PER_RUN = 20


@dataclasses.dataclass(frozen=True)
class ClusterTraining:
    """Trains with a chief, a worker, two parameter servers and an evaluator.

    Attributes:
        options: name -> value of the demo's options that its tasks need.
        verbose: whether the tasks show all messages of TensorFlow.
    """

    options: Mapping[str, object]
    verbose: bool = False

    def __call__(self, estimator: "TPUEstimator", logs: ClickLogs, batch_size: int) -> int:
        """Trains on as many records as `training.train`; returns their number.

        Raises:
            SystemExit: if a task failed too often.
        """
        start, total = training.trained_steps(estimator), training.total_steps(logs, batch_size)
        if training.is_trained(estimator, start, total):
            return 0
        print("Training on a cluster: chief, worker, 2 parameter servers, evaluator.", flush=True)
        arguments = [text for name, value in self.options.items()
                     for text in (f"--{name}", str(value))]
        command = run_command([*([] if self.verbose else ["--quiet"]), "-m", _TASK, *arguments])
        status = supervise(new_tasks(command, workers=1, servers=2, evaluator=True), _RESTARTS)
        if status:
            print(f"The cluster ended with status {status}; the lines of its tasks are above. "
                  "Run the same command again to continue from the last checkpoint.",
                  file=sys.stderr)
            sys.exit(status)
        return logs.train_examples - start * batch_size


def with_options(args: argparse.Namespace) -> ClusterTraining:
    """Returns the training of a demo with these options."""
    return ClusterTraining({"model-dir": args.model_dir, "examples": args.examples,
                            "batch-size": args.batch_size, "seed": args.seed,
                            "multiplier": args.multiplier}, args.verbose)


class StepLines(tf.compat.v1.train.SessionRunHook):
    """Prints a line with step and loss at regular intervals."""

    def __init__(self, loss: tf.Tensor, total: int):
        """Stores the loss of a step, and the total number of steps of all trainers."""
        self._fetches = (tf.compat.v1.train.get_global_step(), loss)
        self._total, self._every = total, max(1, total // _LINES_PER_RUN)
        self._next = 0

    def before_run(self, run_context):
        """Requests step and loss."""
        return tf.compat.v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        """Prints them if the interval has passed."""
        step, loss = run_values.results
        if step >= self._next:
            print(f"step {step} of {self._total}, loss {loss:.4f}", flush=True)
            self._next = step + self._every


def run(directory: pathlib.Path, logs: ClickLogs, batch_size: int,
        multiplier: Callable[[Tensor], Tensor] | None) -> None:
    """Runs the task of this process until training ends."""
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    total = training.total_steps(logs, batch_size)
    estimator = training.make_estimator(
        directory / "model", logs, batch_size, lambda loss: StepLines(loss, total), multiplier)
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(_share(logs, estimator.config), max_steps=total,
                               saving_listeners=[KeepFirstCheckpoint(directory / "model")]),
        tf.estimator.EvalSpec(make_input_fn(logs.eval_files), steps=None, start_delay_secs=0,
                              throttle_secs=5))


def _share(logs: ClickLogs,
           config: "tf.estimator.RunConfig") -> Callable[[dict[str, Any]], tf.data.Dataset]:
    """Returns the input of one trainer: every n-th batch of the records, repeated forever.

    The trainers together run as many steps as one pass has; the faster one runs more of them.
    """
    trainers = ["chief", *[f"worker {number}" for number in range(config.num_worker_replicas - 1)]]
    name = f"worker {config.task_id}" if config.task_type == "worker" else "chief"
    whole = make_input_fn(logs.train_files)
    return lambda params: whole(params).shard(len(trainers), trainers.index(name)).repeat()


def main() -> None:
    """Parses the options that the demo passes to its tasks."""
    parser = argparse.ArgumentParser(description="A task of `demo --cluster`.")
    parser.add_argument("--model-dir", type=pathlib.Path, required=True)
    for name in ("--examples", "--batch-size", "--seed"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--multiplier", required=True)
    args = parser.parse_args()
    run(args.model_dir, ClickLogs(args.model_dir / "click_logs", args.examples, args.seed),
        args.batch_size, multipliers.parse(args.multiplier))


if __name__ == "__main__":
    main()
