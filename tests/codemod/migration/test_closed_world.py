# SPDX-License-Identifier: Apache-2.0
"""`--to tf2`: what a program does is written exactly, or reported with its line; never dropped."""

import inspect
import pathlib
import re
import runpy

import pytest

from tests.codemod.migration.closed_world import (
    FORWARD,
    MINIMIZE,
    RATE,
    TRAIN,
    TRAIN_OP,
    UPDATES,
    found,
)
from tests.codemod.migration.test_closed_training import TRAINING
from tests.codemod.migration.test_to_tf2 import PROGRAM
from tests.docs import ROOT
from tpu_estimator_embedding import (
    EmbeddingConfigSpec,
    RunConfig,
    TPUConfig,
    TPUEstimator,
    TPUEstimatorSpec,
    tf_estimator,
)
from tpu_estimator_embedding.migration import constructor_arguments
from tpu_estimator_embedding.migration.codes import OPEN
from tpu_estimator_embedding.migration.constructor_arguments import ARGUMENTS
from tpu_estimator_embedding.migration.estimator_uses import METHODS
from tpu_estimator_embedding.migration.rewrite import rewrite, rewrite_files
from tpu_estimator_embedding.trainer import Trainer


def test_own_function_called_get_global_step_is_kept():
    text, open_ = found("exponential_decay(0.1, step", "exponential_decay(0.1, get_global_step()")
    assert "exponential_decay(0.1, get_global_step(), 100" in text


@pytest.mark.parametrize("old, new", [
    ("def main():\n    config = ", "def other(folder):\n    config = "),
    ('    config = tf.estimator.tpu.RunConfig(model_dir="model"',
     "    folder = 'a'\n    config = tf.estimator.tpu.RunConfig(model_dir=folder"),
])
def test_config_of_another_place_is_reported(old, new):
    program = PROGRAM.replace(old, new)
    assert program != PROGRAM
    between = "\n\ndef main(config):" if "other" in new else "    folder = 'b'"
    program = program.replace("    estimator = ", between + "\n    estimator = ")
    [one] = [one for one in rewrite(program, to="tf2").findings if one.about.kind in OPEN]
    assert one.code == "TEE404" and "RunConfig" in one.message


def test_model_dir_of_the_config_holds_where_the_estimator_has_none():
    text, open_ = found("        model_fn, config", "        model_fn, model_dir=None, config")
    assert open_ == [] and 'model_dir="model"' in text


LAYER = 'tf.feature_column.input_layer(features, params["columns"]'


def test_own_function_called_input_layer_is_kept():
    own = "def input_layer(features, columns):\n    return 2.0 * features[columns]\n\n\n"
    program = PROGRAM.replace(LAYER, LAYER.removeprefix("tf.feature_column."))
    result = rewrite(program.replace("def model_fn", own + "def model_fn"), to="tf2")
    assert 'net = input_layer(features, params["columns"])' in result.data.decode()


def test_input_layer_with_keywords_is_written():
    text, open_ = found(LAYER, LAYER.replace('params["columns"]', 'feature_columns=c').replace(
        "features,", "features=features,"))
    assert open_ == [] and "net = activations_of(features, c)" in text


@pytest.mark.parametrize("old, new", [
    (LAYER, LAYER + ", trainable=False"), (LAYER, LAYER + ", **given"),
    ("    net = " + LAYER, "    look = tf.feature_column.input_layer\n"
     '    net = look(features, params["columns"]')])
def test_input_layer_of_another_shape_is_reported(old, new):
    _, open_ = found(old, new)
    assert [code for code, _, _ in open_] == ["TEE409"]
    assert "net =" in open_[0][1]


