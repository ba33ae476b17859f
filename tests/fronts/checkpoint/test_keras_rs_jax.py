# SPDX-License-Identifier: Apache-2.0
"""Tables that go to a model of Keras RS on JAX, by way of Orbax, and back."""

import importlib.util
import json
import pathlib
import re
import shutil
import signal
import sys

import numpy as np
import pytest

from tests.fronts.checkpoint.saved import restore_v1, save_v1, variables
from tests.subprocesses import start
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint.reading import read_checkpoint

MISSING = [name for name in ("keras_rs", "jax", "orbax") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"needs the extra `jax`: {', '.join(MISSING)} not installed")

PROGRAM = pathlib.Path(__file__).with_name("jax_model.py")
SLOTS = {"SGD": {}, "Adagrad": {"Adagrad": "accumulator"},
         "Adam": {"Adam/m": "momentum", "Adam/v": "velocity"}}
STEPS = "Adam"  # is saved and restored by a CheckpointManager, the others without


def run(verb, directory):
    done = start([sys.executable, PROGRAM, verb, directory])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    path = tmp_path_factory.mktemp("jax")
    run("save", path)
    return path


@pytest.fixture
def template(templates, tmp_path):
    """A copy that a test can damage."""
    return shutil.copytree(templates / "Adagrad", tmp_path / "template")


def test_checkpoints_of_the_callback_are_read_and_no_templates(templates, tmp_path):
    if not (templates / "callback").is_dir():
        pytest.skip("this Keras has no OrbaxCheckpoint")
    found, trained = read_checkpoint(templates / "callback"), np.load(
        templates / "callback.npz")
    assert set(found.tables) == {"words", "tags"}
    for name, table in found.tables.items():
        np.testing.assert_array_equal(
            table.rows.read(), trained[f"distributed_embedding/{name}/embeddings"])
    source = save_v1(tmp_path / "v1", variables("Adagrad"))
    with pytest.raises(ValueError, match="`template` must be stored with Zarr 2, got .* Zarr 3"):
        checkpoint.convert(source, tmp_path / "out", "keras-rs-jax",
                           template=templates / "callback")
    assert not (tmp_path / "out").exists()


def test_keras_on_jax_restores_what_a_v1_checkpoint_had(templates, tmp_path):
    given = {optimizer: variables(optimizer) for optimizer in SLOTS}
    for optimizer, saved in given.items():
        source = save_v1(tmp_path / f"v1-{optimizer}", saved)
        output = tmp_path / "done" / optimizer
        if optimizer == STEPS:
            output.mkdir(parents=True)
        done = checkpoint.convert(source, output, "keras-rs-jax", template=templates / (
            "steps-Adam" if optimizer == STEPS else optimizer))
        assert done.output == (output / "1234" if optimizer == STEPS else output)
        assert set(done.left_out) == {"beta1_power"} | (
            {"dense/kernel/Adagrad"} if optimizer != "Adagrad" else set())
        assert f"{optimizer.lower()}/learning_rate" in done.kept
        assert checkpoint.compare(source, done.output, tables_only=True).agree
    run("restore", tmp_path)
    for optimizer, saved in given.items():
        found, name = np.load(tmp_path / f"{optimizer}.npz"), optimizer.lower()
        for table in ("words", "tags"):
            np.testing.assert_array_equal(found[f"distributed_embedding/{table}/embeddings"],
                                          saved.tables[table], strict=True)
            for slot, end in SLOTS[optimizer].items():
                np.testing.assert_array_equal(
                    found[f"{name}/distributed_embedding_{table}_embeddings_{end}"],
                    saved.tables[f"{table}/{slot}"], strict=True)
        np.testing.assert_array_equal(found["dense/kernel"], saved.others["dense/kernel"])
        assert found[f"{name}/iteration"] == 1234
        kept = type(saved)(saved.tables, {key: saved.others[key] for key in (
            "dense/kernel", "dense/bias", "global_step")})
        for place in ("done", "again"):  # written here, and by Orbax
            back = tmp_path / f"{place}-{optimizer}"
            checkpoint.convert(tmp_path / place / optimizer, back, "v1", layout=(3, "mod"))
            for key, values in restore_v1(back, kept, 3, "mod").items():
                np.testing.assert_array_equal(values, saved.all[key], strict=True)


