# SPDX-License-Identifier: Apache-2.0
"""The performance targets, as ratios of measurements in one run."""

import dataclasses
import importlib.metadata
from collections.abc import Mapping

from benchmarks.timing import Result
from benchmarks.workloads import W1

Results = Mapping[str, Mapping[str, Result]]  # workload -> baseline -> result

MEMORY_LIMIT = 300e6
GROWTH_LIMIT = 2.5  # maximum growth of the time per step from 10^4 to 10^7 rows


@dataclasses.dataclass(frozen=True)
class Target:
    """The target of one ratio: time per step of `peer` / time per step of `candidate`.

    Attributes:
        workload: name of the workload.
        candidate: name of the baseline that should be faster.
        peer: name of the baseline that it is compared with.
        at_least: minimum of the ratio; for a memory-bound peer it is a fraction of its speed.
    """

    workload: str
    candidate: str
    peer: str
    at_least: float

    def reached(self, results: Results) -> float | None:
        """Returns the measured ratio; None if one of the two was not measured."""
        of_workload = results.get(self.workload, {})
        pair = [of_workload.get(name) for name in (self.peer, self.candidate)]
        if any(result is None or not result.samples for result in pair):
            return None
        peer, candidate = pair
        return peer.times_reference / candidate.times_reference

    def of_medians(self, results: Results) -> float | None:
        """Returns the ratio of the medians, as a reader of the table computes it.

        It differs from `reached` where not all tables fit into memory together: baselines are
        measured one after another then, and each is compared with the reference beside it.
        """
        if self.reached(results) is None:
            return None
        of_workload = results[self.workload]
        return of_workload[self.peer].median / of_workload[self.candidate].median


_RATIOS = {  # (candidate, peer) -> W, W1, W2
    ("native", "stock_graph"): (13, 22, 40),
    ("native", "fbgemm"): (7, 8, 8),
    ("native", "bound"): (0.7, 0.7, 0.5),
    ("native", "bound_l1"): (0.7, 0.7, 0.5),
    ("native", "bound_ids"): (0.7, 0.7, 0.5),
    ("tf_ops", "stock_graph"): (1.3, 2, 4),
    ("native_avx2", "stock_graph"): (13, 22, 40),
    ("native_avx2", "fbgemm"): (7, 7, 6),
    ("native_avx2", "bound"): (0.6, 0.7, 0.5),
}
_OLD_RATIOS = {("native", "stock_graph"): (4,)}
# An API may take little more time than the engine alone in the same mode of execution.
_FRONT_DOORS = tuple(
    Target(workload, front_door, engine, 0.8) for workload in ("W", "W2")
    for front_door, engine in (
        ("low_level", "native"), ("tpu_embedding", "native_function"),
        ("tpu_embedding_v2", "native_function"), ("layer_fit", "native_function")))
_END_TO_END = (Target("1x64", "estimator_long_loop", "stock_estimator", 3),
               Target("W", "estimator", "stock_estimator", 7),
               Target("W", "estimator_records", "stock_estimator_records", 6),
               Target("W", "parsing", "stock_parsing", 2.5))


def targets() -> list[Target]:
    """Returns the targets for the installed TensorFlow; the ops of 2.15 are faster."""
    try:
        is_old = importlib.metadata.version("tensorflow").startswith("2.15.")
    except importlib.metadata.PackageNotFoundError:
        is_old = False
    ratios = _OLD_RATIOS if is_old else _RATIOS
    at_engine = [Target(workload, *pair, at_least) for pair, values in ratios.items()
                 for workload, at_least in zip(("W", "W1", "W2"), values, strict=False)]
    return at_engine if is_old else [*at_engine, *_FRONT_DOORS, *_END_TO_END]


def memory_of_w1(results: Results) -> int | None:
    """Returns the bytes that W1 used beyond its tables and slots; None if not measured."""
    native = results.get(W1.name, {}).get("native")
    return native.memory_over_tables if native and native.samples else None
