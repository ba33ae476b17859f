# SPDX-License-Identifier: Apache-2.0
"""`python -m release check`: every check fails where it should, and says how to mend it."""

import contextlib
import pathlib
import sys
import zipfile

import pytest

import tpu_estimator_embedding
from release import __main__, changelog, checks, environment, tensorflow_headers, wheel
from tests.release.packaging.conftest import ROOT

VERSION = tpu_estimator_embedding.__version__


@pytest.fixture
def release(tmp_path) -> checks.Release:
    (tmp_path / "dist").mkdir()
    return checks.Release(tmp_path / "dist", tmp_path)


def write_changelog(monkeypatch, tmp_path, text):
    path = tmp_path / "CHANGELOG.rst"
    path.write_text(text)
    monkeypatch.setattr(changelog, "PATH", path)


def test_versions_of_this_checkout_agree(release):
    checks.versions(release)


def test_version_that_the_changelog_does_not_have(release, monkeypatch, tmp_path):
    write_changelog(monkeypatch, tmp_path, "0.1 (2020-01-01)\n----------------\n")
    with pytest.raises(checks.Failure, match=r"newest section of CHANGELOG.rst is of 0\.1, not of"):
        checks.versions(release)


@pytest.mark.parametrize("version", ["1.0-rc1", "one", "1.0.0RC1"])
def test_version_that_packaging_writes_in_another_way(release, monkeypatch, version):
    monkeypatch.setattr(tpu_estimator_embedding, "__version__", version)
    with pytest.raises(checks.Failure, match="`__version__` must be as packaging writes it"):
        checks.versions(release)


def test_version_whose_public_names_are_not_listed(release, monkeypatch, tmp_path):
    monkeypatch.setattr(tpu_estimator_embedding, "__version__", "9.9.9")
    write_changelog(monkeypatch, tmp_path, "9.9.9 (2020-01-01)\n------------------\n")
    with pytest.raises(checks.Failure, match=r"Run `python -m tests\.public_surface`"):
        checks.versions(release)


@pytest.mark.parametrize(("title", "sentence"), [
    ("1.0", "must be a day that has come"),
    ("1.0 (soon)", "must be a day that has come"),
    ("1.0 (2999-01-01)", "must be a day that has come"),
    ("Unreleased\n----------\n\n* New.\n\n1.0 (2020-01-01)", "has unreleased changes"),
    ("1.0 (2020-01-01)", None),
])
def test_changelog_has_to_be_dated(release, monkeypatch, tmp_path, title, sentence):
    write_changelog(monkeypatch, tmp_path, f"Changelog\n=========\n\n{title}\n-------\n\n* Old.\n")
    with pytest.raises(checks.Failure, match=sentence) if sentence else contextlib.nullcontext():
        checks.dated_changelog(release)


def write_wheel(release, changed=None, without=None):
    """Writes a wheel with the checkout's modules and files in the place of libraries."""
    path = release.distributions / (
        f"tpu_estimator_embedding-{VERSION}-py3-none-{wheel.PLATFORM}.whl")
    with zipfile.ZipFile(path, "w") as archive:
        for file in (ROOT / "tpu_estimator_embedding").rglob("*.*"):
            if file.suffix in (".py", ".js", ".cc", ".h"):
                name = str(file.relative_to(ROOT))
                archive.writestr(name, b"" if name == changed else file.read_bytes())
        for version in tensorflow_headers.RELEASES:
            minor = version.rpartition(".")[0]
            if minor != without:
                archive.writestr(f"kernels/lib/embedding_ops-tf{minor}-0.so", b"")


def test_distributions_have_to_be_there(release):
    with pytest.raises(checks.Failure, match="Run `python -m release wheel`"):
        checks.distributions(release)


@pytest.mark.parametrize("name", ["cli.py", "experiments/explorer.js", "kernels/src/rules.h"])
def test_wheel_of_other_files(release, name):
    write_wheel(release, changed=f"tpu_estimator_embedding/{name}")
    with pytest.raises(checks.Failure, match=f"was built from another {name.rpartition('/')[2]}"):
        checks.distributions(release)


