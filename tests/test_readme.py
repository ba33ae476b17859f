# SPDX-License-Identifier: Apache-2.0
"""What README.rst says, done as it says."""

import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

from tests import subprocesses

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.rst").read_text(encoding="utf-8")
COMMAND = [sys.executable, "-m", "tpu_estimator_embedding"]


def code_blocks() -> list[str]:
    """Returns the Python programs of the README."""
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", README, re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks]


def literal_blocks() -> list[str]:
    """Returns the indented blocks after a `::`: commands, the layout, the drawing."""
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", README)
    return [textwrap.dedent(block).strip("\n") for block in blocks]


@pytest.fixture(scope="module")
def example() -> str:
    [example] = [block for block in code_blocks() if "EmbeddingConfigSpec" in block]
    return example


@pytest.mark.smoke
def test_example_runs_unmodified_and_ends_as_said(example, tmp_path):
    (tmp_path / "movies.py").write_text(example)
    assert "tpu-estimator-embedding run movies.py" in literal_blocks()
    done = subprocesses.start([*COMMAND, "run", "movies.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"it ends with ``{done.stdout.strip()}``" in README


def test_example_runs_under_plain_python_after_install(example, tmp_path):
    [install] = [block for block in code_blocks() if "install()" in block]
    (tmp_path / "movies.py").write_text(install + example.replace("steps=1000", "steps=5"))
    done = subprocesses.start([sys.executable, "movies.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("accuracy ")


def test_verbs_in_the_readme_exist():
    from tpu_estimator_embedding import cli
    verbs = set(re.findall(r"tpu-estimator-embedding ([\w-]+)", README))
    assert verbs == set(cli.VERBS)


def test_ci_runs_the_test_command_of_the_readme():
    [command] = [block for block in literal_blocks() if "[test]' && pytest" in block]
    install, test = command.split(" && ")
    script = (ROOT / ".ci" / "run").read_text()
    assert install.replace("pip install", "pip install --quiet") in script
    assert re.search(rf"^  {test} ", script, re.MULTILINE)


def test_layout_names_every_part_of_the_package():
    [layout] = [block for block in literal_blocks() if block.startswith("types.py")]
    named = set(re.findall(r"^(\S+?)(?:/|\.py,?) ", layout, re.MULTILINE))
    named |= set(re.findall(r", (\w+)\.py", layout))
    package = ROOT / "tpu_estimator_embedding"
    parts = {path.stem for path in package.iterdir()
             if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert named == parts - {"__init__", "__main__"}


def test_python_versions_are_those_of_the_metadata():
    setup = (ROOT / "setup.py").read_text()
    versions = re.findall(r"Python :: (3\.\d+)", setup)
    assert f"Python {', '.join(versions[:-1])} or {versions[-1]}" in README


def pytest_commands() -> list[str]:
    """Returns the commands of the README that run some of the tests."""
    lines = [line for block in literal_blocks() for line in block.splitlines()]
    return [line.partition("#")[0].strip() for line in lines if line.startswith("pytest tests")]


@pytest.mark.parametrize("command", pytest_commands())
def test_pytest_commands_select_tests(command):
    done = subprocess.run([sys.executable, "-m", *command.split(), "--collect-only", "-q"],
                          cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
