# SPDX-License-Identifier: Apache-2.0
"""Batches of records against TensorFlow's TFRecordDataset and batch, which are the oracle."""

import itertools
import pathlib
import re

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.io import record_batches

COMPRESSION_TYPES = (None, "", "GZIP", "ZLIB")


@pytest.fixture(params=["native", "tf"], scope="module", autouse=True)
def kernels(request):
    with pytest.MonkeyPatch.context() as monkeypatch:
        choose_kernels(request.param, monkeypatch)
        yield request.param


def write(path, records, compression_type=""):
    with tf.io.TFRecordWriter(str(path), compression_type or "") as writer:
        for record in records:
            writer.write(record)
    return str(path)


def numbered(path, count, compression_type=""):
    return write(path, (f"{path.name}:{i}:".encode() + b"x" * (7 * i % 50) for i in range(count)),
                 compression_type)


def oracle(filenames, batch_size, drop_remainder=False, compression_type=None, buffer_size=None):
    return tf.data.TFRecordDataset(filenames, compression_type, buffer_size).batch(
        batch_size, drop_remainder)


def elements(dataset):
    return [batch.tolist() for batch in dataset.as_numpy_iterator()]


@pytest.mark.slow
@settings(max_examples=60, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(counts=st.lists(st.integers(0, 9), max_size=4), batch_size=st.integers(1, 12),
       drop_remainder=st.booleans(), compression_type=st.sampled_from(COMPRESSION_TYPES),
       buffer_size=st.sampled_from([None, 0, 1, 100, 1 << 16]))
def test_elements_are_those_of_tensorflow(tmp_path, counts, batch_size, drop_remainder,
                                          compression_type, buffer_size):
    files = [numbered(tmp_path / f"{compression_type}-{count}", count, compression_type)
             for count in counts]
    arguments = files, batch_size, drop_remainder, compression_type, buffer_size
    assert elements(record_batches(*arguments)) == elements(oracle(*arguments))


def test_empty_and_large_records(tmp_path):
    path = write(tmp_path / "sizes", [b"", b"a", b"b" * 3_000_000, b"", b"c" * 100])
    for buffer_size in (0, 1000, None):
        assert elements(record_batches(path, 2, buffer_size=buffer_size)) == elements(
            oracle(path, 2))


@pytest.mark.parametrize("given_as", [
    lambda files: files, lambda files: tuple(map(pathlib.Path, files)), tf.constant,
    tf.data.Dataset.from_tensor_slices, lambda files: tf.data.Dataset.from_tensors(files)])
def test_every_form_of_filenames(tmp_path, given_as):
    files = [numbered(tmp_path / f"{i}", 5) for i in range(3)]
    assert elements(record_batches(given_as(files), 4)) == elements(oracle(files, 4))
    for drop_remainder in (False, True):
        assert elements(record_batches(given_as(files), 4, drop_remainder)) == elements(
            oracle(files, 4, drop_remainder))


def test_specification_of_elements(tmp_path):
    path = numbered(tmp_path / "one", 3)
    for batch_size, drop_remainder in ((2, True), (2, False), (tf.constant(2, tf.int64), True)):
        assert (record_batches(path, batch_size, drop_remainder).element_spec
                == oracle(path, batch_size, drop_remainder).element_spec)


def test_sizes_of_any_integer_type(tmp_path):
    path = numbered(tmp_path / "one", 5)
    for dtype in (tf.int32, tf.int64):
        dataset = record_batches(path, tf.constant(2, dtype), buffer_size=tf.constant(64, dtype))
        assert elements(dataset) == elements(oracle(path, 2))


@pytest.mark.parametrize("compression_type", ["", "GZIP"])
@pytest.mark.parametrize("taken", range(5))
def test_checkpointed_iterator_continues(tmp_path, taken, compression_type):
    files = [numbered(tmp_path / f"{i}", 5, compression_type) for i in range(3)]
    dataset = record_batches(files, 4, compression_type=compression_type)
    expected = elements(dataset)
    iterator = iter(dataset)
    for _ in range(taken):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
    next(iterator, None)
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).read(saved)
    assert [batch.numpy().tolist() for batch in restored] == expected[taken:]


def test_iterator_does_not_continue_in_a_file_that_became_shorter(kernels, tmp_path):
    if kernels != "native":
        pytest.skip("TensorFlow's dataset goes on with the next file")
    path = numbered(tmp_path / "one", 9)
    dataset = record_batches(path, 4)
    iterator = iter(dataset)
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
    numbered(tmp_path / "one", 1)
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).read(saved)
    for _ in range(2):
        with pytest.raises(tf.errors.DataLossError, match=r"Cannot continue at byte \d+ of "
                           r".*/one, which has only \d+ bytes\. Restore the file, or start"):
            next(restored)


