# SPDX-License-Identifier: Apache-2.0
"""The output of `plan`: the tables of a program, their memory, warnings, and the sampled input."""

import dataclasses
import math
import pathlib
import sys
import time
from collections.abc import Callable

import numpy as np

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.estimator.embedding_config_spec import can_train, spec_to_plan
from tpu_estimator_embedding.experiments import id_statistics, plots
from tpu_estimator_embedding.experiments.files import write_bytes
from tpu_estimator_embedding.experiments.looks import SCREEN, Look
from tpu_estimator_embedding.experiments.results import format_rows
from tpu_estimator_embedding.free_memory import free_memory
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.plan.format_bytes import format_bytes
from tpu_estimator_embedding.runtime.capture import Captured

_BYTES_PER_VALUE = 4
_SAMPLED_VALUES = 1 << 20  # enough to measure a rate in a short time
_FEW_ROWS_PER_HOST = 64
_ENOUGH_ROWS_TO_BE_NO_COINCIDENCE = 1000
_HOSTS_TO_COMPARE = 4  # if the program has one host


@dataclasses.dataclass(frozen=True)
class Memory:
    """The bytes of tables and slots.

    Attributes:
        tables: bytes of the tables.
        slots: bytes of the optimizers' slots.
        per_host: bytes of tables and slots on each host.
        available: available bytes of this machine; None if unknown.
    """

    tables: int
    slots: int
    per_host: list[int]
    available: int | None

    @property
    def needed(self) -> int:
        """Bytes of tables and slots, which is also the size of their checkpoint."""
        return self.tables + self.slots

    @property
    def fits(self) -> bool:
        """Whether tables and slots fit into memory; True if the available memory is unknown."""
        return self.available is None or self.needed <= self.available


def memory_of(plan: EmbeddingPlan, available: int | None) -> Memory:
    """Returns the memory that a plan needs."""
    tables = sum(table.vocabulary_size * table.dimension * _BYTES_PER_VALUE
                 for table in plan.tables)
    per_host = [0] * plan.num_hosts
    for table in plan.tables:
        copies = 1 + len(table.slot_initial_values)
        for host, rows in enumerate(plan.rows_per_host(table)):
            per_host[host] += rows * table.dimension * copies * _BYTES_PER_VALUE
    return Memory(tables, plan.bytes - tables, per_host, available)


def ways_to_fit(memory: Memory) -> list[str]:
    """Returns suggestions for fitting a plan into memory."""
    assert memory.available is not None
    share = memory.available / memory.needed
    ways = [f"tables of {share:.0%} of the rows, or of the columns"]
    if memory.slots and memory.tables <= memory.available:
        ways.append(f"StochasticGradientDescentParameters, which has no slots: "
                    f"{format_bytes(memory.tables)}")
    machines = math.ceil(1 / share)
    ways.append(f"{machines} parameter servers with as much memory each (num_hosts={machines})")
    return ways


