# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks checkpoints`, in separate processes, on tables of a few rows."""

import json
import sys

import pytest

from benchmarks import __main__ as command
from benchmarks import checkpoints
from tests.kernel_choice import found_compiler
from tests.release.packaging.conftest import ROOT
from tests.subprocesses import start

COMMAND = [sys.executable, "-m", "benchmarks", "checkpoints", "--quick"]


def test_quick_run_saves_and_restores_tables_of_the_given_size(tmp_path):
    found_compiler()
    done = start([*COMMAND, "--table-gib", 1 / 1024, "--output", tmp_path], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "0.0021 GB: tables of 0.00105 GB and Adagrad's slot" in done.stdout
    assert done.stdout == (tmp_path / "checkpoints.txt").read_text()
    written = json.loads((tmp_path / "checkpoints.json").read_text())
    assert written["table_gib"] == 1 / 1024
    assert list(written["measured"]) == list(checkpoints.WAYS)
    for way, figures in written["measured"].items():
        trains = {"flush", "stall", "step", "saving_bytes", "restoring_bytes"}
        assert figures.keys() == {"save", "restore"} | (
            trains if way not in (checkpoints.DISK, checkpoints.CHECKSUM) else set()), way
        assert all(value > 0 for name in ("save", "restore") for value in figures[name])
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints.txt", "checkpoints.json"}


def test_ratios_are_against_the_slower_of_disk_and_checksum():
    training = {"flush": [0.0] * 3, "stall": [0.5, 0.1, 0.3], "step": [0.01] * 3,
                "saving_bytes": [1e6] * 3, "restoring_bytes": [2e6] * 3}
    measured = {
        checkpoints.DISK: {"save": [10.0, 8.0, 9.0], "restore": [1.0, 1.0, 1.0]},
        checkpoints.CHECKSUM: {"save": [2.0, 2.0, 2.0], "restore": [2.0, 2.0, 2.0]},
        checkpoints.STOCK: {"save": [20.0] * 3, "restore": [4.0] * 3} | training,
        checkpoints.BETWEEN: {"save": [18.0] * 3, "restore": [4.0] * 3} | training,
        checkpoints.WHILE: {"save": [10.0] * 3, "restore": [2.0] * 3} | training}
    printed = checkpoints.text(0.5, measured).splitlines()
    between = "this package, between steps"
    [line] = [line for line in printed if line.startswith(f"  {between}")]
    assert line.removeprefix(f"  {between}").split() == [
        "0.06", "0.27", "300", "10.0", "1", "2"]  # GB/s, GB/s, ms, ms, MB, MB

    def ratio(start_of_line):
        [line] = [line for line in printed if line.startswith(f"  {start_of_line}")]
        return line.split()[-4:]

    assert ratio(f"save, {between}, against the slower")[-4:] == ["50%", "50%", "NOT", "REACHED"]
    assert ratio(f"restore, {checkpoints.WAYS[checkpoints.WHILE]}, against the slower")[1:] == [
        "100%", "100%", "reached"]
    assert ratio(f"save, {between}, against stock")[2:] == ["111%", "111%"]
    assert ratio("longest step while training goes on")[1:] == ["0.56", "NOT", "REACHED"]


@pytest.mark.parametrize("size", ["0", "-1", "nan", "inf", "much"])
def test_size_that_is_none_is_refused(size, tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main(["checkpoints", f"--table-gib={size}", "--output", str(tmp_path / "never")])
    assert "--table-gib" in capsys.readouterr().err
    assert not (tmp_path / "never").exists()
