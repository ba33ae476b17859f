# SPDX-License-Identifier: Apache-2.0
"""Whole lives of legacy programs and of what `migrate` makes of them, compared without `verify`.

A program is one choice from each of CHOICES. Both start from the legacy program's initial
checkpoint, train, evaluate, predict and train again; after each phase all variables are compared,
and the metrics and predictions are.

    python -m tests.codemod.migration.lives --count 30 --seed 1 --to tf2
"""

import argparse
import dataclasses
import importlib.util
import json
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

import numpy as np

STEPS, AGAIN, ROWS = 6, 3, 50
PROGRAM = '''\
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def columns():
    word = tf.feature_column.categorical_column_with_identity("words", 50)
    return [tf.tpu.experimental.embedding_column(
        word, 4, initializer=tf.truncated_normal_initializer(stddev=0.5, seed=3))]


def batches(params, lengths):
    def batch(row):
        ids = tf.reshape(tf.range(row * 8, row * 8 + 16) * 7 % 50, [8, 2])
        width = tf.gather(lengths, row % 3)
        return {"words": tf.sparse.from_dense(ids), "x": tf.cast(
            tf.reshape(tf.range(24), [8, 3]) % 5, tf.float32) / 5.0, "scores": tf.reshape(
                tf.cast(tf.range(8 * width) % 7, tf.float32), [8, width])}, tf.cast(
                    tf.reshape(tf.range(8), [8, 1]) % 2, tf.float32)
    return tf.data.Dataset.range(ROWS, output_type=tf.int32).map(
        batch).map(lambda features, labels: (
            {**features, "x": tf.ensure_shape(features["x"], [8, 3])}, labels))


def train_input(params):
    return batches(params, [5, 5, 5]).repeat()


def eval_input(params):
    return batches(params, <LENGTHS>).take(3)


def predict_input(params):
    return batches(params, [5, 5, 5]).take(2).map(lambda features, labels: features)


<METRIC_FN>


def model_fn(features, labels, mode, params):
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    net = tf.feature_column.input_layer(features, columns())
    net = tf.concat([net, features["x"]], axis=1)
    <LAYERS>
    logits = tf.layers.dense(net, 1, name="logits")
    if mode == tf.estimator.ModeKeys.PREDICT:
        <PREDICTIONS>
    <LOSS>
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, <EVAL>)
    <OPTIMIZER>
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def make(model_dir):
    config = tf.estimator.tpu.RunConfig(model_dir=model_dir)
    return tf.estimator.tpu.TPUEstimator(
        model_fn, config=config, train_batch_size=8, eval_batch_size=8, predict_batch_size=8,
        embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns(),
            optimization_parameters=tf.tpu.experimental.AdagradParameters(0.1)<PIPELINED>))


def main():
    estimator = make("model")
    estimator.train(train_input, steps=STEPS)


if __name__ == "__main__":
    main()
'''

MINIMIZE = "train_op = optimizer.minimize(loss, tf.train.get_global_step())"
WITH_UPDATES = ("with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):\n"
                f"        {MINIMIZE}")
