# SPDX-License-Identifier: Apache-2.0
"""The environment variables that this package reads, all of them.

A setting is a default of a machine or a command line, for programs that are not to be edited: the
options of `run` set most of them, also for processes that the program starts. Arguments that a
program gives override them.

Variables of the system, of TensorFlow and of other libraries are read here, too, under their own
names. They mean what they mean there.
"""

import os
import re
from typing import NamedTuple

from tpu_estimator_embedding import checks


class Choice(NamedTuple):
    """A setting that is one of some words.

    Attributes:
        variable: name of the environment variable.
        words: the values that it may have.
        unset: what happens without it.
    """

    variable: str
    words: tuple[str, ...]
    unset: str

    def given(self) -> str:
        """Returns what the variable is, known or not; "" where it is not set."""
        return os.environ.get(self.variable, "")

    def read(self) -> str:
        """Returns the word; "" where the variable is not set or empty.

        Raises:
            ValueError: if the word is not known.
        """
        word = self.given()
        if word:
            checks.check_one_of(self.variable, self.words, word, f"Unset it to {self.unset}.")
        return word


class Count(NamedTuple):
    """A setting that is a positive number.

    Attributes:
        variable: name of the environment variable.
        rule: what the number is.
        prefix: what stands before the number.
    """

    variable: str
    rule: str
    prefix: str = ""

    def read(self) -> int | None:
        """Returns the number; None where the variable is not set or empty.

        Raises:
            ValueError: if it is not a positive number.
        """
        text = os.environ.get(self.variable, "")
        return self.parse(text, self.variable) if text else None

    def parse(self, text: str, argument: str) -> int:
        """Returns the number in a text.

        Raises:
            ValueError: if there is none, under the name of an argument.

        >>> STATISTICS.parse("every=100", "--statistics")
        100
        """
        found = re.fullmatch(rf"{self.prefix}(\d+)", text, re.ASCII)
        checks.check(found is not None and int(found[1]) > 0, argument, self.rule, text)
        assert found is not None
        return int(found[1])


class Text(NamedTuple):
    """A variable of the system or of another library, which is any text.

    Attributes:
        variable: name of the environment variable.
    """

    variable: str

    def read(self) -> str | None:
        """Returns the text, which may be empty; None where the variable is not set."""
        return os.environ.get(self.variable)


class Switch(NamedTuple):
    """A setting that is "0" or anything else.

    Attributes:
        variable: name of the environment variable.
        default: its value where it is not set or empty.
    """

    variable: str
    default: bool

    def read(self) -> bool:
        """Returns whether it is on."""
        return (os.environ.get(self.variable) or str(int(self.default))) != "0"


KERNELS = Choice("TPU_ESTIMATOR_EMBEDDING_KERNELS", ("native", "tf", "off"),
                 "run the compiled ops where possible")
SIMD = Choice("TPU_ESTIMATOR_EMBEDDING_SIMD", ("baseline", "avx2", "avx512"),
              "run the best instruction set of the machine")
HUGE_PAGES = Choice("TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES", ("on", "off"),
                    "move trained tables into huge pages")
ONE_ARENA = Choice("TPU_ESTIMATOR_EMBEDDING_ONE_ARENA", ("on", "off"),
                   "let all threads allocate from one arena")
TABLES_IN_PLACE = Choice("TPU_ESTIMATOR_EMBEDDING_TABLES_IN_PLACE", ("off",),
                         "read them in place")

CORES = Count("TPU_ESTIMATOR_EMBEDDING_CORES", "a positive number of cores")
HOSTS = Count("TPU_ESTIMATOR_EMBEDDING_HOSTS", "a positive number of hosts")
STEPS_PER_RUN = Count("TPU_ESTIMATOR_EMBEDDING_STEPS_PER_RUN", "a positive number of steps")
STATISTICS = Count("TPU_ESTIMATOR_EMBEDDING_STATISTICS",
                   "every=N, a number of steps of at least 1", "every=")
CHECKPOINT_NUM_HOSTS = Count("TPU_ESTIMATOR_EMBEDDING_CHECKPOINT_NUM_HOSTS", "an int of at least 1")

SYNCHRONOUS = Switch("TPU_ESTIMATOR_EMBEDDING_SYNCHRONOUS", default=False)
ASYNC_CHECKPOINTS = Switch("TPU_ESTIMATOR_EMBEDDING_ASYNC_CHECKPOINTS", default=False)
CHECKPOINT_AT_START = Switch("TPU_ESTIMATOR_EMBEDDING_CHECKPOINT_AT_START", default=True)

# Of TensorFlow and Keras.
TF_CONFIG = Text("TF_CONFIG")
TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING = Text(
    "TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING")
TF_ENABLE_ONEDNN_OPTS = Text("TF_ENABLE_ONEDNN_OPTS")
TF_ONEDNN_USE_SYSTEM_ALLOCATOR = Text("TF_ONEDNN_USE_SYSTEM_ALLOCATOR")
TF_USE_LEGACY_KERAS = Text("TF_USE_LEGACY_KERAS")

# Of Google's clients: which TPU a machine has, and where it is told so.
GCE_METADATA_HOST = Text("GCE_METADATA_HOST")
GCE_METADATA_IP = Text("GCE_METADATA_IP")
KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS = Text("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
TPU_NAME = Text("TPU_NAME")

# Of compilers, of glibc, of the system and of MLflow.
CXX = Text("CXX")
LDFLAGS = Text("LDFLAGS")
GLIBC_TUNABLES = Text("GLIBC_TUNABLES")
MALLOC_ARENA_MAX = Text("MALLOC_ARENA_MAX")
TMPDIR = Text("TMPDIR")
XDG_CACHE_HOME = Text("XDG_CACHE_HOME")
MLFLOW_TRACKING_URI = Text("MLFLOW_TRACKING_URI")


def num_cores() -> int | None:
    """Returns the number of cores on all hosts; None if neither variable is set.

    Without a number of cores, each host has one. All hosts are this machine: they are the tasks of
    the topology, each with an equal part of the cores.

    Raises:
        ValueError: if a variable is not a positive int, or the cores are not a multiple of the
            hosts.
    """
    cores, hosts = CORES.read(), HOSTS.read()
    checks.check(not cores or not hosts or cores % hosts == 0, CORES.variable,
                 f"a multiple of {HOSTS.variable}, {hosts}", cores)
    return cores or hosts


def num_hosts() -> int:
    """Returns the number of hosts; 1 if its variable is not set.

    Raises:
        ValueError: see `num_cores`.
    """
    num_cores()
    return HOSTS.read() or 1
