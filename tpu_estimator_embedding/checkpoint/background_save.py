# SPDX-License-Identifier: Apache-2.0
"""Saves the values of a step in a thread, while later steps run.

The file `checkpoint`, the graph, and which checkpoints are deleted, is the work of TensorFlow's
Saver: it gets a stand-in for the session, which writes what was taken before where the Saver runs
its op that saves.
"""

import pathlib
from concurrent.futures import Executor, Future
from typing import Any

import tensorflow as tf
from tensorflow.python.client import session as session_module

from tpu_estimator_embedding.checkpoint.failed_saves import op_error
from tpu_estimator_embedding.checkpoint.saved_step import (
    SavedTensor,
    handle_of,
    save_ops,
    saved_inputs,
    saved_shards,
    write_step,
)
from tpu_estimator_embedding.checkpoint.step_snapshot import StepSnapshot, TableSnapshots
from tpu_estimator_embedding.checkpoint.stored_tensor import numpy_dtype
from tpu_estimator_embedding.engine.placement import is_here


def why_not_while_training(saver: tf.compat.v1.train.Saver, graph: tf.Graph, path: str) -> str:
    """Returns why `start_saving` cannot do what a Saver does; empty if it can."""
    if type(saver).save is not tf.compat.v1.train.Saver.save:
        return f"{type(saver).__name__} overrides `save`"
    if "://" in path:
        return "they are not on a disk of this machine"
    if saver.saver_def is None:
        return "there is no Saver of variables"
    saves = save_ops(graph, saver)
    if not saves or any(op.type != "SaveV2" or not is_here(op.device) for op in saves):
        return "their Saver writes on servers, in format V1 or with custom ops"
    dtypes = {tensor.dtype.base_dtype for op in saves for tensor in op.inputs[3:]}
    for dtype in dtypes - {tf.string}:
        try:
            numpy_dtype(dtype.as_datatype_enum)
        except ValueError:
            return f"they hold values of dtype {dtype.name}"
    return ""


def start_saving(saver: tf.compat.v1.train.Saver, snapshots: TableSnapshots,
                 session: tf.compat.v1.Session, path: str, step: int, thread: Executor, *,
                 write_meta_graph: bool) -> "Future[None]":
    """Takes the values that a Saver would save now, and lets a thread write them.

    Args:
        saver: the Saver.
        snapshots: take the tables.
        session: the session, in which no step runs until this returns.
        path: path of checkpoints, to which the step is added.
        step: the global step.
        thread: runs one task after another, as snapshots of a table exclude each other.
        write_meta_graph: whether to write the graph, too.

    Returns:
        What waits for the checkpoint, and raises the error if it could not be written.
    """
    _wait_until_idle(thread)  # another hook's checkpoint is written then
    handles = {handle_of(tensor) for op in save_ops(session.graph, saver)
               for _, _, tensor in saved_inputs(op)}
    snapshot = snapshots.take(session, handles)
    try:
        shards = saved_shards(saver, session, snapshot.tables)
    except BaseException:
        snapshot.end()
        raise
    return thread.submit(_write, saver, _WritesPieces(session.graph, shards, snapshot), path, step,
                         write_meta_graph)


def _wait_until_idle(thread: Executor) -> None:
    """Waits for what a thread was given before, as it runs one task after another."""
    thread.submit(bool).result()


def _write(saver: tf.compat.v1.train.Saver, pieces: "_WritesPieces", path: str, step: int,
           write_meta_graph: bool) -> None:
    try:
        with pieces.graph.as_default():  # which a thread does not inherit
            saver.save(pieces, path, global_step=step, write_meta_graph=write_meta_graph)
    except Exception as error:
        tf.compat.v1.logging.error("tpu_estimator_embedding: %s", error)
        raise
    finally:
        pieces.close()
    tf.compat.v1.logging.info("Saved the checkpoint of step %d. Updates copied %.0f MiB.",
                              step, pieces.snapshot.bytes_kept / 2**20)


class _WritesPieces(session_module.SessionInterface):
    """A session for a Saver that saves, which writes what was taken before."""

    def __init__(self, graph: tf.Graph, shards: list[list[SavedTensor]], snapshot: StepSnapshot):
        self.snapshot = snapshot
        self._graph, self._shards = graph, shards

    @property
    def graph(self) -> tf.Graph:
        """The graph of the training."""
        return self._graph

    def run(self, fetches: object, feed_dict: Any = None, options: object = None,
            run_metadata: object = None) -> str:
        """Writes the checkpoint that is fed; returns its path.

        Raises:
            tf.errors.OpError: if it cannot be written.
        """
        del fetches, options, run_metadata
        [path] = feed_dict.values()
        try:
            write_step(pathlib.Path(path), self._shards)
        except OSError as error:
            raise op_error(error, f"{path}: {error.strerror or error}.") from error
        self.close()
        return str(path)

    def close(self) -> None:
        """Frees the values."""
        self._shards = []
        self.snapshot.end()
