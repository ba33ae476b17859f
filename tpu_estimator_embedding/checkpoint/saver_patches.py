# SPDX-License-Identifier: Apache-2.0
"""Savers that know the row layouts of tables.

`patches.patch_table` wraps TensorFlow's functions with these, so that every Saver of a program, and
`tf.train.init_from_checkpoint`, restore the rows of the engine's tables to their ids, and every
checkpoint records their layout.

Like TensorFlow's, a Saver restores the slice of each part in the present layout. If the checkpoint
has another layout, the rows are then read again according to that layout.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.training.saving import saveable_object, saveable_object_util

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.checkpoint.failed_saves import LAST_WRITES
from tpu_estimator_embedding.checkpoint.moved_rows import (
    StoredPart,
    TablePart,
    WaitingOp,
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
from tpu_estimator_embedding.checkpoint.table_saveable import TableSaveable, of_one_step
from tpu_estimator_embedding.engine.variables import TableSlice
from tpu_estimator_embedding.ops.readable_errors import readable
from tpu_estimator_embedding.types import Tensor

FIX_OF_DAMAGE = ("Restore its files, or write the name of an earlier checkpoint into the file "
                 "`checkpoint` in its directory.")

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
        # One device has all first parts: only it records layouts. Each part may have its own key.
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
        LAST_WRITES.forget(save_path)
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
    with translate_checkpoint_errors(checkpoint):
        reader = tf.train.load_checkpoint(checkpoint)
        if not reader.has_tensor(TABLE_LAYOUTS_KEY):
            return {}
        record = reader.get_tensor(TABLE_LAYOUTS_KEY)
    return parse_table_layouts(record)


@contextlib.contextmanager
def translate_checkpoint_errors(checkpoint: str) -> Iterator[None]:
    """Names a checkpoint and the fix in errors of TensorFlow's reader of checkpoints.

    Raises:
        tf.errors.DataLossError: if a file is truncated, damaged or missing.
    """
    try:
        yield
    except IndexError as error:  # what TensorFlow's reader makes of its OutOfRangeError
        raise tf.errors.DataLossError(None, None, f"{checkpoint} is truncated: {error}. "
                                      f"{FIX_OF_DAMAGE}") from error
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
                                   f"file. {FIX_OF_DAMAGE}")


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