def test_names_of_other_modules_are_not_those_of_tensorflow():
    """The last word is that of a name that is rewritten, or whose call is removed."""
    old = PROGRAM.replace(
        "as tf\n", "as tf\nimport other as x\nfrom other import feature_column\n", 1)
    old = old.replace("tf.disable_v2_behavior()", "x.disable_eager_execution()").replace(
        FORWARD, "    net = x.DenseFeatures(columns)(features)\n"
        "    net = feature_column.input_layer(features, columns)\n"
        "    net = tf.keras.layers.DenseFeatures(feature_columns=columns)(features)").replace(
            "tf.tpu.CrossShard", "x.CrossShard")
    result = rewrite(old, to="tf2")
    assert "its optimizer is `x.CrossShardOptimizer(optimizer)`" in str(result.findings)
    text = rewrite(old.replace("x.CrossShard", "tf.tpu.CrossShard"), to="tf2").data.decode()
    assert "\nx.disable_eager_execution()\n" in text
    assert "    net = x.DenseFeatures(columns)(features)\n" in text
    assert "    net = feature_column.input_layer(features, columns)\n" in text
    assert "    net = activations_of(features, columns)\n" in text


def test_a_layer_of_columns_may_have_a_name():
    text = PROGRAM.replace(
        FORWARD, '    net = tf.keras.layers.DenseFeatures(columns, name="look")(features)')
    result = rewrite(text, to="tf2")
    assert "    net = activations_of(features, columns)\n" in result.data.decode()
    assert "DenseFeatures" not in result.data.decode()


@pytest.mark.parametrize("new", [
    "layer = tf.keras.layers.DenseFeatures(columns)\n    net = layer(features)",
    "net = tf.keras.layers.DenseFeatures(columns, trainable=False)(features)",
    "net = tf.keras.layers.DenseFeatures(columns, name=start())(features)"])
def test_layers_of_columns_of_another_shape_are_reported(new):
    _, open_ = found(FORWARD, f"    {new}")
    assert ("TEE409", new.splitlines()[0]) in [(code, line) for code, line, _ in open_]


@pytest.mark.parametrize("value, stays, codes", [
    ("RunConfig(model_dir=make())", False, []),  # which Trainer calls in its place
    ("RunConfig(model_dir='m', cluster=start())", True, []),
    ("RunConfig(model_dir='m', tpu_config=tf.estimator.tpu.TPUConfig(start()))", True, []),
    ("RunConfig(model_dir='m', cluster=registry.get('x'))", True, []),
    ("RunConfig(model_dir='m', cluster=other.TPUConfig(1))", True, []),
    ("RunConfig(model_dir='m', cluster=(name := 'x'))", True, []),
    ("RunConfig(model_dir=os.path.join('m', params.get('x')), cluster=len('x'))", False, []),
    ("RunConfig(model_dir=make())\n    print(config)", True, ["TEE404"])])
def test_configuration_with_an_effect_stays(value, stays, codes):
    text, open_ = found('RunConfig(model_dir="model", save_checkpoints_steps=50)', value)
    assert ("RunConfig(" in text, [code for code, _, _ in open_]) == (stays, codes)


@pytest.mark.parametrize("line, left", [
    ("tf.disable_v2_behavior(); start()", "\nstart()\n"),
    ("start(); tf.disable_v2_behavior()", "\nstart()\n"),
    ("handle = tf.disable_v2_behavior()", "\nhandle = tf.disable_v2_behavior()\n")])
def test_only_the_call_for_tf1_is_removed(line, left):
    text, open_ = found("tf.disable_v2_behavior()", line)
    assert open_ == [] and left in text


def test_other_uses_of_the_model_fn_are_reported():
    _, open_ = found(TRAIN, "    check(model_fn)\n" + TRAIN)
    assert [(code, line) for code, line, _ in open_] == [("TEE409", "check(model_fn)")]


