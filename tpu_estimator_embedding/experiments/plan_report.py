# SPDX-License-Identifier: Apache-2.0
"""The output of `plan`: a program's tables and its sampled input."""

import pathlib
import sys
from typing import Any

import numpy as np

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.estimator.spec_to_plan import can_train, spec_to_plan
from tpu_estimator_embedding.experiments import id_sample, id_statistics, plan_facts, plots
from tpu_estimator_embedding.experiments.files import write_bytes
from tpu_estimator_embedding.experiments.result_tables import format_rows
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.plan.format_bytes import format_bytes

_HOSTS_TO_COMPARE = 4  # if the program has one host


def show(captured: Any, sampled_steps: int | None, hosts: int | None, file: pathlib.Path) -> int:
    """Prints the plan of a program; returns the exit status."""
    num_hosts = hosts or captured.constructor_arguments["num_hosts"] or 1
    plan = spec_to_plan(captured.spec, training=can_train(captured.spec), num_hosts=num_hosts)
    print(plan)
    memory = plan_facts.memory_of(plan, plan_facts.available_memory())
    print("", _costs(plan, memory), sep="\n")
    warnings = plan_facts.warnings_of(plan)
    if not captured.constructor_arguments["use_tpu"]:
        warnings.insert(0, "use_tpu=False: the model's own optimizer trains these tables as "
                        "variables of the model, with different slots.")
    if sampled_steps is not None:
        steps = id_sample.sample(captured, plan, sampled_steps)
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
    print(*(f"  - {way}" for way in plan_facts.ways_to_fit(memory)), sep="\n", file=sys.stderr)
    return 1


def _costs(plan: EmbeddingPlan, memory: plan_facts.Memory) -> str:
    hosts = sorted(set(memory.per_host), reverse=True)
    rows = [["tables", format_bytes(memory.tables)],
            ["slots", format_bytes(memory.slots)],
            ["each host", " to ".join(format_bytes(number) for number in hosts[::len(hosts) - 1]
                                      ) if len(hosts) > 1 else format_bytes(hosts[0])],
            ["a checkpoint", f"{format_bytes(memory.needed)} and the dense variables"],
            ["memory left here", "unknown" if memory.available is None
             else format_bytes(memory.available)]]
    if memory.fits:  # otherwise initializing might exhaust the memory
        rows.append(["initializing", f"about {plan_facts.seconds_to_initialize(plan):.1f} s here"])
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
        write_bytes(file, _figure(plan, num_hosts, steps)[file.suffix[1:]])
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


def _figure(plan: EmbeddingPlan, num_hosts: int, steps: list[dict[str, id_statistics.BatchIds]]
            ) -> plots.Drawing:
    loads = {strategy: id_statistics.loads(plan, num_hosts, strategy, steps)
             for strategy in ("div", "mod")}
    return plots.bars(
        "Load of the hosts in a step", "host", "values looked up (rows × columns)",
        [str(host) for host in range(num_hosts)],
        {f"{strategy}: the busiest has {id_statistics.imbalance(load):.2f} × the average":
         np.asarray(load).tolist() for strategy, load in loads.items()})
