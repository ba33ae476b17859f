# SPDX-License-Identifier: Apache-2.0
"""Sessions that run the same fetches in every step, and callables instead of `Session.run`.

There is one mechanism, `made_callable`: a callable that the session makes once for what is run
again and again. A `StepSession` uses it by itself: a MonitoredSession fetches the same nest of
tensors in most of its runs, and `Session.run` takes the nest apart every time, which takes longer
than a small step.
"""

import enum
import functools
import math
import operator
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as client_session
from tensorflow.python.ops import resources
from tensorflow.python.training import session_manager

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.types import Structure, Tensor

_CALLING_THREAD = -1  # as RunOptions.inter_op_thread_pool
_NUM_TIMED = 10  # calls that show whether a step is small
_SHORT_SECONDS = 0.001  # of a small step
_WAIT_SECONDS = 1.0  # between two looks whether variables are there
_LINE_SECONDS = 30.0  # between two lines about them


class Threads(enum.Enum):
    """Which threads run the ops of a callable. Ops still use their own threads."""

    SESSION = "the session's, several at the same time"
    CALLER = "the one that calls, one op after the other"
    MEASURED = "those of the session, or the caller's if the first calls are short"


def made_callable(session: tf.compat.v1.Session, fetches: Sequence[Tensor], targets: Structure = (),
                  *, threads: Threads = Threads.SESSION) -> Callable[[], list[Any]]:
    """Returns a function that runs `targets` and returns `fetches`; errors are those of `run`.

    Args:
        session: the session.
        fetches: tensors of its graph.
        targets: a nest of operations, and of tensors whose values are not needed.
        threads: which threads run the ops.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     print(*made_callable(session, [tf.constant(3) + tf.constant(4)])())
    7
    """
    if session.sess_str:  # a session on a server: calls between tasks cost more than this saves
        return lambda: session.run((list(fetches), targets))[0]
    if threads is Threads.MEASURED:
        return _Measured(lambda choice: _made_callable(session, fetches, targets, choice))
    return _made_callable(session, fetches, targets, threads)


def _made_callable(session: tf.compat.v1.Session, fetches: Sequence[Tensor], targets: Structure,
                   threads: Threads) -> Callable[[], list[Any]]:
    elements = [session.graph.as_graph_element(target) for target in tf.nest.flatten(targets)]
    run = session._make_callable_from_options(config_pb2.CallableOptions(
        target=sorted({getattr(element, "op", element).name for element in elements}),
        fetch=[fetch.name for fetch in fetches],
        run_options=tf.compat.v1.RunOptions(
            inter_op_thread_pool=_CALLING_THREAD if threads is Threads.CALLER else 0)))
    return lambda: session._do_call(run)


class _Measured:
    """Calls a small step on the calling thread, and others on those of the session.

    Waking other threads and being woken by them takes longer than the ops of a small step. The
    first calls are timed to decide. Larger steps may gain from ops that run at the same time.

    Making the other callable takes as long as hundreds of small steps, because TensorFlow optimizes
    the whole graph again. So it waits until the steps have taken as long: many will follow then.
    """

    def __init__(self, make: Callable[[Threads], Callable[[], list[Any]]]):
        """Takes what makes the callable of a step."""
        self._make = make
        start = time.perf_counter()
        self._run = make(Threads.SESSION)
        self._seconds_left = time.perf_counter() - start
        self._num_timed = 0
        self._fastest = float("inf")
        self._is_decided = False

    def __call__(self) -> list[Any]:
        """Runs the targets; returns the fetches."""
        if self._is_decided:
            return self._run()
        start = time.perf_counter()
        values = self._run()
        self._note(time.perf_counter() - start)
        return values

    def _note(self, seconds: float) -> None:
        """Takes the time of a call, and decides once it is known enough."""
        self._num_timed += 1
        self._fastest = min(self._fastest, seconds)
        self._seconds_left -= seconds
        if self._num_timed < _NUM_TIMED:
            return
        is_short = self._fastest < _SHORT_SECONDS
        self._is_decided = not is_short or self._seconds_left <= 0
        if self._is_decided and is_short:
            self._run = self._make(Threads.CALLER)