# What is written exactly, with what the text has then.
EXACT = {
    "pair": (TRAIN_OP, "        grads = optimizer.compute_gradients(loss)\n"
             "        train_op = optimizer.apply_gradients(grads, global_step=step)", ""),
    "pair in one": (MINIMIZE, "optimizer.apply_gradients(optimizer.compute_gradients(loss), step)",
                    ""),
    "name": (MINIMIZE, "optimizer.minimize(loss, step, name='train', var_list=None)", ""),
    "gates": (MINIMIZE, "optimizer.minimize(loss, step, gate_gradients="
              "tf.train.Optimizer.GATE_NONE)", ""),
    "update ops in a variable": (
        UPDATES, "    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)\n"
        "    with tf.control_dependencies(updates):\n", ""),
    "None before": ("    step = tf", "    train_op = None\n    step = tf", ""),
    "mode": (UPDATES + TRAIN_OP, "    if mode == tf.estimator.ModeKeys.TRAIN:\n" + TRAIN_OP, ""),
    "condition of the rate": (
        RATE, "    if params['fast']:\n        rate = rate * 2.0\n"
        "    elif FLAGS.x:\n        rate *= 3.0\n" + RATE,
        "    if params['fast']:\n        rate = rate * 2.0\n    else:\n        if FLAGS.x:\n"
        "            rate *= 3.0\n    return rate\n"),
    "rate of a variable that the loss has too": (
        "    rate = tf.train.exponential_decay(0.1,",
        "    base = params['base']\n    loss = loss * base\n"
        "    rate = tf.train.exponential_decay(base,",
        "    base = params['base']\n    rate = tf.train.exponential_decay(base,"),
    "other variable called global_step": (
        "    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)",
        "    global_step = tf.cast(tf.train.get_global_step(), tf.float32)\n"
        "    rate = 0.1 / tf.sqrt(global_step)",
        "    global_step = tf.cast(global_step, tf.float32)\n"
        "    rate = 0.1 / tf.sqrt(global_step)\n    return rate\n"),
    "rate assigned again later": (
        UPDATES, "    rate = 5.0\n" + UPDATES,
        "    rate = tf.train.exponential_decay(0.1, step, 100, 0.9)\n    return rate\n"),
    "argument of a variable": (
        "    optimizer = tf.train.MomentumOptimizer(rate, momentum=0.9)",
        "    momentum = params['momentum']\n"
        "    optimizer = tf.train.MomentumOptimizer(rate, momentum=momentum)",
        "    momentum = params['momentum']\n"
        "    return tf.train.MomentumOptimizer(learning_rate, momentum=momentum)\n"),
    "other branch": (
        FORWARD, "    if mode == tf.estimator.ModeKeys.TRAIN:\n        rate = 0.1\n"
        "    else:\n        loss = loss * 2.0",
        "    if mode == ModeKeys.TRAIN:\n        pass\n    else:\n        loss = loss * 2.0\n"),
    "loop of layers": (
        "    logits = tf.layers.dense(net, 1)", "    for units in (8, 4):\n"
        "        net = tf.layers.dense(net, units)\n    logits = tf.layers.dense(net, 1)",
        "    for units in (8, 4):\n        net = tf.layers.dense(net, units)\n"),
    "list that a helper changes": (
        FORWARD, "    kept = []\n    remember(kept, loss)\n    pass_on({}, loss)\n"
        "    pass_on(features, loss)", "remember(kept, loss)"),
    "layer that is called": (
        FORWARD, "    layer = tf.layers.Dense(2)\n    net = layer(tf.layers.Dense(2)(net))",
        "net = layer(tf.layers.Dense(2)(net))"),
    "own objects that change": (
        FORWARD, "    kept = [FLOOR]\n    kept += [loss]\n"
        "    more = same(kept) or sorted(HISTORY)\n"
        "    more.append(FLOOR)\n    rate = FLOOR\n    rate += FLOOR\n    def add(value):\n"
        "        kept.append(value)\n    add(loss)\n    names = FLAGS.names.split(',')\n"
        "    names.pop()", "names.pop()"),
    "attributes and keywords with the names of functions": (
        FORWARD, "    print(FLAGS.helper, helper=1)", "print(FLAGS.helper, helper=1)"),
    "metrics of an evaluation": (
        FORWARD, "    def evaluated(labels, logits):\n"
        "        return {'mean': tf.metrics.mean(logits)}\n"
        "    if mode == tf.estimator.ModeKeys.EVAL:\n"
        "        return tf.estimator.tpu.TPUEstimatorSpec(\n"
        "            mode, loss=loss, eval_metrics=(\n"
        "                lambda labels, logits: evaluated(labels, logits), [labels, logits]))",
        "tf.metrics.mean(logits)"),
    "sizes of shapes": (
        FORWARD, "    width = net.shape[1].value + net.get_shape()[-1].value"
        " + net.shape.dims[0].value",
        "    width = net.shape[1] + net.get_shape()[-1] + net.shape.dims[0]\n"),
    "equality of others": (
        FORWARD, "    if labels is None or labels == None or mode != 'train' or FLAGS.x == 1:\n"
        "        loss = loss * tf.to_float(tf.equal(labels, 1.0))", "mode != 'train'"),
    "features changed": (
        FORWARD, "    features['x'] = features.pop('y') * 2", "features.pop('y') * 2"),
}