def test_wheel_without_kernels_for_one_tensorflow(release):
    write_wheel(release, without="2.17")
    with pytest.raises(checks.Failure, match=r"has no kernels for TensorFlow 2\.17"):
        checks.distributions(release)


def test_wheel_that_auditwheel_refuses_or_that_is_alone(release, monkeypatch):
    write_wheel(release)
    monkeypatch.setattr(wheel, "check", refuse)
    with pytest.raises(checks.Failure, match="auditwheel refuses it"):
        checks.distributions(release)
    monkeypatch.setattr(wheel, "check", lambda path: None)
    with pytest.raises(checks.Failure, match="Run `python -m build --sdist`"):
        checks.distributions(release)
    (release.distributions / f"tpu_estimator_embedding-{VERSION}.tar.gz").touch()
    checks.distributions(release)


def refuse(path):
    raise wheel.WheelError("auditwheel refuses it")


def test_metadata_that_an_index_refuses(release):
    pytest.importorskip("twine")
    write_wheel(release)
    (release.distributions / f"tpu_estimator_embedding-{VERSION}.tar.gz").touch()
    with pytest.raises(checks.Failure, match="`twine check` refuses the distributions"):
        checks.metadata(release)


def test_broken_link_fails_the_check_of_the_documentation(release, monkeypatch):
    def build(directory):
        directory.mkdir()
        (directory / "page.html").write_text('<a href="gone.html">')

    monkeypatch.setattr(checks.site, "build", build)
    with pytest.raises(checks.Failure, match=r"page\.html: gone\.html"):
        checks.documentation(release)


@pytest.fixture
def fake_environment(monkeypatch, tmp_path):
    """Lets nothing be installed; the commands that would run are returned by the list."""
    ran = []
    answers = {"python": "2.15.1\n",
               "tpu-estimator-embedding": "native, installed with the package\n"}

    class Fake:
        scratch = tmp_path

        def run(self, *command):
            ran.append(command)
            return answers[command[0]]

    monkeypatch.setattr(environment, "make", lambda *arguments: Fake())
    monkeypatch.setattr(checks.Release, "wheel", lambda release: pathlib.Path("one.whl"))
    return ran, answers


def test_installation_that_changes_tensorflow(release, fake_environment):
    with pytest.raises(checks.Failure, match=r"changed TensorFlow 2\.21\.0 to 2\.15\.1"):
        checks.installation(release)


def test_installation_without_its_kernels(release, fake_environment):
    _, answers = fake_environment
    answers["tpu-estimator-embedding"] = "Kernels: TF ops"
    with pytest.raises(checks.Failure, match="(?s)kernels of the wheel do not run.*TF ops"):
        checks.installation(release)


def test_every_example_has_the_commands_that_make_its_data_and_run_it(release, fake_environment):
    checks.examples(release)
    ran, _ = fake_environment
    programs = {path.name for path in (ROOT / "examples").glob("*.py")}
    run = {pathlib.Path(word).name for command in ran for word in command if word.endswith(".py")}
    assert run == programs - {"__init__.py"}
    assert not any(word.startswith("/tmp/clicks") for command in ran for word in command)


def test_python_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(environment.SetupError, match=r"neither python3\.1 nor a Python 3\.1 in"):
        environment.find_python("3.1")
    assert environment.find_python(f"{sys.version_info.major}.{sys.version_info.minor}")


def test_failed_checks_are_named_and_the_others_still_run(monkeypatch, capsys, tmp_path):
    def fail(release):
        """Fails."""
        raise checks.Failure("This is wrong. Mend it so.")

    def succeed(release):
        """Succeeds."""

    monkeypatch.setattr(checks, "CHECKS", {"one": fail, "two": succeed})
    assert __main__.main(["check", "--dist", str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["one: Fails.", "one: FAILED. This is wrong. Mend it so.",
                       "two: Succeeds.", "two: passed, 0 s", "1 of 2 checks failed: one"]
    assert __main__.main(["check", "--dist", str(tmp_path), "--only", "two"]) == 0
    assert capsys.readouterr().out.endswith("1 checks passed\n")
