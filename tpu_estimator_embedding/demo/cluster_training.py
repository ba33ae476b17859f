# SPDX-License-Identifier: Apache-2.0
"""Trains the model of the demo on a parameter-server cluster of this machine."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tpu_estimator_embedding.cluster.supervisor import supervise
from tpu_estimator_embedding.cluster.task import new_tasks, run_command
from tpu_estimator_embedding.demo import training
from tpu_estimator_embedding.demo.click_logs import ClickLogs

_TASK = "tpu_estimator_embedding.demo.cluster_task"
_RESTARTS = 3


@dataclasses.dataclass(frozen=True)
class ClusterTraining:
    """Trains with a chief, a worker, two parameter servers and an evaluator.

    Attributes:
        options: name -> value of the demo's options that its tasks need.
        verbose: whether the tasks show all messages of TensorFlow.
    """

    options: Mapping[str, Any]
    verbose: bool = False

    def __call__(self, estimator: Any, logs: ClickLogs, batch_size: int,
                 on_phase: Callable[[str], None]) -> int:
        """Trains on as many records as `training.train`; returns their number.

        Raises:
            SystemExit: if a task failed too often.
        """
        start, total = training.trained_steps(estimator), training.total_steps(logs, batch_size)
        if training.is_trained(estimator, start, total):
            return 0
        print("Training on a cluster: chief, worker, 2 parameter servers, evaluator.", flush=True)
        on_phase("train")
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
