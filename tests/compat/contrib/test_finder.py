# SPDX-License-Identifier: Apache-2.0
"""Imports below tensorflow.contrib: every form ends as attribute access does."""

import importlib
import sys

import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

CONTRIB = tf.contrib  # other tests install and uninstall


def run(line):
    names = {}
    exec(line, names)
    return names


@pytest.mark.parametrize("line, path", [
    ("from tensorflow.contrib import slim as found", "slim"),
    ("import tensorflow.contrib.slim as found", "slim"),
    ("from tensorflow.contrib.training.python.training import evaluation as found",
     "training.python.training.evaluation"),
    ("from tensorflow.contrib.framework.python.ops import arg_scope as found",
     "framework.python.ops.arg_scope"),
    ("from tensorflow.contrib.framework.python.ops import variables as found",
     "framework.python.ops.variables"),
    ("from tensorflow.contrib.framework.python.ops.variables import "
     "assign_from_checkpoint_fn as found", "framework.assign_from_checkpoint_fn"),
    ("import tensorflow.contrib.keras as found", "keras"),
    ("from tensorflow.contrib.keras import layers as found", "keras.layers"),
    ("import tensorflow.contrib.keras.layers as found", "keras.layers"),
    ("from tensorflow.contrib.estimator import regression_head as found",
     "estimator.regression_head"),
    ("from tensorflow.contrib.training import HParams as found", "training.HParams"),
    ("from tensorflow.contrib.layers.python.layers import initializers as found",
     "layers.python.layers.initializers"),
    ("import tensorflow.contrib.tpu.python.tpu.tpu_estimator as found",
     "tpu.python.tpu.tpu_estimator"),
    ("from tensorflow.contrib.tpu.python.ops.tpu_ops import cross_replica_sum as found",
     "tpu.python.ops.tpu_ops.cross_replica_sum")])
def test_import_is_attribute_access(line, path):
    expected = CONTRIB
    for name in path.split("."):
        expected = getattr(expected, name)
    assert run(line)["found"] is expected


@pytest.mark.parametrize("line, path, sentence", [
    ("import tensorflow.contrib.eager", "eager", "Look for the same name in tf"),
    ("import tensorflow.contrib.eager as tfe", "eager", "Look for the same name in tf"),
    ("from tensorflow.contrib import eager", "eager", "Look for the same name in tf"),
    ("from tensorflow.contrib.seq2seq import BasicDecoder", "seq2seq.BasicDecoder",
     "Unroll the decoder"),
    ("import tensorflow.contrib.seq2seq.python.ops", "seq2seq.python", "Unroll the decoder"),
    ("from tensorflow.contrib.layers import no_layer", "layers.no_layer",
     r"tf-slim does not have it either\. Use tf\.layers"),
    ("from tensorflow.contrib.slim.no_nets import resnet_v1", "slim.no_nets",
     "tf-slim does not have it either"),
    ("from tensorflow.contrib.tpu.python.tpu import keras_support",
     "tpu.python.tpu.keras_support", "TensorFlow no longer has an equivalent")])
def test_import_of_what_is_nowhere_names_what_to_use(line, path, sentence):
    with pytest.raises(ImportError,
                       match=rf"^TensorFlow 2\.0 removed tf\.contrib\.{path}\. {sentence}"):
        run(line)


def test_program_may_still_ask_whether_there_is_one():
    line = "try:\n    from tensorflow.contrib import eager\nexcept ImportError:\n    eager = None"
    assert run(line)["eager"] is None


@pytest.mark.parametrize("line, path", [
    ("from tensorflow.contrib import slim as found", "tf_slim"),
    ("import tensorflow.contrib.slim as found", "tf_slim"),
    ("from tensorflow.contrib.framework import arg_scope as found", "tf_slim.arg_scope"),
    ("from tensorflow.contrib.framework.python.ops import arg_scope as found",
     "tf_slim.arg_scope"),
    ("from tensorflow.contrib.framework.python.ops.arg_scope import add_arg_scope as found",
     "tf_slim.add_arg_scope"),
    ("import tensorflow.contrib.slim.nets as found", "tf_slim.nets"),
    ("from tensorflow.contrib.slim import nets as found", "tf_slim.nets"),
    ("from tensorflow.contrib.slim.nets import resnet_v1 as found", "tf_slim.nets.resnet_v1"),
    ("from tensorflow.contrib.slim.python.slim.nets import inception_v3 as found",
     "tf_slim.nets.inception_v3"),
    ("import tensorflow.contrib.slim.python.slim.nets.vgg as found", "tf_slim.nets.vgg"),
    ("from tensorflow.contrib.slim.python.slim.data import tfexample_decoder as found",
     "tf_slim.tfexample_decoder"),
    ("from tensorflow.contrib.slim.python.slim import learning as found", "tf_slim.learning"),
    ("from tensorflow.contrib.layers.python.layers import utils as found", "tf_slim.layers.utils"),
    ("from tensorflow.contrib.training import create_train_op as found",
     "tf_slim.training.create_train_op")])
def test_tf_slim_is_the_counterpart_where_it_is_installed(line, path):
    found, expected = run(line)["found"], importlib.import_module("tf_slim")
    importlib.import_module("tf_slim.nets")
    if path == "tf_slim":
        assert found.conv2d is expected.conv2d and found.arg_scope is expected.arg_scope
    else:
        for name in path.split(".")[1:]:
            expected = getattr(expected, name)
        assert found is expected


def test_tf_slim_that_cannot_be_imported_reports_why(monkeypatch, tmp_path):
    (tmp_path / "tf_slim").mkdir()
    (tmp_path / "tf_slim" / "__init__.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tf_slim"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        _ = CONTRIB.slim.no_such_name


def test_nothing_answers_after_uninstall():
    import tensorflow.contrib.keras.layers  # noqa: F401
    tpu_estimator_embedding.uninstall()
    try:
        with pytest.raises(ModuleNotFoundError, match="No module named 'tensorflow.contrib'"):
            run("import tensorflow.contrib.slim")
        assert not [name for name in sys.modules if name.startswith("tensorflow.contrib")]
    finally:
        tpu_estimator_embedding.install()
