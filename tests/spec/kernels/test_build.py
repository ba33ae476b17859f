# SPDX-License-Identifier: Apache-2.0
"""Libraries are whole, named for what they are made of, and made once."""

import concurrent.futures
import dataclasses
import re
import shutil
import subprocess
import tempfile

import pytest

from tests.kernel_choice import found_compiler
from tpu_estimator_embedding.kernels import build, compiler, library, units
from tpu_estimator_embedding.kernels.compiler import CompilationError


def test_library_is_found_where_it_was_built(sources, tensorflow):
    assert library.find(tensorflow) is None
    built = build.build(tensorflow, library.cache())
    assert library.find(tensorflow) == built
    assert [path.name for path in library.cache().iterdir()] == [built.name]


def test_name_changes_with_sources_headers_tensorflow_and_flags(sources, tensorflow):
    names = [library.name(tensorflow)]
    (sources / "level.h").write_text("// new\n")
    names.append(library.name(tensorflow))
    (sources / "level.h").write_text("// newer\n")
    names.append(library.name(tensorflow))
    names.append(library.name(dataclasses.replace(tensorflow, version="2.99.0")))
    other_abi = tuple(flag.replace("ABI=1", "ABI=0") for flag in tensorflow.flags)
    names.append(library.name(dataclasses.replace(tensorflow, flags=other_abi)))
    assert len(set(names)) == len(names)


def test_renamed_library_is_not_taken(sources, tensorflow):
    built = build.build(tensorflow, library.cache())
    other = dataclasses.replace(tensorflow, version="2.99.0")
    built.rename(built.with_name(library.name(other)))
    assert library.find(other) is None


def test_truncated_library_is_not_taken(sources, tensorflow):
    (library.cache()).mkdir(parents=True)
    (library.cache() / library.name(tensorflow)).write_bytes(b"\x7fELF")
    assert library.find(tensorflow) is None


def test_every_release_of_a_minor_version_has_one_library(sources, tensorflow):
    releases = [dataclasses.replace(tensorflow, version=version, is_release=True)
                for version in ("2.18.0", "2.18.1", "2.18.1.post1")]
    assert len({library.name(release) for release in releases}) == 1
    assert library.name(releases[0]).startswith("embedding_ops-tf2.18-")
    other = dataclasses.replace(releases[0], is_release=False)
    assert library.name(other).startswith("embedding_ops-tf2.18.0-")
    assert library.name(other)[-19:] != library.name(releases[0])[-19:]


def test_two_builds_are_equal_wherever_they_are_made(sources, tensorflow, tmp_path, monkeypatch):
    (sources / "level.cc").write_text('extern "C" const char* file() { return __FILE__; }\n')
    libraries = []
    for name in ("one", "another_place"):
        shutil.copytree(sources, tmp_path / name / "src")
        monkeypatch.setattr(units, "SOURCES", tmp_path / name / "src")
        libraries.append(build.build(tensorflow, tmp_path / name / "lib").read_bytes())
    assert libraries[0] == libraries[1]
    assert b"tpu_estimator_embedding/kernels/src/level.cc" in libraries[0]


@pytest.fixture(name="real_library")
def library_of_the_real_sources(tensorflow, tmp_path):
    found_compiler()
    return library.find(tensorflow) or build.build(tensorflow, tmp_path)


def test_library_names_no_folder_of_this_machine(real_library, tensorflow):
    content = real_library.read_bytes()
    assert b"tensorflow/include/tensorflow/core/framework/op_kernel.h" in content
    for folder in (tensorflow.directory, str(units.SOURCES), tempfile.gettempdir() + "/"):
        assert folder.encode() not in content


def test_library_needs_no_newer_system_than_its_platform(real_library):
    symbol_version = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_([\d.]+)")
    newest = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11)}  # manylinux_2_28
    listed = subprocess.run(["objdump", "-T", real_library], capture_output=True, text=True,
                            check=True)
    needed = {match for line in listed.stdout.splitlines() if "*UND*" in line
              for match in symbol_version.findall(line)}
    assert {family for family, _ in needed} == set(newest)
    for family, version in needed:
        assert tuple(map(int, version.split("."))) <= newest[family]


def test_compiler_error_is_shown_and_leaves_nothing(sources, tensorflow):
    (sources / "broken.cc").write_text("int x = no_such_name;\n")
    with pytest.raises(CompilationError, match="no_such_name"):
        build.build(tensorflow, library.cache())
    assert not list(library.cache().iterdir())


