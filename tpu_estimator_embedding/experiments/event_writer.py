# SPDX-License-Identifier: Apache-2.0
"""Writes event files for TensorBoard atomically, without TensorFlow."""

import io
import pathlib
import time
from collections.abc import Iterable
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tpu_estimator_embedding.experiments.files import write_bytes


def write_summaries(directory: pathlib.Path, name: str,
                    summaries: Iterable[tuple[int, Any]]) -> None:
    """Writes one event file; replaces a file of the same name.

    Args:
        directory: directory that TensorBoard shows as one run.
        name: distinguishes the file from others in the directory.
        summaries: (step, serializable Summary) pairs in the order of steps.
    """
    content = io.BytesIO()
    writer = RecordWriter(content)
    now = time.time()
    writer.write(event_pb2.Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
    for step, summary in summaries:
        # TensorFlow's and TensorBoard's protos are different classes with the same wire format.
        copied = summary_pb2.Summary.FromString(summary.SerializeToString())
        writer.write(event_pb2.Event(wall_time=now, step=step, summary=copied)
                     .SerializeToString())
    directory.mkdir(parents=True, exist_ok=True)
    write_bytes(directory / f"events.out.tfevents.{name}", content.getvalue())