def until_errors(dataset, calls):
    """Returns the results of so many calls: records, or the error's type and sentence."""
    iterator, results = iter(dataset), []
    for _ in range(calls):
        try:
            results.append(next(iterator).numpy().tolist())
        except StopIteration:
            results.append("end")
        except tf.errors.OpError as error:
            sentence = re.sub(r"^\{\{.*\}\}|\[Op:.*", "", error.message).strip()
            results.append((type(error), sentence))
    return results


@pytest.mark.parametrize("harm", [
    lambda data: data[:-3], lambda data: data[:len(data) // 2 + 5],
    lambda data: data[:20] + b"!" + data[21:], lambda data: b"!" + data[1:],
    lambda data: b"no TFRecord at all"], ids=range(5))
def test_damaged_files_give_tensorflows_errors_and_the_next_file_follows(tmp_path, harm):
    files = [numbered(tmp_path / f"{i}", 6) for i in range(3)]
    damaged = pathlib.Path(files[1])
    damaged.write_bytes(harm(damaged.read_bytes()))
    results = until_errors(record_batches(files, 3), 8)
    assert results == until_errors(oracle(files, 3), 8)
    assert any(isinstance(result, tuple) for result in results) and results[-1] == "end"


def test_missing_file(tmp_path):
    files = [numbered(tmp_path / "0", 4), str(tmp_path / "missing"), numbered(tmp_path / "2", 4)]
    results = until_errors(record_batches(files, 2), 6)
    assert results == until_errors(oracle(files, 2), 6)
    assert results[2][0] is tf.errors.NotFoundError and "missing" in results[2][1]


@pytest.mark.parametrize("batch_size", [0, -2])
def test_wrong_batch_size(tmp_path, batch_size):
    with pytest.raises(tf.errors.InvalidArgumentError,
                       match="Batch size must be greater than zero"):
        elements(record_batches(numbered(tmp_path / "one", 3), batch_size))


@pytest.mark.parametrize("batch_size", [1.5, "4", None])
def test_batch_size_that_is_no_integer(tmp_path, batch_size):
    with pytest.raises(TypeError, match=f"`batch_size` must be an integer, got {batch_size!r}"):
        record_batches(numbered(tmp_path / "one", 3), batch_size)


def test_wrong_buffer_size(tmp_path):
    path = numbered(tmp_path / "one", 3)
    with pytest.raises(ValueError, match="`buffer_size` must be at least 0, where 0 means "
                       "no buffer, got -1"):
        record_batches(path, 2, buffer_size=-1)


def test_matrix_of_filenames_is_read_row_by_row(tmp_path):
    files = [[numbered(tmp_path / f"{i}{j}", 3) for j in range(2)] for i in range(2)]
    assert elements(record_batches(files, 4)) == elements(oracle(files, 4))


def test_wrong_compression_type(tmp_path):
    with pytest.raises(ValueError, match="`compression_type` must be one of None, '', 'GZIP', "
                       "'ZLIB', got 'zip'"):
        record_batches(numbered(tmp_path / "one", 3), 2, compression_type="zip")


def test_pieces_of_several_files_at_once(tmp_path):
    files = [numbered(tmp_path / f"{i}", 10) for i in range(4)]

    def pieces(read):
        return tf.data.Dataset.from_tensor_slices(files).interleave(
            lambda file: read(file, 3), cycle_length=2, num_parallel_calls=2).rebatch(7)
    assert elements(pieces(record_batches)) == elements(pieces(oracle))


def test_in_a_graph_of_tensorflow_1(tmp_path):
    files = [numbered(tmp_path / f"{i}", 5) for i in range(2)]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(record_batches(files, 4))
        batch = iterator.get_next()
        for _ in range(2):
            session.run(iterator.initializer)
            batches = [session.run(batch).tolist() for _ in range(3)]
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(batch)
    assert batches == elements(oracle(files, 4))


def test_replicas_share_the_batches(tmp_path):
    path = numbered(tmp_path / "one", 8)
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])

    def shares(read):
        distributed = strategy.experimental_distribute_dataset(read(path, 4, True))
        return [[part.numpy().tolist() for part in strategy.experimental_local_results(values)]
                for values in itertools.islice(distributed, 2)]
    assert shares(record_batches) == shares(oracle)
