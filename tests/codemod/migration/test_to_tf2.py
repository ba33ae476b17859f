# SPDX-License-Identifier: Apache-2.0
"""`--to tf2`: what a model_fn becomes, and what is left to be done by hand."""

import ast
import re

import pytest

from tpu_estimator_embedding.migration import programs
from tpu_estimator_embedding.migration.rewrite import rewrite, rewrite_files

PROGRAM = '''\
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def model_fn(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["columns"])
    logits = tf.layers.dense(net, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    # The rate falls.
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)
    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    config = tf.estimator.tpu.RunConfig(model_dir="model", save_checkpoints_steps=50)
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=config, params={"columns": columns}, train_batch_size=64,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=100)
'''


def migrated(program=PROGRAM):
    result = rewrite(program, to="tf2")
    text = result.data.decode()
    ast.parse(text)
    found = [finding for finding in result.findings if finding.code >= "TEE4"]
    return text, found


def codes_of(findings):
    return sorted(finding.code for finding in findings)


@pytest.mark.parametrize("old, new, reason", [
    ("optimizer.minimize(loss, global_step=step)", "make_train_op(optimizer, loss)",
     "the train_op is `make_train_op(optimizer, loss)`"),
    ("optimizer.minimize(loss, global_step=step)",
     "optimizer.apply_gradients(zip(tf.clip_by_global_norm(tf.gradients(loss, v), 1)[0], v))",
     "increments no global step"),
    ("tf.train.MomentumOptimizer(rate, momentum=0.9)", "make_optimizer_of(rate)",
     "which is not one of tf.train"),
    ("tf.layers.dense(net, 1)", "tf.keras.layers.Dense(1)(net)", "makes new variables"),
    ("    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)",
     "    return make_spec(mode, loss, train_op)", "it has 0 train_op"),
    ("        model_fn, config", "        params=None, config", "neither a function of this mod"),
    ("def main():", "class Trainer:\n    pass\n\n\ndef main():", "uses the names ['Trainer']"),
    ("estimator = tf.estimator.tpu.TPUEstimator(",
     "other = tf.estimator.tpu.TPUEstimator(model_fn)\n    estimator = "
     "tf.estimator.tpu.TPUEstimator(", "2 TPUEstimators"),
    ("exponential_decay(0.1, step", "exponential_decay(0.1 * loss, step",
     "use ['features', 'labels']"),
])
def test_what_is_not_understood_is_left_at_explicit_imports(old, new, reason):
    assert old in PROGRAM
    program = PROGRAM.replace(old, new)
    text, found = migrated(program)
    assert "TEE402" in codes_of(found)
    assert reason in " ".join(one.message for one in found)
    assert text == rewrite(program).data.decode()


@pytest.mark.parametrize("container", ["list", "tuple"])
def test_pairs_of_gradients_may_be_taken_apart_in_a_container(container):
    minimize = "        train_op = optimizer.minimize(loss, global_step=step)\n"
    assert minimize in PROGRAM
    text, found = migrated(PROGRAM.replace(minimize, (
        f"        grads, variables = {container}(zip(*optimizer.compute_gradients(loss)))\n"
        "        grads, _ = tf.clip_by_global_norm(grads, 1.0)\n"
        "        train_op = optimizer.apply_gradients(zip(grads, variables), global_step=step)\n")))
    assert "TEE402" not in codes_of(found), found
    assert f"gradients = {container}((gradients, variables))" in text or (
        f"grads, variables = {container}((gradients, variables))" in text)


@pytest.mark.parametrize("lines", [
    ["pairs = optimizer.compute_gradients(loss)", "grads = [g for g, _ in pairs]",
     "train_op = optimizer.apply_gradients(zip(grads, [v for _, v in pairs]), step)"],
    ["pairs = optimizer.compute_gradients(loss)",
     "grads = [tf.clip_by_norm(g, 1.0) for g, _ in pairs]",
     "variables = [v for _, v in pairs]",
     "train_op = optimizer.apply_gradients(list(zip(grads, variables)), step)"],
    ["variables = tf.trainable_variables()",
     "pairs = optimizer.compute_gradients(loss, variables)", "grads, variables = zip(*pairs)",
     "train_op = optimizer.apply_gradients(zip(grads, variables), step)"]])
