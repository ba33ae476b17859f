# SPDX-License-Identifier: Apache-2.0
"""The real pip, on copies of the source, into real virtual environments."""

import importlib.metadata
import os
import pathlib
import shlex
import shutil
import sys
import sysconfig
import textwrap
import zipfile

import pytest

from tests.kernel_choice import found_compiler
from tests.release.packaging.conftest import NOT_SOURCE, ROOT, dry_run, run_pip
from tests.subprocesses import start
from tpu_estimator_embedding import versions
from tpu_estimator_embedding.kernels import library, tensorflow_build

KERNELS = "tpu_estimator_embedding/kernels"
NAMES_OF_TENSORFLOW = {"tensorflow", "tensorflow-cpu", "tf-nightly", "keras"}


def names_and_versions(metadata: list[dict]) -> dict[str, str]:
    return {item["name"].replace("_", "-").lower(): item["version"] for item in metadata}


@pytest.mark.parametrize(("tensorflow", "keras", "estimator"), [
    ("2.15.1", "2.15.", False), ("2.18.1", "2.18.", True)])
def test_install_keeps_tensorflow_and_adds_the_keras_that_belongs_to_it(
        source, make_environment, tensorflow, keras, estimator):
    installed = names_and_versions(dry_run(make_environment({"tensorflow": tensorflow}), source))
    assert not NAMES_OF_TENSORFLOW & set(installed)
    assert installed["tf-keras"].startswith(keras)
    assert ("tf-estimator-nightly" in installed) == estimator
    assert {"tqdm", "tensorboard"} <= set(installed)


@pytest.mark.parametrize("estimator", [
    {"tensorflow-estimator": "2.15.0"}, {"tf-estimator-nightly": "2.16.0.dev2024012409"}])
def test_install_keeps_either_estimator(source, make_environment, estimator):
    python = make_environment({"tensorflow": "2.21.0", **estimator})
    installed = names_and_versions(dry_run(python, source))
    assert not {"tf-estimator-nightly", "tensorflow-estimator"} & set(installed)


@pytest.mark.parametrize("requirement", [
    versions.ESTIMATOR_REQUIREMENT, versions.STABLE_ESTIMATOR_REQUIREMENT])
def test_training_works_with_either_estimator(tmp_path, package_index, requirement):
    estimator = tmp_path / "estimator"
    fetched = run_pip(pathlib.Path(sys.executable), "install", "--no-deps", "--target",
                      str(estimator), requirement)
    assert fetched.returncode == 0, fetched.stderr
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(TRAINING))
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "run", program],
                 PYTHONPATH=os.pathsep.join([str(estimator), str(ROOT)]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        f"{estimator}/tensorflow_estimator/__init__.py", "trained 3 steps: 0.875"]


TRAINING = """
    import tensorflow.compat.v1 as tf
    import tensorflow_estimator
    from tensorflow_estimator.python.estimator import early_stopping
    from tensorflow_estimator.python.estimator.util import tf_keras, tf_keras_v1, tf_keras_v2

    assert tf_keras.layers.Layer and tf_keras_v1.layers.Dense and tf_keras_v2.layers.Dense
    assert early_stopping.tf_keras_v1.initializers.constant
    column = tf.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity("id", 2), dimension=1,
        initializer=tf.zeros_initializer())

    def input_fn(params):
        ids = tf.SparseTensor([[0, 0], [1, 0]], [0, 1], [2, 1])
        return tf.data.Dataset.from_tensors(({"id": ids}, tf.ones([2, 1]))).repeat()

    def model_fn(features, labels, mode, params):
        logits = tf.feature_column.input_layer(features, [column])
        loss = tf.losses.mean_squared_error(labels, logits)
        optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1))
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))

    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=tf.estimator.tpu.RunConfig(), use_tpu=True, train_batch_size=2,
        embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            [column], tf.tpu.experimental.StochasticGradientDescentParameters(0.5)))
    estimator.train(input_fn, steps=1)
    print(tensorflow_estimator.__file__)
    estimator.train(input_fn, steps=2)
    (name,) = (name for name in estimator.get_variable_names() if "embedding" in name)
    print("trained", estimator.get_variable_value("global_step"), "steps:",
          estimator.get_variable_value(name)[0, 0])
"""


def test_install_keeps_another_distribution_of_tensorflow(source, make_environment):
    python = make_environment({"tensorflow-cpu": "2.21.0"})
    installed = names_and_versions(dry_run(python, source))
    assert not NAMES_OF_TENSORFLOW & set(installed)
    assert "tf-estimator-nightly" in installed


