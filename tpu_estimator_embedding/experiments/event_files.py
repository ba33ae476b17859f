# SPDX-License-Identifier: Apache-2.0
"""Reads scalars from event files, including unfinished ones, without TensorFlow."""

import io
import math
import os
import pathlib
import struct
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping

from google.protobuf import message
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util

from tpu_estimator_embedding.checkpoint.bundle_format import crc32c, masked
from tpu_estimator_embedding.experiments.files import write_bytes

# Name of a curve -> (step, value) pairs in the order of steps.
Curves = dict[str, list[tuple[int, float]]]

TRAINING_LOSS = "training/loss"

# Prefix of the statistics of tables; TABLE/NAME follows.
TABLE_STATISTICS = "training/embedding/"

# Estimator's name of the loss if the model has an op with the usual name.
_SECOND_NAME_OF_LOSS = "training/loss_1"

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


def read_scalars(model_dir: pathlib.Path,
                 empty: Mapping[pathlib.Path, Collection[int]] | None = None) -> Curves:
    """Returns the scalars of a model, by their names in an experiment.

    Metrics of `evaluate()` keep their names (`auc`); those of `evaluate(name="test")` are
    prefixed with its name (`test/auc`); scalars of training are prefixed with `training/`. If a
    step has several values, because a run was resumed from a checkpoint, the last one is used.

    Args:
        model_dir: directory of an Estimator.
        empty: directory of an evaluation -> steps at which it read no batch. What was written there
            for metrics is nan: no value of anything.
    """
    values: dict[str, dict[int, float]] = {}
    for path in sorted(model_dir.rglob("*.tfevents.*"), key=lambda path: path.name):
        prefix = _prefix(path.parent.relative_to(model_dir).as_posix())
        without_batch = (empty or {}).get(path.parent, ())
        for event in _events(path):
            for value in event.summary.value:
                number = _scalar(value)
                if number is not None:
                    values.setdefault(prefix + value.tag, {})[event.step] = (
                        math.nan if event.step in without_batch else number)
    if TRAINING_LOSS not in values and _SECOND_NAME_OF_LOSS in values:
        values[TRAINING_LOSS] = values.pop(_SECOND_NAME_OF_LOSS)
    return {name: sorted(by_step.items()) for name, by_step in sorted(values.items())}


def table_curves(curves: Curves) -> dict[str, Curves]:
    """Returns name of a statistic -> table -> curve.

    >>> table_curves({"training/embedding/user/coverage": [(1, 0.5)], "auc": []})
    {'coverage': {'user': [(1, 0.5)]}}
    """
    found: dict[str, Curves] = {}
    for name, points in curves.items():
        table, _, statistic = name.removeprefix(TABLE_STATISTICS).rpartition("/")
        if name.startswith(TABLE_STATISTICS) and table:
            found.setdefault(statistic, {})[table] = points
    return found


def steps_measured(tables: Curves) -> str:
    """Says when a statistic was measured, of which `table_curves` has the curves.

    >>> steps_measured({"user": [(100, 0.5), (1200, 0.25)], "item": [(1200, 0.5)]})
    'measured at 2 steps, from 100 to 1,200'
    """
    steps = {step for points in tables.values() for step, _ in points}
    if len(steps) == 1:
        return f"measured at step {min(steps):,}"
    return f"measured at {len(steps):,} steps, from {min(steps):,} to {max(steps):,}"


def _prefix(directory: str) -> str:
    if directory == ".":
        return "training/"
    first, *rest = directory.split("/")
    name = "" if first == "eval" else first.removeprefix("eval_") + "/"
    return name + "".join(f"{part}/" for part in rest)


def _events(path: pathlib.Path) -> Iterator[event_pb2.Event]:
    """Yields complete events; skips an incomplete one at the end.

    Warns of a file that is damaged, or that is none of events, and skips the rest of it.
    """
    try:
        for record in _records(path):
            yield event_pb2.Event.FromString(record)
    except (ValueError, message.DecodeError) as error:
        warnings.warn(
            f"{path} is damaged, or not an event file: {error}. The report leaves out the rest of "
            "it. Move the file away if it does not belong to this model.", stacklevel=2)


def _records(path: pathlib.Path) -> Iterator[bytes]:
    """Yields complete records.

    Raises:
        ValueError: if a checksum is wrong.
    """
    with path.open("rb") as file:
        while True:
            place = file.tell()
            header = file.read(_LENGTH.size)
            checksum = file.read(_CHECKSUM.size)
            if len(checksum) < _CHECKSUM.size:
                return
            # Before the length is used: that of text would be exabytes.
            _check(header, checksum, f"the length at byte {place}")
            [length] = _LENGTH.unpack(header)
            if os.fstat(file.fileno()).st_size < file.tell() + length + _CHECKSUM.size:
                return  # it is still being written
            record = file.read(length)
            _check(record, file.read(_CHECKSUM.size), f"the record at byte {place}")
            yield record


def _check(content: bytes, checksum: bytes, what: str) -> None:
    if checksum != _CHECKSUM.pack(masked(crc32c(content))):
        raise ValueError(f"{what} does not match its checksum")


def _scalar(value: summary_pb2.Summary.Value) -> float | None:
    if value.HasField("simple_value"):
        return value.simple_value
    if value.HasField("tensor") and value.metadata.plugin_data.plugin_name in ("scalars", ""):
        array = tensor_util.make_ndarray(value.tensor)
        if array.size == 1 and array.dtype.kind in "fiu":
            return float(array.reshape(()))
    return None


def write_summaries(directory: pathlib.Path, name: str,
                    summaries: Iterable[tuple[int, message.Message]]) -> None:
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