def test_gradients_and_variables_may_be_two_lists(lines):
    minimize = "        train_op = optimizer.minimize(loss, global_step=step)\n"
    text, found = migrated(PROGRAM.replace(minimize, "".join(
        f"        {line}\n" for line in lines)))
    assert "TEE402" not in codes_of(found), found
    assert "compute_gradients" not in text


@pytest.mark.parametrize("merged", [
    "tf.keras.layers.multiply([net, net])", "tf.keras.layers.concatenate([net, net], axis=1)",
    "tf.keras.layers.Add()([net, net])"])
def test_merges_have_no_variables_and_stay(merged):
    program = PROGRAM.replace("tf.layers.dense(net, 1)", f"tf.layers.dense({merged}, 1)")
    assert program != PROGRAM
    found = rewrite(program, to="tf2")
    assert f"tf.layers.dense({merged}, 1)" in found.data.decode()
    assert not {"TEE402", "TEE410"} & {one.code for one in found.findings}


def test_subclass_of_the_estimator_is_left():
    _, found = migrated(PROGRAM + "\nclass Own(tf.estimator.tpu.TPUEstimator):\n    pass\n")
    assert codes_of(found) == ["TEE402"]


ESTIMATOR, SPEC = "tf.estimator.tpu.TPUEstimator(", "tf.estimator.tpu.TPUEstimatorSpec("
OF_PYTHON = "from tensorflow_estimator.python.estimator.tpu"


@pytest.mark.parametrize("line, estimator, spec", [
    ("Estimator = tf.estimator.tpu.TPUEstimator", "Estimator(", SPEC),
    (f"{OF_PYTHON}.tpu_estimator import TPUEstimator as Estimator", "Estimator(", SPEC),
    (f"{OF_PYTHON}.tpu_estimator import TPUEstimatorSpec as Spec", ESTIMATOR, "Spec("),
    (f"{OF_PYTHON} import tpu_estimator as te", "te.TPUEstimator(", "te.TPUEstimatorSpec("),
    ("import estimator", ESTIMATOR, SPEC)])
def test_other_names_of_the_classes_are_followed(line, estimator, spec):
    text, found = migrated(PROGRAM.replace(SPEC, spec).replace(ESTIMATOR, estimator).replace(
        "tf.disable_v2_behavior()", f"{line}\ntf.disable_v2_behavior()"))
    assert " Trainer(" in text and "TPUEstimatorSpec" not in text
    assert codes_of(found) == codes_of(migrated()[1])


@pytest.mark.parametrize("lines, call", [
    ("def choose():\n    return tf.estimator.tpu.TPUEstimator", "choose()("),
    ("CLASSES = {'tpu': tf.estimator.tpu.TPUEstimator}", "CLASSES['tpu']("),
    ("make = functools.partial(tf.estimator.tpu.TPUEstimator)", "make("),
    ("def make(of=tf.estimator.tpu.TPUEstimator, **named):\n    return of(**named)", "make("),
    ("class Makers:\n    of = [tf.estimator.tpu.TPUEstimator]", "Makers.of[0](")])
def test_estimator_that_is_made_through_a_value_is_reported(lines, call):
    program = PROGRAM.replace(ESTIMATOR, call).replace(
        "tf.disable_v2_behavior()", f"{lines}\ntf.disable_v2_behavior()")
    text, found = migrated(program)
    assert text == rewrite(program).data.decode()
    assert codes_of(found) == ["TEE402"] and "is used as a value" in found[0].message


