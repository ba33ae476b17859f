# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding checkpoint`, as a user runs it: outputs, errors, exit statuses."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest

from tests.fronts.checkpoint.saved import (
    Saved,
    assert_same,
    restore_v1,
    save_v1,
    values_of,
    variables,
)
from tests.subprocesses import start
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.checkpoint.bundle import read_bundle

ROOT = str(pathlib.Path(__file__).parents[3])


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A directory with the checkpoint of a TPU with three hosts, as the working directory."""
    (tmp_path / "model").mkdir()
    save_v1(tmp_path / "model" / "model.ckpt-1234", variables(), 3, "mod")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command):
    return cli.main(["checkpoint", *command.split()])


def files():
    return sorted(str(path) for path in pathlib.Path().rglob("*") if path.is_file())


def test_inspect(model, capsys):
    assert run("inspect model --from-hosts 3 --all --histogram norms.png") == 0
    out = capsys.readouterr().out
    assert "model/model.ckpt-1234: v1, step 1234, " in out
    assert "mod × 3" in out
    assert "dense/kernel" in out
    assert (model / "norms.png").read_bytes().startswith(b"\x89PNG")


def test_inspect_json(model, capsys):
    assert run("inspect model --from-hosts 3 --json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [table["name"] for table in report["tables"]] == ["tags", "words"]
    assert run("inspect model --quick --json") == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["statistics"] is None


def test_convert_and_back(model, capsys):
    assert run("convert model tf2/ckpt-1 --to tf2 --from v1 --from-hosts 3") == 0
    assert "words: 13 × 4, Adagrad" in capsys.readouterr().out
    assert run("convert tf2 back/model.ckpt-7 --to v1 --hosts 4 --partition mod "
               "--global-step 7") == 0
    saved = variables()
    expected = Saved(saved.tables, {**saved.others, "global_step": np.int64(7)})
    assert_same(restore_v1(model / "back/model.ckpt-7", expected, 4, "mod"), expected.all)


def test_convert_with_names_and_resize(model):
    pathlib.Path("names.json").write_text('{"words": "terms"}')
    assert run("convert model tf2/ckpt-1 --to tf2 --from-hosts 3 --names names.json "
               "--resize words=20 --initializer words=constant:2 "
               "--slot-value words/accumulators=0.5") == 0
    values = values_of(model / "tf2/ckpt-1")
    assert values["embedding/terms/.ATTRIBUTES/VARIABLE_VALUE"][13:].tolist() == [[2.0] * 4] * 7
    assert values["embedding/terms.Saccumulators/.ATTRIBUTES/VARIABLE_VALUE"][19, 0] == 0.5


def test_reshard_and_compare(model, capsys):
    assert run("reshard model new/x --from-hosts 3 --hosts 2 --partition div") == 0
    assert run("compare model new --from-hosts 3") == 0
    assert "They agree: 9 of 9" in capsys.readouterr().out
    assert run("compare new model") == 1  # without being told that it is `mod`
    out = capsys.readouterr().out
    assert "They differ: 7 of 9" in out
    assert "words, accumulators" in out
    assert run("compare new model --from-hosts-b 3 --json") == 0
    assert json.loads(capsys.readouterr().out)["agree"] is True


def test_differences_that_are_nan_are_null_in_json(model, capsys):
    saved = variables("SGD")
    save_v1("number", saved)
    saved.tables["words"][:] = np.nan
    save_v1("nan", saved)
    assert run("compare number nan --json") == 1

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")
    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert None in [one["max_difference"] for one in found["tensors"]]


def test_extract(model, capsys):
    assert run("extract model words.tsv --table words --from-hosts 3 --rows 0:5") == 0
    assert capsys.readouterr().out == "words.tsv: 5 rows\n"
    assert len((model / "words.tsv").read_text().splitlines()) == 5


def test_exit_status_tells_that_variables_were_left_out(model, capsys):
    assert run("convert model template/ckpt --to tf2 --from-hosts 3") == 0
    saved = variables()
    del saved.others["beta1_power"]
    save_v1(model / "less", saved)
    assert run("convert less template2/ckpt --to tf2") == 0
    assert run("convert model out/ckpt --to tf2 --from-hosts 3 --template template2/ckpt") == 1
    assert "LEFT OUT, the template has no place for it: beta1_power" in capsys.readouterr().out


ERRORS = {
    "missing": ("inspect nothing", "must be the path of a checkpoint, got nothing, where "
                "nothing.index is missing"),
    "empty directory": ("inspect empty", "a directory whose file `checkpoint` names one, got "
                        "empty"),
    "remote": ("inspect gs://bucket/model", "`checkpoint` must be a path on this machine, got "
               "'gs://bucket/model'. Copy the files"),
    "foreign": ("convert foreign out --to tf2", "truncated, or not an index file"),
    "not an npz": ("convert foreign.npz out --to v1", "must be an intact .npz file, got "
                   "foreign.npz"),
    "other format": ("convert model out --from tf2 --to npz", "has the format 'v1', not 'tf2'"),
    "exists": ("reshard model model/model.ckpt-1234 --hosts 2 --partition div",
               "`output` must be a new name, got model/model.ckpt-1234.index, which "
               "already exists"),
    "exists as a link": ("convert model link.npz --to npz", "`output` must be a new name, got "
                         "link.npz, which already exists"),
    "table exists": ("extract model link.tsv --table words", "`output` must be a new name, got "
                     "link.tsv, which already exists"),
    "name of an index": ("convert model x.index --to tf2", "`output` must be the prefix of a "
                         "checkpoint without a file extension"),
    "name of data": ("reshard model x.data-00000-of-00001 --hosts 2 --partition div",
                     "`output` must be the prefix of a checkpoint without a file extension"),
    "name of the state": ("convert model new/checkpoint --to tf2", "`output` must be the prefix"),
    "hosts alone": ("convert model out --hosts 2", "`--hosts` and `--partition` must be given"),
    "wrong from-hosts": ("reshard model out --hosts 2 --partition div --from-hosts 5",
                         "`from_hosts` is 5, but '"),
    "no table": ("convert model out --resize terms=5", "`resize` has ['terms']"),
    "no number": ("convert model out --resize words=many", "`resize` must be a number, got 'many'"),
    "no pair": ("convert model out --resize words", "`--resize` must be TABLE=ROWS, got 'words'"),
    "names of nothing": ("convert model out --to tf2 --names names.json",
                         "`names` has ['nothing'], which are not in"),
    "names are no JSON": ("convert model out --to tf2 --names foreign.npz",
                          "`names` must be a JSON file, got foreign.npz"),
    "no template": ("convert model out --to keras-rs", "`template` is required"),
    "template for v1": ("convert model out --to v1 --template model",
                        "`template` does not apply where `to` is 'v1', got 'model'"),
    "layout for tf2": ("convert model out --to tf2 --hosts 2 --partition div",
                       "`layout` applies only where `to` is 'v1', got (2, 'div')"),
    "object in v1": ("inspect model --object embedding", "`objects` applies only to checkpoints "
                     "of TF2, got ['embedding']"),
    "optimizer in v1": ("inspect model --optimizer words=Adam", "`optimizers` has ['words']"),
    "names for the same names": ("convert model out --to v1 --names known.json",
                                 "`names` has no effect from 'v1' to 'v1'"),
    "names in inspect": ("inspect model --names names.json", "`names` has ['nothing'], which are "
                         "not in"),
    "names that inspect has no use for": ("inspect model --names known.json",
                                          "`names` has no effect on 'v1'"),
    "another archive": ("inspect archive.keras", "must be an intact .npz file, got archive.keras: "
                        "it holds no arrays."),
    "not .npz": ("convert model out --to npz", "`output` must be a name that ends in .npz"),
    "histogram": ("inspect model --histogram norms.gif",
                  "must be a name that ends in one of .png, .svg, .pdf"),
    "no directory": ("convert model names.json/x --to tf2", "`output` must be writable, got "
                     "names.json/x"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_is_one_sentence_and_nothing_is_written(name, model, capsys):
    (model / "empty").mkdir()
    (model / "foreign.index").write_bytes(b"not a checkpoint" * 10)
    (model / "foreign.npz").write_bytes(b"not an archive")
    (model / "names.json").write_text('{"nothing": "else"}')
    for link in ("link.npz", "link.tsv"):
        (model / link).symlink_to("nothing")
    (model / "known.json").write_text('{"words": "terms"}')
    with zipfile.ZipFile(model / "archive.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    command, sentence = ERRORS[name]
    before = files()
    assert run(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("tpu-estimator-embedding checkpoint: `")
    assert error.count("\n") == 1
    assert sentence in error
    assert files() == before
    assert (model / "link.npz").is_symlink() and (model / "link.tsv").is_symlink()


@pytest.mark.parametrize("damage", ["truncate", "flip"])
@pytest.mark.parametrize("command", [
    "convert model out --to tf2", "convert model out.npz --to npz", "compare model whole",
    "reshard model out --hosts 2 --partition mod", "extract model out.tsv --table words",
    "extract model out.parquet --table words", "inspect model"])
def test_damage_found_on_the_way_leaves_nothing(command, damage, model, capsys):
    save_v1(model / "whole", variables())
    data = model / "model" / "model.ckpt-1234.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    last = read_bundle(model / "model" / "model.ckpt-1234")["words"].pieces[-1].entry
    content[last.offset + last.size - 1] ^= 1
    data.write_bytes(content[:-1] if damage == "truncate" else content)
    before = files()
    assert run(command) == 2
    assert "truncated" in (error := capsys.readouterr().err) or "must not be corrupt" in error
    assert files() == before


@pytest.mark.parametrize("verb", ["checkpoint inspect model", "migrate train.py"])
def test_output_without_a_reader_ends_a_command_silently(verb, model):
    """As in `... | head -2`, which ends earlier."""
    (model / "train.py").write_text("import tensorflow as tf\ntf.estimator.RunConfig()\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run([sys.executable, "-m", "tpu_estimator_embedding", *verb.split()],
                              stdout=pipe, stderr=subprocess.PIPE, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": ROOT})
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


LIMITED = textwrap.dedent("""
    import resource, signal, sys
    from tpu_estimator_embedding import cli
    sys.dont_write_bytecode = True  # which the limit would cut
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write that is too much is an error
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
    sys.exit(cli.main(["checkpoint", *sys.argv[1:]]))
