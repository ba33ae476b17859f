# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.checkpoints` measures, each in its own process: returns seconds and bytes.

TensorFlow is imported by the ways that need it.
"""

import os
import pathlib
import subprocess
import time
from typing import Any

from benchmarks import memory
from benchmarks.workloads import Workload

_BLOCK = 8 << 20  # bytes that dd, and this package, write at once
_CHECKSUMMED = 1 << 28  # bytes
_BATCHES = 4
_STEPS = 20  # before a checkpoint is saved, and after it
_NEXT_SAVE = 1000  # steps between two saves

Figures = dict[str, float]


def disk(workload: Workload, directory: pathlib.Path) -> Figures:
    """Writes and reads a file by `dd`; reads it from the disk, not from memory."""
    path, block = directory / "dd", os.urandom(_BLOCK)
    start = time.perf_counter()
    with subprocess.Popen(
            ["dd", f"of={path}", f"bs={_BLOCK}", "iflag=fullblock", "conv=fsync"],
            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as dd:
        assert dd.stdin is not None
        for offset in range(0, workload.bytes, _BLOCK):
            dd.stdin.write(block[:workload.bytes - offset])
    save = time.perf_counter() - start
    _flush_and_forget([path])
    start = time.perf_counter()
    subprocess.run(["dd", f"if={path}", "of=/dev/null", f"bs={_BLOCK}"], check=True,
                   stderr=subprocess.DEVNULL)
    return {"save": save, "restore": time.perf_counter() - start}


def crc32c(workload: Workload, directory: pathlib.Path) -> Figures:
    """Computes the checksum of as many bytes as a checkpoint has, in memory."""
    import google_crc32c
    del directory
    content = os.urandom(min(_CHECKSUMMED, workload.bytes))
    start = time.perf_counter()
    google_crc32c.value(content)
    seconds = (time.perf_counter() - start) * workload.bytes / len(content)
    return {"save": seconds, "restore": seconds}


def stock(workload: Workload, directory: pathlib.Path) -> Figures:
    """Trains by TensorFlow's ops and saves by its Saver."""
    from benchmarks.baselines import stock_graph

    def build(batches: Any, feeds: Any) -> Any:
        return stock_graph.build_step(workload, batches, feeds)[1]

    return _saved_and_restored(workload, directory, build, is_asynchronous=False)


def between_steps(workload: Workload, directory: pathlib.Path) -> Figures:
    """Trains by this package, whose steps wait for a checkpoint."""
    return _saved_and_restored(workload, directory, _engine_step(workload), is_asynchronous=False)


def while_training(workload: Workload, directory: pathlib.Path) -> Figures:
    """Trains by this package while a checkpoint is written."""
    return _saved_and_restored(workload, directory, _engine_step(workload), is_asynchronous=True)


def _engine_step(workload: Workload) -> Any:
    from benchmarks.baselines import engine
    from tpu_estimator_embedding.patches import patch, patch_table
    for row in patch_table.SAVERS:
        patch.apply(row)

    def build(batches: Any, feeds: Any) -> Any:
        return engine.build_step(engine.make_engine(workload), workload, batches, feeds)

    return build


def _saved_and_restored(workload: Workload, directory: pathlib.Path, build: Any,
                        is_asynchronous: bool) -> Figures:
    """Trains, saves and restores; flushes what is not on the disk when a Saver has finished."""
    import tensorflow as tf

    from benchmarks.baselines.graph_inputs import Feeds
    from benchmarks.batches import make_batches
    hook_class = tf.compat.v1.train.CheckpointSaverHook
    if is_asynchronous:
        from tpu_estimator_embedding.compat.modules.async_checkpoint import AsyncCheckpointSaverHook
        hook_class = AsyncCheckpointSaverHook
    batches = make_batches(workload, _BATCHES)
    with tf.Graph().as_default() as graph:
        feeds: Feeds = {}
        advance = tf.compat.v1.train.create_global_step().assign_add(_NEXT_SAVE).op
        step = build(batches, feeds)
        saver = tf.compat.v1.train.Saver([
            each for each in tf.compat.v1.global_variables() if "gradient" not in each.name])
        scaffold = tf.compat.v1.train.Scaffold(
            init_op=tf.group(tf.compat.v1.global_variables_initializer(),
                             tf.compat.v1.tables_initializer()),
            init_feed_dict=feeds, local_init_op=tf.no_op(), saver=saver)
        clock = _clock()
        hook = hook_class(str(directory), save_steps=_NEXT_SAVE, scaffold=scaffold,
                          listeners=[clock])
        memory.reset_peak()
        before = memory.peak_bytes() + workload.bytes
        with tf.compat.v1.train.SingularMonitoredSession([hook], scaffold) as session:
            figures = _saved(session, step, advance, clock, directory)
            figures["saving_bytes"] = memory.peak_bytes() - before
    _flush_and_forget(directory.glob("model.ckpt-*"))
    memory.reset_peak()
    with tf.compat.v1.Session(graph=graph) as session:
        start = time.perf_counter()
        saver.restore(session, tf.train.latest_checkpoint(directory))
        figures["restore"] = time.perf_counter() - start
        figures["restoring_bytes"] = memory.peak_bytes() - before
    return figures


def _saved(session: Any, step: Any, advance: Any, clock: Any, directory: pathlib.Path) -> Figures:
    while not clock.has_ended:  # of the checkpoint of step 0
        session.run(step)
    durations = [_seconds(lambda: session.run(step)) for _ in range(_STEPS)]
    _flush(directory.glob("model.ckpt-*"))
    memory.reset_peak()
    clock.has_ended = False
    while_saving = [_seconds(lambda: session.run([step, advance]))]
    while not clock.has_ended:
        while_saving.append(_seconds(lambda: session.run(step)))
    while_saving += [_seconds(lambda: session.run(step)) for _ in range(_STEPS)]
    flush = _seconds(lambda: _flush(directory.glob("model.ckpt-*")))
    return {"save": clock.seconds + flush, "flush": flush, "stall": max(while_saving),
            "step": sorted(durations)[_STEPS // 2]}


def _clock() -> Any:
    """Returns a listener that measures from the values to the complete checkpoint."""
    import tensorflow as tf

    class Clock(tf.compat.v1.train.CheckpointSaverListener):
        has_ended, seconds, _start = False, 0.0, 0.0

        def before_save(self, session: Any, global_step_value: int) -> None:
            self._start = time.perf_counter()

        def after_save(self, session: Any, global_step_value: int) -> None:
            self.seconds = time.perf_counter() - self._start
            self.has_ended = True

    return Clock()


def _seconds(action: Any) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _flush(paths: Any) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _flush_and_forget(paths: Any) -> None:
    """Flushes files and removes them from the memory of the system."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