def test_install_changes_nothing_of_this_environment(source):
    installed = names_and_versions(dry_run(pathlib.Path(sys.executable), source))
    present = {distribution.name.replace("_", "-").lower()
               for distribution in importlib.metadata.distributions()}
    assert set(installed) & present <= {"tpu-estimator-embedding"}
    missing = {"tf-keras", "tf-estimator-nightly", "tqdm", "tensorboard", "google-crc32c"}
    of_tensorboard = {"markdown", "markupsafe", "pillow", "tensorboard-data-server", "werkzeug"}
    assert set(installed) <= {"tpu-estimator-embedding"} | missing | of_tensorboard


def test_install_into_an_empty_environment_brings_a_tensorflow_and_its_keras(
        source, make_environment):
    installed = names_and_versions(dry_run(make_environment({}), source))
    minor = installed["tensorflow"].rsplit(".", 1)[0]
    assert "2.16" <= minor <= "2.21"
    assert installed["tf-keras"].startswith(minor)
    assert "tf-estimator-nightly" in installed


def test_install_beside_a_tensorflow_too_old_names_the_fix(source, make_environment):
    python = make_environment({"tensorflow": "2.14.1"})
    result = run_pip(python, "install", "--dry-run", str(source))
    assert result.returncode != 0
    assert "`tensorflow` must be 2.15 or later, got '2.14.1'." in result.stdout + result.stderr


def test_install_from_a_build_venv_sees_the_environment(source, make_environment):
    if int(importlib.metadata.version("pip").split(".")[0]) < 26:
        pytest.skip("this pip has no --use-feature venv-isolation")
    [metadata] = dry_run(make_environment({"tensorflow": "2.18.1"}), source, "--no-deps",
                         "--use-feature", "venv-isolation")
    assert "tensorflow==2.18.1" in metadata["requires_dist"]


@pytest.fixture(scope="module")
def quick_compiler(tmp_path_factory) -> str:
    """The compiler without optimization: what it compiles here is never run."""
    script = tmp_path_factory.mktemp("compiler") / "c++"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(found_compiler())} "$@" -O0\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, package_index, quick_compiler) -> pathlib.Path:
    """A wheel that is built where earlier builds left files behind."""
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    shutil.copytree(ROOT, source, ignore=NOT_SOURCE)
    leftovers = ["build/lib/tpu_estimator_embedding/stale.py",
                 f"build/bdist.{sys.platform}-x86_64/wheel/tpu_estimator_embedding/stale.py",
                 f"{KERNELS}/lib/embedding_ops-tf2.15.1-0123456789abcdef.so",
                 "tpu_estimator_embedding.egg-info/SOURCES.txt"]
    for name in leftovers:
        (source / name).parent.mkdir(parents=True)
        (source / name).write_text("tpu_estimator_embedding/stale.py\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", quick_compiler)
        result = run_pip(pathlib.Path(sys.executable), "wheel", "--no-deps", "--wheel-dir",
                         str(directory), str(source))
    assert result.returncode == 0, result.stdout + result.stderr
    [wheel] = directory.glob("*.whl")
    return wheel


def test_wheel_holds_every_module_and_nothing_stale(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    package = ROOT / "tpu_estimator_embedding"
    modules = {str(path.relative_to(ROOT)) for path in package.rglob("*.py")}
    sources = {str(path.relative_to(ROOT)) for kind in ("cc", "h")
               for path in (package / "kernels" / "src").glob(f"*.{kind}")}
    others = {"tpu_estimator_embedding/py.typed", "tpu_estimator_embedding/experiments/explorer.js",
              *(str(path.relative_to(ROOT)) for path in package.rglob("*.toml"))}
    held = {name for name in names if ".dist-info/" not in name}
    libraries = {name for name in held if name.endswith(".so")}
    assert held - libraries == modules | sources | others
    assert libraries <= {f"{KERNELS}/lib/{library.name(tensorflow_build.find())}"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_wheel_with_a_compiled_library_is_for_this_platform(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert f"{KERNELS}/lib/{library.name(tensorflow_build.find())}" in names
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")


def test_wheel_without_a_library_is_for_any_platform(source, make_environment, tmp_path):
    result = run_pip(make_environment({}), "wheel", "--no-deps", "--wheel-dir", str(tmp_path),
                     str(source))
    assert result.returncode == 0, result.stdout + result.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())


def test_native_kernels_that_cannot_be_compiled_fail_the_build_if_asked_for(
        source, make_environment, tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_KERNELS", "native")
    result = run_pip(make_environment({}), "wheel", "--no-deps", "--wheel-dir", str(tmp_path),
                     str(source))
    assert result.returncode != 0
    assert "there is no TensorFlow in the environment yet" in result.stdout + result.stderr


def test_wheel_brings_the_command(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    [entry_points] = [name for name in names if name.endswith("entry_points.txt")]
    text = zipfile.ZipFile(wheel).read(entry_points).decode()
    assert "tpu-estimator-embedding = tpu_estimator_embedding.cli:main" in text