@pytest.mark.parametrize("old, new, what", [
    ("train_op=train_op)", "train_op=train_op, host_call=(write, [loss]))", "`host_call`"),
    ("train_op=train_op)", "train_op=train_op, training_hooks=[hook])", "`training_hooks`"),
    ("estimator.train(input_fn, max_steps=100)",
     "try: estimator.export_saved_model('a', receiver, as_text=True)\n    except OSError: pass",
     "`as_text=True` of `export_saved_model`: TF2 writes no SavedModels as text"),
    ("train_op=train_op)", "train_op=train_op, scaffold_fn=scaffold)", "`scaffold_fn`"),
    ("estimator.train(input_fn, max_steps=100)",
     "estimator.export_saved_model('a', receiver, experimental_mode=mode)",
     "`experimental_mode=mode` of `export_saved_model`"),
    ("estimator.train(input_fn, max_steps=100)",
     "tf.estimator.train_and_evaluate(estimator, a, b)", "`a` of `train_and_evaluate`"),
    ("estimator.train(input_fn, max_steps=100)",
     "tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn, 9, [hook]), "
     "tf.estimator.EvalSpec(input_fn))", "`hooks` of `TrainSpec`"),
    ("estimator.train(input_fn, max_steps=100)",
     "tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn, 9), "
     "tf.estimator.EvalSpec(input_fn, exporters=exporter))", "`exporters` of `EvalSpec`"),
    ("config=config", "config=make_config()", "RunConfig is made elsewhere"),
])
def test_manual_steps_are_marked(old, new, what):
    assert old in PROGRAM
    text, found = migrated(PROGRAM.replace(old, new))
    assert "TEE404" in codes_of(found)
    lines = text.splitlines()
    *_, mark = [index for index, line in enumerate(lines) if "# Manual step TEE404: " in line]
    is_of_model_fn = "train_op" in old
    assert is_of_model_fn == lines[mark + 1].startswith("def dense_learning_rate(")
    assert is_of_model_fn or lines[mark + 1].startswith("    ")
    assert any(what in finding.message for finding in found)


def test_every_manual_step_of_a_statement_is_marked():
    text, _ = migrated(PROGRAM.replace(
        "train_op=train_op)", "train_op=train_op, training_hooks=[a], scaffold_fn=b)"))
    assert text.count("# Manual step TEE404: ") == 2


@pytest.mark.parametrize("call", [
    "tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn, max_steps=9), "
    "tf.estimator.EvalSpec(input_fn, steps=None))",
    "train = tf.estimator.TrainSpec(input_fn, max_steps=9)\n"
    "    evaluated = tf.estimator.EvalSpec(input_fn, steps=None)\n"
    "    tf.estimator.train_and_evaluate(estimator=estimator, train_spec=train, "
    "eval_spec=evaluated)"])
def test_train_and_evaluate_becomes_that_of_a_trainer(call):
    text, found = migrated(PROGRAM.replace("estimator.train(input_fn, max_steps=100)", call))
    assert codes_of(found) == codes_of(migrated()[1])
    assert call.replace("tf.estimator.", "") in text
    assert "from tpu_estimator_embedding.trainer import EvalSpec, TrainSpec, train_and" in text
    assert "tf_estimator" not in text


@pytest.mark.parametrize("line, moved", [
    ("from tensorflow.estimator import TrainSpec, EvalSpec, train_and_evaluate  # by turns",
     "from tpu_estimator_embedding.trainer import TrainSpec, EvalSpec, train_and_evaluate  # by"),
    ("from tensorflow.estimator import (\n    TrainSpec as Train, EvalSpec, ModeKeys,\n    "
     "train_and_evaluate)", "from tpu_estimator_embedding.trainer import (\n    "
     "TrainSpec as Train, EvalSpec, ModeKeys,\n    train_and_evaluate)"),
    ("from tensorflow.estimator import TrainSpec, RunConfig, EvalSpec, train_and_evaluate",
     "from tpu_estimator_embedding.trainer import TrainSpec, EvalSpec, train_and_evaluate")])
def test_specs_that_are_imported_by_name_become_those_of_a_trainer(line, moved):
    train = "Train" if "TrainSpec as Train" in line else "TrainSpec"
    call = f"train_and_evaluate(estimator, {train}(input_fn, max_steps=9), EvalSpec(input_fn))"
    text, found = migrated(PROGRAM.replace("\n\n\ndef ", f"\n{line}\n\n\ndef ", 1).replace(
        "estimator.train(input_fn, max_steps=100)", call))
    assert codes_of(found) == codes_of(migrated()[1])
    assert moved in text, text
    assert call in text, text


