# SPDX-License-Identifier: Apache-2.0
"""The requirements as a function of what is installed: no pip, no build."""

import re
import runpy
import sys

import pytest

from tests.release.packaging.conftest import ROOT
from tpu_estimator_embedding import versions

SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
ESTIMATOR = "tf-estimator-nightly==2.16.0.dev2024012409"
NIGHTLY = {"tf-estimator-nightly": "2.16.0.dev2024012409"}
STABLE = "tensorflow-estimator==2.15.0"
ANY_TENSORFLOW = ["tensorflow>=2.15,<2.22", "tf-keras>=2.15,<2.22", ESTIMATOR, "protobuf<7"]


def test_setup_and_package_look_for_the_same_distributions():
    assert SETUP["TENSORFLOW_DISTRIBUTIONS"] == versions.TENSORFLOW_DISTRIBUTIONS
    assert SETUP["ESTIMATOR"] == ESTIMATOR == versions.ESTIMATOR_REQUIREMENT
    assert SETUP["STABLE_ESTIMATOR"] == STABLE == versions.STABLE_ESTIMATOR_REQUIREMENT


@pytest.mark.parametrize(("found", "requirements"), [
    ({}, ANY_TENSORFLOW),
    ({"keras": "3.15.1"}, ANY_TENSORFLOW),
    ({"tensorflow": "2.15.1"}, ["tensorflow==2.15.1", "tf-keras~=2.15.0"]),
    ({"tensorflow": "2.15.0.post1"}, ["tensorflow==2.15.0.post1", "tf-keras~=2.15.0"]),
    ({"tensorflow": "2.15.0+nv24.1"}, ["tensorflow==2.15.0+nv24.1", "tf-keras~=2.15.0"]),
    ({"tensorflow": "2.18.1"}, ["tensorflow==2.18.1", "tf-keras~=2.18.0", ESTIMATOR]),
    ({"tensorflow": "2.18.1", **NIGHTLY}, ["tensorflow==2.18.1", "tf-keras~=2.18.0", ESTIMATOR]),
    ({"tensorflow": "2.18.1", "tensorflow-estimator": "2.15.0"},
     ["tensorflow==2.18.1", "tf-keras~=2.18.0", STABLE]),
    ({"tensorflow": "2.18.1", "tensorflow-estimator": "2.14.0"},
     ["tensorflow==2.18.1", "tf-keras~=2.18.0", STABLE]),
    ({"tensorflow": "2.18.1", "tensorflow-estimator": "2.15.0", **NIGHTLY},
     ["tensorflow==2.18.1", "tf-keras~=2.18.0", ESTIMATOR]),
    ({"tensorflow-intel": "2.16.2", "tensorflow": "2.16.2"},
     ["tensorflow==2.16.2", "tf-keras~=2.16.0", ESTIMATOR]),
    ({"tensorflow": "2.20.0", "protobuf": "7.36.2"},
     ["tensorflow==2.20.0", "tf-keras~=2.20.0", ESTIMATOR, "protobuf<7"]),
    ({"tensorflow": "2.21.0", "protobuf": "7.36.2"},
     ["tensorflow==2.21.0", "tf-keras~=2.21.0", ESTIMATOR]),
    ({"tensorflow-cpu": "2.15.1"}, ["tensorflow-cpu==2.15.1"]),
    ({"tensorflow-cpu": "2.21.0"}, ["tensorflow-cpu==2.21.0", ESTIMATOR]),
    ({"tf-nightly": "2.22.0.dev20260101"}, ["tf-nightly==2.22.0.dev20260101", ESTIMATOR]),
])
def test_requirements_follow_the_tensorflow_found(found, requirements):
    assert SETUP["tensorflow_requirements"](found) == requirements


def test_requirements_of_a_tensorflow_too_old():
    sentence = r"`tensorflow` must be 2.15 or later, got '2.14.1'. Run `pip install --upgrade"
    with pytest.raises(SystemExit, match=sentence):
        SETUP["tensorflow_requirements"]({"tensorflow": "2.14.1"})


@pytest.mark.parametrize("variables, expected", [
    ({"PIP_BUILD_TRACKER": "/tmp/x"}, True), ({}, False),
    ({"PIP_BUILD_TRACKER": "/tmp/x", "TPU_ESTIMATOR_EMBEDDING_LIBRARIES": "/tmp/y"}, False)])
def test_only_pip_builds_for_the_environment_found(monkeypatch, variables, expected):
    monkeypatch.delenv("PIP_BUILD_TRACKER", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert SETUP["is_built_for_this_environment"]() is expected


def test_extra_release_has_the_tools_of_its_commands():
    sources = "".join(path.read_text() for path in (ROOT / "release").glob("*.py"))
    tools = set(re.findall(r'sys\.executable, "-m", "(\w+)"', sources)) - {"pip"}
    assert {"build", "auditwheel", "twine", "sphinx"} <= tools
    assert tools <= {re.match(r"\w+", line)[0] for line in SETUP["EXTRAS"]["release"]}


def test_libraries_to_put_into_a_wheel_must_be_there(tmp_path):
    sentence = (f"`TPU_ESTIMATOR_EMBEDDING_LIBRARIES` must be a directory of compiled libraries, "
                f"got '{tmp_path}'. Unset it")
    with pytest.raises(SystemExit, match=sentence):
        SETUP["copy_kernels"](tmp_path, tmp_path / "wheel")


def test_found_versions_are_those_of_the_other_interpreter(make_environment):
    python = make_environment({"Tensorflow_CPU": "2.15.1"})
    assert SETUP["found_versions"](str(python)) == {"tensorflow-cpu": "2.15.1"}


def test_found_versions_see_through_what_hides_them(make_environment, monkeypatch, tmp_path):
    python = make_environment({"tensorflow": "2.18.1"})
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert SETUP["found_versions"](str(python)) == {"tensorflow": "2.18.1"}


def test_found_versions_include_the_base_of_a_venv_that_opens_it(make_environment):
    closed = make_environment({"tqdm": "4.0"}, "closed")
    opened = make_environment({"tqdm": "4.0"}, "opened", system_site_packages=True)
    base = SETUP["found_versions"](sys._base_executable)
    assert SETUP["found_versions"](str(closed)) == {"tqdm": "4.0"}
    assert SETUP["found_versions"](str(opened)) == base | {"tqdm": "4.0"}


def test_target_python_is_the_running_one():
    assert SETUP["target_python"]() == sys.executable


def test_target_python_in_a_build_venv_is_the_one_that_made_it(monkeypatch, tmp_path):
    prefix = tmp_path / "pip-build-env-x1"
    prefix.mkdir()
    (prefix / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ncommand = /opt/my env/bin/python -m venv {prefix}\n")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    assert SETUP["target_python"]() == "/opt/my env/bin/python"
