# SPDX-License-Identifier: Apache-2.0
"""Copies of the source to build from, and virtual environments that hold named versions."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).parents[3]
NOT_SOURCE = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "tests")


def run_pip(python: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
    """Runs pip for the environment of `python`, which needs no pip itself.

    Runs it without PYTHONPATH, which names this checkout: if the checkout is installed as editable,
    it holds an `.egg-info`, which pip takes for a package that is installed already.
    """
    command = [sys.executable, "-m", "pip", "--python", str(python), *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def dry_run(python: pathlib.Path, source: pathlib.Path, *arguments: str) -> list[dict]:
    """Returns the metadata of what `pip install source` would install, in pip's words."""
    report = source.parent / f"{source.name}.json"
    result = run_pip(python, "install", "--dry-run", "--report", str(report), *arguments,
                     str(source))
    assert result.returncode == 0, result.stdout + result.stderr
    return [item["metadata"] for item in json.loads(report.read_text())["install"]]


@pytest.fixture(scope="session")
def package_index(tmp_path_factory):
    """Passes where pip can fetch what builds the package; elsewhere only CI may not skip."""
    pytest.importorskip("pip")
    directory = tmp_path_factory.mktemp("index")
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "setuptools"], cwd=directory,
        capture_output=True, text=True)
    if fetched.returncode and not os.environ.get("CI"):
        pytest.skip("pip reaches no package index here")
    assert fetched.returncode == 0, fetched.stderr


@pytest.fixture
def source(tmp_path, package_index) -> pathlib.Path:
    """A copy of what a wheel is built from."""
    copy = tmp_path / "source"
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCE)
    return copy


@pytest.fixture
def make_environment(tmp_path):
    """Returns a function that makes a venv and lists distributions as installed in it."""

    def make(distributions: dict[str, str], name: str = "environment", **options):
        directory = tmp_path / name
        venv.create(directory, **options)
        [packages] = directory.glob("lib/python3*/site-packages")
        for distribution, version in distributions.items():
            add_metadata(packages, distribution, version)
        return directory / "bin" / "python"

    return make


def add_metadata(packages: pathlib.Path, name: str, version: str) -> None:
    """Makes `name` look installed: the record that pip and importlib.metadata read."""
    directory = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