def test_specs_of_the_module_itself_are_left():
    own = "\nclass EvalSpec: pass\n\n\ndef "
    text, found = migrated(PROGRAM.replace("\n\n\ndef ", own, 1).replace(
        "estimator.train(input_fn, max_steps=100)", "tf.estimator.train_and_evaluate("
        "estimator, tf.estimator.TrainSpec(input_fn, max_steps=9), EvalSpec(input_fn))"))
    assert "TEE404" in codes_of(found)
    assert "tee_trainer.train_and_evaluate(estimator, tee_trainer.TrainSpec(input_fn, max_steps=9" \
        "), EvalSpec(input_fn))" in text


def test_batch_normalization_is_a_decision():
    _, found = migrated(PROGRAM.replace(
        "tf.layers.dense(net, 1)", "tf.layers.batch_normalization(net)"))
    assert codes_of(found) == ["TEE401", "TEE403", "TEE405"]


def test_a_module_without_an_estimator_gets_explicit_imports():
    text, found = migrated("import tensorflow.compat.v1 as tf\nmode = tf.estimator.ModeKeys\n")
    assert found == []
    assert text.startswith("from tpu_estimator_embedding import tf_estimator\n")


@pytest.mark.slow
def test_model_fn_inside_a_method_stays_there():
    model_fn = PROGRAM[PROGRAM.index("def model_fn"):PROGRAM.index("def main")].strip()
    method = "\n".join(f"        {line}".rstrip() for line in model_fn.splitlines())
    program = PROGRAM.replace(model_fn, f"class Task:\n    def make(self, rate_0):\n{method}\n"
                              "        return model_fn").replace(
                                  "        model_fn, config", "        Task().make(0.1), config")
    text, found = migrated(program)
    assert codes_of(found) == ["TEE401", "TEE403"]
    assert text.index("def make_optimizer(") < text.index("class Task:")
    assert "        def model_fn(features, labels, mode, params):\n            net = " in text
    assert "Trainer(\n        Task().make(0.1), embedding_config, " in text
    text, found = migrated(program.replace("exponential_decay(0.1", "exponential_decay(rate_0"))
    assert codes_of(found) == ["TEE402"]
    assert "uses ['rate_0'] of the function around it" in found[0].message
    assert "in `params` of TPUEstimator" in found[0].message


def test_variable_with_the_name_of_the_model_fn_that_a_function_returns():
    """As in BERT: `model_fn = model_fn_builder(...)`."""
    model_fn = PROGRAM[PROGRAM.index("def model_fn"):PROGRAM.index("def main")].strip()
    nested = "\n".join(f"    {line}".rstrip() for line in model_fn.splitlines())
    program = PROGRAM.replace(model_fn, f"def builder(units):\n{nested}\n    return model_fn")
    program = program.replace("def main():\n", "def main():\n    model_fn = builder(8)\n")
    text, found = migrated(program)
    assert codes_of(found) == ["TEE401", "TEE403"]
    assert "Trainer(\n        model_fn, embedding_config, " in text
    assert "    model_fn = builder(8)\n" in text


def test_arguments_of_specs_that_are_none_need_nothing():
    text, found = migrated(PROGRAM.replace(
        "train_op=train_op)", "train_op=train_op, scaffold_fn=None, host_call=None)"))
    assert codes_of(found) == ["TEE401", "TEE403"]
    assert "scaffold_fn" not in text


CALLING = PROGRAM.replace("embedding_config_spec=spec", "embedding_config_spec=make_spec()")


def test_functions_that_made_the_spec_go():
    program = CALLING + """

def make_spec():
    parameters = tf.tpu.experimental.AdagradParameters(0.1)
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(columns, parameters)
"""
    text, _ = migrated(program)
    assert "make_spec" not in text
    assert text.count("tpu_estimator_embedding") == 1


OWN_NAMES = """\
from tensorflow.python.tpu.tpu_embedding import AdagradParameters, FeatureConfig, TableConfig
"""


@pytest.mark.slow
def test_containers_of_configurations_that_nothing_reads_any_more_go(tmp_path):
    program = OWN_NAMES + CALLING + """

RATE = 0.1
TABLES = {"words": tf.estimator.tpu.experimental.TableConfig(
    100, 8, tf.zeros_initializer(), optimization_parameters=AdagradParameters(FLAGS.rate))}
FEATURES = {name: FeatureConfig("words") for name in ("a", "b")}
READ = [FeatureConfig("words")]
LOADED = {"words": TableConfig(read_vocabulary(), 8)}
print(READ)


def make_spec():
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        table_to_config_dict=TABLES, feature_to_config_dict={**FEATURES, **LOADED})
"""
    text, _ = migrated(program)
    assert not re.search("make_spec|TABLES|FEATURES|FLAGS", text)
    assert "READ = [" in text
    assert "LOADED = {" in text  # which calls a function that may do more
    assert not KEPT.findall(migrated_beside("import numpy as train", program, tmp_path))