def test_missing_compiler_is_named(sources, tensorflow, no_compiler):
    with pytest.raises(CompilationError, match=r"no C\+\+17 compiler was found"):
        build.build(tensorflow, library.cache())


def test_missing_headers_are_named(sources, tensorflow, tmp_path):
    bare = dataclasses.replace(tensorflow, directory=str(tmp_path))
    with pytest.raises(CompilationError, match="has no headers in"):
        build.build(bare, library.cache())


def test_many_builds_at_once_compile_once(sources, tensorflow, monkeypatch):
    commands = []
    run = compiler.run
    monkeypatch.setattr(compiler, "run", lambda command: (commands.append(command), run(command)))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        built = set(pool.map(lambda _: build.build_once(tensorflow, library.cache()), range(4)))
    assert built == {library.find(tensorflow)}
    assert sum("-shared" in command for command in commands) == 1


@pytest.mark.parametrize("flags, last", [
    (None, []), ("", []), ("-Wl,-O1 '-L/a b'", ["-Wl,-O1", "-L/a b"])])
def test_flags_of_the_linker_are_added(tensorflow, monkeypatch, flags, last):
    monkeypatch.delenv("LDFLAGS", raising=False)
    if flags is not None:
        monkeypatch.setenv("LDFLAGS", flags)
    assert build._link_flags(tensorflow)[2:] == last


def test_chosen_compiler_is_the_only_one_tried(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    assert compiler.find() is None


def test_compiler_without_cxx17_is_not_taken(monkeypatch, tmp_path):
    old = tmp_path / "old-compiler"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    assert compiler.find() is None


def test_units_with_tensorflow_get_its_flags_and_no_instruction_set(sources, tensorflow):
    for name in ("lookup_op", "names_ops", "rows_avx2", "rows_avx512"):
        (sources / f"{name}.cc").write_text("")
    with_tensorflow = {unit.stem: flags for unit, flags in units.tensorflow_units(
        tensorflow).items()}
    without = {unit.stem: flags for unit, flags in units.arithmetic_units().items()}
    assert set(with_tensorflow) == {"lookup_op", "names_ops"}
    for flags in with_tensorflow.values():
        assert set(tensorflow.flags) <= set(flags)
        assert not any(flag.startswith("-m") for flag in flags)
    assert not set(with_tensorflow) & set(without)
    assert not any("include" in flag for flags in without.values() for flag in flags)


def test_instruction_sets_are_those_of_the_machine(sources, monkeypatch):
    (sources / "rows_avx2.cc").write_text("")
    monkeypatch.setattr(units.platform, "machine", lambda: "x86_64")
    assert "-mavx2" in units.arithmetic_units()[sources / "rows_avx2.cc"]
    monkeypatch.setattr(units.platform, "machine", lambda: "aarch64")
    [(unit, flags)] = units.arithmetic_units().items()
    assert unit.name == "level.cc" and "-DTPU_EMBEDDING_BASELINE_ONLY" in flags


@pytest.mark.long
def test_code_for_one_instruction_set_is_in_no_symbol_that_the_linker_may_choose(tmp_path):
    """Of weak symbols it keeps one, and a machine without that instruction set would run it."""
    units_of_one = [(unit, flags) for unit, flags in units.arithmetic_units().items()
                    if "-mavx2" in flags]
    command = found_compiler()
    compiler.run_all([[*command, "-c", str(unit), *flags, "-o", str(tmp_path / f"{unit.stem}.o")]
                      for unit, flags in units_of_one])
    for unit, _ in units_of_one:
        listed = subprocess.run(["nm", "--defined-only", tmp_path / f"{unit.stem}.o"],
                                capture_output=True, text=True, check=True).stdout
        symbols = [line.split()[1:] for line in listed.splitlines()]
        assert symbols
        weak = {name for kind, name in symbols if kind in "VWuvw"}
        # References to functions of the C++ runtime are data, the same in all units.
        assert not [name for name in weak if not name.startswith("DW.ref.")]


def test_commands_that_finished_are_watched():
    seen = []

    def watch(finished, total):
        for one in finished:
            yield one
            seen.append(total)

    compiler.run_all([["true"]] * 3, watch)
    assert seen == [3, 3, 3]
    with pytest.raises(compiler.CompilationError):
        compiler.run_all([["true"], ["false"]], watch)