class StepSession(tf.compat.v1.Session):
    """A session that repeats runs without feeds and options by callables, with the same results.

    Everything else is TensorFlow's `Session.run`. The graph must not change.

    Attributes:
        num_runs: how many runs it made; NaN once a callable was made, whose runs are not counted.
    """

    def __init__(self, target: str = "", graph: tf.Graph | None = None,
                 config: tf.compat.v1.ConfigProto | None = None):
        super().__init__(target, graph=graph, config=config)
        self._repeated_leaves: dict[int, object] = {}  # by id; kept, so that no other gets the id
        self._repeated: dict[Hashable, Callable[[], Structure]] = {}
        self._measured: dict[Hashable, Callable[[], list[Any]]] = {}  # by names of fetches, targets
        self.num_runs = 0.0

    def run(self, fetches: Structure, feed_dict: Mapping[Tensor, object] | None = None,
            options: tf.compat.v1.RunOptions | None = None,
            run_metadata: tf.compat.v1.RunMetadata | None = None) -> Structure:
        """Runs and returns what `Session.run` would."""
        self.num_runs += 1
        has_options = options is not None and options.ByteSize()
        is_plain = not (self.sess_str or feed_dict or has_options or self._closed)
        key = self._key(fetches) if is_plain else None
        if key is None:
            return super().run(fetches, feed_dict, options, run_metadata)
        if key not in self._repeated:
            self._repeated[key] = self._make(fetches)
        return self._repeated[key]()

    def make_callable(self, *args: object, **kwargs: object) -> Callable[..., Structure]:
        """Returns what `Session.make_callable` would."""
        self.num_runs = math.nan
        return super().make_callable(*args, **kwargs)

    def measured(self, fetches: Sequence[Tensor], targets: Structure) -> Callable[[], list[Any]]:
        """Returns what `made_callable` does with `Threads.MEASURED`, one for equal arguments.

        The order of fetches may differ.
        """
        elements = [self.graph.as_graph_element(target) for target in tf.nest.flatten(targets)]
        names = sorted({fetch.name for fetch in fetches})
        of_ops = sorted({getattr(element, "op", element).name for element in elements
                         if element.name not in names})
        key = tuple(names), tuple(of_ops)
        if key not in self._measured:
            self._measured[key] = made_callable(
                self, [self.graph.get_tensor_by_name(name) for name in names],
                [self.graph.get_operation_by_name(name) for name in of_ops],
                threads=Threads.MEASURED)
        run = self._measured[key]
        positions = [names.index(fetch.name) for fetch in fetches]
        if positions == [*range(len(names))]:
            return run
        return lambda: [*map(run().__getitem__, positions)]

    def _key(self, nest: Structure) -> Hashable | None:
        """Returns what identifies the nest; None if it has other leaves than fetches."""
        if type(nest) is dict:
            return self._key_of((dict, *nest), nest.values())
        if type(nest) is list or type(nest) is tuple:
            return self._key_of((type(nest),), nest)
        if id(nest) not in self._repeated_leaves:
            if not isinstance(nest, tf.Tensor | tf.Operation | tf.Variable):
                return None
            self._repeated_leaves[id(nest)] = nest
        return id(nest)

    def _key_of(self, head: tuple[Hashable, ...], values: Iterable[Structure]) -> Hashable | None:
        keys = tuple(self._key(value) for value in values)
        return None if None in keys else (head, keys)

    def _make(self, nest: Structure) -> Callable[[], Structure]:
        handler = client_session._FetchHandler(self.graph, nest, {})
        if not handler.fetches() and not handler.targets():
            return lambda: handler.build_results(self, [])
        run = self.measured(handler.fetches(), handler.targets())
        positions = handler.build_results(self, list(range(len(handler.fetches()))))
        build = _builder(positions)
        return lambda: build(run())