def seconds_to_initialize(plan: EmbeddingPlan, clock: Callable[[], float] = time.perf_counter
                          ) -> float:
    """Returns the time of the tables' initializers, extrapolated from a part of each table."""
    import tensorflow as tf

    seconds = 0.0
    for table in plan.tables:
        rows = min(table.vocabulary_size, max(1, _SAMPLED_VALUES // table.dimension))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            try:
                values = table.initializer([rows, table.dimension], tf.float32)
            except ValueError:  # the initializer supports one shape only
                continue
            session.run(values.op)
            start = clock()
            session.run(values.op)
            seconds += (clock() - start) * table.vocabulary_size / rows
    return seconds


def warnings_of(plan: EmbeddingPlan) -> list[str]:
    """Returns warnings about the tables of a plan."""
    return [*_few_rows(plan), *_odd_dimensions(plan), *_equal_vocabularies(plan)]


def _few_rows(plan: EmbeddingPlan) -> list[str]:
    small = [table.name for table in plan.tables if plan.num_hosts > 1
             and table.vocabulary_size < plan.num_hosts * _FEW_ROWS_PER_HOST]
    if not small:
        return []
    return [f"Split over {plan.num_hosts} hosts, these tables have fewer than {_FEW_ROWS_PER_HOST} "
            f"rows on each host, and every step queries all hosts: {', '.join(small)}."]


def _odd_dimensions(plan: EmbeddingPlan) -> list[str]:
    odd = [f"{table.name} ({table.dimension})" for table in plan.tables
           if table.dimension % 4 and table.dimension > 1]
    if not odd:
        return []
    return [f"A dimension that is not a multiple of 4 wastes part of every vector instruction: "
            f"{', '.join(odd)}."]


def _equal_vocabularies(plan: EmbeddingPlan) -> list[str]:
    by_size: dict[tuple[int, int], list[TablePlan]] = {}
    for table in plan.tables:
        if table.vocabulary_size >= _ENOUGH_ROWS_TO_BE_NO_COINCIDENCE:
            by_size.setdefault((table.vocabulary_size, table.dimension), []).append(table)
    return [f"Tables of the same {rows:,} × {dim} share nothing: "
            f"{', '.join(table.name for table in tables)}. If their ids mean the same, one table "
            f"for their features (shared_embedding_columns) would save "
            f"{format_bytes(sum(table.bytes for table in tables[1:]))} and learn from all of them."
            for (rows, dim), tables in by_size.items() if len(tables) > 1]


class FigureError(Exception):
    """A figure cannot be written; the message says why."""


def show(captured: Captured, sampled_steps: int | None, hosts: int | None,
         file: pathlib.Path) -> int:
    """Prints the plan of a program; returns the exit status.

    Raises:
        FigureError: if the figure of a sample cannot be written.
    """
    num_hosts = hosts or captured.constructor_arguments["num_hosts"] or 1
    spec = captured.constructor_arguments["embedding_config_spec"]
    plan = spec_to_plan(spec, training=can_train(spec), num_hosts=num_hosts)
    print(plan)
    memory = memory_of(plan, free_memory())
    print("", _costs(plan, memory), sep="\n")
    warnings = warnings_of(plan)
    if not captured.constructor_arguments["use_tpu"]:
        warnings.insert(0, "use_tpu=False: the model's own optimizer trains these tables as "
                        "variables of the model, with different slots.")
    if sampled_steps is not None:
        steps = id_statistics.sample(captured, plan, sampled_steps)
        if steps:
            warnings += _show_sample(plan, steps, file)
        else:
            warnings.append("The input ends before the first batch.")
    for warning in warnings:
        print(f"\nwarning: {warning}")
    if memory.fits:
        return 0
    assert memory.available is not None
    print(f"\nThe tables and their slots need {format_bytes(memory.needed)}, but this machine has "
          f"{format_bytes(memory.available)} available. Alternatives:", file=sys.stderr)
    print(*(f"  - {way}" for way in ways_to_fit(memory)), sep="\n", file=sys.stderr)
    return 1


def _costs(plan: EmbeddingPlan, memory: Memory) -> str:
    hosts = sorted(set(memory.per_host), reverse=True)
    rows = [["tables", format_bytes(memory.tables)],
            ["slots", format_bytes(memory.slots)],
            ["each host", " to ".join(format_bytes(number) for number in hosts[::len(hosts) - 1]
                                      ) if len(hosts) > 1 else format_bytes(hosts[0])],
            ["a checkpoint", f"{format_bytes(memory.needed)} and the dense variables"],
            ["memory left here", "unknown" if memory.available is None
             else format_bytes(memory.available)]]
    if memory.fits:  # otherwise initializing might exhaust the memory
        rows.append(["initializing", f"about {seconds_to_initialize(plan):.1f} s here"])
    return format_rows(rows)


def _show_sample(plan: EmbeddingPlan, steps: list[dict[str, id_statistics.BatchIds]],
                 file: pathlib.Path) -> list[str]:
    facts = {feature.name: id_statistics.feature_facts(
        [step[feature.name] for step in steps],
        plan.table_by_name[feature.table].vocabulary_size) for feature in plan.features}
    print(f"\nIn {len(steps)} batches of the input:", format_rows(_feature_rows(plan, facts)), "",
          format_rows(_table_rows(plan, steps)), sep="\n")
    num_hosts = plan.num_hosts if plan.num_hosts > 1 else _HOSTS_TO_COMPARE
    strategy, reason = id_statistics.recommend(plan, num_hosts, steps)
    print(f"\npartition_strategy={strategy!r}: {reason}.")
    if figures.can_draw():
        kind = file.suffix[1:]
        look = dataclasses.replace(SCREEN, formats=(kind,))
        try:
            write_bytes(file, _figure(plan, num_hosts, steps, look)[kind])
        except OSError as error:
            raise FigureError(f"`--figure` must be a file that can be written: {error}.") from error
        print(f"load per host: {file}")
    else:
        print(f"No figure: it needs matplotlib, {figures.HOW_TO_GET}.")
    return [f"Feature {name!r} has {fact.out_of_range:,} ids outside its vocabulary: negative ids "
            "are dropped, others stop training." for name, fact in facts.items()
            if fact.out_of_range]


def _feature_rows(plan: EmbeddingPlan, facts: dict[str, id_statistics.FeatureFacts]
                  ) -> list[list[str]]:
    rows = [["feature", "table", "ids/sample", "empty samples", "unique ids/batch",
             "lookups of hottest 1 % of rows", "out of range"]]
    rows += [[feature.name, feature.table, f"{fact.ids_per_sample:.2f}", f"{fact.empty:.1%}",
              f"{fact.unique_per_batch:,.0f}", f"{fact.hot_share:.1%}", f"{fact.out_of_range:,}"]
             for feature in plan.features for fact in [facts[feature.name]]]
    return rows


def _table_rows(plan: EmbeddingPlan, steps: list[dict[str, id_statistics.BatchIds]]
                ) -> list[list[str]]:
    rows = [["table", "rows", "rows touched/step", "share"]]
    for table in plan.tables:
        touched = id_statistics.rows_touched(plan, table.name, steps)
        rows.append([table.name, f"{table.vocabulary_size:,}", f"{touched:,.0f}",
                     f"{touched / table.vocabulary_size:.2%}"])
    return rows


def _figure(plan: EmbeddingPlan, num_hosts: int, steps: list[dict[str, id_statistics.BatchIds]],
            look: Look) -> plots.Drawing:
    loads = {strategy: id_statistics.loads(plan, num_hosts, strategy, steps)
             for strategy in ("div", "mod")}
    return plots.bars(
        "Load of the hosts in a step", "host", "values looked up (rows × columns)",
        [str(host) for host in range(num_hosts)],
        {f"{strategy}: the busiest has {id_statistics.imbalance(load):.2f} × the average":
         np.asarray(load).tolist() for strategy, load in loads.items()}, look=look)