@pytest.mark.parametrize("case", EXACT)
def test_known_shapes_are_written_exactly(case):
    old, new, expected = EXACT[case]
    text, open_ = found(old, new)
    assert open_ == []
    assert expected in text
    compile(text, "program.py", "exec")
    own = text.partition("\n\ndef helper")[0]
    assert "minimize" not in own and "train_op" not in own


@pytest.mark.parametrize("old, new, line", [
    ("max_steps=100", "max_steps=100, hooks=[hook]", "hooks=[hook]"),
    ("max_steps=100", "max_steps=100, saving_listeners=[one]", "saving_listeners"),
    (TRAIN, "    estimator.evaluate(input_fn, hooks=[hook])", "evaluate"),
    (TRAIN, "    estimator.train(*given)", "*given"),
    (TRAIN, "    estimator.train(lambda params, config: input_fn(params))", "params, config"),
    (TRAIN, "    def read(params, config): return 1\n    estimator.train(read)", "train(read)"),
    (TRAIN, "    run(estimator)", "run(estimator)"),
    (TRAIN, "    print(estimator.config)", "estimator.config"),
    (TRAIN, "    estimator.experimental_export_all_saved_models('a', {})", "export_all"),
    (TRAIN, "    estimator.export_savedmodel('a', receiver, None, True)", "True"),
    (TRAIN, "    export = estimator.export_savedmodel\n    export('a', receiver)",
     "export = estimator.export_savedmodel"),
    (TRAIN, "    functools.partial(estimator.train, hooks=[hook])(input_fn)", "functools.partial"),
    (TRAIN, "    receiver = tf.estimator.export.ServingInputReceiver(a, b, {'c': c})", "receiver"),
    (TRAIN, "    ids = tf.sparse_placeholder(tf.int64)", "tf.sparse_placeholder"),
    (TRAIN, "    tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn), "
     "tf.estimator.EvalSpec(input_fn, exporters=tf.estimator.FinalExporter('a', receiver, None, "
     "True)))", "exporters="),
    (TRAIN, "    exporters = []\n    more = exporters\n    more.append(exporter)\n    tf.estimator."
     "train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn), "
     "tf.estimator.EvalSpec(input_fn, exporters=exporters))", "exporters"),
    (TRAIN, "    exporters = []\n    exporters.append(exporter)\n    tf.estimator."
     "train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn), "
     "tf.estimator.EvalSpec(input_fn, exporters=exporters))", "exporters"),
])
def test_uses_of_the_estimator_without_a_counterpart_are_reported(old, new, line):
    _, open_ = found(old, new)
    assert {code for code, _, _ in open_} == {"TEE404"}
    assert line in open_[0][1]


@pytest.mark.parametrize("exporters", [
    "tf.estimator.FinalExporter('a', receiver)",
    "[tf.estimator.LatestExporter('a', receiver), made]", "None"])
def test_exporters_of_tensorflow_are_carried_over(exporters):
    _, open_ = found(TRAIN, f"""    made = tf.estimator.BestExporter("b", receiver)
    tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn),
                                    tf.estimator.EvalSpec(input_fn, exporters={exporters}))
    estimator.export_savedmodel("a", receiver, strip_default_attrs=True)""")
    assert open_ == []


