# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the kernels under the sanitizers of GCC, with random steps."""

import pathlib
import re

import pytest

from tests.kernel_choice import found_compiler
from tests.spec.kernels import sanitized
from tests.subprocesses import start
from tpu_estimator_embedding.kernels import compiler

# Without optimization, which would take the compiler minutes here.
FLAGS = {
    "address": ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O0", "-fsanitize=thread"],
}


AVX512 = {"avx512f", "avx512vl", "avx512dq", "avx512bw"}


def levels_of_this_machine():
    """The instruction sets that there are kernels for, by what Linux says of the processor."""
    found = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    levels = ["baseline"]
    if flags >= {"avx2", "fma"}:
        levels += ["avx2"] + ["avx512"] * (flags >= AVX512)
    return levels


@pytest.mark.parametrize("sanitizer", FLAGS)
def test_random_steps_are_clean(sanitizer, tmp_path):
    command = found_compiler()
    program = sanitized.compile_program("random_steps", tmp_path, FLAGS[sanitizer], command)
    done = start([program, 60])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{level}: 60 steps\n" for level in levels_of_this_machine())


@pytest.mark.parametrize("sanitizer", FLAGS)
def test_random_examples_are_parsed_cleanly(sanitizer, tmp_path):
    program = sanitized.compile_program("random_examples", tmp_path, FLAGS[sanitizer],
                                        found_compiler(), is_alone=True)
    done = start([program, 1500])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused some\n"


@pytest.mark.parametrize("sanitizer", FLAGS)
def test_rows_are_read_from_files_cleanly(sanitizer, tmp_path):
    program = sanitized.compile_program("stored_rows", tmp_path, FLAGS[sanitizer],
                                        found_compiler(), is_alone=True)
    (tmp_path / "files").mkdir()
    done = start([program, tmp_path / "files"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "/1 changed meanwhile\n"


def test_sanitizer_sees_a_write_beyond_the_end(tmp_path):
    command = found_compiler()
    (tmp_path / "wrong.cc").write_text(
        "#include <vector>\nint main() { std::vector<int> v(3); v.data()[3] = 1; }\n")
    compiler.run([*command, *FLAGS["address"], str(tmp_path / "wrong.cc"), "-o",
                  str(tmp_path / "wrong")])
    done = start([tmp_path / "wrong"])
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr
