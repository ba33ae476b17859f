# SPDX-License-Identifier: Apache-2.0
"""Savers that know the row layouts of tables.

`compat.patch_table` wraps TensorFlow's functions with these, so that every Saver of a program, and
`tf.train.init_from_checkpoint`, restore the rows of the engine's tables to their ids, and every
checkpoint records their layout.

Like TensorFlow's, a Saver restores the slice of each part in the present layout. If the checkpoint
has another layout, the rows are then read again according to that layout.

A save that fails removes its files. TensorFlow writes to a folder `PREFIX_temp`, or to files
`*.tempstate*` and `*.meta.tmp*`, and renames them at the end. If the disk is full, they stay and
occupy the space that the next attempt needs.

On servers, workers continue training during a save. A Saver reads one variable after another, and
an update of all tables may run between two reads. `TpuEmbeddingSnapshot` locks all tables and slots
of a server at once and outputs their buffers without copying them, so that they are saved as of the
same step. Updates after that copy the buffers that they change.
"""

import contextlib
import errno
import functools
import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.training.saving import saveable_object, saveable_object_util

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.checkpoint.moved_rows import (
    StoredPart,
    TablePart,
    WaitingOp,
    add_waiting_op,
    fill,
    waiting_ops,
)
from tpu_estimator_embedding.checkpoint.table_layouts import (
    TABLE_LAYOUTS_KEY,
    TableLayout,
    format_table_layouts,
    parse_table_layouts,
    same_order,
)
from tpu_estimator_embedding.engine.variables import TableSlice
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.ops.readable_errors import readable
from tpu_estimator_embedding.types import Tensor

WAY_OUT_OF_DAMAGE = ("Restore its files, or write the name of an earlier checkpoint into the file "
                     "`checkpoint` of its directory.")

ERRORS_OF_A_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_DISK = re.compile("No space left on device|Disk quota exceeded")
_HINT_ABOUT_MEMORY = re.compile(r"\s*Hint: If you want to see a list of allocated tensors[^\n]*")

# File `checkpoint` -> the time in nanoseconds at which this process has written it last. Global,
# because several Savers of a process may write one file.
_written_states: dict[str, int | None] = {}

# What a save of TensorFlow that failed leaves, behind the name of its checkpoint.
_LEFT_BEHIND = r"(_temp|\.(index|data-\d+-of-\d+)\.tempstate[^/]*|\.meta\.tmp[^/]*)/?"
_UPDATES = ("TpuEmbeddingUpdate", "TpuEmbeddingMeasuredUpdate")


class TableSaveable(saveable_object.SaveableObject):
    """A part of a table or slot, saved as TensorFlow does."""

    def __init__(self, saveable: saveable_object.SaveableObject, part: TablePart):
        """Wraps a saveable of TensorFlow."""
        self._is_on_cpu = tf.DeviceSpec.from_string(saveable.op.device or "").device_type == "CPU"
        specs = [_read_in_place(saveable)] if self._is_on_cpu else saveable.specs
        super().__init__(saveable.op, specs, saveable.name)
        self.part = part
        self._saveable = saveable

    @property
    def handle(self) -> Tensor:
        """The handle of the variable."""
        return self._saveable.handle_op

    def restore(self, restored_tensors: Sequence[Tensor],
                restored_shapes: Sequence[Tensor] | None) -> tf.Operation:
        """Returns the op that assigns the slice; also adds the op for another layout."""
        add_waiting_op(self.op, self.part)
        if not self._is_on_cpu or restored_shapes is not None:
            return self._saveable.restore(restored_tensors, restored_shapes)
        with tf.device(self.op.device):
            return tf.raw_ops.AssignVariableOp(resource=self.handle, value=restored_tensors[0])


def _read_in_place(saveable: saveable_object.SaveableObject) -> saveable_object.SaveSpec:
    """Returns what to save: the read op of the variable, without TensorFlow's copies to a CPU."""
    [spec] = saveable.specs
    value = saveable.op.graph.as_graph_element(saveable.op)
    return saveable_object.SaveSpec(value, spec.slice_spec, spec.name, dtype=spec.dtype,
                                    device=spec.device)


