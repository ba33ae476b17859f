# SPDX-License-Identifier: Apache-2.0
"""Checkpoints read and written without TensorFlow, against TensorFlow."""

import contextlib
import itertools
import pathlib
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.checkpoint.saved import save_v1, values_of, variables
from tests.subprocesses import start
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint.bundle import read_bundle, write_bundle
from tpu_estimator_embedding.checkpoint.bundle_format import (
    Entry,
    encode_header,
    format_index,
    parse_index,
)
from tpu_estimator_embedding.checkpoint.stored_tensor import (
    BLOCK_BYTES,
    ArrayTensor,
    TextTensor,
    rows_by_id,
)
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout

DTYPES = [tf.float32, tf.float64, tf.float16, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8,
          tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128]


def save_slices(prefix, name, tensors, specs):
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=[name] * len(tensors),
                      shape_and_slices=specs, tensors=tensors)


def write(prefix, tensors, layouts=None):
    write_bundle(prefix, tensors, layouts or {}, lambda count: None)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [[], [0], [3], [2, 0], [2, 3, 4]], ids=str)
def test_every_dtype_is_read_and_written_as_tensorflow_does(dtype, shape, tmp_path):
    values = tf.cast(tf.reshape(tf.range(int(np.prod(shape))), shape), dtype)
    save_slices(tmp_path / "theirs", "x", [values], [""])
    tensors = read_bundle(tmp_path / "theirs")
    np.testing.assert_array_equal(tensors["x"].read(), values.numpy(), strict=True)
    write(tmp_path / "ours", {"x": ArrayTensor(values.numpy())})
    np.testing.assert_array_equal(values_of(tmp_path / "ours")["x"], values.numpy(), strict=True)


def test_bfloat16_is_copied_bit_for_bit(tmp_path):
    values = tf.cast(tf.random.normal([5, 3]), tf.bfloat16)
    save_slices(tmp_path / "theirs", "x", [values], [""])
    write(tmp_path / "ours", read_bundle(tmp_path / "theirs"))
    np.testing.assert_array_equal(values_of(tmp_path / "ours")["x"], values.numpy())


@pytest.mark.parametrize("text", [b"", b"words", b"\0\xff" * 100_000])
def test_strings(text, tmp_path):
    save_slices(tmp_path / "theirs", "x", [tf.constant(text)], [""])
    assert read_bundle(tmp_path / "theirs")["x"].text() == text
    write(tmp_path / "ours", {"x": TextTensor(text)})
    assert values_of(tmp_path / "ours")["x"] == text


def test_tensors_of_strings_are_copied(tmp_path):
    values = tf.constant([[b"a", b""], [b"long" * 50, b"\0"]])
    save_slices(tmp_path / "theirs", "x", [values], [""])
    write(tmp_path / "ours", read_bundle(tmp_path / "theirs"))
    assert values_of(tmp_path / "ours")["x"].tolist() == values.numpy().tolist()


@pytest.mark.parametrize("num_hosts", [1, 2, 5, 20])
def test_parts_of_a_saver_are_read_as_one_tensor(num_hosts, tmp_path):
    saved = variables()
    tensors = read_bundle(pathlib.Path(save_v1(tmp_path / "model", saved, num_hosts)))
    for name, values in saved.all.items():
        np.testing.assert_array_equal(tensors[name].read(), values, strict=True)
    np.testing.assert_array_equal(tensors["words"].read_rows(3, 9), saved.tables["words"][3:9])


def test_slices_along_the_second_axis_are_put_together(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    save_slices(tmp_path / "x", "x", [values[:, :1], values[:, 1:]],
                ["3 4 0,3:0,1", "3 4 -:1,3"])
    tensor = read_bundle(tmp_path / "x")["x"]
    np.testing.assert_array_equal(tensor.read(), values)
    np.testing.assert_array_equal(tensor.read_rows(1, 2), values[1:2])


def test_checkpoint_of_several_data_files(tmp_path):
    """As parameter servers write one, each its own file."""
    values = np.arange(12, dtype=np.float32).reshape(6, 2)
    for part in range(3):
        save_slices(tmp_path / f"part{part}", "x", [values[2 * part:2 * part + 2]],
                    [f"6 2 {2 * part},2:0,2"])
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[str(tmp_path / f"part{part}") for part in range(3)],
        destination_prefix=str(tmp_path / "all"))
    assert len(list(tmp_path.glob("all.data-*-of-00003"))) == 3
    np.testing.assert_array_equal(read_bundle(tmp_path / "all")["x"].read(), values)


