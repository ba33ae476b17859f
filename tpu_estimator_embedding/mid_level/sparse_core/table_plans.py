# SPDX-License-Identifier: Apache-2.0
"""The tables of a stack as separate tables of a plan, over the same variables.

Ids of different tables never share a row of the stack. So the ids of each table can be sorted, and
its rows updated, separately: keys are shorter than those of the whole stack, and nobody
concatenates the gradients of different tables.
"""

import dataclasses

from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


def plan_of_stack(stacks: Stacks, name: str) -> EmbeddingPlan:
    """Returns the plan of a stack's features, with the stack as its only table."""
    plan = stacks.feature_plan
    return plan.restricted_to([feature.name for feature in plan.features_of(name)])


def plan_of_tables(stacks: Stacks, name: str) -> EmbeddingPlan:
    """Returns the plan of a stack's features, with a table for each table of the stack.

    Every table of the plan has all rows of the stack, of which its features use some. A stack
    remains one table if its optimizer also moves rows without ids.

    Args:
        stacks: the tables and features.
        name: name of the stack.
    """
    plan = plan_of_stack(stacks, name)
    [stack] = plan.tables
    if stack.optimizer is None or stack.optimizer.rule.updates_untouched_rows:
        return plan
    names = {feature.name: f"{name}/{stacks.features[feature.name].table}"
             for feature in plan.features}
    features = [dataclasses.replace(feature, table=names[feature.name])
                for feature in plan.features]
    return EmbeddingPlan.build(
        [dataclasses.replace(stack, name=table) for table in dict.fromkeys(names.values())],
        features, num_hosts=plan.num_hosts)


def variables_of_tables(plan: EmbeddingPlan, variables: TableVariables
                        ) -> dict[str, TableVariables]:
    """Returns table of the plan -> variables of the stack, which all of them share."""
    return {table.name: variables for table in plan.tables}
