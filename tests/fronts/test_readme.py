# SPDX-License-Identifier: Apache-2.0
"""The instructions of README.rst, executed."""

import re
import subprocess
import sys

import pytest

from tests import docs, subprocesses

README = docs.page("README")
COMMAND = [sys.executable, "-m", "tpu_estimator_embedding"]


@pytest.fixture(scope="module")
def example() -> str:
    [example] = [block for block in docs.code_blocks(README) if "EmbeddingConfigSpec" in block]
    return example


@pytest.mark.smoke
def test_example_runs_unmodified_and_ends_as_said(example, tmp_path):
    (tmp_path / "movies.py").write_text(example)
    assert "tpu-estimator-embedding run movies.py" in docs.literal_blocks(README)
    done = subprocesses.start([*COMMAND, "run", "movies.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"it ends with ``{done.stdout.strip()}``" in README


def test_example_runs_under_plain_python_after_install(example, tmp_path):
    [install] = [block for block in docs.code_blocks(README) if "install()" in block]
    (tmp_path / "movies.py").write_text(install + example.replace("steps=1000", "steps=5"))
    done = subprocesses.start([sys.executable, "movies.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("accuracy ")


@pytest.mark.long
def test_moving_the_example_and_comparing_it_print_what_is_said(example, tmp_path):
    (tmp_path / "movies.py").write_text(example)
    printed = ""
    for verb in ("migrate", "verify"):
        [command] = [line for block in docs.literal_blocks(README) for line in block.splitlines()
                     if line.startswith(f"tpu-estimator-embedding {verb} ")]
        done = subprocesses.start([*COMMAND, *command.split()[1:]], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed += done.stdout + done.stderr
    [said] = [block for block in docs.literal_blocks(README) if block.startswith("written: ")]
    for line in said.splitlines():
        assert line in printed
    assert done.stdout.endswith("They agree in all 25 steps (20 + 5 of the second training).\n")


def test_ci_runs_the_test_command_of_the_readme():
    [command] = [block for block in docs.literal_blocks(README) if "[test]' && pytest" in block]
    install, test = command.split(" && ")
    script = (docs.ROOT / ".ci" / "run").read_text()
    [packages] = re.findall(r"'.*'", install)
    assert "pip install --quiet" in script and packages in script
    assert re.search(rf'newest" {test}$', script, re.MULTILINE)


def test_python_versions_are_those_of_the_metadata():
    setup = (docs.ROOT / "setup.py").read_text()
    versions = re.findall(r"Python :: (3\.\d+)", setup)
    assert f"Python {', '.join(versions[:-1])} or {versions[-1]}" in README


def pytest_commands() -> list[str]:
    """Returns the commands of CONTRIBUTING.rst that run some of the tests."""
    return re.findall(r"^``(pytest tests.*?)``", docs.page("CONTRIBUTING"), re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize("command", pytest_commands())
def test_pytest_commands_select_tests(command):
    done = subprocess.run([sys.executable, "-m", *command.split(), "--collect-only", "-q"],
                          cwd=docs.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