def saving_tables(original: Callable[[Any, str], Iterator[saveable_object.SaveableObject]]
                  ) -> Callable[[Any, str], Iterator[saveable_object.SaveableObject]]:
    """Returns a `saveable_objects_for_op` that yields parts of tables as `TableSaveable`s."""
    @functools.wraps(original)
    def saveable_objects_for_op(op: Any, name: str) -> Iterator[saveable_object.SaveableObject]:
        place = _place(op)
        if place is not None:  # a single part, which is a slice of the saved tensor too
            op, name = [op], place.full_name if name == op.op.name else name
        for saveable in original(op, name):
            place = _place(saveable.op)
            yield saveable if place is None else TableSaveable(saveable, _part(name, place))

    return saveable_objects_for_op


def saving_layouts(original: Callable[..., tf.Operation]) -> Callable[..., tf.Operation]:
    """Returns a `BaseSaverBuilder.save_op` that also saves the record of row layouts."""
    @functools.wraps(original)
    def save_op(builder: object, filename_tensor: Tensor,
                saveables: Sequence[saveable_object.SaveableObject]) -> tf.Operation:
        tables = [each for each in saveables if isinstance(each, TableSaveable)]
        others = [each for each in saveables if not isinstance(each, TableSaveable)]
        # One device has all first parts: only it records layouts. Parts may have keys of their own.
        layouts = ({table.part.key: table.part.layout for table in tables}
                   if any(table.part.index == 0 for table in tables) else {})
        record = [_record(format_table_layouts(layouts))] if layouts else []
        return original(builder, filename_tensor, [*others, *of_one_step(tables), *record])

    return save_op


def restoring(original: Callable[..., None]) -> Callable[..., None]:
    """Returns a `Saver.restore` that calls another one, and puts rows into the present layout.

    It raises ValueError if an ordinary variable would be restored from a table whose rows are not
    in the order of ids, or if the layout of a table is unknown, and tf.errors.DataLossError if a
    file of the checkpoint is damaged.
    """
    @functools.wraps(original)
    def restore(own: tf.compat.v1.train.Saver, sess: tf.compat.v1.Session,
                save_path: str) -> None:
        if tf.executing_eagerly():  # where no Saver has tables of the engine
            _check_eager(own, save_path)
        if save_path is None or tf.executing_eagerly() or own.saver_def is None:
            original(own, sess, save_path)
            return
        # It may go on where another program ended.
        _written_states.pop(_state_file(save_path), None)
        parts = stored_parts(own, sess, save_path)
        try:
            original(own, sess, save_path)
            for each, part in zip(_waiting_ops(own, sess), parts, strict=False):
                if not same_order(each.part.layout, part.stored):
                    each.run(sess, save_path, part.stored)
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
            raise damage_in_session(save_path, error) from None

    return restore


def _check_eager(own: tf.compat.v1.train.Saver, save_path: str | None) -> None:
    variables = own._var_list
    if save_path is None or not variables or not tf.compat.v1.train.checkpoint_exists(save_path):
        return
    if not isinstance(variables, Mapping):
        variables = saveable_object_util.op_list_to_dict(variables)
    _check_in_order(saved_layouts(save_path), set(variables), save_path)


