# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the kernels under the sanitizers of GCC, with random steps."""

import pytest

from tests.kernels import sanitized
from tests.subprocesses import start
from tpu_estimator_embedding.kernels import compiler

# Without optimization, which would take the compiler minutes here.
FLAGS = {
    "address": ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O0", "-fsanitize=thread"],
}


@pytest.mark.parametrize("sanitizer", FLAGS)
def test_random_steps_are_clean(sanitizer, tmp_path):
    command = compiler.find()
    if command is None:
        pytest.skip("there is no C++17 compiler here")
    program = sanitized.compile_program("random_steps", tmp_path, FLAGS[sanitizer], command)
    done = start([program, 60])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("baseline: 60 steps\n")


def test_sanitizer_sees_a_write_beyond_the_end(tmp_path):
    command = compiler.find()
    if command is None:
        pytest.skip("there is no C++17 compiler here")
    (tmp_path / "wrong.cc").write_text(
        "#include <vector>\nint main() { std::vector<int> v(3); v.data()[3] = 1; }\n")
    compiler.run([*command, *FLAGS["address"], str(tmp_path / "wrong.cc"), "-o",
                  str(tmp_path / "wrong")])
    done = start([tmp_path / "wrong"])
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr
