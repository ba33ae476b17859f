# SPDX-License-Identifier: Apache-2.0
"""`--to keras3`: programs that train without this package, on two backends, or a report."""

import ast
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import sys

import libcst as cst
import pytest

from tests.docs import ROOT
from tests.subprocesses import start
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.migration import unused_configs
from tpu_estimator_embedding.migration.codes import OPEN
from tpu_estimator_embedding.migration.rewrite import rewrite

PAGE = ROOT / "migration_guide" / "jax"
BEFORE = (PAGE / "before.py").read_text()
COMMAND = [sys.executable, "-m", "tpu_estimator_embedding"]
DRIVER = pathlib.Path(__file__).with_name("keras3_driver.py")
NEEDED = {"tensorflow": ("keras_rs",), "jax": ("keras_rs", "jax", "orbax")}


def missing(backend):
    if importlib.metadata.version("keras").startswith("2."):
        return ["keras 3"]
    return [name for name in NEEDED[backend] if importlib.util.find_spec(name) is None]


def run(*command, **options):
    done = start([*command], **options)
    assert done.returncode in (0, 2), done.stderr  # 2: decisions are left
    return done


@pytest.fixture(scope="module")
def migrated(tmp_path_factory):
    """A directory with what `migrate` writes, and checkpoints of the legacy program."""
    if missing("tensorflow"):
        pytest.skip("needs Keras RS, and Keras 3")
    path = tmp_path_factory.mktemp("keras3")
    (path / "before.py").write_text(BEFORE)
    done = run(*COMMAND, "migrate", "--to", "keras3", "--output", "new", "--capture",
               "--capture-steps", "1", "before.py", "--", "captured", cwd=path)
    assert "0 things left to do by hand" in done.stderr
    legacy = start([*COMMAND, "run", "before.py", "old"], cwd=path)
    assert legacy.returncode == 0, legacy.stderr
    (path / "metrics.txt").write_text(legacy.stdout)
    return path


