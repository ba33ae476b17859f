# SPDX-License-Identifier: Apache-2.0
"""Which kernels run, chosen by what there is and by hand."""

import dataclasses

import pytest
import tensorflow as tf

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.kernels import build, compiler, library, load

pytestmark = pytest.mark.every_tensorflow


def test_first_use_compiles_once_and_logs_it(sources, tensorflow, capfd):
    assert load.description() == "native (baseline)"
    assert load.native_ops() is not None
    [line] = capfd.readouterr().err.splitlines()
    assert f"compiling the native kernels for TensorFlow {tf.__version__}, once" in line
    load._kernels.cache_clear()
    assert load.description() == "native (baseline)"
    assert capfd.readouterr().err == ""


def test_compiled_rules_are_known_by_name(sources):
    assert load.kernels().rules == {"SGD", "Adam"}


@pytest.mark.parametrize("value", ["tf", "off"])
def test_tensorflows_ops_are_chosen_by_hand(sources, monkeypatch, capfd, value):
    monkeypatch.setenv(settings.KERNELS.variable, value)
    assert load.kernels() == load.Kernels(None, "TF ops")
    assert capfd.readouterr().err == ""
    assert not library.cache().exists()


def test_bad_choice_names_the_choices(sources, monkeypatch):
    monkeypatch.setenv(settings.KERNELS.variable, "fast")
    with pytest.raises(ValueError, match=(
            f"`{settings.KERNELS.variable}` must be one of 'native', 'tf', 'off', got 'fast'. "
            "Unset it")):
        load.native_ops()


def test_without_compiler_one_line_says_how_to_get_kernels(sources, no_compiler, capfd):
    assert load.native_ops() is None
    assert load.description() == "TF ops"
    [line] = capfd.readouterr().err.splitlines()
    assert "running on TF ops" in line
    assert "apt-get install g++" in line
    assert "`tpu-estimator-embedding build-kernels`" in line


def test_native_without_compiler_is_an_error(sources, no_compiler, monkeypatch):
    monkeypatch.setenv(settings.KERNELS.variable, "native")
    with pytest.raises(RuntimeError, match=r"requires the native kernels, which could not be found "
                                           r"or compiled: no C\+\+17 compiler .* or unset it"):
        load.native_ops()


def test_installed_library_is_preferred_to_the_one_in_the_cache(sources, tensorflow):
    installed = build.build(tensorflow, library.INSTALLED)
    build.build(tensorflow, library.cache())
    assert library.find(tensorflow) == installed
    assert load.kernels().source == "installed with the package"


def test_library_in_the_cache_runs_where_none_is_installed(sources, tensorflow):
    build.build(dataclasses.replace(tensorflow, version="2.14.7"), library.INSTALLED)
    build.build(tensorflow, library.cache())
    assert load.kernels().source == f"compiled in {library.cache()}"


def test_without_compiler_the_line_says_for_which_tensorflow_libraries_are_installed(
        sources, tensorflow, no_compiler, monkeypatch, capfd):
    library.INSTALLED.mkdir()
    for version in ("2.14", "2.99.0-rc1"):
        (library.INSTALLED / f"embedding_ops-tf{version}-0123456789abcdef.so").write_bytes(b"")
    assert load.native_ops() is None
    [line] = capfd.readouterr().err.splitlines()
    assert "the installed ones are for TensorFlow 2.14, 2.99.0-rc1, and no C++17 compiler" in line


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:len(path.read_bytes()) // 2])


def swap(path):
    """Leaves another library there, with its own valid seal."""
    content = path.read_bytes()
    path.write_bytes(content[:content.rindex(b"\ntpu_estimator_embedding library")])
    library.seal(path, path.name.replace("-tf", "-tf9"))


def empty(path):
    path.write_bytes(b"")


HARM = {damage: "do not match its seal", truncate: "does not end with its seal",
        swap: "and renamed", empty: "does not end with its seal"}


@pytest.mark.parametrize("harm", HARM)
def test_harmed_library_is_refused_in_one_line_and_the_next_source_runs(
        sources, tensorflow, capfd, harm):
    installed = build.build(tensorflow, library.INSTALLED)
    harm(installed)
    build.build(tensorflow, library.cache())
    assert load.kernels().source == f"compiled in {library.cache()}"
    [line] = capfd.readouterr().err.splitlines()
    assert f"ignoring native kernels that were found: {installed}" in line
    assert HARM[harm] in line and f"Running those compiled in {library.cache()}." in line


@pytest.mark.parametrize("harm", HARM)
def test_harmed_library_is_compiled_again_or_tensorflows_ops_run(
        sources, tensorflow, monkeypatch, capfd, harm):
    built = build.build(tensorflow, library.cache())
    harm(built)
    with monkeypatch.context() as patches:
        patches.setattr(compiler, "find", lambda: None)
        assert load.native_ops() is None
    [line] = capfd.readouterr().err.splitlines()
    assert "running on TF ops" in line and HARM[harm] in line and "no C++17 compiler" in line
    load._kernels.cache_clear()
    assert load.description() == "native (baseline)"
    assert library.find(tensorflow) == built


def test_installed_library_that_does_not_load_is_passed_over(sources, tensorflow, capfd):
    level = (sources / "level.cc").read_text()
    (sources / "level.cc").write_text('extern "C" void missing(); void call() { missing(); }\n')
    unfit = build.build(tensorflow, library.INSTALLED)
    (sources / "level.cc").write_text(level)
    other = library.INSTALLED / library.name(tensorflow)
    content = unfit.read_bytes()
    other.write_bytes(content[:content.rindex(b"\ntpu_estimator_embedding library")])
    library.seal(other, other.name)
    assert load.kernels().source == f"compiled in {library.cache()}"
    *_, line = capfd.readouterr().err.splitlines()
    assert "ignoring native kernels that were found" in line and "missing" in line


def test_failed_compilation_is_not_tried_at_every_start(sources, tensorflow, capfd):
    (sources / "broken.cc").write_text("int x = no_such_name;\n")
    assert load.native_ops() is None
    assert "the compiler failed, see " in capfd.readouterr().err
    assert "no_such_name" in library.failure(tensorflow).read_text()
    load._kernels.cache_clear()
    assert load.native_ops() is None
    [line] = capfd.readouterr().err.splitlines()
    assert "failed before" in line


def test_cache_that_cannot_be_written_is_no_error(sources, monkeypatch, tmp_path, capfd):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load.native_ops() is None
    assert "running on TF ops" in capfd.readouterr().err


def test_library_that_does_not_load_is_no_error(sources, tensorflow, capfd):
    (sources / "level.cc").write_text('extern "C" void missing(); void call() { missing(); }\n')
    assert load.native_ops() is None
    assert "running on TF ops" in capfd.readouterr().err
    assert library.find(tensorflow) is not None


def test_relative_cache_directory_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert library.cache().is_absolute()


@pytest.mark.parametrize("variable, value, rule", [
    (settings.SIMD.variable, "sse9", "one of 'baseline', 'avx2', 'avx512'"),
    (settings.SIMD.variable, "avx2",
     "an instruction set of this machine, the best of which is 'baseline'"),
    (settings.HUGE_PAGES.variable, "never", "one of 'on', 'off'")])
def test_bad_settings_are_errors_and_say_the_fix(sources, monkeypatch, variable, value, rule):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"`{variable}` must be {rule}, got '{value}'. Unset it"):
        load.native_ops()


def test_instruction_set_that_the_machine_has_can_be_chosen(sources, monkeypatch):
    monkeypatch.setenv(settings.SIMD.variable, "baseline")
    assert load.description() == "native (baseline)"