def restoring_by_name(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Returns an `eager_restore` that refuses variables whose rows are not in the order of ids.

    A `tf.train.Checkpoint` calls it for a checkpoint of a Saver. It raises the ValueError of
    `restoring`.
    """
    @functools.wraps(original)
    def eager_restore(coordinator: Any, trackable: Any) -> None:
        keys = {spec.name for saveable in coordinator.globally_named_object_attributes(trackable)
                for spec in saveable.specs}
        if keys:
            _check_in_order(saved_layouts(coordinator.save_path), keys, coordinator.save_path)
        original(coordinator, trackable)

    return eager_restore


def stored_parts(own: tf.compat.v1.train.Saver, sess: tf.compat.v1.Session,
                 save_path: str) -> list[StoredPart]:
    """Returns the parts of tables that a Saver restores, with their layouts in a checkpoint.

    Raises:
        ValueError: see `restoring`.
    """
    # Without a checkpoint, TensorFlow raises its own error.
    exists = tf.compat.v1.train.checkpoint_exists(save_path)
    layouts = saved_layouts(save_path) if exists else {}
    waiting = _waiting_ops(own, sess)
    _check_in_order(layouts, _restored_keys(sess.graph, _scope(own))
                    - {each.part.key for each in waiting}, save_path)
    return [StoredPart(each.op.inputs[0], each.part, layout_in(
        save_path, layouts, each.part.key, each.part.layout, each.part.checkpoint_num_hosts))
        for each in waiting if exists]


def _scope(own: tf.compat.v1.train.Saver) -> str:
    scope = own.saver_def.restore_op_name.rpartition("/")[0]
    return f"{scope}/" if scope else ""


def table_parts(own: tf.compat.v1.train.Saver,
                graph: tf.Graph) -> Iterator[tuple[Tensor, TablePart]]:
    """Yields the handles and the parts of tables that a Saver restores."""
    for each in waiting_ops(graph, _scope(own)):
        yield each.op.inputs[0], each.part


def _waiting_ops(own: tf.compat.v1.train.Saver, sess: tf.compat.v1.Session) -> list[WaitingOp]:
    return list(waiting_ops(sess.graph, _scope(own)))


def initializing(original: Callable[..., None]) -> Callable[..., None]:
    """Returns a `_set_checkpoint_initializer` that puts rows into the present layout.

    It raises ValueError in the cases of `restoring`.
    """
    @functools.wraps(original)
    def set_initializer(variable: tf.Variable, ckpt_file: str, tensor_name: str, slice_spec: str,
                        name: str = "checkpoint_initializer") -> None:
        layouts = saved_layouts(ckpt_file)
        place = _place(variable)
        if place is None:
            _check_in_order(layouts, {tensor_name}, ckpt_file)
        original(variable, ckpt_file, tensor_name, slice_spec, name)
        if place is not None:
            part = _part(tensor_name, place)
            stored = layout_in(ckpt_file, layouts, tensor_name, part.layout,
                               part.checkpoint_num_hosts)
            if not same_order(part.layout, stored):
                variable._initializer_op = fill(variable, part, ckpt_file, stored,
                                                variable._initializer_op)

    return set_initializer


def _place(op: object) -> TableSlice | None:
    place = getattr(op, "_save_slice_info", None)
    return place if isinstance(place, TableSlice) else None


def _part(key: str, place: TableSlice) -> TablePart:
    rows, dimension = (int(size) for size in place.full_shape)
    return TablePart(key, TableLayout(place.partition_strategy, place.num_hosts, rows), dimension,
                     place.part, place.checkpoint_num_hosts)


def _record(text: str) -> saveable_object.SaveableObject:
    spec = saveable_object.SaveSpec(tf.constant(text), "", TABLE_LAYOUTS_KEY)
    return saveable_object.SaveableObject(None, [spec], TABLE_LAYOUTS_KEY)


def _restored_keys(graph: tf.Graph, scope: str) -> set[str]:
    """Returns the keys that the Saver of a scope reads without reordering rows."""
    return {key.decode() for op in graph.get_operations()
            if op.type == "RestoreV2" and op.name.startswith(scope)
            for keys in [tf.get_static_value(op.inputs[1])] if keys is not None
            for key in keys}


def _check_in_order(layouts: Mapping[str, TableLayout], keys: set[str], checkpoint: str) -> None:
    for key in sorted(keys & layouts.keys()):
        layout = layouts[key]
        if not layout.is_by_id:
            raise ValueError(
                f"The rows of {key!r} in {checkpoint} are not in the order of ids, which an "
                f"ordinary variable needs: they were saved with partition_strategy="
                f"{layout.partition_strategy!r} on {layout.num_hosts} hosts. Write a checkpoint in "
                "the order of ids with `tpu-estimator-embedding checkpoint reshard`, or restore it "
                "with use_tpu=True.")


def saved_layouts(checkpoint: str) -> dict[str, TableLayout]:
    """Returns key of a table or slot -> its layout; empty if the checkpoint has no record.

    Args:
        checkpoint: a checkpoint, or a directory, whose latest checkpoint is read.

    Raises:
        tf.errors.DataLossError: if a file is truncated, damaged or missing.
    """
    with explained_reading(checkpoint):
        reader = tf.train.load_checkpoint(checkpoint)
        if not reader.has_tensor(TABLE_LAYOUTS_KEY):
            return {}
        record = reader.get_tensor(TABLE_LAYOUTS_KEY)
    return parse_table_layouts(record)


@contextlib.contextmanager
def explained_reading(checkpoint: str) -> Iterator[None]:
    """Names a checkpoint, and the way out, in errors of TensorFlow's reader of checkpoints.

    Raises:
        tf.errors.DataLossError: if a file is truncated, damaged or missing.
    """
    try:
        yield
    except IndexError as error:  # what TensorFlow's reader makes of its OutOfRangeError
        raise tf.errors.DataLossError(None, None, f"{checkpoint} is truncated: {error}. "
                                      f"{WAY_OUT_OF_DAMAGE}") from error
    except tf.errors.NotFoundError:  # no checkpoint
        raise
    except tf.errors.OpError as error:
        raise _damaged(checkpoint, error.message) from error


def damage_in_session(checkpoint: str, error: tf.errors.OpError) -> tf.errors.DataLossError:
    """Returns what to raise `from None` for a damaged checkpoint that a session restores.

    TensorFlow's message has the tracebacks of all ops that the error passed through.
    """
    return _damaged(checkpoint, str(readable(error)))


def _damaged(checkpoint: str, message: str) -> tf.errors.DataLossError:
    return tf.errors.DataLossError(None, None, f"{message}: {checkpoint} is damaged, or lacks a "
                                   f"file. {WAY_OUT_OF_DAMAGE}")


def layout_in(checkpoint: str, layouts: Mapping[str, TableLayout], key: str, present: TableLayout,
              checkpoint_num_hosts: int | None) -> TableLayout:
    """Returns the layout of a table or slot in a checkpoint.

    Args:
        checkpoint: path of the checkpoint, for the message.
        layouts: its record of layouts.
        key: the table or slot in the checkpoint.
        present: the layout of the table in the program.
        checkpoint_num_hosts: number of hosts that wrote a checkpoint without a record; None reads
            the environment variable.

    Raises:
        ValueError: if the layout is neither recorded nor given.
    """
    if key in layouts:
        return layouts[key]
    checkpoint_num_hosts = checkpoint_num_hosts or settings.CHECKPOINT_NUM_HOSTS.read()
    if (checkpoint_num_hosts is None and present.partition_strategy == "mod"
            and present.vocabulary_size > 1):
        raise ValueError(
            f"Reading {key!r} with partition_strategy='mod' from {checkpoint} requires "
            "`checkpoint_num_hosts`: the order of its rows depends on the number of hosts that "
            "wrote the checkpoint, which it does not contain. Pass the number to TPUEstimator, "
            "or run an unmodified program with "
            "`tpu-estimator-embedding run --checkpoint-num-hosts N`.")
    return TableLayout(
        present.partition_strategy, checkpoint_num_hosts or 1, present.vocabulary_size)


def saving(original: Callable[..., str | None]) -> Callable[..., str | None]:
    """Returns a `Saver.save` that calls another one; if that fails, it removes the files.

    It warns if another program has saved in the directory since this process saved there.
    """
    @functools.wraps(original)
    def save(own: tf.compat.v1.train.Saver, sess: tf.compat.v1.Session, save_path: str,
             global_step: Any = None, *args: object, **kwargs: object) -> str | None:
        step = _number(sess, global_step)
        prefix = f"{save_path}" if step is None else f"{save_path}-{step}"
        before, state = _left_behind(prefix), _state_file(save_path)
        _warn_of_another_program(state)
        try:
            path = original(own, sess, save_path, step, *args, **kwargs)
            _written_states[state] = _time_of(state)
            return path
        except tf.errors.OpError as error:
            for left in _left_behind(prefix) - before:
                tf.io.gfile.rmtree(left) if tf.io.gfile.isdir(left) else tf.io.gfile.remove(left)
            shown = readable(error, _what_was_saved(str(save_path), error.message or ""))
            raise _with_way_out(shown) from None

    return save


def _number(session: tf.compat.v1.Session, step: Any) -> Any:
    """Returns the value of a step, which TensorFlow reads before it saves, too."""
    if tf.is_tensor(step) and (tf.executing_eagerly() or hasattr(session, "run")):
        return tf.compat.v1.train.global_step(session, step)
    return step


def _state_file(save_path: str) -> str:
    return os.path.join(os.path.dirname(str(save_path)), "checkpoint")


def _time_of(path: str) -> int | None:
    try:
        return int(tf.io.gfile.stat(path).mtime_nsec)
    except tf.errors.OpError:
        return None


def _warn_of_another_program(state: str) -> None:
    written, now = _written_states.get(state), _time_of(state)
    if None not in (written, now) and written != now:
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: another program has written %s since this one saved its last "
            "checkpoint. Each of two trainings in one model_dir overwrites and removes checkpoints "
            "of the other: give each a model_dir of its own.", state)


def _with_way_out(error: tf.errors.OpError) -> tf.errors.OpError:
    """Says what helps where a disk is full, instead of TensorFlow's hint about memory."""
    if not _FULL_DISK.search(error.message):
        return error
    message = _HINT_ABOUT_MEMORY.sub("", error.message).rstrip(". \n")
    return type(error)(error.node_def, None, f"{message}. Free space, keep fewer checkpoints with "
                       "`keep_checkpoint_max` of RunConfig, or train in a model_dir on another "
                       "disk; a copy of this one goes on at its last checkpoint.")


def _what_was_saved(save_path: str, message: str) -> str:
    if ".meta" in message:  # which TensorFlow writes last, when the checkpoint is complete
        return (f"The checkpoint {save_path} was saved, but its graph was not, which tf.train."
                "import_meta_graph reads: ")
    return f"The checkpoint {save_path} was not saved: "


def _left_behind(prefix: str) -> set[str]:
    """Returns unfinished files of one checkpoint, not of `{prefix}_other` or `{prefix}-1`."""
    name = re.compile(re.escape(os.path.basename(prefix)) + _LEFT_BEHIND)
    return {path for path in tf.io.gfile.glob(f"{glob.escape(prefix)}*")
            if name.fullmatch(os.path.basename(path))}


def of_one_step(tables: Sequence[TableSaveable]) -> Iterator[saveable_object.SaveableObject]:
    """Yields saveables that save the tables of each server as of the same step.

    Tables of this process are yielded unchanged, because no step runs while they are saved. So are
    tables that this graph does not update: its process sends gradients to a chief, and saves
    nothing.

    Args:
        tables: saveables of parts of tables and slots, each with a `handle`.
    """
    by_server: dict[str, list[TableSaveable]] = {}
    for table in tables:
        by_server.setdefault(_server(table.handle), []).append(table)
    for server, its_tables in by_server.items():
        if server and _have_compiled_updates(its_tables):
            yield from _snapshots(server, its_tables)
        else:
            yield from its_tables


def _server(handle: Tensor) -> str:
    device = handle.device or ""
    job = tf.DeviceSpec.from_string(device).job
    return "" if job in (None, "localhost") else device


def _have_compiled_updates(tables: Sequence[TableSaveable]) -> bool:
    return load.native_ops() is not None and all(
        any(op.type in _UPDATES for op in table.handle.consumers()) for table in tables)


def _snapshots(server: str,
               tables: Sequence[TableSaveable]) -> Iterator[saveable_object.SaveableObject]:
    with tf.device(server):
        values = load.native_ops().tpu_embedding_snapshot([table.handle for table in tables])
    for table, value in zip(tables, values, strict=True):
        [spec] = table.specs
        copy = saveable_object.SaveSpec(value, spec.slice_spec, spec.name, dtype=spec.dtype,
                                        device=spec.device)
        yield saveable_object.SaveableObject(table.op, [copy], table.name)