def test_index_of_thousands_of_keys(tmp_path):
    """TensorFlow writes it in several blocks, with shared prefixes."""
    names = [f"scope/with/a/long/name/{number}" for number in range(5000)]
    tf.raw_ops.SaveV2(prefix=str(tmp_path / "theirs"), tensor_names=names,
                      shape_and_slices=[""] * len(names),
                      tensors=[tf.constant(number) for number in range(len(names))])
    tensors = read_bundle(tmp_path / "theirs")
    assert [int(tensors[name].read()) for name in names] == list(range(len(names)))
    write(tmp_path / "ours", tensors)
    reader = tf.train.load_checkpoint(str(tmp_path / "ours"))
    assert [reader.get_tensor(name) for name in names[::97]] == list(range(5000))[::97]


@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("num_hosts", [1, 3, 64, 70, 1000])
def test_parts_are_restored_by_tensorflow_as_slices(strategy, num_hosts, tmp_path):
    """Their places are coded in the keys: numbers below and above 64 differ in length."""
    values = np.arange(800, dtype=np.float32).reshape(400, 2)
    layout = TableLayout(strategy, num_hosts, 400)
    write(tmp_path / "x", {"x": ArrayTensor(values)}, {"x": layout})
    saved = values_of(tmp_path / "x")["x"]
    ids = np.arange(400)
    parts = min(num_hosts, 400)
    by_part = ids if strategy == "div" else np.concatenate(
        [ids[part::parts] for part in range(parts)])
    np.testing.assert_array_equal(saved, values[by_part])
    [some] = tf.raw_ops.RestoreV2(prefix=str(tmp_path / "x"), tensor_names=["x"],
                                  shape_and_slices=["400 2 63,9:0,2"], dtypes=[tf.float32])
    np.testing.assert_array_equal(some, values[by_part][63:72])
    np.testing.assert_array_equal(
        rows_by_id(read_bundle(tmp_path / "x")["x"], layout).read(), values)


