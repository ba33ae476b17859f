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
    ("from tensorflow.contrib.rnn.python.ops.lstm_ops import LSTMBlockFusedCell as found",
     "rnn.LSTMBlockFusedCell"),
    ("from tensorflow.contrib.distribute.python.mirrored_strategy import MirroredStrategy as found",
     "distribute.MirroredStrategy"),
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
    ("import tensorflow.contrib.bayesflow; found = tensorflow.contrib.bayesflow", "bayesflow",
     "Install tensorflow-probability"),
    ("import tensorflow.contrib.bayesflow as found", "bayesflow", "Install tensorflow-prob"),
    ("from tensorflow.contrib import bayesflow as found", "bayesflow", "Install tensorflow-prob"),
    ("from tensorflow.contrib.seq2seq import BasicDecoder as found", "seq2seq.BasicDecoder",
     "Unroll the decoder"),
    ("import tensorflow.contrib.kinesis.python.ops as found", "kinesis.python.ops",
     "Install tensorflow-io"),
    ("from tensorflow.contrib.layers import no_layer as found", "layers.no_layer",
     r"tf-slim does not have it either\. Use tf\.layers"),
    ("from tensorflow.contrib.slim.no_nets import resnet_v1 as found", "slim.no_nets.resnet_v1",
     "tf-slim does not have it either"),
    ("from tensorflow.contrib.tpu.python.tpu import keras_support as found",
     "tpu.python.tpu.keras_support", r"Use tf\.distribute")])
def test_import_of_what_is_nowhere_raises_when_it_is_used(line, path, sentence):
    found = run(line)["found"]
    with pytest.raises(AttributeError,
                       match=rf"^TensorFlow 2\.0 removed tf\.contrib\.{path}\. {sentence}"):
        found(1, name="x")


TRIED = """
try:
    {line}
except ImportError as error:
    reason = str(error)
else:
    reason = None
"""


@pytest.mark.parametrize("line, reason", [
    ("from tensorflow.contrib import bayesflow", "Install tensorflow-probability"),
    ("import tensorflow.contrib.bayesflow.python.ops", "Install tensorflow-probability"),
    ("from tensorflow.contrib.rnn import NASCell", "No current package has this cell"),
    ("import importlib; importlib.import_module('tensorflow.contrib.kafka')", "Install")])
def test_program_may_still_ask_whether_there_is_one(line, reason):
    assert reason in run(TRIED.format(line=line))["reason"]


@pytest.mark.parametrize("expression, expected", [
    ("hasattr(contrib, 'bayesflow')", False),
    ("hasattr(contrib, 'rnn')", True),
    ("hasattr(contrib.rnn, 'NASCell')", False),
    ("hasattr(contrib.rnn, 'LSTMCell')", True),
    ("hasattr(contrib.bayesflow, 'mcmc')", False),
    ("getattr(contrib, 'bayesflow', None)", None),
    ("getattr(contrib.seq2seq, 'BasicDecoder', None) or 1", 1),
    ("[getattr(contrib.rnn, name, 0) for name in ('NASCell', 'GridLSTMCell')]", [0, 0]),
    ("'NASCell' in dir(contrib.rnn)", False)])
def test_guard_chooses_what_works(expression, expected):
    assert eval(expression, {"contrib": CONTRIB}) == expected


@pytest.mark.parametrize("line", [
    "from tensorflow.contrib.rnn.python.ops.lstm_ops import LSTMBlockFusedCell",
    "from tensorflow.contrib.data.python.ops.batching import map_and_batch",
    "from tensorflow.contrib.sparsemax.python.ops import sparsemax",
    "import tensorflow.contrib.distribute.python.mirrored_strategy"])
def test_module_with_names_that_exist_may_be_asked_for(line):
    assert run(TRIED.format(line=line))["reason"] is None


def test_answer_does_not_depend_on_imports_before():
    run("from tensorflow.contrib import bayesflow")
    assert run(TRIED.format(line="from tensorflow.contrib import bayesflow"))["reason"]


def test_attribute_inside_of_try_is_asked():
    lines = "try:\n    found = contrib.rnn.NASCell\nexcept AttributeError:\n    found = None"
    names = {"contrib": CONTRIB}
    exec(lines, names)
    assert names["found"] is None


@pytest.mark.parametrize("line", [
    "found = {'nas': contrib.rnn.NASCell}['nas']", "found = (lambda: contrib.rnn.NASCell)()",
    "class Model:\n    cell = contrib.rnn.NASCell\nfound = Model.cell"])
def test_name_that_is_only_read_stops_nothing(line):
    names = {"contrib": CONTRIB}
    exec(line, names)
    with pytest.raises(AttributeError, match="No current package has this cell"):
        names["found"](8)


def test_import_inside_of_with_is_not_asked():
    lines = "import contextlib\nwith contextlib.nullcontext():\n    from tensorflow.contrib "
    assert run(f"{lines}import bayesflow as found")["found"].__name__.endswith("bayesflow")


@pytest.mark.parametrize("use", [
    "found()", "found[0]", "list(found)", "found.attribute", "class Mine(found): pass",
    "with found: pass"])
def test_first_use_of_a_class_that_is_nowhere(use):
    with pytest.raises(AttributeError, match=r"removed tf\.contrib\.rnn\.NASCell\. No current"):
        run(f"from tensorflow.contrib.rnn import NASCell as found\n{use}")


def test_nothing_is_an_instance_of_a_class_that_is_nowhere():
    line = "from tensorflow.contrib.rnn import NASCell\nfound = isinstance(1, (NASCell, str))"
    assert run(line)["found"] is False


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
