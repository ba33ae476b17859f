# SPDX-License-Identifier: Apache-2.0
"""Tables that go to the SparseCores of a model of Keras RS on JAX, and back."""

import importlib.util
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest

from tests.fronts.checkpoint.saved import Saved, assert_same, restore_v1, save_v1
from tests.fronts.checkpoint.test_sparse_core_layout import oracle
from tests.spec.oracle_optimizers import SUFFIXES
from tests.subprocesses import start
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint import checkpoint_command, stored_tensor

MISSING = [name for name in ("keras_rs", "jax", "orbax") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"needs the extra `jax`: {', '.join(MISSING)} not installed")
needs_layer = pytest.mark.skipif(
    importlib.util.find_spec("jax_tpu_embedding") is None,
    reason="`pip install jax-tpu-embedding` beside Keras RS and JAX")

PROGRAM = pathlib.Path(__file__).with_name("sparse_core_model.py")
STACKS = {"tags_words_z": {"tags": [20, 3], "words": [130, 6], "z": [65, 8]},
          "big": {"big": [300, 20]}}
SHAPES = {table: shape for tables in STACKS.values() for table, shape in tables.items()}
LAYER = "trainable_variables/distributed_embedding"
SLOTS = {"SGD": {}, "Adagrad": {"Adagrad": "accumulator"},
         "Adam": {"Adam/m": "momentum", "Adam/v": "velocity"},
         "FTRL": {"Ftrl": "accumulator", "Ftrl_1": "linear"}}


def run(kind, verb, directory, cores, optimizer):
    done = start([sys.executable, PROGRAM, kind, verb, directory, *map(str, cores), optimizer])
    assert done.returncode == 0, done.stderr


def variables(optimizer="Adagrad", seed=0):
    random = np.random.default_rng(seed)

    def values(*shape):
        return random.normal(size=shape).astype(np.float32)

    tables = {f"{name}{suffix}": values(*shape) for name, shape in SHAPES.items()
              for suffix in ["", *(f"/{suffix}" for suffix in SUFFIXES[optimizer])]}
    return Saved({**tables, "small": values(5, 3)}, {
        "dense/kernel": values(6, 2), "dense/bias": values(2), "global_step": np.int64(1234)})


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """Returns the directory of a template for 4 devices with 2 SparseCores each."""
    path = tmp_path_factory.mktemp("imitated")
    run("imitated", "save", path, (4, 2), "Adagrad")
    return path


@pytest.fixture
def template(templates, tmp_path):
    """A copy that a test can damage."""
    return shutil.copytree(templates / "template", tmp_path / "template")


def convert(saved, directory, cores, template, **others):
    source = save_v1(directory / "v1", saved, num_hosts=3, strategy="mod")
    return checkpoint.convert(source, directory / "done", "keras-rs-jax", template=template,
                              sparse_cores=cores, reading=checkpoint.Reading(from_hosts=3),
                              **others)


def check_arrays(directory, saved, cores, optimizer):
    """Compares what Orbax restored with what was to be stacked, and with the template."""
    found, before = np.load(directory / "done.npz"), np.load(directory / "template.npz")
    assert set(found) == set(before)
    expected = dict(before)
    for stack, tables in STACKS.items():
        for suffix, slot in [("", ""), *((f"/{suffix}", f":slot:{slot}")
                                         for suffix, slot in SLOTS[optimizer].items())]:
            path = f"{LAYER}/var:{stack}:table{slot}"
            expected[path] = oracle(list(tables), {
                name: saved.tables[f"{name}{suffix}"] for name in tables}, *cores, before[path])
    expected |= {f"{LAYER}/iteration": np.float32(1234),
                 "optimizer_variables/sgd/iteration": np.int32(1234),
                 f"{LAYER}/small/embeddings": saved.tables["small"],
                 **{f"trainable_variables/dense/{name}": saved.others[f"dense/{name}"]
                    for name in ("kernel", "bias")}}
    assert_same({path: found[path] for path in found}, expected)


