# SPDX-License-Identifier: Apache-2.0
"""A plan of one table with one feature, and what each *Parameters become in it."""

from tests.runners import to_parameters, to_row_optimizer
from tests.spec.optimizer_cases import CASES
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.config.to_plan import to_plan

RULES = [(to_parameters(case), to_row_optimizer(case).rule) for case in CASES.values()]


def constant_rate(step):
    return 0.125


def plan_of(optimization_parameters=None, table=None, **options):
    """A plan of one table with one feature."""
    return to_plan({"words": table or TableConfig(10, 1)}, {"title": FeatureConfig("words")},
                   optimization_parameters, **options)


def optimizer_of(*args, **options):
    return plan_of(*args, **options).table_by_name["words"].optimizer
