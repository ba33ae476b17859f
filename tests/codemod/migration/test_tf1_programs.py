# SPDX-License-Identifier: Apache-2.0
"""Which files of a program are of TensorFlow 1.x."""

import pytest

from tpu_estimator_embedding.migration import programs
from tpu_estimator_embedding.migration.rewrite import rewrite_files

MAIN = "import tensorflow as tf\nfrom trainer import model\ntf.app.run(model.main)\n"
MODEL = "import tensorflow as tf\n\ndef main(_):\n    return tf.constant(1)\n"


@pytest.fixture
def program(tmp_path):
    def write(**files):
        folder = tmp_path / "trainer"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        return {file.path.stem: file for file in rewrite_files(programs.find([folder]))}
    return write


@pytest.mark.parametrize("main", [
    MAIN,
    MAIN.replace("from trainer import model", "import trainer.model as model"),
    MAIN.replace("from trainer import model", "from . import model"),
    MAIN.replace("from trainer import model", "from .model import main"),
])
def test_what_a_tf1_program_imports_is_tf1(program, main):
    files = program(task=main, model=MODEL)
    assert b"import tensorflow.compat.v1 as tf" in files["model"].after
    assert [finding.code for finding in files["model"].findings] == ["TEE103", "TEE104", "TEE110"]


def test_what_imports_a_tf1_module_is_tf1(program):
    files = program(task="import tensorflow as tf\nfrom trainer import model\n",
                    model="import tensorflow as tf\nlogits = tf.layers.dense\n")
    assert b"import tensorflow.compat.v1 as tf" in files["task"].after


def test_chain_of_imports_joins_modules_in_both_directions(program):
    files = program(task=MAIN, model=MODEL, run=MODEL + "from trainer import task\n",
                    data=MODEL, unrelated=MODEL.replace("constant", "identity"),
                    helper="import tensorflow as tf\nfrom . import data\nfrom . import model\n")
    assert [name for name, file in sorted(files.items()) if file.before != file.after] == [
        "data", "helper", "model", "run", "task"]


def test_programs_side_by_side_decide_for_themselves(program):
    files = program(old=MAIN.replace("model", "other"), new=MODEL)
    assert files["new"].before == files["new"].after


def test_a_file_that_names_compat_decides_for_itself(program):
    files = program(task=MAIN, model=MODEL + "\ntable = tf.compat.v1.placeholder\n")
    assert files["model"].before == files["model"].after


def test_options_decide(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    [file] = rewrite_files(programs.find([path]), is_tf1=True)
    assert b"tf.disable_v2_behavior()" in file.after
    path.write_text(MAIN)
    [file] = rewrite_files(programs.find([path]), is_tf1=False)
    assert file.after == file.before


def test_keras_of_a_helper_is_loaded_after_this_package(program):
    files = program(
        task="import tensorflow as tf\nmode = tf.estimator.ModeKeys.TRAIN\n",
        model='"""Layers."""\nfrom tensorflow.keras import layers\n')
    assert files["model"].after.decode() == (
        '"""Layers."""\nimport tpu_estimator_embedding.tf_estimator  # noqa: F401 (chooses '
        'Keras 2)\nfrom tensorflow.keras import layers\n')


def test_keras_of_a_program_without_estimators_stays(program):
    files = program(model="from tensorflow.keras import layers\n")
    assert files["model"].after == files["model"].before