def check_way_back(directory, saved, cores):
    reading = checkpoint.Reading(sparse_cores=cores, stacks=STACKS)
    checkpoint.convert(directory / "done", directory / "back", "v1", reading=reading,
                       layout=(3, "mod"))
    assert_same(restore_v1(directory / "back", saved, 3, "mod"), saved.all)
    assert checkpoint.compare(directory / "v1", directory / "done", tables_only=True,
                              reading_a=checkpoint.Reading(from_hosts=3),
                              reading_b=reading).agree


@pytest.mark.parametrize("cores, optimizer", [
    ((1, 4), "SGD"), ((2, 2), "Adam"), ((4, 2), "FTRL"), ((8, 2), "Adagrad")])
def test_stacks_are_filled_and_a_round_trip_keeps_all_bits(cores, optimizer, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_tensor, "BLOCK_BYTES", 1000)  # so that tables have several blocks
    saved = variables(optimizer)
    run("imitated", "save", tmp_path, cores, optimizer)
    done = convert(saved, tmp_path, cores, tmp_path / "template")
    assert done.left_out == ()
    run("imitated", "restore", tmp_path, cores, optimizer)
    check_arrays(tmp_path, saved, cores, optimizer)
    check_way_back(tmp_path, saved, cores)


@needs_layer
@pytest.mark.parametrize("cores, optimizer", [
    ((1, 1), "SGD"), ((1, 4), "Adam"), ((4, 2), "FTRL"), ((8, 2), "Adagrad"), ((4, 4), "Adagrad")])
def test_the_layer_itself_has_these_stacks_and_looks_up_their_rows(cores, optimizer, tmp_path):
    """On CPUs that are said to have SparseCores: all but the lookup and training on a TPU."""
    saved = variables(optimizer)
    run("real", "save", tmp_path, cores, optimizer)
    assert json.loads((tmp_path / "stacks.json").read_text()) == STACKS
    convert(saved, tmp_path, cores, tmp_path / "template")
    run("real", "restore", tmp_path, cores, optimizer)
    check_arrays(tmp_path, saved, cores, optimizer)
    check_way_back(tmp_path, saved, cores)
    found, rows = np.load(tmp_path / "by_id.npz"), np.load(tmp_path / "looked_up.npz")
    arrays = np.load(tmp_path / "done.npz")
    for stack, tables in STACKS.items():
        for name, (size, dim) in tables.items():
            np.testing.assert_array_equal(found[name], saved.tables[name], strict=True)
            for suffix, slot in SLOTS[optimizer].items():
                np.testing.assert_array_equal(found[f"{name}/{slot}"],
                                              saved.tables[f"{name}/{suffix}"], strict=True)
            assert rows[name].shape == (size,)
            np.testing.assert_array_equal(
                arrays[f"{LAYER}/var:{stack}:table"][rows[name], :dim], saved.tables[name])
    imitated = tmp_path / "imitated"
    imitated.mkdir()
    run("imitated", "save", imitated, cores, optimizer)
    own, other = np.load(imitated / "template.npz"), np.load(tmp_path / "template.npz")
    assert {path: (own[path].shape, own[path].dtype) for path in own} == {
        path: (other[path].shape, other[path].dtype) for path in other}