SQUARE = "lambda value: 0.1 * tf.reduce_sum(value ** 2)"
METRICS = "eval_metrics=(metric_fn, {'labels': labels, 'logits': logits, 'scores': SCORES})"
DENSE = "net = tf.layers.dense(net, 5, tf.nn.relu)"
# Slot of PROGRAM -> name of a choice -> text.
CHOICES = {
    "LAYERS": {
        "dense": DENSE,
        "normalized in training": "net = tf.layers.batch_normalization(net, training=is_training)",
        "normalized in evaluation": "net = tf.layers.batch_normalization(net, training=mode != "
                                    "tf.estimator.ModeKeys.PREDICT)",
        "always normalized": "net = tf.layers.batch_normalization(net, training=True)\n"
                             f"    {DENSE}",
        "regularized": f"net = tf.layers.dense(net, 5, kernel_regularizer={SQUARE}, "
                       f"bias_regularizer={SQUARE})",
        "regularized activity": f"net = tf.layers.dense(net, 5, activity_regularizer={SQUARE})",
        "regularized activity of a layer": f"net = tf.layers.Dense(5, activity_regularizer="
                                           f"{SQUARE})(net)",
        "unused variable": "unused = tf.get_variable('unused', [3])\n    " + DENSE,
        "dropout": "net = tf.layers.dropout(net, 0.5, training=False)\n    " + DENSE,
        "scope": "with tf.variable_scope('tower', reuse=tf.AUTO_REUSE):\n"
                 f"        net = tf.layers.dense(net, 5, kernel_regularizer={SQUARE})\n"
                 "        kernel = tf.get_variable('scale', [5], initializer=tf.ones_initializer())"
                 "\n    net = net * kernel",
        "regularized by names": f"net = tf.layers.dense(net, 5, kernel_regularizer={SQUARE}, "
                                "name='deep')\n"
                                "    net *= tf.get_variable('deep_scale', [5], initializer="
                                f"tf.ones_initializer(), regularizer={SQUARE})",
        "step": "net = net * (1.0 + 0.01 * tf.cast(tf.train.get_global_step(), tf.float32))",
        "frozen": "fixed = tf.get_variable('fixed', [7], trainable=False, "
                  "initializer=tf.ones_initializer())\n    net = net * fixed",
        "summary": f"{DENSE}\n    tf.summary.histogram('net', net)",
        "convolution": "net = tf.layers.flatten(tf.layers.conv1d(net[:, :, tf.newaxis], 2, 3, "
                       "activation=tf.nn.tanh))",
    },
    "LOSS": {
        "cross entropy": "loss = tf.losses.sigmoid_cross_entropy(labels, logits)",
        "with regularization": "loss = tf.losses.mean_squared_error(labels, logits) + "
                               "tf.losses.get_regularization_loss()",
        "total": "tf.losses.log_loss(labels, tf.sigmoid(logits))\n"
                 "    loss = tf.losses.get_total_loss()",
        "own": "loss = tf.reduce_mean(tf.square(labels - logits))\n"
               "    loss += tf.add_n([0.0] + tf.losses.get_regularization_losses())",
        "of a scope": "loss = tf.losses.mean_squared_error(labels, logits)\n"
                      "    loss += tf.add_n([0.0] + tf.losses.get_regularization_losses('deep'))",
        "added": "tf.losses.add_loss(0.5 * tf.reduce_mean(tf.square(logits)))\n"
                 "    tf.losses.hinge_loss(labels, logits)\n"
                 "    loss = tf.losses.get_total_loss(add_regularization_losses=False)",
    },
    "OPTIMIZER": {
        "sgd": f"optimizer = tf.train.GradientDescentOptimizer(0.1)\n    {WITH_UPDATES}",
        "adagrad": f"optimizer = tf.train.AdagradOptimizer(0.1)\n    {WITH_UPDATES}",
        "adam": "step = tf.train.get_or_create_global_step()\n"
                "    rate = tf.train.exponential_decay(0.05, step, 3, 0.5)\n"
                f"    optimizer = tf.train.AdamOptimizer(rate)\n    {WITH_UPDATES}",
        "momentum": "step = tf.train.get_global_step()\n    rate = tf.train.piecewise_constant("
                    "tf.cast(step, tf.int32), [2, 5], [0.1, 0.05, 0.01])\n"
                    "    optimizer = tf.tpu.CrossShardOptimizer(tf.train.MomentumOptimizer(rate, "
                    f"0.9))\n    {WITH_UPDATES}",
        "ftrl without updates": f"optimizer = tf.train.FtrlOptimizer(0.1)\n    {MINIMIZE}",
        "rmsprop": f"optimizer = tf.train.RMSPropOptimizer(0.01)\n    {WITH_UPDATES}",
    },
    "EVAL": {
        "metrics": METRICS.replace("SCORES", "features['scores']"),
        "list": "eval_metrics=(metric_fn, [labels, logits, features['scores']])",
        "lambda": "eval_metrics=(lambda labels, logits: {'mean': tf.metrics.mean(logits)}, "
                  "[labels, logits])",
        "none": "",
    },
    "METRIC_FN": {
        "mean": "return {'mean': tf.metrics.mean(logits), 'accuracy': tf.metrics.accuracy("
                "labels, tf.round(tf.sigmoid(logits)))}",
        "step": "step = tf.train.get_or_create_global_step()\n"
                "    return {'step': tf.metrics.mean(tf.cast(step, tf.float32))}",
        "shape": "return {'mean': tf.metrics.mean(logits / float(logits.shape[0]))}",
        "scores": "return {'sum': tf.metrics.mean(tf.reduce_sum(scores, axis=1)), "
                  "'auc': tf.metrics.auc(labels, tf.sigmoid(logits))}",
        "variables": "return {'norm': tf.metrics.mean(tf.add_n([tf.nn.l2_loss(one) for one in "
                     "tf.trainable_variables()]))}",
        "shared variable": "with tf.variable_scope('logits', reuse=tf.AUTO_REUSE):\n"
                           "        kernel = tf.get_variable('bias', [1])\n"
                           "    return {'bias': tf.metrics.mean(kernel)}",
    },
    "PREDICTIONS": {
        "dictionary": "return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={'logits': "
                      "logits, 'classes': tf.cast(logits > 0, tf.int64)})",
        "tensor": "return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions=logits)",
        "exported": "found = {'p': tf.sigmoid(logits)}\n"
                    "        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions=found, "
                    "export_outputs={'serving_default': tf.estimator.export.PredictOutput(found)})",
        "step": "return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={'step': tf.fill("
                "[8], tf.train.get_global_step()), 'logits': logits})",
    },
    "LENGTHS": {"equal": "[5, 5, 5]", "other": "[5, 3, 4]"},
    "PIPELINED": {"no": "", "yes": ",\n            pipeline_execution_with_tensor_core=True"},
}