def _builder(positions: Structure) -> Callable[[list[Any]], Structure]:
    """Returns a function that puts values into a nest, given the nest of their positions.

    >>> _builder({"loss": 1, "others": [0, None]})(["a", "b"])
    {'loss': 'b', 'others': ['a', None]}
    """
    if isinstance(positions, dict):
        items = [(key, _builder(value)) for key, value in positions.items()]
        return lambda values: {key: build(values) for key, build in items}
    if isinstance(positions, list | tuple):
        kind, parts = type(positions), [_builder(value) for value in positions]
        return lambda values: kind([build(values) for build in parts])
    if positions is None:  # of an operation
        return lambda values: None
    return operator.itemgetter(positions)


class StepSessionManager(session_manager.SessionManager):
    """Starts `StepSession`s as TensorFlow's SessionManager starts its sessions."""

    def new_session(self, master: str,
                    config: tf.compat.v1.ConfigProto | None) -> tf.compat.v1.Session:
        """Returns a session whose variables are not initialized."""
        return StepSession(master, graph=self._graph, config=config)

    def _restore_checkpoint(self, master: str, saver: Any = None,
                            checkpoint_dir: str | None = None,
                            checkpoint_filename_with_path: str | None = None,
                            config: tf.compat.v1.ConfigProto | None = None,
                            **waiting: object) -> tuple[tf.compat.v1.Session, bool]:
        """Returns a session, and whether a checkpoint gave its variables their values."""
        session = self.new_session(master, config)
        state = tf.train.get_checkpoint_state(checkpoint_dir) if checkpoint_dir else None
        path = checkpoint_filename_with_path or (state and state.model_checkpoint_path)
        if saver is None or not path:
            return session, False
        of_saved_models = tf.compat.v1.get_collection("saved_model_initializers")
        if of_saved_models:
            session.run(of_saved_models)
        saver.restore(session, path)
        if state:
            saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        return session, True

    def wait_for_session(self, master: str, config: tf.compat.v1.ConfigProto | None = None,
                         max_wait_secs: float = float("inf")) -> tf.compat.v1.Session:
        """Starts a worker's session once the chief has initialized or restored all variables.

        Raises:
            tf.errors.DeadlineExceededError: after `max_wait_secs`.
        """
        start, next_line = time.monotonic(), 0.0
        while True:
            session = self.new_session(master, config)
            if self.may_start(session):
                return session
            session.close()
            now = time.monotonic()
            if now - start > (max_wait_secs or float("inf")):
                raise tf.errors.DeadlineExceededError(
                    None, None, f"Session was not ready after waiting {max_wait_secs} secs. The "
                    "chief has not initialized or restored the variables: look at its log.")
            if now >= next_line:
                tf.compat.v1.logging.info(
                    "tpu_estimator_embedding: waiting for the chief to initialize or restore the "
                    "variables, for %.0f s so far", now - start)
                next_line = now + _LINE_SECONDS
            time.sleep(_WAIT_SECONDS)

    def may_start(self, session: tf.compat.v1.Session) -> bool:
        """Whether all variables are initialized; initializes those of this process."""
        return bool(self._try_run_local_init_op(session)[0] and self._model_ready(session)[0])


def add_ready_ops() -> None:
    """Adds the reports of uninitialized variables, of those that exist, where a Scaffold looks.

    They are those of its `ready_op` and `ready_for_local_init_op`; a program's own ones stay. By
    default a Scaffold adds one more op for every variable and report, and TensorFlow optimizes all
    ops of a graph again for everything that its session runs.
    """
    v1 = tf.compat.v1
    keys = v1.GraphKeys
    of_all = [*v1.global_variables(), *v1.local_variables()]
    for key, variables, others in (
            (keys.READY_OP, of_all, [*resources.shared_resources(), *resources.local_resources()]),
            (keys.READY_FOR_LOCAL_INIT_OP, v1.global_variables(), resources.shared_resources())):
        if not v1.get_collection(key):
            v1.add_to_collection(key, tf.concat(
                [_uninitialized(variables), resources.report_uninitialized_resources(others)], 0))