def test_a_resized_table_and_its_slots(templates, tmp_path):
    saved = variables("Adagrad")
    checkpoint.convert(save_v1(tmp_path / "v1", saved), tmp_path / "jax", "keras-rs-jax",
                       template=templates / "Adagrad")
    checkpoint.convert(tmp_path / "jax", tmp_path / "more", resize={"words": 20})
    report = checkpoint.inspect(tmp_path / "more")
    assert (report.form, report.global_step) == ("keras-rs-jax", 1234)
    assert [(table.name, table.rows, table.optimizer) for table in report.tables] == [
        ("tags", 2, "Adagrad"), ("words", 20, "Adagrad")]
    checkpoint.extract(tmp_path / "more", "words", tmp_path / "words.tsv", rows=(0, 13))
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "words.tsv", np.float32),
                                  saved.tables["words"])


@pytest.mark.parametrize("source, optimizer, sentence", [
    ("FTRL", "FTRL", "FTRL in Keras RS: Keras 3's Ftrl recomputes every row"),
    ("Adam", "Adagrad", "slots of Adam, .* adagrad. Compile the model"),
    ("Momentum", "SGD", "slots of Momentum, .* sgd")])
def test_optimizers_that_differ_are_refused(source, optimizer, sentence, templates, tmp_path):
    v1 = save_v1(tmp_path / "v1", variables(source))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=sentence):
        checkpoint.convert(v1, tmp_path / "new", "keras-rs-jax", template=templates / optimizer)
    assert sorted(tmp_path.rglob("*")) == before


def edit_metadata(template, change):
    path = template / "_METADATA"
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def rename(old, new):
    def change(metadata):
        for leaf in metadata["tree_metadata"].values():
            for key in leaf["key_metadata"]:
                key["key"] = new if key["key"] == old else key["key"]
    return change


def as_text(metadata):
    for leaf in metadata["tree_metadata"].values():
        leaf["value_metadata"]["value_type"] = "string"


@pytest.mark.parametrize("damage, sentence", [
    (lambda path: edit_metadata(path, lambda data: data.update(use_zarr3=True)), "Zarr 2, got"),
    (lambda path: edit_metadata(path, lambda data: data.update(use_ocdbt=False)), "OCDBT, got"),
    (lambda path: edit_metadata(path, as_text), "tree of dictionaries of arrays, got .* a string"),
    (lambda path: edit_metadata(path, rename("kernel", "matrix")), "without a readable "
     "'trainable_variables.dense.matrix'"),
    (lambda path: (path / "state").mkdir(), r"one tree of arrays, got \['state'\], too"),
    (lambda path: (path / "_METADATA").write_text("{"), "damaged .*_METADATA"),
    (lambda path: shutil.rmtree(path / "d"), "without a readable"),
    (lambda path: (path / "_METADATA").unlink(), "`template` must be a checkpoint of Orbax")])
def test_a_template_not_understood_is_refused(damage, sentence, template, tmp_path):
    v1 = save_v1(tmp_path / "v1", variables())
    damage(template)
    with pytest.raises(ValueError, match=sentence):
        checkpoint.convert(v1, tmp_path / "new", "keras-rs-jax", template=template)
    assert not (tmp_path / "new").exists() and not list(tmp_path.glob(".*"))


