# SPDX-License-Identifier: Apache-2.0
"""The real pip, on copies of the source, into real virtual environments."""

import importlib.metadata
import pathlib
import sys
import zipfile

import pytest

from tests.packaging.conftest import ROOT, dry_run, run_pip

pytestmark = pytest.mark.packaging

NAMES_OF_TENSORFLOW = {"tensorflow", "tensorflow-cpu", "tf-nightly", "keras"}


def names_and_versions(metadata: list[dict]) -> dict[str, str]:
    return {item["name"].replace("_", "-").lower(): item["version"] for item in metadata}


@pytest.mark.parametrize(("tensorflow", "keras", "estimator"), [
    ("2.15.1", "2.15.", False), ("2.18.1", "2.18.", True)])
def test_install_keeps_tensorflow_and_adds_the_keras_that_belongs_to_it(
        source, make_environment, tensorflow, keras, estimator):
    installed = names_and_versions(dry_run(make_environment({"tensorflow": tensorflow}), source))
    assert not NAMES_OF_TENSORFLOW & set(installed)
    assert installed["tf-keras"].startswith(keras)
    assert ("tf-estimator-nightly" in installed) == estimator
    assert "tqdm" in installed


def test_install_keeps_another_distribution_of_tensorflow(source, make_environment):
    python = make_environment({"tensorflow-cpu": "2.21.0"})
    installed = names_and_versions(dry_run(python, source))
    assert not NAMES_OF_TENSORFLOW & set(installed)
    assert "tf-estimator-nightly" in installed


def test_install_changes_nothing_of_this_environment(source):
    installed = names_and_versions(dry_run(pathlib.Path(sys.executable), source))
    assert not {"tensorflow", "keras", "numpy", "protobuf"} & set(installed)
    [package] = set(installed) - {"tf-keras", "tf-estimator-nightly", "tqdm"}
    assert package == "tpu-estimator-embedding"


def test_install_into_an_empty_environment_brings_a_tensorflow_and_its_keras(
        source, make_environment):
    installed = names_and_versions(dry_run(make_environment({}), source))
    minor = installed["tensorflow"].rsplit(".", 1)[0]
    assert "2.16" <= minor <= "2.21"
    assert installed["tf-keras"].startswith(minor)
    assert "tf-estimator-nightly" in installed


def test_install_beside_a_tensorflow_too_old_says_what_to_do(source, make_environment):
    python = make_environment({"tensorflow": "2.14.1"})
    result = run_pip(python, "install", "--dry-run", str(source))
    assert result.returncode != 0
    assert "`tensorflow` must be 2.15 or later, got '2.14.1'." in result.stdout + result.stderr


def test_install_from_a_build_venv_sees_the_environment(source, make_environment):
    if int(importlib.metadata.version("pip").split(".")[0]) < 26:
        pytest.skip("this pip has no --use-feature venv-isolation")
    [metadata] = dry_run(make_environment({"tensorflow": "2.18.1"}), source, "--no-deps",
                         "--use-feature", "venv-isolation")
    assert "tensorflow==2.18.1" in metadata["requires_dist"]


@pytest.fixture
def wheel_names(source, tmp_path) -> set[str]:
    """What a wheel holds that is built where earlier builds left files behind."""
    leftovers = ["build/lib/tpu_estimator_embedding/stale.py",
                 f"build/bdist.{sys.platform}-x86_64/wheel/tpu_estimator_embedding/stale.py",
                 "tpu_estimator_embedding.egg-info/SOURCES.txt"]
    for name in leftovers:
        (source / name).parent.mkdir(parents=True)
        (source / name).write_text("tpu_estimator_embedding/stale.py\n")
    result = run_pip(pathlib.Path(sys.executable), "wheel", "--no-deps", "--wheel-dir",
                     str(tmp_path), str(source))
    assert result.returncode == 0, result.stdout + result.stderr
    [wheel] = tmp_path.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_every_module_and_nothing_stale(wheel_names):
    package = ROOT / "tpu_estimator_embedding"
    modules = {str(path.relative_to(ROOT)) for path in package.rglob("*.py")}
    held = {name for name in wheel_names if ".dist-info/" not in name}
    assert held == modules | {"tpu_estimator_embedding/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)


def test_wheel_brings_the_command(wheel_names, tmp_path):
    [wheel] = tmp_path.glob("*.whl")
    [entry_points] = [name for name in wheel_names if name.endswith("entry_points.txt")]
    text = zipfile.ZipFile(wheel).read(entry_points).decode()
    assert "tpu-estimator-embedding = tpu_estimator_embedding.cli:main" in text
