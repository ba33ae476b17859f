# SPDX-License-Identifier: Apache-2.0
"""Reads and prepares the input step by step, and feeds it to the queue of steps."""

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence

import tensorflow as tf

from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.estimator.input.input_reader import Batch, BatchReader, read_input
from tpu_estimator_embedding.estimator.input.machine_context import MachineContext
from tpu_estimator_embedding.estimator.input.step_input import StepInput, to_step_input
from tpu_estimator_embedding.estimator.step_session import StepSession, Threads, made_callable
from tpu_estimator_embedding.feature_column.column_checks import EmbeddingColumn
from tpu_estimator_embedding.ops.readable_errors import readable
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import RunConfig, Structure, Tensor

_STEPS_WAITING = 4  # in addition to the one in preparation
_FIRST_POLL_SECS = 0.0001  # between two looks whether there is a step; grows to:
_POLL_SECS = 0.05
_GRACE_SECS = 5.0  # for the input to finish a step after the session was stopped
_DROP_SECS = 0.02  # between two looks whether it has


class Feeding:
    """The ops that feed a queue.

    Datasets are fed by a loop in the graph: one run of the session feeds all steps, without
    Python between two of them. Tensors are evaluated once per run, so each step takes one run;
    so it does for Datasets in a cluster.

    Attributes:
        queue: the queue that is fed.
        in_one_run: whether one run of `feed` feeds all steps.
        feed: the op that feeds steps until `stop` runs, or one step.
        stop: ends `feed` after the current step.
        start: the op to run first.
        steps_fed: variable that counts the steps.
    """

    def __init__(self, reader: BatchReader, prepare: Callable[[list[Batch]], StepInput], *,
                 in_one_run: bool):
        """Makes the ops in the default graph.

        Args:
            reader: where the batches of a step come from.
            prepare: converts them to the input of a step.
            in_one_run: whether one run may feed all steps, if they come from Datasets.
        """
        self.steps_fed = _local_variable("input_steps_fed", 0, tf.int64)
        self._goes_on = _local_variable("input_goes_on", True, tf.bool)
        self.stop = self._goes_on.assign(False, read_value=False)
        initializers = [self.steps_fed.initializer, self._goes_on.initializer]
        if reader.initializer is not None:
            initializers.append(reader.initializer)
        self.start = tf.group(*initializers)

        def feed_one() -> tf.Operation:
            batches = reader.read()
            step = prepare(batches.of_replicas)._replace(counted=batches.counted)
            with tf.init_scope():  # outside the loop
                self.queue = TensorQueue(step, capacity=_STEPS_WAITING)
            with tf.control_dependencies([self.queue.enqueue(step)]):
                return self.steps_fed.assign_add(1, read_value=False)

        self.in_one_run = in_one_run and reader.is_repeatable
        self.feed = self._repeat(feed_one) if self.in_one_run else feed_one()

    def _repeat(self, feed_one: Callable[[], tf.Operation]) -> tf.Operation:
        def body(goes_on: Tensor) -> Tensor:
            with tf.control_dependencies([feed_one()]):
                return self._goes_on.read_value()

        return tf.compat.v1.while_loop(
            lambda goes_on: goes_on, body, [self._goes_on.read_value()],
            parallel_iterations=1).op


def _local_variable(name: str, value: int | bool, dtype: tf.DType) -> tf.Variable:
    return tf.compat.v1.get_variable(
        name, [], dtype, initializer=tf.compat.v1.constant_initializer(value, dtype),
        use_resource=True, trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES])


