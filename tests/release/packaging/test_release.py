# SPDX-License-Identifier: Apache-2.0
"""The wheel that `python -m release wheel` builds: its bytes, its contents, and that it runs.

The long form compiles for all minor versions of TensorFlow twice, and runs twelve releases::

    pytest tests/release/packaging/test_release.py -m soak -n 0
"""

import email
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import zipfile

import pytest

from release import tensorflow_headers, wheel
from tests.kernel_choice import give_up
from tests.release.packaging.conftest import ROOT, run_pip
from tests.release.packaging.test_pip import TRAINING
from tests.subprocesses import start
from tpu_estimator_embedding import versions
from tpu_estimator_embedding.kernels import build, compiler, library, tensorflow_build

KERNELS = "tpu_estimator_embedding/kernels"
# Of each minor version the releases that share a library.
PATCH_RELEASES = ("2.15.0", "2.15.1", "2.16.1", "2.16.2", "2.17.0", "2.17.1", "2.18.0", "2.18.1",
                  "2.19.0", "2.19.1", "2.20.0", "2.21.0")


@pytest.fixture(scope="module", name="libraries")
def libraries_of_one_version(tmp_path_factory) -> pathlib.Path:
    """A directory with the library for the TensorFlow that runs the tests."""
    directory = tmp_path_factory.mktemp("libraries")
    tensorflow = tensorflow_build.find()
    found = library.find(tensorflow)
    if found:
        shutil.copy(found, directory)
    elif compiler.find():
        build.build(tensorflow, directory)
    else:
        give_up(build.NO_COMPILER)
    return directory


@pytest.fixture(scope="module", name="made")
def wheel_of_one_version(libraries, package_index, tmp_path_factory) -> pathlib.Path:
    pytest.importorskip("build")
    return wheel.pack(libraries, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(name="install")
def install_without_tensorflow(tmp_path, made):
    """Returns a function that installs the wheel beside the TensorFlow that runs the tests."""

    def install() -> tuple[pathlib.Path, pathlib.Path]:
        environment = tmp_path / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        python = environment / "bin" / "python"
        done = run_pip(python, "install", "--no-deps", str(made))
        assert done.returncode == 0, done.stderr
        [packages] = environment.glob("lib/python3*/site-packages")
        beside = pathlib.Path(tensorflow_build.find().directory).parent
        (packages / "beside.pth").write_text(f"{beside}\n")
        return python, packages

    return install


def run_without_compiler(python, directory, *arguments, kernels=""):
    """Runs the package as on a machine that has nothing but the wheel and its requirements."""
    return start([python, "-P", "-m", "tpu_estimator_embedding", *arguments], cwd=directory,
                 CXX="/nonexistent", PYTHONPATH="", XDG_CACHE_HOME=str(directory / "cache"),
                 TPU_ESTIMATOR_EMBEDDING_KERNELS=kernels)


def check_trains_natively(python, directory):
    """Trains a program with the kernels that are installed with the package."""
    program = directory / "program.py"
    program.write_text(textwrap.dedent(TRAINING))
    done = run_without_compiler(python, directory, "run", program, kernels="native")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "trained 3 steps: 0.875"
    report = run_without_compiler(python, directory, "doctor").stdout
    assert ", installed with the package" in report


def test_two_wheels_of_the_same_sources_are_equal(made, libraries, tmp_path):
    old_umask = os.umask(0o077)
    try:
        again = wheel.pack(libraries, tmp_path)
    finally:
        os.umask(old_umask)
    assert again.name == made.name
    assert again.read_bytes() == made.read_bytes()


def test_wheel_holds_every_module_the_library_and_the_licence(made, libraries):
    held = set(zipfile.ZipFile(made).namelist())
    package = ROOT / "tpu_estimator_embedding"
    assert {str(path.relative_to(ROOT)) for path in package.rglob("*.py")} <= held
    [path] = libraries.glob("*.so")
    assert {name for name in held if name.endswith(".so")} == {f"{KERNELS}/lib/{path.name}"}
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert not any(name.startswith(("tests/", "release/")) for name in held)
    assert path.name in wheel.contents(made)


def test_wheel_has_requirements_for_every_supported_tensorflow(made):
    archive = zipfile.ZipFile(made)
    [name] = [name for name in archive.namelist() if name.endswith("METADATA")]
    metadata = email.message_from_bytes(archive.read(name))
    required = {one for one in metadata.get_all("Requires-Dist") if "extra ==" not in one}
    assert {"tensorflow<2.22,>=2.15", "tf-keras<2.22,>=2.15",
            versions.ESTIMATOR_REQUIREMENT} <= required


def test_wheel_is_for_every_system_of_its_platform(made):
    pytest.importorskip("auditwheel")
    assert made.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    wheel.check(made)


def test_wheel_that_needs_a_newer_system_is_refused(libraries, tmp_path):
    pytest.importorskip("auditwheel")
    source = tmp_path / "newer.cc"
    source.write_text("#include <condition_variable>\nvoid wait(std::condition_variable* c, "
                      "std::unique_lock<std::mutex>* l) { c->wait(*l); }\n")
    command = compiler.find() or give_up(build.NO_COMPILER)
    newer = tmp_path / "libraries"
    newer.mkdir()
    compiler.run([*command, "-shared", "-fPIC", str(source), "-o", str(newer / "newer.so")])
    with pytest.raises(wheel.WheelError, match="auditwheel refuses"):
        wheel.check(wheel.pack(newer, tmp_path / "wheel"))


def test_wheel_trains_with_native_kernels_without_a_compiler(install, tmp_path):
    python, _ = install()
    check_trains_natively(python, tmp_path)
    assert not (tmp_path / "cache" / "tpu_estimator_embedding").exists()


def test_damaged_library_of_a_wheel_falls_back(install, tmp_path):
    python, packages = install()
    [path] = packages.glob(f"{KERNELS}/lib/*.so")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = run_without_compiler(python, tmp_path, "doctor")
    assert f"{path} is damaged: its contents do not match its seal" in done.stdout
    [line] = [line for line in done.stderr.splitlines() if "running on TF ops" in line]
    assert str(path) in line


def test_libraries_are_compiled_for_every_supported_minor_version():
    minors = [versions.minor(release) for release in tensorflow_headers.RELEASES]
    oldest, newest = versions.OLDEST_TENSORFLOW, versions.NEWEST_TENSORFLOW
    assert minors == [(oldest[0], minor) for minor in range(oldest[1], newest[1] + 1)]


def test_release_that_cannot_be_downloaded_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(tensorflow_headers.DownloadError, match="TensorFlow 2.15.99 could not be"):
        tensorflow_headers.fetch("2.15.99", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module", name="complete")
def wheel_of_all_versions(package_index, tmp_path_factory) -> pathlib.Path:
    return wheel.build(tensorflow_headers.RELEASES, tmp_path_factory.mktemp("complete"),
                       tensorflow_headers.cache())


@pytest.mark.soak
def test_two_complete_wheels_are_equal(complete, tmp_path):
    again = wheel.build(tensorflow_headers.RELEASES, tmp_path, tensorflow_headers.cache())
    assert again.read_bytes() == complete.read_bytes()


@pytest.mark.soak
@pytest.mark.parametrize("release", PATCH_RELEASES)
def test_complete_wheel_runs_with_every_release_of_tensorflow(complete, tmp_path, release):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    done = run_pip(python, "install", str(complete), f"tensorflow=={release}")
    assert done.returncode == 0, done.stderr
    assert f"tensorflow {release}" in run_pip(python, "freeze").stdout.replace("==", " ")
    check_trains_natively(python, tmp_path)