@dataclasses.dataclass(frozen=True)
class Life:
    """Slot -> name of the choice; those that are not given are the first ones."""

    choices: tuple[tuple[str, str], ...]

    def text(self) -> str:
        text = PROGRAM
        for slot, of_slot in CHOICES.items():
            name = dict(self.choices).get(slot, next(iter(of_slot)))
            chosen = of_slot[name]
            if slot == "METRIC_FN":
                chosen = f"def metric_fn(labels, logits, scores):\n    {chosen}"
            text = text.replace(f"<{slot}>", chosen)
        return text.replace(", loss=loss, )", ", loss=loss)").replace(
            "STEPS", str(STEPS)).replace("ROWS", str(ROWS))


def drawn(seed: int) -> Life:
    """Returns a program of random choices."""
    choose = random.Random(seed).choice
    return Life(tuple((slot, choose(list(names))) for slot, names in CHOICES.items()))


# In separate processes.

def load(path: pathlib.Path, name: str):
    """Imports a program, with the embedding_config beside it."""
    sys.modules.pop("embedding_config", None)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def live(estimator, module, values) -> dict[str, object]:
    """Returns what a program has after each phase."""
    found = {"trained": None}
    estimator.train(module.train_input, steps=STEPS)
    found["trained"] = values(estimator)
    results = estimator.evaluate(module.eval_input, steps=3)
    found["results"] = {name: float(value) for name, value in results.items()}
    found["evaluated"] = values(estimator)
    found["rows"] = list(estimator.predict(module.predict_input))
    found["predicted"] = values(estimator)
    estimator.train(module.train_input, steps=AGAIN)
    found["again"] = values(estimator)
    return found


def run_legacy(directory: pathlib.Path) -> None:
    """Runs the legacy program of a directory, captures its configuration and migrates it."""
    from tpu_estimator_embedding.migration import captured_config, captured_file
    from tpu_estimator_embedding.migration.rewrite import rewrite
    program = directory / "program.py"
    module = load(program, directory.name)
    found = live(module.make(str(directory / "model")), module, lambda estimator: {
        name: estimator.get_variable_value(name) for name in estimator.get_variable_names()})
    (directory / "legacy.pickle").write_bytes(pickle.dumps(found))
    stage = (directory / "stage").read_text()
    captured = captured_config.capture(str(program), [], steps=1)
    text, of_config = captured_file.written(captured, stage)
    result = rewrite(program.read_text(), "program.py", to=stage)
    (directory / "new").mkdir()
    (directory / "new/embedding_config.py").write_text(text)
    (directory / "new/program.py").write_bytes(result.data)
    (directory / "findings.json").write_text(json.dumps(
        [(one.about.kind, one.code, one.message) for one in (*of_config, *result.findings)]))


