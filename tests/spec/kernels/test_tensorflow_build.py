# SPDX-License-Identifier: Apache-2.0
"""TensorFlow found without importing it, with the flags that it states itself."""

import importlib.util
import json
import sys
import types

import pytest
import tensorflow as tf

from tests.release.packaging.conftest import ROOT, add_metadata
from tests.subprocesses import start
from tpu_estimator_embedding.kernels import tensorflow_build

pytestmark = pytest.mark.every_tensorflow

FILE = ROOT / "tpu_estimator_embedding" / "kernels" / "tensorflow_build.py"


def test_found_flags_are_those_that_tensorflow_states():
    found = tensorflow_build.find()
    assert [f"-I{found.include}", *found.flags] == tf.sysconfig.get_compile_flags()
    assert found == tensorflow_build.of_imported(tf)
    assert found.version == tf.__version__


def test_found_tensorflow_is_a_release():
    found = tensorflow_build.find()
    assert found.is_release and found.abi == ".".join(tf.__version__.split(".")[:2])


@pytest.mark.parametrize("name, version, tag, is_release", [
    ("tensorflow", "2.18.1", "cp311-cp311-manylinux_2_17_x86_64", True),
    ("tensorflow", "2.15.0.post1", "cp311-cp311-manylinux_2_17_x86_64", True),
    ("tensorflow_cpu", "2.21.0", "cp313-cp313-manylinux_2_27_x86_64", True),
    ("tensorflow", "2.18.1", "cp311-cp311-linux_x86_64", False),
    ("tensorflow", "2.18.0rc1", "cp311-cp311-manylinux_2_17_x86_64", False),
    ("tensorflow", "2.15.0+nv24.1", "cp311-cp311-manylinux_2_17_x86_64", False),
    ("tf_nightly", "2.22.0.dev20260101", "cp311-cp311-manylinux_2_27_x86_64", False),
    ("tensorflow_rocm", "2.18.1", "cp311-cp311-manylinux_2_28_x86_64", False)])
def test_only_wheels_of_tensorflows_project_are_releases(
        tmp_path, monkeypatch, name, version, tag, is_release):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("")
    add_metadata(tmp_path, name, version)
    [metadata] = tmp_path.glob("*.dist-info")
    (metadata / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: types.SimpleNamespace(
        submodule_search_locations=[str(tmp_path / "tensorflow")]))
    found = tensorflow_build.find()
    assert (found.is_release, found.version) == (is_release, version)
    assert found.abi == (".".join(version.split(".")[:2]) if is_release else version)


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
