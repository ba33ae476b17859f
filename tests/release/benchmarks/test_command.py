# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`, in separate processes, on tables of forty rows."""

import json
import sys

import pytest

from benchmarks import __main__ as command
from tests.kernel_choice import found_compiler
from tests.release.packaging.conftest import ROOT
from tests.subprocesses import start


def test_tiny_run_measures_writes_and_resumes(tmp_path):
    found_compiler()
    arguments = [sys.executable, "-m", "benchmarks", "--quick", "--workloads", "tiny", "--only",
                 "tf_ops,bound", "--output", tmp_path / "results"]
    done = start(arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results" / "tiny.json").read_text())["results"]
    assert [result["baseline"] for result in results] == ["tf_ops", "bound"]
    assert all(len(result["samples"]) == 4 and not result["error"] for result in results)
    assert "TF ops" in done.stdout and (tmp_path / "results" / "report.txt").exists()
    again = start([*arguments, "--resume"], cwd=ROOT)
    assert again.stdout.splitlines()[1:] == done.stdout.splitlines()[1:]


def test_unknown_baseline_is_refused_with_the_names():
    with pytest.raises(SystemExit, match="--only must name some of native, native_function"):
        command.main(["--only", "natve", "--output", "/nonexistent/never-made"])
