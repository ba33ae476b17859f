# SPDX-License-Identifier: Apache-2.0
"""`migrate --capture` on whole programs."""

import json
import re
import sys

import pytest

from examples import synthetic_data
from tests.fronts.examples.results import EXAMPLES
from tests.subprocesses import run_python, start
from tpu_estimator_embedding import cli

MIGRATE = [sys.executable, "-m", "tpu_estimator_embedding", "migrate"]


def capture(program, *arguments, cwd, options=()):
    done = start([*MIGRATE, "--output", "new", "--report", "report.json", *options,
                  EXAMPLES / f"{program}.py", "--capture", "--", *arguments], cwd=cwd)
    report = json.loads((cwd / "report.json").read_text())
    found = [finding["code"] for finding in report["findings"]
             if finding["code"] >= "TEE3"]
    return done.returncode, found, (cwd / "new/embedding_config.py").read_text()


def test_dictionaries_with_an_optimizer_for_each_table(tmp_path):
    synthetic_data.write_ratings(tmp_path, 600)
    status, found, text = capture(
        "rating_tables", "--ratings=ratings.npz", "--model_dir=model", cwd=tmp_path,
        options=["--capture-steps", "1"])
    assert (status, found) == (0, ["TEE301", "TEE306"])
    assert "learning_rate=lambda: learning_rate_of_tags(global_step)" in text
    assert "def gradient_multiplier(step):" in text
    assert not (tmp_path / "model").exists()


def test_columns_of_a_tf1_program_and_their_names_in_checkpoints(tmp_path):
    synthetic_data.write_purchases(tmp_path, 600, 600)
    status, found, text = capture(
        "contrib_ranking", "--clicks=clicks.csv", "--purchases=purchases.csv",
        "--candidates=candidates.csv", "--base_dir=models", cwd=tmp_path,
        options=["--capture-steps", "1"])
    assert (status, found) == (0, ["TEE301"])
    assert "'tbl_user': 'model/input_layer/user_embedding/embedding_weights'," in text


EVALUATES = """\
import tensorflow.compat.v1 as tf
from tensorflow.python.tpu.tpu_embedding import AdagradParameters, FeatureConfig, TableConfig

estimator = tf.estimator.tpu.TPUEstimator(
    lambda features, labels, mode, params: tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=tf.reduce_sum(features["word"])),
    "model", tf.estimator.tpu.RunConfig(), eval_batch_size=2, train_batch_size=2,
    embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        table_to_config_dict={"words": TableConfig(5, 2)},
        feature_to_config_dict={"word": FeatureConfig("words")},
        optimization_parameters=AdagradParameters(0.1)))
estimator.evaluate(lambda params: tf.data.Dataset.from_tensors({"word": [[1], [2]]}), steps=1)
"""


def test_slots_have_names_in_a_program_that_evaluates_first(tmp_path):
    (tmp_path / "program.py").write_text(EVALUATES)
    done = start([*MIGRATE, "--output", "new", "--capture-steps", "1", "program.py", "--capture"],
                 cwd=tmp_path)
    text = (tmp_path / "new/embedding_config.py").read_text()
    assert done.returncode == 0, done.stderr
    assert "    'words': 'words',\n    'words/accumulators': 'words/Adagrad',\n" in text


LEAVES_STATE = """\
import io, os, sys, threading
os.chdir("work")
sys.stderr = io.TextIOWrapper(sys.stderr.buffer)
sys.stdout.close()
sys.stdout = open(os.devnull, "w")
threading.Thread(target=threading.Event().wait).start()  # which nothing ends
"""