""")


@pytest.mark.parametrize("command", [
    "convert model out --to tf2", "convert model out.npz --to npz",
    "extract model out.tsv --table words", "extract model out.parquet --table words --slots"])
def test_disk_that_takes_no_more_leaves_nothing(command, model):
    assert hasattr(resource, "RLIMIT_FSIZE") and hasattr(signal, "SIGXFSZ")
    before = files()
    done = start([sys.executable, "-c", LIMITED, *command.split()], cwd=model)
    assert done.returncode == 2, done.stderr
    assert "tpu-estimator-embedding checkpoint: `output` must be writable, got " in (
        done.stderr)
    assert "File too large" in done.stderr
    assert files() == before


def test_disk_without_room_is_seen_before_anything_is_written(model, capsys, monkeypatch):
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    before = files()
    assert run("convert model out --to tf2") == 2
    assert re.search(r"`output` must be on a disk with \d{4} bytes free, got \. with 100\.",
                     capsys.readouterr().err)
    assert files() == before


def test_directory_that_was_moved_is_found(model, capsys):
    """Its file `checkpoint` has the path at which it was written."""
    (model / "model").rename(model / "moved")
    assert run("inspect moved --quick") == 0
    assert capsys.readouterr().out.startswith("moved/model.ckpt-1234: v1")


def test_interrupt_leaves_nothing(model, monkeypatch):
    from tpu_estimator_embedding.checkpoint import bundle

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(bundle.Piece, "_extend", interrupt)
    before = files()
    with pytest.raises(KeyboardInterrupt):
        run("convert model out --to tf2 --global-step 3")
    assert files() == before


@pytest.mark.parametrize("command, words, others", [
    ("", ["checkpoint compare model_dir tf2/ckpt-1", "COMMAND --help", "reshard"], []),
    ("inspect", ["\n\nDescribe a checkpoint and its tables.\n", "  0  done\n  2  error"], ["  1 "]),
    ("convert", ["  1  done, except for the variables listed as left out\n"], ["agree", "differ"]),
    ("compare", ["  0  they agree\n  1  they differ\n"], ["left out"])])
def test_help_has_examples_and_the_exit_statuses_of_the_command(command, words, others, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(f"{command} --help")
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert all(word in out for word in [*words, "examples, each after"])
    statuses = out.partition("exit status")[2]
    assert not [word for word in others if word in statuses]


@pytest.mark.parametrize("command", ["", "dance", "convert", "reshard a b", "extract a b",
                                     "convert a b --to csv"])
def test_wrong_usage_exits_with_2(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(command)
    assert exit_.value.code == 2
    assert "usage: tpu-estimator-embedding checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("command", [
    "convert model out --hosts {} --partition div", "reshard model out --hosts {} --partition mod",
    "inspect model --from-hosts {}", "compare model model --from-hosts-b {}"])
@pytest.mark.parametrize("number", ["0", "-1", "two", "2.0"])
def test_hosts_are_at_least_one(command, number, model, capsys):
    before = files()
    option = next(word for word in command.split() if word.endswith(("hosts", "hosts-b")))
    with pytest.raises(SystemExit) as exit_:
        run(command.format(number))
    assert exit_.value.code == 2
    assert (f"argument {option}: must be an integer of at least 1, got {number!r}"
            in capsys.readouterr().err)
    assert files() == before
