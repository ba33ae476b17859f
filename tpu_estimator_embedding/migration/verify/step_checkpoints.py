# SPDX-License-Identifier: Apache-2.0
"""Hooks that record the training of a TPUEstimator: variables and activations of every step."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator.replicas import op_kinds
from tpu_estimator_embedding.estimator.replicas.graph_copy import FunctionCopies
from tpu_estimator_embedding.migration.verify import recording
from tpu_estimator_embedding.migration.verify.recording import INITIAL, step_name
from tpu_estimator_embedding.ops.graph_walk import ops_run_by
from tpu_estimator_embedding.runtime.interception import estimators_intercepted
from tpu_estimator_embedding.types import Tensor

# Ends of the types of ops with seeds that draw nothing in a step: batches are recorded.
_NOT_DRAWING = ("Iterator", "IteratorV2", "Dataset", "ComputeAccidentalHits")


@dataclasses.dataclass
class EngineValues:
    """Known once the graph of a training step is built.

    Attributes:
        activations: feature -> activations in the graph; of several replicas the first one's.
        table_variables: "table" or "table/slot" -> its name in a checkpoint.
    """

    activations: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    table_variables: dict[str, str] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def collected() -> Iterator[EngineValues]:
    """Collects them from the first step that is built."""
    found = EngineValues()

    def use_step(original: Callable[..., None], estimator: object,
                 arguments: dict[str, Any]) -> None:
        step = arguments["step"]
        found.activations = found.activations or dict(step.activations)
        for table, names in step.names.items():
            found.table_variables[table] = names.table
            found.table_variables.update(
                {f"{table}/{slot}": name for slot, name in names.slots.items()})
        original(**arguments)

    with estimators_intercepted({"_use_step": use_step}):
        yield found


class ModelVariables(tf.compat.v1.train.SessionRunHook):
    """Notes the variables of model_fn: those that exist before other hooks make theirs.

    Attributes:
        names: of the variables, in a checkpoint.
    """

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Notes the variables."""
        self.names = frozenset(map(_key, tf.compat.v1.global_variables()))


class StepCheckpoints(tf.compat.v1.train.SessionRunHook):
    """Saves the initial values, loads those of a reference, and saves after every step.

    Args:
        directory: of the run.
        reference: of the run whose initial values this one starts from; None means its own.
        engine: what is known of the graph.
        first: number of steps before; a later training starts from the values after them.

    Attributes:
        losses: of the steps so far.
        trainable: names of the dense variables that are trained, in the order of the graph.
        names: of all variables, also of those that hooks have made.
        draws: names of the ops that draw random numbers in each step.
    """

    def __init__(self, directory: str, reference: str | None, engine: EngineValues,
                 first: int = 0) -> None:
        self._directory = pathlib.Path(directory)
        self._reference, self._first = reference, first
        self._engine = engine
        self.trainable: tuple[str, ...] = ()
        self.names: frozenset[str] = frozenset()
        self.draws: tuple[str, ...] = ()
        self.losses: list[float] = []

    def begin(self) -> None:
        """Finds the loss of the Estimator, the last one in its collection."""
        self._loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]
        tables = set(self._engine.table_variables.values())
        self.trainable = tuple(name for variable in tf.compat.v1.trainable_variables()
                               if (name := _key(variable)) not in tables)

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Saves the initial values, and loads those of the reference."""
        self.names = frozenset(map(_key, tf.compat.v1.global_variables()))
        self._saver = _saver_of_all_variables(session.graph)
        if self._first:
            self._saver.restore(session, str(self._directory / step_name(self._first)))
            return
        self._save(session, INITIAL)
        if self._reference:
            self._saver.restore(session, str(pathlib.Path(self._reference, INITIAL)))

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                   ) -> tf.compat.v1.train.SessionRunArgs:
        """Fetches the loss."""
        if not self.losses:
            self.draws = drawing_ops(run_context.session.graph, [
                *tf.nest.flatten(run_context.original_args.fetches), self._loss])
        return tf.compat.v1.train.SessionRunArgs((self._loss, self._engine.activations))

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Saves the values after the step."""
        loss, looked_up = run_values.results
        self.losses.append(float(loss))
        step = self._first + len(self.losses)
        recording.save_activations(self._directory, step, looked_up)
        self._save(run_context.session, step_name(step))

    def _save(self, session: tf.compat.v1.Session, name: str) -> None:
        self._saver.save(session, str(self._directory / name), write_meta_graph=False,
                         write_state=False)


def drawing_ops(graph: tf.Graph, fetches: Iterable[Tensor | tf.Operation]) -> tuple[str, ...]:
    """Returns the names of the ops, run by a session for its fetches, that draw random numbers.

    Initializers are not run by a step, and stateless ops draw the same in every program.
    """
    functions = FunctionCopies(graph.as_graph_def().library.function, "", 0)
    return tuple(sorted(
        op.name for op in ops_run_by(map(graph.as_graph_element, fetches))
        if not op.type.endswith(_NOT_DRAWING) and (
            op_kinds.is_random(op.node_def) or functions.is_random(op.node_def))))


def _saver_of_all_variables(graph: tf.Graph) -> tf.compat.v1.train.Saver:
    """Adds a Saver to a graph that is final; that of a Scaffold may leave variables out."""
    graph._unsafe_unfinalize()
    with graph.as_default():
        saver = tf.compat.v1.train.Saver()
    graph.finalize()
    return saver


def _key(variable: tf.Variable) -> str:
    """Returns the name of a variable in a checkpoint; that of the whole where it is a part."""
    part = variable._get_save_slice_info()
    return str(part.full_name if part else variable.op.name)