def test_functions_of_other_modules_keep_their_names():
    program = PROGRAM.replace("def main", "import exporting\n\n\ndef main").replace(
        TRAIN, f"{TRAIN}\n    exporting.export_savedmodel(1)\n"
               "    estimator.export_savedmodel(1, 2)")
    text = rewrite(program, to="tf2").data.decode()
    assert "exporting.export_savedmodel(1)" in text and "estimator.export_saved_model(1, 2)" in text


@pytest.mark.parametrize("first, is_another", [
    ("estimator = make()", True), ("with make() as estimator: pass", True),
    ("pass", False)])
def test_another_variable_of_the_name_of_the_estimator_is_none(first, is_another):
    program = f"{PROGRAM}\n\ndef other():\n    {first}\n    run(estimator, estimator.size)\n"
    found = [one.message for one in rewrite(program, to="tf2").findings if one.code == "TEE404"]
    assert any("the Estimator is given to `run`" in message for message in found) != is_another
    assert any("estimator.size" in message for message in found) != is_another


def test_several_replicas_are_reported_with_what_differs():
    _, open_ = found("save_checkpoints_steps=50", "tpu_config=tf.estimator.tpu.TPUConfig("
                     "num_shards=2)")
    [(_, _, message)] = open_
    assert all(word in message for word in ("sum over the batch", "normalization", "clipping"))


@pytest.mark.parametrize("old, new, name", [
    ("save_checkpoints_steps=50", "session_config=make()", "session_config"),
    ("save_checkpoints_steps=50", "tpu_config=tf.estimator.tpu.TPUConfig(2, 8)", "num_shards"),
    ("save_checkpoints_steps=50", "**given", "**given"),
    ("save_checkpoints_steps=50", "unknown=1", "unknown=1"),
    ("train_batch_size=64", "use_tpu=FLAGS.x", "use_tpu"),
])
def test_arguments_that_are_not_carried_over_are_reported(old, new, name):
    _, open_ = found(old, new)
    [(code, _, message)] = open_
    assert code == "TEE408" and name in message


def test_harmless_values_are_not_reported():
    _, open_ = found("save_checkpoints_steps=50", "tpu_config=tf.estimator.tpu.TPUConfig("
                     "iterations_per_loop=100, num_shards=1, per_host_input_for_training="
                     "tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2), session_config=None")
    assert open_ == []


@pytest.mark.parametrize("constructor, functions", [
    ("TPUEstimator", [TPUEstimator.__init__]),
    ("RunConfig", [RunConfig.__init__, tf_estimator.RunConfig.__init__]),
    ("TPUConfig", [TPUConfig.__new__]), ("TPUEstimatorSpec", [TPUEstimatorSpec.__new__]),
    ("EmbeddingConfigSpec", [EmbeddingConfigSpec.__new__]),
])
def test_every_argument_of_every_constructor_has_a_fate(constructor, functions):
    names = [name for function in functions for name, parameter in
             list(inspect.signature(function).parameters.items())[1:]
             if parameter.kind is not parameter.VAR_KEYWORD]
    assert [argument.name for argument in ARGUMENTS[constructor]] == names
    assert all(argument.fate in ("carried", "reported", "no effect") and argument.text
               for argument in ARGUMENTS[constructor])


def test_trainer_has_what_is_carried_over_to_it():
    of_trainer = inspect.signature(Trainer.__init__).parameters
    assert set(constructor_arguments.OF_TRAINER) <= set(of_trainer)
    for name, arguments in METHODS.items():
        assert tuple(inspect.signature(getattr(Trainer, name)).parameters)[1:] == arguments


def test_page_of_arguments_is_that_of_the_table():
    text = (ROOT / "migration_guide/arguments.rst").read_text()
    page = runpy.run_path(str(ROOT / "docs" / "constructor_arguments.py"))
    assert text == "\n".join(page["lines"]()) + "\n"


