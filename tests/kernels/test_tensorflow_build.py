# SPDX-License-Identifier: Apache-2.0
"""TensorFlow found without importing it, with the flags that it states itself."""

import json
import sys

import pytest
import tensorflow as tf

from tests.packaging.conftest import ROOT, add_metadata
from tests.subprocesses import start
from tpu_estimator_embedding.kernels import tensorflow_build

pytestmark = pytest.mark.every_tensorflow

FILE = ROOT / "tpu_estimator_embedding" / "kernels" / "tensorflow_build.py"


def test_found_flags_are_those_that_tensorflow_states():
    found = tensorflow_build.find()
    assert [f"-I{found.include}", *found.flags] == tf.sysconfig.get_compile_flags()
    assert found == tensorflow_build.of_imported(tf)
    assert found.version == tf.__version__


def test_framework_library_is_the_one_that_tensorflow_links_to():
    found = tensorflow_build.find()
    assert tf.sysconfig.get_link_flags() == [f"-L{found.directory}",
                                             f"-l:{found.framework_library.name}"]


def test_file_runs_alone_and_imports_no_tensorflow(tmp_path):
    packages = tmp_path / "packages"
    (packages / "tensorflow").mkdir(parents=True)
    (packages / "tensorflow" / "__init__.py").write_text("raise RuntimeError('imported')")
    add_metadata(packages, "tensorflow-cpu", "2.18.1")
    done = start([sys.executable, "-S", "-P", FILE], PYTHONPATH=str(packages))
    assert done.returncode == 0, done.stderr
    fields = json.loads(done.stdout)
    assert (fields["version"], fields["directory"]) == ("2.18.1", str(packages / "tensorflow"))


def test_nothing_is_found_where_there_is_no_tensorflow(tmp_path):
    done = start([sys.executable, "-S", "-P", FILE], PYTHONPATH=str(tmp_path))
    assert (done.stdout, done.returncode) == ("null", 0)
