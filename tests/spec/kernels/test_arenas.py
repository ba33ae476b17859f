# SPDX-License-Identifier: Apache-2.0
"""Threads of TensorFlow allocate from one arena, unless a variable or the system says otherwise."""

import platform
import re

import pytest

from tests.subprocesses import run_python

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="counts glibc's arenas")

PROGRAM = """
import ctypes
import tpu_estimator_embedding.kernels.load
from tpu_estimator_embedding.kernels import arenas
import tensorflow.compat.v1 as tf

with tf.Graph().as_default(), tf.Session() as session:  # its ops run in threads
    session.run([tf.reduce_sum(tf.random_normal([300, 300])) for _ in range(100)])
print(arenas.share())
ctypes.CDLL(None).malloc_stats()
"""


def run(**environment):
    """Returns what `share` says, and how many arenas there are."""
    done = run_python(PROGRAM, **environment)
    return done.stdout.splitlines()[-1], len(re.findall(r"^Arena \d+:$", done.stderr, re.MULTILINE))


@pytest.mark.long
def test_sessions_make_no_arena():
    said, arenas = run(TPU_ESTIMATOR_EMBEDDING_ONE_ARENA="on")
    assert said == "one"
    assert arenas == 1


@pytest.mark.long
@pytest.mark.parametrize("environment, reason", [
    ({"TPU_ESTIMATOR_EMBEDDING_ONE_ARENA": "off"}, "TPU_ESTIMATOR_EMBEDDING_ONE_ARENA=off"),
    ({"MALLOC_ARENA_MAX": "4"}, "the environment chooses a number"),
    ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}, "the environment chooses a number")])
def test_arenas_are_left_alone(environment, reason):
    said, arenas = run(**environment)
    assert said == f"as many as the system makes: {reason}"
    assert arenas > 1


@pytest.mark.parametrize("environment, cores, most", [
    ({}, 16, "one"), ({}, 17, "as many as the system makes: more than 16 cores; "
                      "TPU_ESTIMATOR_EMBEDDING_ONE_ARENA=on limits them to one"),
    ({"TPU_ESTIMATOR_EMBEDDING_ONE_ARENA": "on"}, 64, "one"),
    ({"TPU_ESTIMATOR_EMBEDDING_ONE_ARENA": "never"}, 16, "one"),  # refused with the first table
    ({"MALLOC_ARENA_MAX": ""}, 16, "as many as the system makes: the environment chooses a "
                                   "number")])
def test_many_cores_have_many_arenas_unless_a_variable_says_one(environment, cores, most):
    done = run_python(f"""
        import os
        os.sched_getaffinity = lambda process: range({cores})
        from tpu_estimator_embedding.kernels import arenas
        print(arenas.share())
        """, **environment)
    assert done.stdout.strip() == most


def test_another_system_is_left_alone():
    done = run_python("""
        import sys
        sys.platform = "darwin"
        from tpu_estimator_embedding.kernels import arenas
        print(arenas.share())
        """)
    assert done.stdout.strip() == "as many as the system makes: its C library is not glibc"


@pytest.mark.long
def test_an_unknown_value_is_an_error_with_the_first_table():
    done = run_python("""
        from tpu_estimator_embedding.kernels import load
        try:
            load.kernels()
        except ValueError as error:
            print(error)
        """, TPU_ESTIMATOR_EMBEDDING_ONE_ARENA="yes")
    assert "TPU_ESTIMATOR_EMBEDDING_ONE_ARENA" in done.stdout
    assert "'yes'" in done.stdout
