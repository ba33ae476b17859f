# SPDX-License-Identifier: Apache-2.0
"""The records that say what a call of a TPUEstimator does, made once and passed to every part.

`EstimatorCall` holds what train(), evaluate(), predict() or an export decides before there is a
graph, `ModelInput` adds the input in the graph, and `ModelGraph` is the graph with its model.
"""

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.hooks.embedding_statistics import EmbeddingStatisticsHook
from tpu_estimator_embedding.estimator.hooks.loop_length import LoopLength
from tpu_estimator_embedding.estimator.input.feeding import InputFeed
from tpu_estimator_embedding.estimator.input.step_input import StepInput
from tpu_estimator_embedding.estimator.restore import WarmStartSettings
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


@dataclasses.dataclass(frozen=True)
class EstimatorCall:
    """What a call decides before it builds a graph.

    Attributes:
        mode: TRAIN, EVAL or PREDICT.
        plan: the tables and features.
        is_export: whether a client of an exported graph feeds the input, instead of an input_fn.
        to_the_end: whether it evaluates the whole input, and not a number of steps.
        statistics: hooks of the program that want measures of the steps.
        warm_start: what variables start from; None where a checkpoint of the model gives them.
        length: the length of a loop of training.
        loads_tables: whether tables are loaded that could be read, or exported, in place.
    """

    mode: str
    plan: EmbeddingPlan
    is_export: bool = False
    to_the_end: bool = False
    statistics: tuple[EmbeddingStatisticsHook, ...] = ()
    warm_start: WarmStartSettings | None = None
    length: LoopLength = LoopLength()
    loads_tables: bool = False

    @property
    def training(self) -> bool:
        """Whether tables and model are trained."""
        return self.mode == upstream.model_fn.ModeKeys.TRAIN


@dataclasses.dataclass(frozen=True)
class ModelInput:
    """What a model is built from: the argument `features` of `_call_model_fn` with the engine.

    On a TPU, that argument is not the features of a batch either, but the function that reads them.

    Attributes:
        call: the call that builds the model.
        step: the input of a step, with features and labels of each replica.
    """

    call: EstimatorCall
    step: StepInput


class ModelGraph(NamedTuple):
    """A graph that a session can run.

    Attributes:
        spec: what the model_fn returned, with the engine's ops and hooks.
        input_hooks: hooks that feed the input.
        feed: the one of them that feeds the engine's steps; None without the engine.
        input_ops: names of the ops whose OutOfRangeError is the end of the input.
    """

    spec: upstream.model_fn.EstimatorSpec
    input_hooks: list[tf.compat.v1.train.SessionRunHook]
    feed: InputFeed | None
    input_ops: Collection[str] = ()
