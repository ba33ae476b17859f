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


def arguments_of(verb: str) -> list[str]:
    """Returns the verb and the other arguments of the README's command."""
    [arguments] = re.findall(
        rf"^    (?:rm -r model; )?tpu-estimator-embedding ({verb} .*)$", README, re.MULTILINE)
    return arguments.split()


@pytest.mark.smoke
def test_example_runs_unmodified_and_ends_as_said(example, tmp_path):
    (tmp_path / "movies.py").write_text(example)
    done = subprocesses.start([*COMMAND, *arguments_of("run")], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"it ends with ``{done.stdout.strip()}``" in README


@pytest.mark.long
def test_example_trains_on_parameter_servers(example, tmp_path):
    (tmp_path / "movies.py").write_text(example.replace("steps=1000", "steps=50"))
    done = subprocesses.start([*COMMAND, *arguments_of("cluster")], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[chief 0] accuracy " in done.stdout


@pytest.mark.slow
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
        done = subprocesses.start([*COMMAND, *arguments_of(verb)], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed += done.stdout + done.stderr
    [said] = [block for block in docs.literal_blocks(README) if block.startswith("written: ")]
    for line in said.splitlines():
        assert line in printed
    assert done.stdout.splitlines()[-1].startswith("They agree")


@pytest.mark.long
def test_moved_example_continues_what_the_old_one_trained(example, tmp_path):
    (tmp_path / "movies.py").write_text(example)
    for verb in ("run", "migrate"):
        done = subprocesses.start([*COMMAND, *arguments_of(verb)], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    [restore] = re.findall(r"``(estimator\.restore_estimator_checkpoint\(.*\))``", README)
    moved = tmp_path / "new" / "movies.py"
    moved.write_text(moved.read_text().replace(
        "\ntrain_and_evaluate(", f"\n{restore}\nassert estimator.global_step == 1000\n"
        "train_and_evaluate("))
    done = subprocesses.start([sys.executable, "movies.py"], cwd=moved.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "accuracy 1.00\n" and restore in moved.read_text()


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
