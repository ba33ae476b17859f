# SPDX-License-Identifier: Apache-2.0
"""Prints the summary of the demo: plan, times, metrics, predictions, files."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tpu_estimator_embedding.demo import model
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.clock import Clock


def show(logs: ClickLogs, clock: Clock, metrics: Mapping[str, float], *, trained_examples: int,
         predicted: np.ndarray, served: np.ndarray, files: Mapping[str, Any]) -> None:
    """Prints the summary."""
    print("", plan(), sep="\n")
    examples = {"write": logs.examples, "train": trained_examples,
                "evaluate": 2 * logs.eval_examples}
    _section("Times", {name: _time(seconds, examples.get(name))
                       for name, seconds in clock.seconds.items()})
    _section("Metrics on held-out records",
             {name: f"{value:.4f}" for name, value in metrics.items()})
    _section("First held-out records", {
        "predicted": _numbers(predicted), "served": _numbers(served),
        "largest difference": f"{np.abs(predicted - served).max():.1e}"})
    _section("Files", {name: str(path) for name, path in files.items()})


def plan() -> Any:
    """Returns the EmbeddingPlan of the demo's columns."""
    from tpu_estimator_embedding.estimator.spec_to_plan import spec_to_plan

    return spec_to_plan(model.embedding_config_spec(), training=True, num_hosts=1)


def _section(title: str, lines: Mapping[str, str]) -> None:
    width = max(len(name) for name in lines)
    print("", title, *(f"  {name:<{width}}  {text}" for name, text in lines.items()), sep="\n")


def _time(seconds: float, examples: int | None) -> str:
    rate = f"  {examples / seconds:12,.0f} examples/s" if examples else ""
    return f"{seconds:7.1f} s{rate}"


def _numbers(values: np.ndarray) -> str:
    return "  ".join(f"{value:.4f}" for value in values)
