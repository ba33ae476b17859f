# SPDX-License-Identifier: Apache-2.0
"""The doctor's report."""

import pytest

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.runtime import doctor, environment, patch_list
from tpu_estimator_embedding.runtime.environment import Diagnosis


@pytest.fixture(name="findings")
def some_findings(monkeypatch):
    findings = [Diagnosis("Python", "3.11.7"), Diagnosis("TensorFlow", "2.21.0")]
    monkeypatch.setattr(environment, "requirements", lambda: list(findings))
    return findings


def test_every_module_patched_has_a_line(findings):
    report, is_well = doctor.examine(with_patches=True)
    assert is_well and report.splitlines()[0].endswith(": Nothing is wrong.")
    for row in patch.originals():
        assert row.reason in report
        assert f"  {patch_list.spelled(row)}." in report or not row.module


def test_bad_choice_of_kernels_is_wrong(findings, monkeypatch):
    monkeypatch.setenv(settings.KERNELS.variable, "fast")
    report, is_well = doctor.examine()
    assert not is_well
    assert (f"-> `{settings.KERNELS.variable}` must be one of 'native', 'tf', 'off', got "
            "'fast'.") in report


def test_what_is_needed_is_reported_and_nothing_is_patched(findings, monkeypatch):
    findings.append(Diagnosis("Keras", "none", "Run `pip install it`."))
    monkeypatch.setattr(doctor, "_install", lambda: pytest.fail("installed"))
    report, is_well = doctor.examine(with_patches=True)
    assert not is_well
    assert "WRONG  Keras       none\n                   -> Run `pip install it`." in report
    assert "install() changed" not in report
    assert "Follow the advice after the arrows (Keras), then run this again." in (
        report.splitlines()[0])


def test_what_is_merely_untested_does_not_stop_the_rest(findings):
    findings[1] = Diagnosis("TensorFlow", "2.22.0", "It is newer.", is_needed=False)
    report, is_well = doctor.examine(with_patches=True)
    assert not is_well
    assert "-> It is newer." in report and "install() changed" in report


def test_failing_install_is_reported(findings, monkeypatch):
    def fail():
        raise ImportError("no such thing")

    monkeypatch.setattr(doctor.tpu_estimator_embedding, "install", fail)
    report, is_well = doctor.examine()
    assert not is_well
    assert "WRONG  install()   ImportError" in report and "-> no such thing" in report


@pytest.mark.parametrize("is_on, variables, said", [
    (True, {}, "on; TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1 saves 4 % or more of the memory of tables"),
    (True, {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "true"}, "on, with the system's allocator"),
    (False, {}, "off; TF_ENABLE_ONEDNN_OPTS=1 makes dense layers faster"),
    (False, {"TF_ENABLE_ONEDNN_OPTS": "0"}, "off, by TF_ENABLE_ONEDNN_OPTS;")])
def test_onednn_and_what_would_change_it(is_on, variables, said, monkeypatch):
    from tensorflow.python.util import _pywrap_util_port
    monkeypatch.setattr(_pywrap_util_port, "IsMklEnabled", lambda: is_on)
    for name in ("TF_ENABLE_ONEDNN_OPTS", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    [found] = [one for one in environment.resources() if one.subject == "oneDNN"]
    assert found.found.startswith(said)
