# SPDX-License-Identifier: Apache-2.0
"""The sdist and the wheel that `python -m build` makes, for environments not known yet."""

import email
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.release.packaging.conftest import ROOT, dry_run
from tests.release.packaging.test_pip import NAMES_OF_TENSORFLOW, names_and_versions
from tpu_estimator_embedding import versions

NOT_SOURCE = shutil.ignore_patterns(".git", "build", "dist", "*.egg-info", "__pycache__")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory, package_index) -> pathlib.Path:
    """A directory with both, built in an environment that has a TensorFlow."""
    pytest.importorskip("build")
    directory = tmp_path_factory.mktemp("build")
    shutil.copytree(ROOT, directory / "source", ignore=NOT_SOURCE)
    subprocess.run([sys.executable, "-m", "build", "--outdir", directory / "dist",
                    directory / "source"], check=True, capture_output=True, text=True)
    return directory / "dist"


@pytest.fixture(scope="module")
def wheel(distributions) -> pathlib.Path:
    [wheel] = distributions.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def sdist(distributions) -> pathlib.Path:
    [sdist] = distributions.glob("*.tar.gz")
    return sdist


@pytest.fixture(scope="module")
def metadata(wheel) -> email.message.Message:
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith("METADATA")]
    return email.message_from_bytes(archive.read(name))


def test_wheel_is_for_any_platform_and_any_tensorflow(wheel, metadata):
    assert wheel.name.endswith("-py3-none-any.whl")
    required = [one for one in metadata.get_all("Requires-Dist") if "extra ==" not in one]
    assert "tensorflow<2.22,>=2.15" in required and "tf-keras<2.22,>=2.15" in required
    assert not any("==" in one for one in required if one != versions.ESTIMATOR_REQUIREMENT)


def test_metadata_names_authors_and_no_address_that_does_not_exist(metadata):
    assert metadata["Author"] == "The tpu_estimator_embedding authors"
    assert metadata["Home-page"] is None and metadata["Project-URL"] is None


def test_sdist_holds_all_that_tests_and_documentation_need(sdist):
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    files = {str(path.relative_to(ROOT)) for folder in ("tpu_estimator_embedding", "tests")
             for kind in ("py", "cc", "h") for path in (ROOT / folder).rglob(f"*.{kind}")}
    assert files <= held
    assert {"README.rst", "CHANGELOG.rst", "CONTRIBUTING.rst", "LICENSE", "pytest.ini",
            ".ci/run", "release/wheel.py", "setup.py", "pyproject.toml"} <= held
    assert not any(name.endswith((".so", ".pyc")) for name in held)


def test_wheel_beside_a_tensorflow_that_is_named_keeps_it(wheel, make_environment):
    python = make_environment({"tensorflow": "2.20.0", "protobuf": "7.36.2"})
    installed = names_and_versions(dry_run(python, wheel, "tensorflow==2.20.0"))
    assert not NAMES_OF_TENSORFLOW & set(installed)
    assert installed["tf-keras"].startswith("2.20.")
    assert int(installed["protobuf"].split(".")[0]) < 7


def test_sdist_keeps_the_tensorflow_of_the_environment(sdist, make_environment):
    python = make_environment({"tensorflow": "2.18.1"})
    installed = names_and_versions(dry_run(python, sdist, "--no-cache-dir"))
    assert not NAMES_OF_TENSORFLOW & set(installed)
    assert installed["tf-keras"].startswith("2.18.")