def test_what_a_program_changes_in_its_process_is_not_the_tools(tmp_path):
    (tmp_path / "program.py").write_text(LEAVES_STATE + EVALUATES)
    (tmp_path / "work").mkdir()
    (tmp_path / "work/program.py").write_text("print('another one')\n")
    done = start([*MIGRATE, "--write", "--capture", "program.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "written: program.py\nwritten: embedding_config.py\n"
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["program.py"]
    assert (tmp_path / "work/program.py").read_text() == "print('another one')\n"
    done = start([*MIGRATE[:-1], "plan", "program.py"], cwd=tmp_path)
    assert "Embedding plan: 1 table, 1 feature" in done.stdout, done.stderr


def test_a_program_whose_model_fn_fails_is_reported_with_what_its_text_shows(tmp_path):
    """As a `tf.cond` around `minimize`, which no Estimator with embeddings trains."""
    lines = FAILS.splitlines()
    (tmp_path / "program.py").write_text(FAILS)
    done = start([*MIGRATE, "--to", "tf2", "--output", "new", "--report", "report.json",
                  "program.py", "--capture"], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    found = json.loads((tmp_path / "report.json").read_text())["findings"]
    [left] = [one for one in found if one["code"] == "TEE402"]
    assert "tf.cond(" in lines[left["line"] - 1] and "tf.cond(" in left["message"]
    [names] = [one for one in found if one["code"] == "TEE303"]
    assert f"fails before they are known: line {left['line']}: RuntimeError" in names["message"]
    assert "must be computed outside of tf.cond" in names["message"]
    assert "def feature_config" in (tmp_path / "new/embedding_config.py").read_text()


FAILS = """\
import tensorflow.compat.v1 as tf
from tensorflow.python.tpu.tpu_embedding import FeatureConfig, TableConfig

def model_fn(features, labels, mode, params):
    loss = tf.reduce_sum(features["word"])
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    step = tf.train.get_global_step()
    train_op = tf.cond(loss > 0.1, lambda: optimizer.minimize(loss, global_step=step), tf.no_op)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

def input_fn(params):
    return tf.data.Dataset.from_tensors({"word": [[1], [2]]})

estimator = tf.estimator.tpu.TPUEstimator(
    model_fn, "model", tf.estimator.tpu.RunConfig(), train_batch_size=2,
    embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        table_to_config_dict={"words": TableConfig(5, 2)},
        feature_to_config_dict={"word": FeatureConfig("words")},
        optimization_parameters=tf.tpu.experimental.AdagradParameters(0.1)))
estimator.train(input_fn, max_steps=1)
"""


def test_shared_columns_until_the_constructor(tmp_path):
    synthetic_data.write_sessions(tmp_path, 600)
    status, found, text = capture("two_tower", "--sessions=sessions.npz", "--model_dir=model",
                                  cwd=tmp_path)
    assert (status, found) == (0, ["TEE301", "TEE303", "TEE306"])
    assert "'history': mid_level.FeatureConfig(tbl_items, max_sequence_length=5)," in text


def test_configs_of_keras_3_are_checked_with_tensorflow_2_after_a_tf1_program():
    done = run_python("""
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        from tpu_estimator_embedding.runtime import tf1
        tf1.use()
        from types import SimpleNamespace
        from tpu_estimator_embedding.migration import plan_comparison
        print(plan_comparison.keras3_differences(
            SimpleNamespace(plan=SimpleNamespace(features=())),
            "import tensorflow as tf\\ntf.__internal__.tracking\\nfeature_config = dict"))
        import tensorflow as tf
        print(hasattr(tf, "placeholder"))
    """)
    assert done.stdout == "[]\nTrue\n"


def test_a_program_without_an_estimator_is_reported(tmp_path):
    (tmp_path / "train.py").write_text("import tensorflow as tf\nprint('no estimator')\n")
    done = start([*MIGRATE, "train.py", "--capture"], cwd=tmp_path)
    assert done.returncode == 2
    assert "TEE304 program ended without a TPUEstimator" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("steps", ["0", "1"])
@pytest.mark.parametrize("program, end", [("import sys; sys.exit(7)", "ended with exit status 7"),
                                          ("raise KeyError('price')", "failed")])
def test_a_program_that_ends_early_is_reported_with_how(program, end, steps, tmp_path):
    (tmp_path / "train.py").write_text(program)
    done = start([*MIGRATE, "train.py", "--capture", "--capture-steps", steps], cwd=tmp_path)
    assert done.returncode == 2
    assert re.search("TEE304 program ended without a TPUEstimator: train.py "
                     f"{end} before it had constructed (its|a) TPUEstimator", done.stderr)
    assert ("KeyError: 'price'" in done.stderr) == (end == "failed")


@pytest.mark.parametrize("status, sentence", [
    ("0", "TEE304 program ended without a TPUEstimator"),
    ("7", "fails before they are known: line 12: SystemExit: 7")])
def test_a_program_that_exits_before_its_model_fn_is_reported(status, sentence, tmp_path):
    constructs, _, _ = EVALUATES.partition("estimator.evaluate(")
    (tmp_path / "train.py").write_text(f"{constructs}raise SystemExit({status})\n")
    done = start([*MIGRATE, "train.py", "--capture", "--capture-steps", "1"], cwd=tmp_path)
    assert sentence in done.stderr


NO_TABLES = """
estimator = tf.estimator.tpu.TPUEstimator(
    model_fn, "plain", tf.estimator.tpu.RunConfig(), train_batch_size=2)
"""


def test_estimators_without_tables_are_skipped_until_model_fn(tmp_path):
    source = FAILS.replace("tf.cond(loss > 0.1, lambda: ", "").replace(", tf.no_op)", "")
    source = source.replace('features["word"])', 'tf.cast(features["word"], tf.float32))')
    with_tables = source[source.index("estimator ="):]
    [dense] = re.findall("loss = .*", source)
    source = source.replace(dense, dense + ' * tf.get_variable("weight", [])')
    plain = source.replace(with_tables, NO_TABLES + "estimator.train(input_fn, max_steps=1)\n")
    (tmp_path / "program.py").write_text(plain + with_tables)
    done = start([*MIGRATE, "--capture-steps", "1", "program.py", "--capture"], cwd=tmp_path)
    assert "+TABLE_VARIABLES = " in done.stdout, done.stderr
    (tmp_path / "program.py").write_text(plain.replace("max_steps=1", "max_steps=-1"))
    done = start([*MIGRATE, "--capture-steps", "1", "program.py", "--capture"], cwd=tmp_path)
    assert "ValueError: " in done.stderr and "AttributeError" not in done.stderr
    assert "program.py failed before it had constructed a TPUEstimator with tables" in done.stderr
    assert done.returncode == 2
    (tmp_path / "program.py").write_text(plain)
    done = start([*MIGRATE, "--capture-steps", "1", "program.py", "--capture"], cwd=tmp_path)
    assert "TPUEstimator with tables that calls its model_fn" in done.stderr


@pytest.mark.parametrize("arguments, sentence", [
    (["a.py", "b.py", "--capture"], "--capture needs exactly one program file among the paths, "
     "got ['a.py', 'b.py']"),
    ([".", "--capture"], "--capture needs exactly one program file among the paths, got ['.']"),
    (["a.py", "--", "--steps=1"],
     "arguments after -- are the program's, and need --capture, --verify or a"),
    (["a.py", "--capture-steps", "1"], "--capture-steps needs --capture"),
])
def test_wrong_use_is_reported(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    with pytest.raises(SystemExit, match="2"):
        cli.main(["migrate", *arguments])
    assert sentence in capsys.readouterr().err


TENSOR_CORE = EVALUATES.replace("""        table_to_config_dict={"words": TableConfig(5, 2)},
        feature_to_config_dict={"word": FeatureConfig("words")},
""", """        feature_columns=[tf.tpu.experimental.embedding_column(
            tf.feature_column.categorical_column_with_identity(name, 5), 2,
            embedding_lookup_device=device, tensor_core_shape=[None, 2])
            for name, device in (("word", None), ("tag", "tpu_tensor_core"))],
""")


def test_columns_for_a_tensor_core_are_reported(tmp_path):
    """`migrate` once said that nothing was left, of a program that failed then."""
    (tmp_path / "program.py").write_text(TENSOR_CORE)
    done = start([*MIGRATE, "--to", "tf2", "--output", "new", "program.py", "--capture"],
                 cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "TEE309 column for a TensorCore: the columns of the features ['tag']" in done.stderr