def test_blocks_that_end_in_the_midst_of_parts(tmp_path):
    values = np.random.default_rng(0).normal(size=(3 * BLOCK_BYTES // 4096 // 2, 1024)).astype("f4")
    layout = TableLayout("mod", 7, len(values))
    write(tmp_path / "x", {"x": ArrayTensor(values)}, {"x": layout})
    np.testing.assert_array_equal(
        rows_by_id(read_bundle(tmp_path / "x")["x"], layout).read(), values)
    write(tmp_path / "y", {"x": rows_by_id(read_bundle(tmp_path / "x")["x"], layout)},
          {"x": TableLayout("div", 5, len(values))})
    np.testing.assert_array_equal(values_of(tmp_path / "y")["x"], values)


# What is wrong with a checkpoint -> what is done to it, and the error.

def truncate(path, count):
    path.write_bytes(path.read_bytes()[:-count])


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "no index": (lambda index, data: index.unlink(), FileNotFoundError, "index is missing"),
    "no data": (lambda index, data: data.unlink(), FileNotFoundError, "all its data files"),
    "truncated index": (lambda index, data: truncate(index, 9), ValueError,
                        "intact TensorFlow checkpoint, got .* truncated, or not an index"),
    "empty index": (lambda index, data: index.write_bytes(b""), ValueError, "truncated, or not"),
    "truncated data": (lambda index, data: truncate(data, 1), ValueError,
                       "data-00000-of-00001 truncated: it has .* bytes of"),
    "changed index": (lambda index, data: flip(index, 30), ValueError, "checksum of a block"),
    "changed table": (lambda index, data: flip(data, 5), ValueError, "not be corrupt"),
    "foreign": (lambda index, data: index.write_bytes(b"PK\3\4" * 100), ValueError,
                "truncated, or not an index file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_an_error(damage, tmp_path):
    prefix = pathlib.Path(save_v1(tmp_path / "model", variables(), num_hosts=3))
    act, kind, sentence = DAMAGES[damage]
    act(tmp_path / "model.index", tmp_path / "model.data-00000-of-00001")
    with pytest.raises(kind, match=f"^`checkpoint` must .*{sentence}"):
        for tensor in read_bundle(prefix).values():
            tensor.read()


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_checkpoint_of_the_former_format_is_named(is_sharded, tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        words = tf.compat.v1.get_variable("words", [3, 2])
        session.run(words.initializer)
        saver = tf.compat.v1.train.Saver(write_version=1, sharded=is_sharded)
        saver.save(session, str(tmp_path / "model.ckpt"), global_step=3)
    with pytest.raises(ValueError, match=r"model.ckpt-3 in the former format V1. Restore it with"):
        read_bundle(tmp_path / "model.ckpt-3")


@pytest.mark.parametrize("content", [b"", b"plain", b"a longer text, of another program"])
def test_another_file_is_not_taken_for_a_checkpoint(content, tmp_path):
    (tmp_path / "notes").write_bytes(content)
    with pytest.raises(FileNotFoundError, match="`checkpoint` must be the path of a checkpoint, "
                                                "got .*/notes, which is a file of another kind"):
        read_bundle(tmp_path / "notes")


CHANGES = {
    "deleted": lambda content, place: [content[:place] + content[place + size:]
                                       for size in (1, 2, 4, 5, 8)],
    "inserted": lambda content, place: [content[:place] + bytes([byte]) + content[place:]
                                        for byte in (0, 1, 255, content[place])],
    "flipped": lambda content, place: [
        content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1:]
        for bit in range(8)],
    "set": lambda content, place: [content[:place] + bytes([byte]) + content[place + 1:]
                                   for byte in {0, 1, 127, 128, 255} - {content[place]}],
    "cut": lambda content, place: [content[:place], content[place:]] if place else [],
}


@pytest.fixture(name="indexes", scope="module")
def indexes_of_both_writers(tmp_path_factory):
    """One table and a step: TensorFlow's index, and ours."""
    folder = tmp_path_factory.mktemp("indexes")
    tf.raw_ops.SaveV2(prefix=str(folder / "theirs"), tensor_names=["step", "words"],
                      shape_and_slices=["", ""], tensors=[7, tf.ones([3, 2])])
    write(folder / "ours", read_bundle(folder / "theirs"), {"words": TableLayout("div", 2, 3)})
    return [folder / "theirs", folder / "ours"]


def listed(prefix):
    return {name: (tensor.dtype, tensor.shape, [(piece.extents, piece.entry)
                                                for piece in tensor.pieces])
            for name, tensor in read_bundle(prefix).items()}


@pytest.mark.parametrize("change", CHANGES)
def test_no_damaged_index_is_read_as_another_one(change, indexes):
    for prefix in indexes:
        index, whole = prefix.with_suffix(".index"), listed(prefix)
        content = index.read_bytes()
        try:
            for place in range(len(content)):
                for damaged in CHANGES[change](content, place):
                    index.write_bytes(damaged)
                    try:
                        found = listed(prefix)
                    except ValueError as error:
                        assert str(error).startswith("`checkpoint` must be an intact TensorFlow ")
                        continue
                    assert found == whole, place
        finally:
            index.write_bytes(content)


def test_bytes_missing_in_the_footer_are_found_whatever_the_checksum_before_it():
    """Its handles then begin in the checksum of a block, and may be those of an empty block."""
    for number in range(64):
        items = {b"": encode_header(num_shards=1), b"step%d" % number: Entry(1, ()).encode()}
        content = format_index(items)
        for place, size in itertools.product(range(len(content) - 48, len(content)), range(1, 9)):
            with contextlib.suppress(ValueError):
                assert parse_index(content[:place] + content[place + size:]) == items


@pytest.mark.parametrize("items, sentence", [
    ({b"a": b""}, "it has no header with a number of data files"),
    ({b"": b"", b"a": b""}, "it has no header with a number of data files"),
    ({b"": encode_header(num_shards=1), b"a": Entry(1, (), shard=1).encode()},
     "the entry b'a' is at bytes 0 to 0 of data file 1, of 1")])
def test_index_whose_parts_do_not_fit_is_refused(items, sentence, tmp_path):
    (tmp_path / "x.index").write_bytes(format_index(items))
    with pytest.raises(ValueError, match=f"^`checkpoint` must .*{sentence}"):
        read_bundle(tmp_path / "x")


def test_changed_byte_is_found_whichever_rows_are_read(tmp_path):
    prefix = pathlib.Path(save_v1(tmp_path / "model", variables()))
    tensor = read_bundle(prefix)["words"]
    flip(tmp_path / "model.data-00000-of-00001", tensor.pieces[0].entry.offset)
    with pytest.raises(ValueError, match="must not be corrupt"):
        tensor.read_rows(9, 10)


LIMITED = """
    import resource, sys
    from tpu_estimator_embedding import checkpoint
    source, output, size = sys.argv[1:]
    sys.dont_write_bytecode = True  # which the limit would cut
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    checkpoint.convert(source, output)
"""


def test_a_disk_without_room_for_the_last_byte_is_an_error(tmp_path):
    """The write that reaches the limit succeeds, and takes less than it was given."""
    source = save_v1(tmp_path / "v1", variables())
    checkpoint.convert(source, tmp_path / "whole")
    [data] = tmp_path.glob("whole.data-*")
    done = start([sys.executable, "-c", textwrap.dedent(LIMITED), source, tmp_path / "out",
                  str(data.stat().st_size - 1)])
    assert done.returncode == 1 and "`output` must be writable" in done.stderr, done.stderr
    assert not list(tmp_path.glob("*out*"))