class InputFeed(tf.compat.v1.train.SessionRunHook):
    """Prepares the input of a step while earlier steps compute.

    Prepared steps are put into a queue, from which the step takes its input, by a run of the
    session in a thread. When the input ends, the queue closes, and the session stops after the
    last step; when the session stops first, the thread is woken up and joined by the session's
    coordinator. An exception in the input is raised when the session needs the affected batch,
    after all earlier steps.

    No run starts without input: otherwise ops that do not depend on the input, such as
    incrementing the step, would still run.

    Attributes:
        steps_left: how many steps are left in the queue when one was taken.
    """

    def __init__(self, reader: BatchReader, feeding: Feeding, steps_left: Tensor, *,
                 mark_end: bool, sleep_secs: int = 0,
                 is_stopping: Callable[[], bool] = lambda: False):
        """Makes the hook in the graph of the queue.

        Args:
            reader: where the input comes from.
            feeding: what reads the input and puts prepared steps into a queue.
            steps_left: how many steps are left in the queue when one was taken.
            mark_end: whether an empty step marks the end of the input, for a reader that
                looks ahead; otherwise the queue is closed.
            sleep_secs: seconds to wait before reading the first batch.
            is_stopping: whether to end the session instead of waiting for input.
        """
        self._reader = reader
        self._feeding = feeding
        self.steps_left = steps_left
        self._looks_ahead = mark_end
        self._sleep_secs = sleep_secs
        self._is_stopping = is_stopping
        queue = feeding.queue
        self._finish = queue.enqueue_empty() if mark_end else queue.close()
        self._cancel = queue.close(cancels=True)
        self._size, self._drop = queue.size(), queue.drop()
        self._left = 0  # in the queue, after so many runs of the session:
        self._num_runs = 0.0
        self._has_news = threading.Event()  # released for every step, and at the end
        self._is_over = threading.Event()
        self._is_closed = False  # because the input ended
        self._error: Exception | None = None

    def after_create_session(self, session: StepSession, coord: tf.train.Coordinator) -> None:
        """Starts the input, again if a lost session was recreated."""
        session.run(self._feeding.start)
        self._num_waiting = made_callable(session, [self._size], threads=Threads.CALLER)
        self._is_over.clear()
        self._is_closed = False
        self._error = None
        self._left = 0
        feeder = _start(self._feed, session, coord)
        coord.register_thread(_start(self._cancel_when_stopped, session, coord, feeder))
        if self._looks_ahead and not self._wait(session) and self._is_stopping():
            session.run(self._cancel)  # for the hook that looks up the first step next

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext
                   ) -> tf.compat.v1.train.SessionRunArgs:
        """Waits for the input of the run; ends the session cleanly if none is left."""
        session = run_context.session
        if not self._left or session.num_runs != self._num_runs:
            self.wait_for_step(session)
        self._left, self._num_runs = 0, session.num_runs + 1
        return tf.compat.v1.train.SessionRunArgs(self.steps_left)

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Notes how many steps are left, so that the next run need not ask."""
        self._left = run_values.results

    def wait_for_step(self, session: tf.compat.v1.Session) -> None:
        """Waits for the input of the next step.

        Raises:
            OutOfRangeError: the input has ended.
            Exception: what the input raised instead.
        """
        if not self._wait(session):
            if self._error is not None:
                raise self._error
            raise tf.errors.OutOfRangeError(None, None, "The input has ended.")

    def _wait(self, session: tf.compat.v1.Session) -> bool:
        """Waits, in Python so that signals are handled; returns whether there is input."""
        poll_secs = _FIRST_POLL_SECS
        while True:
            self._has_news.clear()
            is_over = self._is_over.is_set()
            if self._num_waiting()[0]:
                return True
            if is_over or self._is_stopping():  # is_over is older than the number
                return False
            self._has_news.wait(poll_secs)
            poll_secs = min(1.5 * poll_secs, _POLL_SECS)

    def _feed(self, session: tf.compat.v1.Session, coord: tf.train.Coordinator) -> None:
        self._sleep(coord)
        try:
            run = made_callable(
                session, [], self._feeding.feed,
                threads=Threads.CALLER if self._feeding.in_one_run else Threads.SESSION)
            while not coord.should_stop():
                run()
                self._has_news.set()
        except tf.errors.OutOfRangeError:
            if not coord.should_stop():  # otherwise the session may be closed already
                self._end(session)
        except Exception as error:  # noqa: BLE001 (raised again in the thread that trains)
            if not coord.should_stop():  # otherwise the queue was closed during the enqueue
                self._error = readable(error)
                self._run_if_open(session, self._finish)
                self._is_closed = not self._looks_ahead
        finally:
            self._stop_waiting()

    def _sleep(self, coord: tf.train.Coordinator) -> None:
        if self._sleep_secs:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: reading the input starts in %d seconds, because of "
                "initial_infeed_sleep_secs. Leave it out: only compilation for a TPU needs it.",
                self._sleep_secs)
            coord.wait_for_stop(self._sleep_secs)

    def _end(self, session: tf.compat.v1.Session) -> None:
        """Says what the input has left over, and marks its end."""
        counters = [self._feeding.steps_fed, self._reader.batches_read]
        read = [counter for counter in counters if counter is not None]
        # In one run, because TensorFlow optimizes the whole graph for each. But marking the end for
        # a reader that looks ahead waits for room.
        values, _ = session.run([read, [] if self._looks_ahead else self._finish])
        self._is_closed = not self._looks_ahead
        self._log_dropped(*values)
        if not values[0]:
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: the input ended before the first step. Where batches "
                "drop their remainder, it must have at least as many samples as one batch.")
        if self._looks_ahead:
            self._run_if_open(session, self._finish)

    def _cancel_when_stopped(self, session: tf.compat.v1.Session, coord: tf.train.Coordinator,
                             feeder: threading.Thread) -> None:
        coord.wait_for_stop()
        self._stop_waiting()
        if self._is_closed:  # nothing waits for the queue
            feeder.join(_GRACE_SECS)
            return
        self._run_if_open(session, self._feeding.stop)
        self._let_finish(session, feeder)
        self._run_if_open(session, self._cancel)

    def _let_finish(self, session: tf.compat.v1.Session, feeder: threading.Thread) -> None:
        """Makes room for a waiting step, because TensorFlow warns if it is cancelled.

        Python code of an input_fn may block, and cannot be cancelled.
        """
        for _ in range(int(_GRACE_SECS / _DROP_SECS)):
            feeder.join(_DROP_SECS)
            if not feeder.is_alive():
                return
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                if self._num_waiting()[0]:
                    session.run(self._drop)

    def _run_if_open(self, session: tf.compat.v1.Session, op: tf.Operation) -> None:
        """Runs an op on the queue, unless the session stops first."""
        with contextlib.suppress(tf.errors.CancelledError, RuntimeError):
            session.run(op)

    def _stop_waiting(self) -> None:
        self._is_over.set()
        self._has_news.set()

    def _log_dropped(self, steps: int, batches: int | None = None) -> None:
        """Warns of batches that were read and are in no step; None if they are not counted."""
        dropped = 0 if batches is None else batches - steps * self._reader.batches_per_step
        if dropped:
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: %d batch(es) at the end of the input could not fill "
                "all replicas and were dropped.", dropped)


def _start(target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True,
                              name=f"InputFeed{target.__name__}")
    thread.start()
    return thread


def feed_steps(plan: EmbeddingPlan, ctx: MachineContext, results: Sequence[Structure], *,
               training: bool, has_servers: bool, batch_axis: Sequence[int] | None = None,
               tensor_core_columns: Sequence[EmbeddingColumn] = (),
               is_stopping: Callable[[], bool] = lambda: False, sums_only: bool = False,
               to_the_end: bool = False) -> tuple[StepInput, InputFeed]:
    """Returns the input of a step, prepared ahead of it, and the hook that feeds it.

    Args:
        plan: the tables and features.
        ctx: the context, in the mode to run.
        results: what `call_input_fn` returned.
        training: whether gradients will be applied.
        has_servers: whether parameter servers hold the tables in training.
        batch_axis: as for `split_batch`.
        tensor_core_columns: columns whose padded ids the model_fn gets.
        is_stopping: as for `InputFeed`.
        sums_only: whether servers may return sums only; see `prepare_replicas`.
        to_the_end: whether the last step may have batches for some of the replicas only. Then sizes
            of batches in metrics are not static.
    """
    embedding_keys = {key for feature in plan.features
                      for key in (feature.name, feature.weight_key) if key is not None}
    embedding_keys |= {column.get_feature_key_name() for column in tensor_core_columns}
    with tf.device(THIS_PROCESS):
        reader = read_input(ctx, results, embedding_keys, batch_axis, to_the_end=to_the_end)
        _warn_of_queues()
        feeding = Feeding(reader, functools.partial(
            to_step_input, plan, training=training, tensor_core_columns=tensor_core_columns,
            on_servers=training and has_servers, sums_only=sums_only),
            in_one_run=not has_servers and not _has_timeout(ctx.config))
        taken = feeding.queue.dequeue()
        hook = InputFeed(reader, feeding, feeding.queue.num_left(taken),
                         mark_end=training and plan.pipelined,
                         sleep_secs=ctx.config.tpu_config.initial_infeed_sleep_secs or 0,
                         is_stopping=is_stopping)
        return taken, hook


def _has_timeout(config: RunConfig) -> bool:
    """Whether runs time out, so that none may last as long as training.

    RunOptions without a timeout would do, but with them TensorFlow warns when the input ends.
    """
    session_config = config.session_config
    return session_config is not None and session_config.operation_timeout_in_ms > 0


def _warn_of_queues() -> None:
    # Upstream's sentence. Such an input works: the session starts its threads.
    if tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS):
        tf.compat.v1.logging.warning(
            "Input pipeline contains one or more QueueRunners. It could be slow and not scalable. "
            "Please consider converting your input pipeline to use `tf.data` instead (see "
            "https://www.tensorflow.org/guide/data for instructions).")