def test_the_commands_take_other_cores_and_tables_of_other_sizes(templates, tmp_path, capsys):
    """From 4 x 2 SparseCores to 2 x 2 ones, and back."""
    saved = variables()
    convert(saved, tmp_path, (4, 2), templates / "template")
    other, stacks = tmp_path / "other", tmp_path / "stacks.json"
    other.mkdir()
    run("imitated", "save", other, (2, 2), "Adagrad")
    stacks.write_text(json.dumps(SHAPES))  # without stacks, whose names say enough

    def status(*arguments):
        return command_status([str(argument) for argument in arguments])

    assert status("convert", tmp_path / "done", other / "done", "--to", "keras-rs-jax",
                  "--template", other / "template", "--from-sparse-cores", "4x2",
                  "--sparse-cores", "2x2", "--stacks", stacks) == checkpoint_command.DONE
    checkpoint.convert(other / "done", other / "back", "v1", reading=checkpoint.Reading(
        sparse_cores=(2, 2), stacks=STACKS))
    assert_same(restore_v1(other / "back", saved), saved.all)
    assert status("compare", tmp_path / "done", other / "done", "--from-sparse-cores", "4x2",
                  "--from-sparse-cores-b", "2x2", "--stacks", stacks) == checkpoint_command.DONE
    assert status("convert", other / "done", other / "again", "--resize", "words=129",
                  "--from-sparse-cores", "2x2", "--stacks", stacks) == checkpoint_command.DONE
    assert status("extract", other / "again", other / "words.tsv", "--table", "words",
                  "--from-sparse-cores", "2x2", "--stacks", write_json(
                      other / "less.json", SHAPES | {"words": [129, 6]})) == checkpoint_command.DONE
    np.testing.assert_array_equal(np.loadtxt(other / "words.tsv", np.float32),
                                  saved.tables["words"][:129])
    capsys.readouterr()
    assert status("inspect", tmp_path / "done", "--json", "--from-sparse-cores", "4x2",
                  "--stacks", stacks) == checkpoint_command.DONE
    report = json.loads(capsys.readouterr().out)
    assert {table["name"]: [table["rows"], table["dimension"]] for table in report["tables"]} == {
        **SHAPES, "small": [5, 3]}


def command_status(arguments):
    import argparse
    parser = argparse.ArgumentParser()
    checkpoint_command.add_arguments(parser)
    return checkpoint_command.run(parser.parse_args(arguments))


def write_json(path, content):
    path.write_text(json.dumps(content))
    return path


def test_slots_stay_those_of_the_template_without_slots(templates, tmp_path):
    saved = variables("FTRL")
    convert(saved, tmp_path, (4, 2), templates / "template", without_slots=True)
    run("imitated", "restore", tmp_path, (4, 2), "Adagrad")
    found, before = np.load(tmp_path / "done.npz"), np.load(templates / "template.npz")
    for stack in STACKS:
        path = f"{LAYER}/var:{stack}:table"
        np.testing.assert_array_equal(found[f"{path}:slot:accumulator"],
                                      before[f"{path}:slot:accumulator"])
        assert (found[path] != before[path]).any()


def test_names_map_to_tables_on_sparse_cores(templates, tmp_path):
    saved = variables()
    renamed = {f"scope/{name}" if name.startswith("words") else name: values
               for name, values in saved.tables.items()}
    source = save_v1(tmp_path / "v1", Saved(renamed, saved.others))
    reading = checkpoint.Reading(tables=(*(name for name in SHAPES if name != "words"),
                                         "scope/words", "small"))
    names = {"scope/words": "words"}
    checkpoint.convert(source, tmp_path / "done", "keras-rs-jax", names=names, reading=reading,
                       template=templates / "template", sparse_cores=(4, 2))
    checkpoint.convert(tmp_path / "done", tmp_path / "back", "v1", names=names,
                       reading=checkpoint.Reading(sparse_cores=(4, 2), stacks=STACKS))
    assert_same(restore_v1(tmp_path / "back", Saved(renamed, saved.others)), {
        **renamed, **saved.others})


