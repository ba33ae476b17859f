# SPDX-License-Identifier: Apache-2.0
"""`checkpoint convert --names` overwrites nothing: a name that is taken is refused."""

import json
import pathlib
import warnings
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.checkpoint.saved import Saved, assert_same, save_v1, values_of, variables
from tpu_estimator_embedding import checkpoint, cli, mid_level
from tpu_estimator_embedding.checkpoint.bundle import write_bundle
from tpu_estimator_embedding.checkpoint.npz_format import write_npz
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY
from tpu_estimator_embedding.checkpoint.tf2_format import format_graph

END = "/.ATTRIBUTES/VARIABLE_VALUE"
KERNEL = "dense/kernel"
COLUMN = "input_layer/doc_embedding/embedding_weights"


class Program(tf.Module):
    """A program of TF2 with the tables, one of them called otherwise, and other paths."""

    def __init__(self):
        self.embedding = mid_level.TPUEmbedding({
            name: mid_level.FeatureConfig(mid_level.TableConfig(*size, name=name))
            for name, size in (("terms", (13, 4)), ("tags", (2, 3)))}, mid_level.Adagrad(0.5))
        self.embedding.build()
        self.tower = tf.Variable(np.full([4, 2], 7, np.float32))
        self.other = tf.Variable(np.full([4, 2], 8, np.float32), name="other/kernel")
        self.step = tf.Variable(np.int64(0), name="global_step")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Checkpoints of all formats in a directory: `v1`, `tf2`, `layer`, `program` and `columns`."""
    directory = tmp_path_factory.mktemp("sources")
    save_v1(directory / "v1", variables())
    save_v1(directory / "columns", variables(table=COLUMN))
    checkpoint.convert(directory / "v1", directory / "tf2", "tf2")
    checkpoint.convert(directory / "v1", directory / "layer", "tpu-embedding-layer")
    tf.train.Checkpoint(program=Program()).write(str(directory / "program"))
    return directory


@pytest.fixture
def convert(sources, monkeypatch, tmp_path):
    """A function that converts on the command line, and returns the exit status."""
    monkeypatch.chdir(sources)

    def convert(source, to, names, *options):
        file = tmp_path / "names.json"
        file.write_text(names if isinstance(names, str) else json.dumps(names))
        return cli.main(["checkpoint", "convert", source, str(tmp_path / "out" / (
            "out.npz" if to == "npz" else "out")), "--to", to, "--names", str(file), *options])
    return convert


ADAGRAD = "--tables=words,tags"
TAKEN_TF2 = {
    "a table": "embedding/words", "another table": "embedding/tags",
    "a slot": "embedding/words.Saccumulators", "an object with tables": "embedding",
    "new in the object with tables": "embedding/fresh", "below a table": "embedding/words/x",
    "the counter": "save_counter", "below the counter": "save_counter/x",
    "the object graph": "_CHECKPOINTABLE_OBJECT_GRAPH", "a dictionary of variables": "variables",
    "another variable": "variables/dense.Sbias", "below another variable":
    "variables/dense.Sbias/x", "the global step": "variables/global_step",
    "nothing": "", "the root": "/", "a leading slash": "/model/kernel", "a last slash": "model/",
    "two slashes": "model//kernel", "up": "../kernel", "up, escaped": "..../kernel", "here": "./x",
    "a key": f"model/kernel{END}", "a dot": "model.v2/kernel", "a lonely S": "model.Tkernel",
    "half a character": "\ud83d", "a NUL": "model\0kernel",
}
TAKEN_LAYER = {"a table": "layer/_tables/words", "a slot": "layer/_tables/words.Saccumulators",
               "the trap": "layer/_trap", "the layer": "layer", "in the layer": "layer/kernel"}
TO_TF2 = [("tf2", {KERNEL: path}) for path in TAKEN_TF2.values()] + [
    ("tpu-embedding-layer", {KERNEL: path}) for path in TAKEN_LAYER.values()] + [
    ("tf2", {KERNEL: "model/kernel", "dense/bias": "model/kernel"}),
    ("tf2", {KERNEL: "model", "dense/bias": "model/bias"}),
    ("tf2", {"dense/bias": "model/bias", KERNEL: "model"}),
    ("tf2", '{"dense/kernel": "a", "dense/kernel": "b"}'),
    ("tf2", {"words": "tags"}), ("tf2", {"words": "a", "tags": "a"}), ("tf2", {"words": ""}),
    ("tf2", {"tags": "words/accumulators"}), ("tf2", {"words/Adagrad": "slots"}),
    ("tf2", {"words:0": "terms"}), ("tf2", {"Words": "terms"}), ("tf2", {"": "terms"}),
    ("tf2", {"embedding/words": "terms"}), ("tf2", {TABLE_LAYOUTS_KEY: "record"}),
    ("v1", {KERNEL: "model/kernel"}), ("npz", {"words": "terms"})]


@pytest.mark.parametrize("to, names", TO_TF2, ids=[str(case) for case in TO_TF2])
def test_names_that_are_taken_or_unknown_are_refused(to, names, convert, tmp_path, capsys):
    assert convert("v1", to, names, ADAGRAD) == 2
    error = capsys.readouterr().err
    assert error.startswith("tpu-estimator-embedding checkpoint: `names` ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


FROM_TF2 = [
    ("a table", {"words": "variables/dense.Skernel"}),
    ("a slot", {"words/Adagrad": "variables/dense.Skernel"}),
    ("another variable", {"dense/bias": "variables/dense.Skernel"}),
    ("a slot of another optimizer", {"words/FrequencyEstimator": "variables/w"}),
    ("a table that keeps its name", {"words": "terms"}),
    ("tables", {"words": "tags"}),
    ("a variable that is elsewhere", {KERNEL: "model/kernel"}),
    ("the record of layouts", {TABLE_LAYOUTS_KEY: "variables/dense.Skernel"}),
    ("the object graph", {"_CHECKPOINTABLE_OBJECT_GRAPH": "variables/dense.Skernel"}),
    ("a leading slash", {"/kernel": "variables/dense.Skernel"}),
    ("up", {"../kernel": "variables/dense.Skernel"}),
    ("unicode", {"größe": "variables/dense.Skernel"}),
    ("the counter", {"count": "save_counter"}),
]


@pytest.mark.parametrize("to", ["v1", "npz"])
@pytest.mark.parametrize("case, names", FROM_TF2, ids=[case for case, _ in FROM_TF2])
def test_names_for_v1_that_are_taken_or_have_no_effect_are_refused(
        case, names, to, convert, tmp_path, sources, capsys):
    source = "tf2"
    if case == "a slot of another optimizer":  # where a dense variable has the shape of a table
        saved = variables("SGD")
        save_v1(tmp_path / "wide", Saved(saved.tables, {
            **saved.others, "w": np.ones([13, 4], np.float32)}))
        checkpoint.convert(tmp_path / "wide", tmp_path / "wide2", "tf2",
                           reading=checkpoint.Reading(tables=("tags", "words")))
        source = str(tmp_path / "wide2")
    options = ["--object=embedding"] if source != "tf2" else []
    assert convert(source, to, names, *options) == 2
    assert "checkpoint: `names` " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("names", [
    {"words": "terms", KERNEL: "program/embedding/terms"},
    {"words": "terms", KERNEL: "program/embedding/terms.Saccumulators"},
    {"words": "terms", KERNEL: "save_counter"}, {"words": "terms", KERNEL: "program"},
    {"words": "terms", KERNEL: "program/nothing"}, {"words": "terms", KERNEL: "program/tower/x"},
    {"words": "terms", KERNEL: "_CHECKPOINTABLE_OBJECT_GRAPH"}, {"words": "tower"},
    {"words": "terms", "other/kernel": "program/tower"}], ids=str)
def test_names_that_a_template_has_no_free_place_for_are_refused(names, convert, tmp_path, capsys):
    assert convert("v1", "tf2", names, "--template", "program", ADAGRAD) == 2
    assert capsys.readouterr().err.startswith("tpu-estimator-embedding checkpoint: ")
    assert not (tmp_path / "out").exists()


def test_file_of_names_that_is_missing_is_an_error(convert, tmp_path, capsys):
    assert convert("v1", "tf2", {}, "--names", str(tmp_path / "nosuch")) == 2
    assert "`names` must be a file that can be read, got" in capsys.readouterr().err


def test_names_of_a_template_carry_the_values_to_their_places(convert, tmp_path):
    names = {"words": "terms", KERNEL: "program/tower"}
    assert convert("v1", "tf2", names, "--template", "program", ADAGRAD) == 1  # the bias is left
    found, saved = values_of(tmp_path / "out/out"), variables()
    np.testing.assert_array_equal(found[f"program/tower{END}"], saved.others[KERNEL])
    np.testing.assert_array_equal(found[f"program/other{END}"], np.full([4, 2], 8))
    np.testing.assert_array_equal(found[f"program/embedding/terms{END}"], saved.tables["words"])


ODD = {"words": "Wörter/teil.2", KERNEL: "model/v..2/a.Sb", "dense/bias": "model/V..2/a.Sb",
       "beta1_power": "..S"}


def test_odd_names_that_are_free_are_carried_there_and_back(convert, tmp_path, sources):
    """Unicode, upper and lower case, and the dots and slashes that TensorFlow escapes."""
    assert convert("v1", "tf2", ODD, ADAGRAD) == 0
    found, saved = values_of(tmp_path / "out/out"), variables()
    np.testing.assert_array_equal(found[f"embedding/Wörter.Steil..2{END}"], saved.tables["words"])
    for name in ODD.keys() - {"words"}:
        np.testing.assert_array_equal(found[ODD[name] + END], saved.others[name])
    kernel, bias, beta = (tf.Variable(tf.zeros_like(saved.others[name])) for name in (
        KERNEL, "dense/bias", "beta1_power"))
    model = tf.train.Checkpoint(**{"v.2": tf.train.Checkpoint(**{"a/b": kernel}),
                                   "V.2": tf.train.Checkpoint(**{"a/b": bias})})
    tf.train.Checkpoint(model=model, **{".S": beta}).restore(
        str(tmp_path / "out/out")).assert_existing_objects_matched()
    for variable, name in ((kernel, KERNEL), (bias, "dense/bias"), (beta, "beta1_power")):
        np.testing.assert_array_equal(variable, saved.others[name])
    checkpoint.convert(tmp_path / "out/out", tmp_path / "back", "v1", names=ODD)
    assert_same({name: value for name, value in values_of(tmp_path / "back").items()
                 if name != TABLE_LAYOUTS_KEY}, values_without_record(sources / "v1"))


def values_without_record(prefix):
    return {name: value for name, value in values_of(prefix).items() if name != TABLE_LAYOUTS_KEY}


def test_tables_of_one_name_in_tf2_are_not_mistaken_for_each_other(tmp_path):
    """Two columns for one feature: both tables would be called `doc`."""
    saved = variables(table=COLUMN)
    twins = {key.replace("tags", "tower/doc_embedding/embedding_weights"): value
             for key, value in saved.tables.items()}
    twin = "tower/doc_embedding/embedding_weights"
    source = save_v1(tmp_path / "v1", Saved(twins, saved.others))
    others = {**twins, f"{twin}": twins[twin] + 1}
    other = save_v1(tmp_path / "other", Saved(others, saved.others))
    compared = checkpoint.compare(source, other)
    assert [one.name for one in compared.tensors if one.differing_rows] == [twin]
    for to in ("tf2", "tpu-embedding-layer"):
        with pytest.raises(ValueError, match="`names` must be different for different tables"):
            checkpoint.convert(source, tmp_path / "out", to)
    with pytest.raises(ValueError, match="one of .*input_layer.*tower.*, got 'doc'"):
        checkpoint.extract(source, "doc", tmp_path / "out.tsv")
    assert checkpoint.extract(source, twin, tmp_path / "out.tsv") == 2
    one = mid_level.TPUEmbedding(mid_level.FeatureConfig(mid_level.TableConfig(
        13, 4, name="doc")), mid_level.Adagrad(0.5))
    one.build()
    template = tf.train.Checkpoint(embedding=one).save(tmp_path / "template")
    with pytest.raises(ValueError, match="`names` must be different for different tables"):
        checkpoint.convert(source, tmp_path / "out", "tf2", template=template)
    assert not list(tmp_path.glob("out.index"))


def test_outputs_refuse_a_path_twice_whatever_the_caller_does(tmp_path):
    one = ArrayTensor(np.ones(2, np.float32))
    for paths in ([("a",), ("a", "b")], [("a", "b", "c"), ("a",)], [()]):
        with pytest.raises(ValueError, match="empty or inside"):
            format_graph(dict.fromkeys(paths, "w"))
    for key in ("", "\0a"):  # the header and a slice
        with pytest.raises(ValueError, match="`tensors` has the key"):
            write_bundle(tmp_path / "x", {key: one}, {}, print)
    for names in ([TABLE_LAYOUTS_KEY], ["a", "a.npy"], [""]):
        with pytest.raises(ValueError, match="`tensors` has the name"):
            write_npz(tmp_path / "x.npz", dict.fromkeys(names, one), "{}", print)
    assert not list(tmp_path.iterdir())


def test_archive_with_an_array_twice_is_refused(tmp_path):
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        warnings.simplefilter("ignore")  # of zipfile, about the second
        for value in (1.0, 2.0):
            with archive.open("a.npy", "w") as file:
                np.save(file, np.float32([value]))
    with pytest.raises(ValueError, match="'a.npy' more than once"):
        checkpoint.inspect(pathlib.Path(tmp_path / "x.npz"))