def _uninitialized(variables: Iterable[tf.Variable]) -> Tensor:
    """Returns the names of the variables that are not initialized."""
    variables = list(variables)
    if not variables:
        return tf.constant([], tf.string)
    are_initialized = [_is_initialized(variable) for variable in variables]
    device = settings.TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING.read()
    with tf.device("/cpu:0" if device is None else device):
        # Fewer ops than those of tf.boolean_mask.
        return tf.gather_nd(tf.constant([variable.op.name for variable in variables]),
                            tf.where(tf.logical_not(tf.stack(are_initialized))))


def _is_initialized(variable: tf.Variable) -> Tensor:
    """Returns the output of the op that a resource variable was made with, or of a new op."""
    if variable.op.type == "VarHandleOp":
        own = f"{variable.op.name}/IsInitialized/"
        for op in variable.handle.consumers():
            if op.type == "VarIsInitializedOp" and op.name.startswith(own):
                return op.outputs[0]
    return tf.compat.v1.is_variable_initialized(variable)


def reach_local_variables(local_init_op: tf.Operation | Tensor) -> tf.Operation | Tensor:
    """Returns an op that also initializes the local variables that a program's op does not reach.

    A program whose Scaffold has a `local_init_op` knows its own variables, not those of the input,
    of tables and of hooks. Variables that the op reads or assigns stay as the op leaves them.
    """
    element = tf.compat.v1.get_default_graph().as_graph_element(local_init_op)
    reached, waiting = set(), [getattr(element, "op", element)]
    while waiting:
        op = waiting.pop()
        if op not in reached:
            reached.add(op)
            waiting += [*op.control_inputs, *(value.op for value in op.inputs)]
    missing = [variable.initializer for variable in tf.compat.v1.local_variables()
               if (variable.handle.op if hasattr(variable, "handle") else variable.op)
               not in reached]
    return tf.group(local_init_op, *missing) if missing else local_init_op


class StepSessionCreator(tf.compat.v1.train.SessionCreator):
    """Creates the sessions of a MonitoredSession, one after another where it recovers."""

    def __init__(self, scaffold: tf.compat.v1.train.Scaffold, master: str,
                 config: tf.compat.v1.ConfigProto | None, *,
                 checkpoint_dir: str | None = None, checkpoint_path: str | None = None,
                 is_chief: bool = True, max_wait_secs: float | None = None,
                 manager: Callable[..., StepSessionManager] = StepSessionManager):
        """Takes what the sessions have in common.

        Args:
            scaffold: the ops that initialize and save.
            master: the target of the sessions.
            config: their configuration.
            checkpoint_dir: the directory whose latest checkpoint they restore.
            checkpoint_path: the checkpoint that they restore; instead of `checkpoint_dir`.
            is_chief: whether they initialize variables; others wait for a chief that does.
            max_wait_secs: how long they wait; None waits forever.
            manager: makes what starts them, with the arguments of a SessionManager.
        """
        self._scaffold, self._master, self._config = scaffold, master, config
        self._checkpoint_dir, self._checkpoint_path = checkpoint_dir, checkpoint_path
        self._is_chief, self._max_wait_secs = is_chief, max_wait_secs
        self._make_manager = manager

    @functools.cached_property
    def _manager(self) -> StepSessionManager:
        scaffold = self._scaffold
        if not tf.compat.v1.get_default_graph().finalized:  # else an earlier creator has added them
            add_ready_ops()
        of_program = scaffold.local_init_op
        local_init_op = None if of_program is None else reach_local_variables(of_program)
        scaffold.finalize()  # also the graph
        return self._make_manager(
            local_init_op=scaffold.local_init_op if local_init_op is None else local_init_op,
            local_init_feed_dict=scaffold.local_init_feed_dict, ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            graph=tf.compat.v1.get_default_graph())

    def create_session(self) -> tf.compat.v1.Session:
        """Returns a session whose variables the chief initialized or restored, or waits for it."""
        scaffold, manager = self._scaffold, self._manager
        if not self._is_chief:
            return manager.wait_for_session(
                self._master, config=self._config,
                max_wait_secs=self._max_wait_secs or float("inf"))
        return manager.prepare_session(
            self._master, saver=scaffold.saver, checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_path, config=self._config,
            init_op=scaffold.init_op, init_feed_dict=scaffold.init_feed_dict,
            init_fn=scaffold.init_fn)