@pytest.mark.parametrize("change, sentence", [
    ({"sparse_cores": None}, "--sparse-cores DEVICESxCORES"),
    ({"sparse_cores": (2, 4)}, "saved on 4 devices, but the number given is 2"),
    ({"sparse_cores": (4, 4)}, r"Stack '.*' has the shape .* padded for 4 devices with 4 Sp"),
    ({"sparse_cores": (4, 0)}, "`sparse_cores` must be an int of at least 1, got 0"),
    ({"sparse_cores": "4x2"}, "`sparse_cores` must be a tuple"),
    ({"to": "npz"}, "`sparse_cores` applies only where `to` is 'keras-rs-jax'"),
    ({"source": "FTRL"}, "slots of FTRL, but stack 'big' of the template has those of Adag"),
    ({"stacks": {"tags_words_z": {"words": [1, 1], "tags": [1, 1], "z": [1, 1]}}}, "words_tags_z"),
    ({"stacks": {"word": [130, 6]}}, r"`stacks` must be made of .*, got \['word'\]"),
    ({"stacks": {"tags_words": {"tags": [20, 3], "words": [130, 6]}}}, r"got \['tags_words'\]"),
    ({"resize": {"words": 500}}, r"\['tags', 'words', 'z'\], padded for 4 devices"),
    ({"resize": {"small": 6}}, "small.embeddings' has the shape")])
def test_what_does_not_fit_is_refused_before_anything_is_written(
        change, sentence, templates, tmp_path):
    given = {"to": "keras-rs-jax", "sparse_cores": (4, 2), "template": templates / "template",
             "source": "Adagrad", "stacks": None, **change}
    source = save_v1(tmp_path / "v1", variables(given.pop("source")))
    if given["to"] == "npz":
        del given["template"]
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=sentence):
        checkpoint.convert(source, tmp_path / "new.npz", given.pop("to"),
                           reading=checkpoint.Reading(stacks=given.pop("stacks")), **given)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("reading, sentence", [
    ({}, r"'trainable_.*var:big:table', .* order of Sp.* --from-sparse-cores .* --stacks"),
    ({"sparse_cores": (4, 2)}, "--stacks"),
    ({"sparse_cores": (8, 1), "stacks": STACKS}, "saved on 4 devices, but the number given is 8"),
    ({"sparse_cores": (4, 2), "stacks": STACKS | {"big": {"big": [400, 20]}}}, r"\[448, 24\]"),
    ({"sparse_cores": (4, 2), "stacks": STACKS | {"more": [8, 8]}}, "exactly one way, got none")])
def test_readings_that_do_not_fit_are_refused(reading, sentence, templates):
    with pytest.raises(ValueError, match=sentence):
        checkpoint.inspect(templates / "template", reading=checkpoint.Reading(**reading))


def test_options_for_sparse_cores_without_such_tables_are_refused(templates, tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    for reading, sentence in (
            (checkpoint.Reading(sparse_cores=(4, 2), stacks=STACKS), "tables on SparseCores, got"),
            (checkpoint.Reading(stacks=STACKS), "`stacks` applies only to tables on SparseCores")):
        with pytest.raises(ValueError, match=sentence):
            checkpoint.convert(source, tmp_path / "new", "v1", reading=reading)
    with pytest.raises(ValueError, match="`sparse_cores` requires `template`"):
        checkpoint.convert(templates / "template", tmp_path / "new", sparse_cores=(2, 2),
                           reading=checkpoint.Reading(sparse_cores=(4, 2), stacks=STACKS))


def edit_leaves(template, old, new):
    path = template / "_METADATA"
    path.write_text(path.read_text().replace(f'"{old}"', f'"{new}"'))


@pytest.mark.parametrize("damage, sentence", [
    (lambda path: (path / "_sharding").write_text("[1]"), "damaged .*_sharding"),
    (lambda path: (path / "_sharding").write_text('{"?": "{\\"sharding_type\\": '
                                                  '\\"NamedSharding\\"}"}'), "damaged .*_sharding"),
    (lambda path: edit_leaves(path, "var:big:table", "var:huge:table"), "without a readable")])
def test_a_damaged_template_is_refused(damage, sentence, template):
    damage(template)
    with pytest.raises(ValueError, match=sentence):
        checkpoint.inspect(template, reading=checkpoint.Reading(
            sparse_cores=(4, 2), stacks=STACKS))