KEPT = re.compile("^(?:def )?(make_spec|TABLES|FEATURES)", re.MULTILINE)


def migrated_beside(other, program, folder):
    (folder / "train.py").write_text(program)
    (folder / "other.py").write_text(other)
    [file] = rewrite_files(programs.find([folder / "train.py"]), to="tf2")  # the other is not given
    both = rewrite_files(programs.find([folder]), to="tf2")
    assert [one.after for one in both if one.path.name == "train.py"] == [file.after]
    return file.after.decode()


@pytest.mark.slow
@pytest.mark.parametrize("other, kept", [
    ("from train import TABLES", ["TABLES"]),
    ("from .train import FEATURES as features", ["FEATURES"]),
    ("import train\nprint(train.TABLES)", ["TABLES"]),
    ("from jobs import train as job\nprint(getattr(job, 'FEATURES'))", ["FEATURES"]),
    ("import importlib\nimportlib.import_module('jobs.train').make_spec()", ["make_spec"]),
    ("from jobs.train import *", ["TABLES", "FEATURES", "make_spec"]),
])
def test_containers_that_another_module_reads_stay(other, kept, tmp_path):
    program = OWN_NAMES + CALLING + """

TABLES = {"words": TableConfig(100, 8)}
FEATURES = {name: FeatureConfig("words") for name in ("a", "b")}


def make_spec():
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(TABLES, FEATURES)
"""
    found = KEPT.findall(migrated_beside(other, program, tmp_path))
    # What is kept keeps what it reads.
    assert found == (["TABLES", "FEATURES", "make_spec"] if "make_spec" in kept else kept)


SPEC = """\
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        feature_columns=COLUMNS, optimization_parameters=tf.tpu.experimental.AdagradParameters(0.1))
    config = tf"""
STARTS = {
    "tf.app.run()": "", "app.run()": "from absl import app\n", "fire.Fire()": "import fire\n",
    'globals()["main"]()': "", "globals()[FLAGS.run]()": "", "eval('main')()": "",
    "getattr(sys.modules[__name__], 'ma' + 'in')()": "import sys\n",
    '__all__ = ["main"]': "", "from starter import start; start(__file__)": "",
    "[one for name, one in vars().items() if name == 'main'][0]()": "",
}


@pytest.mark.parametrize("start", STARTS)
def test_functions_that_nothing_names_stay(start):
    """They construct a spec, and may be reached in ways that the tool does not see."""
    program = PROGRAM.replace("    config = tf", SPEC) + f"""

@wrapped
def other():
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(COLUMNS, None)


def columns():
    return tf.tpu.experimental.embedding_column(None, 8)


if __name__ == "__main__":
    {STARTS[start].strip() or "pass"}
    {start}
"""
    text, found = migrated(program)
    assert codes_of(found) == ["TEE401", "TEE403"]
    assert {"main", "other", "columns"} <= {one.name for one in ast.walk(ast.parse(text))
                                            if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("use", [
    'START = {"spec": "make_spec"}', "print(globals())", "import fire; fire.Fire()",
    "getattr(FLAGS, FLAGS.name)", '__all__ = ["make_spec"]'])
def test_functions_that_a_text_may_name_stay(use):
    text, _ = migrated(CALLING + f"""

def make_spec():
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(columns, None)


{use}
""")
    assert "def make_spec():\n    return EmbeddingConfigSpec(" in text
    assert re.search(r"import \(?\s*EmbeddingConfigSpec", text)


def test_variables_that_were_unused_before_stay():
    program = PROGRAM.replace("    config = tf", SPEC.replace("spec =", "unused ="))
    text, _ = migrated(program + "\n\nKEPT = tf.estimator.tpu.RunConfig()\n")
    assert "    unused = " in text and "\nKEPT = RunConfig()\n" in text