def run_migrated(directory: pathlib.Path) -> None:
    """Runs the migrated program from the legacy program's initial checkpoint."""
    module = load(directory / "new/program.py", f"new_{directory.name}")
    trainer = module.make(str(directory / "new/model"))
    trainer.restore_estimator_checkpoint(str(directory / "model/model.ckpt-0"), module.train_input)
    found = live(trainer, module, lambda trainer: {
        name: trainer.get_variable_value(name) for name in trainer.get_variable_names()})
    (directory / "migrated.pickle").write_bytes(pickle.dumps(found))


def work(kind: str, directories: list[str]) -> None:
    """Runs many programs; the error of one is kept in its directory."""
    if kind == "legacy":
        from tpu_estimator_embedding import install
        install()
    for directory in map(pathlib.Path, directories):
        try:
            {"legacy": run_legacy, "migrated": run_migrated}[kind](directory)
        except Exception as error:
            (directory / f"{kind}.error").write_text(f"{type(error).__name__}: {error}")


# What is compared.

def differences(directory: pathlib.Path, rtol: float) -> list[str]:
    """Returns how two lives differ."""
    errors = [path.name + ": " + path.read_text()[:300] for path in sorted(
        directory.glob("*.error"))]
    if errors:
        return errors
    old, new = (pickle.loads((directory / f"{name}.pickle").read_bytes())
                for name in ("legacy", "migrated"))
    found = []
    for phase in ("trained", "evaluated", "predicted", "again"):
        found += [f"{phase}: {name}" for name, value in old[phase].items()
                  if name not in new[phase] or not close(value, new[phase][name], rtol)]
        found += [f"{phase}: {name} is new" for name in new[phase].keys() - old[phase].keys()]
    found += [f"evaluation: {name} {value}, {new['results'].get(name)}"
              for name, value in old["results"].items()
              if not close(value, new["results"].get(name), rtol)]
    if len(old["rows"]) != len(new["rows"]):
        found.append(f"{len(old['rows'])} predictions, {len(new['rows'])}")
    for number, rows in enumerate(zip(old["rows"], new["rows"], strict=False)):
        pairs = [rows] if not isinstance(rows[0], dict) else [
            (rows[0][name], rows[1].get(name)) for name in rows[0]]
        if not all(close(*pair, rtol) for pair in pairs):
            found.append(f"prediction of sample {number}: {rows}")
            break
    return found


def close(a, b, rtol: float) -> bool:
    return b is not None and np.shape(a) == np.shape(b) and np.allclose(
        a, b, rtol=rtol, atol=rtol * 0.1, equal_nan=True)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of a program.

    Attributes:
        left: what the tool reports as left to be done.
        differences: of the two lives.
    """

    left: tuple[str, ...]
    differences: tuple[str, ...]


def compared(lives: list[Life], directory: pathlib.Path, stage: str = "tf2",
             rtol: float = 1e-5) -> list[Verdict]:
    """Runs programs in both forms; returns a verdict for each."""
    folders = []
    for number, life in enumerate(lives):
        folder = directory / f"life_{number}"
        folder.mkdir()
        (folder / "program.py").write_text(life.text())
        (folder / "stage").write_text(stage)
        folders.append(str(folder))
    for kind in ("legacy", "migrated"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.codemod.migration.lives", "--work", kind, *folders],
            capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
    verdicts = []
    for folder in map(pathlib.Path, folders):
        path = folder / "findings.json"
        findings = json.loads(path.read_text()) if path.exists() else []
        verdicts.append(Verdict(
            tuple(f"{code} {message}" for kind, code, message in findings if kind == "left"),
            tuple(differences(folder, rtol))))
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=["legacy", "migrated"])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", default="tf2")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("folders", nargs="*")
    args = parser.parse_args()
    if args.work:
        work(args.work, args.folders)
        return
    lives = [drawn(args.seed * 100_000 + number) for number in range(args.count)]
    with tempfile.TemporaryDirectory() as temporary:
        verdicts = compared(lives, args.keep or pathlib.Path(temporary), args.to)
    for life, verdict in zip(lives, verdicts, strict=True):
        word = "equal" if not verdict.differences else (
            "reported" if verdict.left else "DIFFERS")
        print(word, dict(life.choices), *verdict.left, *verdict.differences[:4], sep="\n    ")
    print(f"{sum(not one.differences for one in verdicts)} of {len(verdicts)} are equal, "
          f"{sum(bool(one.differences) and not one.left for one in verdicts)} differ silently")


if __name__ == "__main__":
    main()
