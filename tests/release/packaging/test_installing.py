# SPDX-License-Identifier: Apache-2.0
"""Installing the wheel by pip and by uv keeps the TensorFlow that is there or that is named.

One release of TensorFlow by default. The long form resolves for the last one of every minor
version, and with constraint files. No TensorFlow is downloaded::

    pytest tests/release/packaging/test_installing.py -m soak -n 0
"""

import pathlib
import re
import subprocess
import sys

import pytest

from release import tensorflow_headers, wheel
from tests.release.packaging.conftest import dry_run
from tests.release.packaging.test_pip import NAMES_OF_TENSORFLOW, names_and_versions

QUICK = "2.17.1"
RELEASES = [pytest.param(release, marks=() if release == QUICK else pytest.mark.soak)
            for release in tensorflow_headers.RELEASES]
MOVED = r"^ [+~] ([\w-]+)==(\S+)"  # uv's line of what it would add or replace


@pytest.fixture(scope="module", name="made")
def wheel_whose_libraries_are_never_loaded(package_index, tmp_path_factory) -> pathlib.Path:
    pytest.importorskip("build")
    libraries = tmp_path_factory.mktemp("libraries")
    (libraries / "embedding_ops-tf2.17-0.so").write_bytes(b"")
    return wheel.pack(libraries, tmp_path_factory.mktemp("wheel"))


def would_install_by_pip(python, made, *arguments) -> dict[str, str]:
    lazily = "--use-feature=fast-deps"  # reads the metadata of a TensorFlow without downloading it
    return names_and_versions(dry_run(python, made, lazily, *arguments))


def would_install_by_uv(python, made, *arguments) -> dict[str, str]:
    """What `uv pip install` would add or put in the place of something."""
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--python", python, made,
         *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(re.findall(MOVED, done.stderr, re.MULTILINE))


@pytest.fixture(params=["pip", "uv"])
def would_install(request):
    """A function that returns name -> version of what one of the tools would install."""
    if request.param == "uv":
        pytest.importorskip("uv", reason="pip install '.[test]'")
        return would_install_by_uv
    return would_install_by_pip


def check_belongs(installed, release):
    minor = release.rpartition(".")[0]
    assert installed["tensorflow"] == release
    assert installed["tf-keras"].startswith(f"{minor}.")
    assert installed["tf-estimator-nightly"] == "2.16.0.dev2024012409"


@pytest.mark.parametrize("release", RELEASES)
def test_tensorflow_that_is_named_in_the_command(would_install, made, make_environment, release):
    check_belongs(would_install(make_environment({}), made, f"tensorflow=={release}"), release)


@pytest.mark.soak
@pytest.mark.parametrize("release", tensorflow_headers.RELEASES)
def test_tensorflow_of_a_constraint_file(would_install, made, make_environment, tmp_path, release):
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(f"tensorflow=={release}\n")
    check_belongs(would_install(make_environment({}), made, "-c", str(constraints)), release)


@pytest.mark.parametrize("release", RELEASES)
def test_installed_tensorflow_and_keras_never_change(
        would_install, made, make_environment, release):
    keras = f"{release.rpartition('.')[0]}.0"
    python = make_environment({"tensorflow": release, "tf-keras": keras, "keras": "3.5.0"})
    installed = would_install(python, made)
    assert "tf-estimator-nightly" in installed
    assert not {*NAMES_OF_TENSORFLOW, "tf-keras"} & set(installed)