def test_what_is_written_needs_nothing_of_this_package(migrated):
    written = {path.name: path.read_bytes() for path in (migrated / "new").glob("*.py")}
    assert written.keys() == {"before.py", "embedding_config.py", "keras_training.py"}
    assert written["before.py"] == rewrite(BEFORE, to="keras3").data  # which the page shows
    for name, text in written.items():
        imported = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                    for node in ast.walk(ast.parse(text))
                    if isinstance(node, (ast.Import, ast.ImportFrom))}
        assert not [one for one in imported if one.startswith("tpu_estimator")], name


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_program_computes_what_the_legacy_one_computed(backend, migrated, tmp_path):
    if missing(backend):
        pytest.skip(f"needs the extra `jax`: {', '.join(missing(backend))} not installed")
    form = {"jax": "keras-rs-jax", "tensorflow": "keras-rs"}[backend]
    done = start([sys.executable, DRIVER, migrated / "new", tmp_path,  # status 0: none left out
                  *COMMAND, "checkpoint", "convert", migrated / "old" / "model.ckpt-0",
                  tmp_path / "start", "--to", form, "--template", tmp_path / "template"],
                 KERAS_BACKEND=backend, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    found = checkpoint.compare(migrated / "old" / "model.ckpt-20", tmp_path / "end", rtol=1e-5,
                               atol=1e-5)
    assert [one for one in found.tensors if one.differing_rows] == []
    assert len(found.tensors) > 15 and not found.only_in_a
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["backend"] == backend
    assert results["again"] == results["third"] == 20
    assert results["unread"] == results["metrics"]
    assert results["saved_again"] == ""
    assert results["is_alone"]
    assert "Ids of feature users must be below 20." in results["wrong_ids"]
    assert results["accuracies"] == [pytest.approx(2 / 3), 0.5]  # labels of [batch, 1], too
    assert "must have equal shapes" in results["unequal"]
    assert "normalizes an input of 4 dimensions" in results["images"]
    assert results["named"] == ""  # a layer with the name of a feature
    assert results["both_limits"] == "Can not provide both steps and max_steps, got 1 and 2."
    legacy = {name: float(value) for name, value in re.findall(
        r"'(\w+)': (?:np\.\w+\()?([\d.]+)", (migrated / "metrics.txt").read_text())}
    assert legacy.keys() == results["metrics"].keys() == {
        "accuracy", "auc", "loss", "mean", "global_step"}
    for name, value in legacy.items():
        assert results["metrics"][name] == pytest.approx(value, rel=1e-4), name


LAYER = 'net = tf.layers.dense(net, params["hidden"], activation=tf.nn.relu, name="hidden")'
COLUMNS, NUMERIC = "tf.feature_column.input_layer", "tf.feature_column.numeric_column"
LOSS = "loss = tf.losses.sigmoid_cross_entropy(labels, logits)"
LINES = {  # of the function below, in order
    "module": "fc = tf.feature_column",
    "ids": "ids = [fc.categorical_column_with_identity(key, 20) for key in ['users', 'friends']]",
    "words": "words = [fc.categorical_column_with_identity('words', WORDS)]",
    "shared": "users, friends = tf.tpu.experimental.shared_embedding_columns(ids, 4)",
    "single": "[words] = tf.tpu.experimental.shared_embedding_columns(words, 4)",
    "result": "return [words, users, friends]"}
MAKE_COLUMNS = "\n\ndef make_columns():\n    " + "\n    ".join(LINES.values()) + "\n"


def test_all_that_has_no_counterpart_is_reported_at_once():
    text = BEFORE.replace("tf.nn.relu", "tf.nn.crelu").replace(
        "tf.metrics.mean(probabilities)", "tf.metrics.precision(labels, predicted)").replace(
        'AdagradOptimizer(params["rate"])', "RMSPropOptimizer(tf.train.exponential_decay("
        "0.1, tf.train.get_global_step(), 9, 0.5))")
    found = "\n".join(one.message for one in rewrite(text, "program.py", to="keras3").findings
                      if one.code == "TEE402")
    for what in ("tf.nn.crelu", "the metric `tf.metrics.precision", "`RMSPropOptimizer` has no",
                 "a learning rate that depends on the step"):
        assert what in found, found


@pytest.mark.parametrize("old, new, code, sentence", [
    (LAYER, 'net = tf.matmul(net, tf.get_variable("kernel", [13, 8]))', "TEE402",
     "`tf.get_variable` has no counterpart known in full"),
    (LAYER, LAYER.replace("tf.nn.relu", "tf.nn.crelu"), "TEE402", "activation `tf.nn.crelu`"),
    (LAYER, LAYER.replace("activation=", "kernel_regularizer=REGULARIZER, activation="), "TEE402",
     "`kernel_regularizer=REGULARIZER` of `tf.layers.dense` has no counterpart"),
    (LAYER, LAYER.replace('params["hidden"]', "UNITS"), "TEE402", "`UNITS` has no counterpart"),
    (LAYER, f"if mode == tf.estimator.ModeKeys.TRAIN:\n        {LAYER}", "TEE402",
     "`net` depends on the mode"),
    (LAYER, f"while net is None:\n        {LAYER}", "TEE402",
     "`net` is assigned in a statement of a kind that has no counterpart"),
    (LAYER, f"for _ in range(2):\n        net += 1.0\n        {LAYER}", "TEE402",
     "`net` is assigned in a statement of a kind that has no counterpart"),
    (LAYER, f"for units in open('sizes'):\n        {LAYER}", "TEE402", "`open` has no counterpart"),
    (LAYER, "net = tf.matmul(net, net, adjoint_b=True)", "TEE402", "`adjoint_b=True` of"),
    (LAYER, "net = tf.matmul(net, net, transpose_b=mode)", "TEE402", "that is not a constant"),
    (LAYER, f"net = {COLUMNS}(features, make_columns(3))", "TEE402",
     "the columns: `make_columns(3)` is not known in full"),
    (LAYER, f"net = {COLUMNS}(params, [{NUMERIC}('age')])", "TEE402",
     "columns of something other than `features`"),
    (LAYER, f"net = {COLUMNS}(features, [tf.feature_column.crossed_column(['age'], 9)])",
     "TEE402", "is not known in full"),
    (LAYER, f"net = {COLUMNS}(features, [{NUMERIC}('age', normalizer_fn=tf.log1p)])", "TEE402",
     "is not known in full"),
    (LAYER, f'{LAYER}\n    net += features["age"]', "TEE402", "write `net = ...`"),
    ("training=is_training", "training=True", "TEE402", "not known to be true in training only"),
    (LOSS, LOSS.replace("logits)", "logits, weights=labels)"), "TEE402", "`weights=labels` of"),
    (LOSS, f"{LOSS}\n    loss = loss + tf.losses.get_regularization_loss()", "TEE402",
     "`tf.losses.get_regularization_loss` has no counterpart"),
    (LOSS, f'{LOSS}\n    loss = loss * tf.reduce_mean(features["age"])', "TEE402",
     "it uses `features` outside of the model"),
    (LOSS, f"{LOSS}\n    logits = logits * 2.0", "TEE402", "`logits` is assigned again"),
    ("tf.metrics.mean(probabilities)", "tf.metrics.precision(labels, predicted)", "TEE402",
     "the metric `tf.metrics.precision"),
    ("tf.train.AdagradOptimizer(", "tf.train.RMSPropOptimizer(", "TEE402",
     "`RMSPropOptimizer` has no counterpart known in full"),
    ('(params["rate"])', '(tf.train.exponential_decay(0.1, tf.train.get_global_step(), 9, 0.5))',
     "TEE402", "a learning rate that depends on the step"),
    ("estimator = make_", "table = tpu_embedding.TableConfig(1, 4)\n    estimator = make_",
     "TEE402", "it would still use this package: `tpu_embedding` in "
     "`table = tpu_embedding.TableConfig(1, 4)`"),
    ("    print(estimator", "    print(tpu_embedding.AdamParameters(0.1))\n    print(estimator",
     "TEE402", "it would still use this package: `tpu_embedding` in "
     "`print(tpu_embedding.AdamParameters(0.1))`"),
    ("evaluate(input_fn, steps=5)", "evaluate(input_fn, 5)", "TEE404",
     "`5`: `evaluate` of KerasTraining has no such argument, only input_fn, steps"),
    ("evaluate(input_fn, steps=5)", 'get_variable_value("users")', "TEE404",
     "`get_variable_value`: KerasTraining has no such method"),
    ("evaluate(input_fn, steps=5)", 'export_savedmodel("a", receiver)', "TEE404",
     "keras.export.ExportArchive exports"),
    ("estimator.train(input_fn, ", "estimator.train(input_fn, hooks=[hook], ", "TEE404", "hooks"),
])
def test_other_programs_are_reported_and_nothing_is_half_written(old, new, code, sentence):
    assert BEFORE.count(old) == 1
    text = BEFORE.replace(old, new)
    result = rewrite(text, "program.py", to="keras3")
    left = [finding for finding in result.findings if finding.about.kind in OPEN]
    [found] = [one for one in left if one.code == code]
    assert re.search(re.escape(sentence), found.message), found.message
    assert found.line > 1 or "still" in sentence
    assert (b"keras_training" in result.data) == (code == "TEE404")


@pytest.mark.parametrize("line, new, sentence", [
    ("module", "fc = tf.feature_column\n    fc = tf.keras", "`tf.feature_column` is not known"),
    ("module", "fc = tf.feature_column\n    kept = [fc]", "`tf.feature_column` is not known"),
    ("shared", "users, *friends = ids", "`users, *friends = ids` is not an assignment to names of"),
    ("shared", "users, friends = words", "`users, friends = words` is not an assignment to names"),
    ("shared", "users, friends = 'uf'", "is not an assignment to names of as many columns"),
    ("shared", "kept['a'], friends = ids", "is not an assignment to names of as many columns"),
])
def test_other_assignments_in_functions_of_columns_are_reported(line, new, sentence):
    text = BEFORE.replace(LAYER, f"net = {COLUMNS}(features, make_columns())")
    result = rewrite(text + MAKE_COLUMNS.replace(LINES[line], new), "program.py", to="keras3")
    [found] = [one for one in result.findings if one.code == "TEE402"]
    assert sentence in found.message


def test_name_of_a_program_for_a_module_that_it_needs_no_longer_goes():
    text = BEFORE.replace("tf.estimator.tpu.", "tpu.").replace(
        "WORDS, USERS = 50, 20\n", "WORDS, USERS = 50, 20\ntpu = tf.estimator.tpu\n")
    assert "return tpu.TPUEstimator(" in text
    written = rewrite(text, "program.py", to="keras3").data
    assert written == rewrite(BEFORE, "program.py", to="keras3").data
    assert b"tpu_estimator" not in written


@pytest.mark.parametrize("place", ["line", "function"])
def test_columns_of_the_module_that_it_needs_no_longer_go(place):
    columns = ("[tf.tpu.experimental.embedding_column(tf.feature_column."
               "categorical_column_with_identity('words', WORDS), 4)]\n")
    lines = (f"columns = {columns}" if place == "line" else
             f"def make_columns():\n    return {columns}columns = make_columns()\n")
    text = BEFORE.replace("WORDS, USERS = 50, 20\n", f"WORDS, USERS = 50, 20\n{lines}").replace(
        LAYER, f"net = {COLUMNS}(features, columns)")
    assert text.count("columns") > BEFORE.count("columns") + 1
    written = rewrite(text, "program.py", to="keras3").data
    assert b"tpu_estimator" not in written and b"columns" not in written
    assert b"net = features['words']" in written


@pytest.mark.parametrize("line, goes", [
    ('"""Makes columns."""', True), ("fc = tf.feature_column", True),
    ("KNOWN['words'] = 1", False), ("global KNOWN; KNOWN = {}", False), ("print(50)", False),
    ("assert KNOWN", False), ("KNOWN.update(a=1)", False)])
def test_call_of_a_function_goes_where_it_only_makes_columns(line, goes):
    text = f"""import tensorflow as tf
KNOWN = dict()
def make_columns():
    {line}
    return [tf.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity('words', 50), 4)]
columns = make_columns()
"""
    before = cst.parse_module(text + "spec = tf.tpu.experimental.EmbeddingConfigSpec(columns)\n")
    left = unused_configs.without_unused(cst.parse_module(text), before).code
    assert ("columns = make_columns()" not in left) == goes


@pytest.mark.parametrize("old, new, written", [
    (LAYER, 'net = tf.layers.dropout(tf.layers.flatten(net), 0.2, training=is_training)',
     "net = keras.layers.Dropout(0.2)(keras.layers.Flatten()(net))"),
    (LAYER, "net = tf.layers.dense(net, 8, kernel_initializer=tf.random_normal_initializer("
     "stddev=0.1), use_bias=False)", "keras.layers.Dense(8, use_bias=False, kernel_initializer="
     "keras.initializers.RandomNormal(stddev=0.1))(net)"),
    (LAYER, 'net = tf.concat([features[key] for key in ["words", "users"]], 1)[:, 1:]',
     'keras.ops.concatenate([features[key] for key in ["words", "users"]], axis=1)[:, 1:]'),
    (LAYER, "for units in [8, 4]:\n        net = tf.layers.dense(net, units)",
     "for units in [8, 4]: net = keras.layers.Dense(units)(net)"),
    (LAYER, "for i, units in enumerate([8, 4]):\n        net = tf.layers.dense(net, units, "
     "name='net_%d' % i)", "Dense(units, name=('net_%d' % i))(net)"),
    (LAYER, "net = tf.matmul(net[:, :, tf.newaxis], net[:, :, None], transpose_a=True)[:, 0, :]",
     "net = keras.ops.matmul(keras.ops.swapaxes(net[:, :, None], -1, -2), net[:, :, None])"),
    (LAYER, "both = {key: features[key] for key in sorted(['words', 'users'])}\n"
     "    net = tf.gather(both['words'], [1, 0], axis=1)",
     "both = {key: features[key] for key in sorted(['words', 'users'])} "
     "net = keras.ops.take(both['words'], [1, 0], axis=1)"),
    (LAYER, f"net = {COLUMNS}(features, [{NUMERIC}('closeness', shape=[2]), {NUMERIC}('age')])",
     "keras.ops.concatenate([keras.ops.reshape(keras.ops.cast(features['age'], 'float32'), (-1, "
     "1)), keras.ops.reshape(keras.ops.cast(features['closeness'], 'float32'), (-1, 2))], axis=1)"),
    (LAYER, f"net = {COLUMNS}(features, make_columns())", "net = keras.ops.concatenate([features["
     "'friends'], features['users'], features['words']], axis=1)"),
    (", training=is_training", "", "keras.layers.BatchNormalization(momentum=0.9)(net, "
     "training=False)"),
    (LOSS, "loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast("
     "labels, tf.int32), logits=tf.stack([logits, -logits], 1)))",
     "keras_training.sparse_softmax_cross_entropy(keras.ops.cast(labels, 'int32'),"),
    ("tf.metrics.auc(labels, probabilities)",
     "tf.metrics.auc(labels, probabilities, num_thresholds=50)",
     'keras.metrics.AUC(num_thresholds=50, name="auc")'),
    ("tf.train.AdagradOptimizer(", "tf.train.AdamOptimizer(",
     "keras.optimizers.Adam(learning_rate, epsilon=1e-08)"),
])
def test_counterparts(old, new, written):
    program = BEFORE.replace(old, new) + (MAKE_COLUMNS if "make_columns" in new else "")
    result = rewrite(program, "program.py", to="keras3")
    text = result.data.decode()
    compile(text, "program.py", "exec")
    assert " ".join(written.split()) in " ".join(text.split())