def test_all_causes_are_reported_in_one_run_at_their_lines_of_the_original():
    program = PROGRAM.replace("tf.layers.dense(net, 1)", "tf.keras.layers.Dense(1)(net)").replace(
        TRAIN_OP, TRAINING["clipped gradients"][1])
    lines = program.splitlines()
    open_ = [lines[one.line - 1] for one in rewrite(program, to="tf2").findings
             if one.about.kind in OPEN]
    assert any("keras.layers.Dense" in line for line in open_)
    assert any("clip_by_global_norm" in line for line in open_)
    assert not re.search("TEE41", " ".join(open_))


def test_uses_in_other_modules_of_the_program_are_reported(tmp_path):
    (tmp_path / "model.py").write_text(PROGRAM)
    (tmp_path / "main.py").write_text("""\
import hooks
import model

estimator = model.make()
estimator.train(model.input_fn, hooks=[hooks.make()])
estimator.train(model.input_fn, max_steps=1, hooks=None)
estimator.export_savedmodel("a", model.receiver, as_text=True)


def input_fn(params):
    return params["context"].current_host
""")
    (tmp_path / "other.py").write_text("import tensorflow as tf\n\nprint(tf.constant(1))\n")
    files = [(tmp_path / name, pathlib.Path(name)) for name in ("model.py", "main.py", "other.py")]
    _, main, other = rewrite_files(files, to="tf2")
    assert sorted((one.line, one.code) for one in main.findings if one.about.kind in OPEN) == [
        (5, "TEE404"), (7, "TEE404"), (11, "TEE404")]
    assert other.findings == ()


REGULARIZED = "    loss = loss + tf.losses.get_regularization_loss()\n" + FORWARD


@pytest.mark.parametrize("value, is_reported", [
    ("tf.get_variable('logits/kernel')", True), ("tf.layers.dense(logits, 1)", True),
    ("tf.losses.get_regularization_loss()", True), ("tf.trainable_variables()[0]", True),
    ("tf.cast(tf.train.get_global_step(), tf.float32)", False), ("logits ** 2", False)])
def test_metric_function_that_reads_the_graph_of_the_model_is_reported(value, is_reported):
    _, reported = found("metric_fn, [labels, logits])", "lambda labels, logits: {'x': tf.metrics."
                        f"mean({value})}}, [labels, logits])")
    assert any(code == "TEE409" for code, *_ in reported) == is_reported, reported
    program = PROGRAM.replace("def main():", "def metric_fn(labels, logits):\n    return {'x': "
                              f"tf.metrics.mean({value})}}\n\n\ndef main():")
    codes = {one.code for one in rewrite(program, to="tf2").findings}
    assert ("TEE409" in codes) == is_reported


@pytest.mark.parametrize("layer", [
    "tf.layers.dense(net, 1, activity_regularizer=penalty)",
    "tf.layers.dense(net, 1, None, True, None, None, None, None, penalty)",
    "tf.layers.Dense(1, activity_regularizer=penalty)(net)"])
def test_regularizer_of_activations_is_reported_where_the_loss_has_it(layer):
    program = PROGRAM.replace("tf.layers.dense(net, 1)", layer)
    program = program.replace("def main", "def penalty(value):\n    return tf.nn.l2_loss(value)\n"
                              "\n\ndef main")
    assert "TEE409" not in {one.code for one in rewrite(program, to="tf2").findings}
    [finding] = [one for one in rewrite(program.replace(FORWARD, REGULARIZED), to="tf2").findings
                 if one.code == "TEE409"]
    assert "penalty`: its loss is not in the collection" in finding.message


@pytest.mark.parametrize("given", ["input_fn", "make_input()", "lambda: read(tf.train."
                                   "get_global_step())"])
def test_input_function_that_reads_the_step_is_reported(given):
    program = PROGRAM.replace("train(input_fn", f"train({given}") + """

def input_fn(params):
    return dataset.skip(tf.train.get_or_create_global_step())


def make_input():
    def made(params):
        return dataset.filter(tf.get_collection("filter")[0])
    return made
"""
    [finding] = [one for one in rewrite(program, to="tf2").findings if one.code == "TEE409"]
    assert "exists only in the graph of a step" in finding.message