def test_other_groups_and_slots_without_a_table_are_refused(tmp_path):
    import tensorstore
    for group, name, sentence in (
            ("params", "table", "groups are trainable_variables, .* got 'params'"),
            ("trainable_variables", "var:words:table:slot:accumulator",
             "slots of 'words' without the table")):
        path = tmp_path / group
        path.mkdir()
        (path / "_METADATA").write_text(json.dumps({"use_ocdbt": True, "tree_metadata": {"": {
            "key_metadata": [{"key": key, "key_type": 2} for key in (group, name)],
            "value_metadata": {"value_type": "jax.Array"}}}}))
        tensorstore.open({"driver": "zarr", "create": True, "kvstore": {
            "driver": "ocdbt", "base": f"file://{path}/", "path": f"{group}.{name}/"}},
            dtype="float32", shape=[8, 8]).result()
        with pytest.raises(ValueError, match=sentence):
            checkpoint.inspect(path)


def test_a_step_beyond_int32_is_refused_and_a_damaged_source_leaves_nothing(templates, tmp_path):
    v1 = save_v1(tmp_path / "v1", variables())
    with pytest.raises(ValueError, match="at most 2147483647"):
        checkpoint.convert(v1, tmp_path / "new", "keras-rs-jax", global_step=2**31,
                           template=templates / "Adagrad")
    [data] = tmp_path.glob("v1.data-*")
    data.write_bytes(bytes(byte ^ 1 for byte in data.read_bytes()))
    with pytest.raises(ValueError, match="does not match"):
        checkpoint.convert(v1, tmp_path / "new", "keras-rs-jax", template=templates / "Adagrad")
    assert not (tmp_path / "new").exists() and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("is_of_steps", [False, True])
def test_the_same_command_again_leaves_the_first_output_as_it_is(is_of_steps, templates, tmp_path):
    v1 = save_v1(tmp_path / "v1", variables(), num_hosts=3, strategy="mod")
    output = tmp_path / "new"
    if is_of_steps:
        output.mkdir()
    done = checkpoint.convert(v1, output, "keras-rs-jax", template=templates / "Adagrad")
    assert done.output == (output / "1234" if is_of_steps else output)
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    with pytest.raises(FileExistsError, match=re.escape(f"got {done.output}, which already")):
        checkpoint.convert(v1, output, "keras-rs-jax", template=templates / "Adagrad")
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    assert checkpoint.compare(v1, output, tables_only=True).agree


def test_what_is_missing_is_named_and_nothing_is_written(templates, tmp_path):
    v1 = save_v1(tmp_path / "v1", variables())
    for source, template, error, named in (
            (tmp_path / "no", templates / "Adagrad", FileNotFoundError, "no"),
            (v1, tmp_path / "none", ValueError, "none"),
            (v1, None, ValueError, "`template` is required")):
        with pytest.raises(error, match=named):
            checkpoint.convert(source, tmp_path / "new" / "er", "keras-rs-jax", template=template)
        assert not (tmp_path / "new").exists()


KILLED = """
import os, signal, sys
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint.reading import read_checkpoint
from tpu_estimator_embedding.checkpoint import orbax_files
written = orbax_files._write_array
def write(item, leaf, *arguments):
    written(item, leaf, *arguments)
    if leaf.endswith("words.embeddings"):
        os.kill(os.getpid(), signal.SIGKILL)
orbax_files._write_array = write
checkpoint.convert(sys.argv[1], sys.argv[2], "keras-rs-jax", template=sys.argv[3])
"""


def test_what_a_killed_conversion_leaves_is_taken_for_nothing(templates, tmp_path, caplog):
    import orbax.checkpoint as ocp
    v1 = save_v1(tmp_path / "v1", variables())
    output = tmp_path / "steps"
    output.mkdir()
    killed = start([sys.executable, "-c", KILLED, v1, output, templates / "Adagrad"])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    [half] = output.iterdir()
    assert (half / "_METADATA").exists()
    with pytest.raises(FileNotFoundError):
        checkpoint.inspect(output)
    assert ocp.CheckpointManager(output).latest_step() is None
    whole = checkpoint.convert(v1, output, "keras-rs-jax", template=templates / "Adagrad")
    assert whole.output == output / "1234"
    assert checkpoint.compare(v1, output, tables_only=True).agree
    assert list(output.iterdir()) == [whole.output]
    assert caplog.messages == [
        f"Removed leftovers of killed conversions from {output}: {half.name}."]
