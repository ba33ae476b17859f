# SPDX-License-Identifier: Apache-2.0
"""What is looked for, and the advice where it is missing or wrong."""

import pytest

from tpu_estimator_embedding import versions
from tpu_estimator_embedding.compat import legacy_keras
from tpu_estimator_embedding.runtime import environment


@pytest.fixture(name="installed")
def installed_versions(monkeypatch):
    installed = {"tensorflow": "2.21.0"}
    modules = {"tensorflow", "tensorflow_estimator"}
    monkeypatch.setattr(versions, "installed_version",
                        lambda *names: next(filter(None, map(installed.get, names)), None))
    monkeypatch.setattr(versions, "has_module", modules.__contains__)
    monkeypatch.setattr(versions, "tensorflow_version", lambda: installed["tensorflow"])
    monkeypatch.setattr(legacy_keras, "problem", lambda: "")
    installed["modules"] = modules
    return installed


def finding(subject):
    (found,) = (found for found in environment.requirements() if found.subject == subject)
    return found


@pytest.mark.smoke
def test_nothing_is_wrong_here():
    assert [found.advice for found in environment.requirements()] == [""] * 4
    assert [found.advice for found in environment.resources()] == [""] * 5


def test_missing_tensorflow_ends_the_search(installed):
    installed["modules"].clear()
    found = environment.requirements()
    assert [one.subject for one in found] == ["Python", "TensorFlow"]
    assert found[-1].advice.endswith("pip install 'tensorflow>=2.15,<2.22'")


def test_old_tensorflow_is_refused(installed):
    installed["tensorflow"] = "2.14.1"
    found = finding("TensorFlow")
    assert "2.14.1 is older than 2.15" in found.advice and found.is_needed


def test_new_tensorflow_is_reported_but_not_refused(installed):
    installed["tensorflow"] = "2.22.0"
    found = finding("TensorFlow")
    assert "newer than 2.21, the newest tested" in found.advice and not found.is_needed


@pytest.mark.parametrize("tensorflow, requirement", [
    ("2.15.1", versions.STABLE_ESTIMATOR_REQUIREMENT), ("2.21.0", versions.ESTIMATOR_REQUIREMENT)])
def test_missing_estimator_names_the_command(installed, tensorflow, requirement):
    installed["tensorflow"] = tensorflow
    installed["modules"].remove("tensorflow_estimator")
    assert finding("Estimator").advice == (
        f"tensorflow_estimator is not installed: pip install {requirement}")


@pytest.mark.parametrize("tensorflow", ["2.15.1", "2.21.0"])
@pytest.mark.parametrize("estimators", [
    {"tensorflow-estimator": "2.15.0"}, {"tf-estimator-nightly": "2.16.0.dev2024012409"},
    {"tensorflow-estimator": "2.15.0", "tf-estimator-nightly": "2.16.0.dev2024012409"}])
def test_either_estimator_is_enough(installed, tensorflow, estimators):
    installed.update(estimators, tensorflow=tensorflow)
    found = finding("Estimator")
    assert found.advice == "" and all(name in found.found for name in estimators)


@pytest.mark.parametrize("tensorflow, protobuf, is_wrong", [
    ("2.20.0", "7.36.2", True), ("2.20.0", "7.0.0rc1", True), ("2.20.0", "6.33.5", False),
    ("2.21.0", "7.36.2", False), ("2.19.1", "5.29.6", False)])
def test_library_beyond_what_this_tensorflow_takes_is_refused(
        installed, tensorflow, protobuf, is_wrong):
    installed.update(tensorflow=tensorflow, protobuf=protobuf)
    found = [one for one in environment.requirements() if one.subject == "protobuf"]
    assert bool(found) is is_wrong
    for one in found:
        assert one.is_needed and one.found == protobuf
        assert one.advice == (
            f"With protobuf {protobuf} and TensorFlow {tensorflow}, every training of an "
            "Estimator ends with \"MessageToString() got an unexpected keyword argument "
            "'float_format'\": pip install 'protobuf<7'")


def test_version_of_tensorflow_is_found_without_importing_it(monkeypatch):
    monkeypatch.delitem(versions.sys.modules, "tensorflow")
    monkeypatch.setattr(versions.importlib.metadata, "version",
                        {"tensorflow": "2.17.1"}.__getitem__)
    assert versions.tensorflow_minor() == (2, 17)
    assert "tensorflow" not in versions.sys.modules
