# SPDX-License-Identifier: Apache-2.0
"""`verify` follows programs through training, evaluation, prediction and a second training."""

import dataclasses
import json
import sys

import pytest

from tests.codemod.migration.lives import Life
from tests.codemod.migration.verify.test_verify import RUN_ALL
from tests.subprocesses import start
from tpu_estimator_embedding.migration.rewrite import rewrite
from tpu_estimator_embedding.migration.verify import comparison
from tpu_estimator_embedding.migration.verify.recording import (
    ESTIMATOR,
    KERAS3,
    TF2,
    RecordedResult,
    RecordingSettings,
)

STEPS = 3
PROGRAM = Life((("LAYERS", "normalized in evaluation"), ("METRIC_FN", "step"),
                ("OPTIMIZER", "adam"))).text()
LIFE = """\
    estimator.train(train_input, steps=3)
    print(estimator.evaluate(eval_input, steps=3)["loss"])
    assert list(estimator.predict(predict_input))
    estimator.train(train_input, steps=4)
    estimator.export_saved_model("never", None)
"""
BY_TURNS = """\
    results, _ = tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(train_input, max_steps=3),
        tf.estimator.EvalSpec(eval_input, steps=3))
    print(results["loss"])
""" + "".join(LIFE.splitlines(keepends=True)[2:])
TRAINS_ONLY = "    estimator.train(train_input, steps=3)\n"
TRAIN = "    estimator.train(train_input, steps=6)\n"
PIPELINED = Life((("LAYERS", "normalized in evaluation"), ("METRIC_FN", "step"),
                  ("OPTIMIZER", "adam"), ("PIPELINED", "yes"))).text().replace(TRAIN, LIFE)

# Planted fault -> methods of a Trainer, which the program uses.
FAULTS = {
    "nothing": "",
    "evaluation moves averages": """
    def evaluate(self, *args, **kwargs):
        found = super().evaluate(*args, **kwargs)
        self.variables["batch_normalization/moving_mean"].assign_add([0.1] * 7)
        return found
""",
    "evaluation differs": """
    def _outputs(self, features, labels, mode):
        found = super()._outputs(features, labels, mode)
        return (found[0] + 0.1, found[1]) if mode == "eval" else found
""",
    "prediction differs": """
    def _outputs(self, features, labels, mode):
        found = super()._outputs(features, labels, mode)
        return {**found, "logits": 2.0 * found["logits"]} if mode == "infer" else found
""",
    "prediction moves a table": """
    def predict(self, *args, **kwargs):
        rows = list(super().predict(*args, **kwargs))
        self.variables["input_layer/words_embedding/embedding_weights"].assign(tf.ones([50, 4]))
        return iter(rows)
""",
    "step starts from 0": """
    def train(self, *args, **kwargs):
        self.global_step.assign(0)
        return super().train(*args, **kwargs)
""",
    "slots start from 0": """
    def train(self, *args, **kwargs):
        for name, variable in self.variables.items():
            if name.endswith("/Adam"):
                variable.assign(tf.zeros_like(variable))
        return super().train(*args, **kwargs)
""",
    "ends in its prediction": """
    def predict(self, *args, **kwargs):
        raise KeyError("no predictions")
""",
}
PREPARE = """
    import pathlib, sys
    from tpu_estimator_embedding.migration import captured_config, captured_file
    from tpu_estimator_embedding.migration.rewrite import rewrite
    from tpu_estimator_embedding.migration.verify import recorded_run
    from tpu_estimator_embedding.migration.verify.recording import RecordingSettings
    root, *recorded = sys.argv[1:]
    program = pathlib.Path(root, "program.py")
    captured = captured_config.capture(str(program), [], steps=1)
    text, _ = captured_file.written(captured, "tf2")
    pathlib.Path(root, "embedding_config.py").write_text(text)
    for stage in ("imports", "tf2", "layers"):
        result = rewrite(program.read_text(), "program.py", to=stage)
        pathlib.Path(root, f"{stage}.py").write_bytes(result.data)
    for settings in recorded:
        recorded_run.run(RecordingSettings.load(settings))
"""


def settings(root, name, text, reference=None, config=("", "")):
    folder = root / name
    folder.mkdir()
    (folder / "program.py").write_text(text)
    if reference:
        (folder / "embedding_config.py").write_text(
            (root / "embedding_config.py").read_text().replace(*config))
    return RecordingSettings(str(folder / "program.py"), (), str(folder), STEPS, not reference,
                             reference=reference and str(root / reference)).save()


@pytest.fixture(name="runs", scope="module")
def runs_of_all_programs(tmp_path_factory):
    root = tmp_path_factory.mktemp("lives")
    (root / "program.py").write_text(PROGRAM.replace(TRAIN, LIFE))
    done = start([sys.executable, "-c", PREPARE.replace("\n    ", "\n"), root,
                  settings(root, "legacy", PROGRAM.replace(TRAIN, LIFE)),
                  settings(root, "legacy training", PROGRAM.replace(TRAIN, TRAINS_ONLY)),
                  settings(root, "legacy by turns", PROGRAM.replace(TRAIN, BY_TURNS)),
                  settings(root, "legacy pipelined", PIPELINED)])
    assert done.returncode == 0, done.stderr
    tf2, layers, imports = ((root / f"{stage}.py").read_text()
                            for stage in ("tf2", "layers", "imports"))
    faulty = {name: tf2.replace("def make(", f"class Own(Trainer):\n{text}\n\ndef make(").replace(
        "return Trainer(", "return Own(") if text else tf2 for name, text in FAULTS.items()}
    done = start([sys.executable, "-c", RUN_ALL.replace("\n    ", "\n"),
                  *(settings(root, name, text, "legacy") for name, text in faulty.items()),
                  settings(root, "layers", layers, "legacy"),
                  *(settings(root, f"by turns {stage}", rewrite(
                      PROGRAM.replace(TRAIN, BY_TURNS), to=stage).data.decode(), "legacy by turns")
                    for stage in ("tf2", "layers")),
                  settings(root, "training", tf2.replace(LIFE, TRAINS_ONLY), "legacy training"),
                  *(settings(root, f"pipelined {stage}", text, "legacy pipelined",
                             config=("PIPELINED = False", "PIPELINED = True"))
                    for stage, text in (("tf2", tf2), ("layers", layers))),
                  settings(root, "imports", imports, "legacy")])  # which ends eager execution
    assert done.returncode == 0, done.stderr
    return root


def verified(root, name, reference="legacy", rtol=1e-5):
    old, new = root / reference, root / name
    return comparison.compare_runs(old, RecordedResult.load(old), new, RecordedResult.load(new),
                                   rtol=rtol, atol=None)


@pytest.mark.parametrize("name, reference", [
    ("nothing", "legacy"), ("layers", "legacy"), ("pipelined tf2", "legacy pipelined"),
    ("pipelined layers", "legacy pipelined"), ("by turns tf2", "legacy by turns"),
    ("by turns layers", "legacy by turns")])
def test_every_phase_agrees(runs, name, reference):
    found = verified(runs, name, reference)
    assert found.agree, found.to_text()
    assert found.again == STEPS and len(found.steps) == 2 * STEPS
    assert found.results == ("global_step", "loss", "step")
    assert found.predicted == ("classes", "logits")
    assert list(found.after) == ["training", "evaluation", "prediction", "second training"]
    assert not found.not_compared
    assert "evaluation (global_step, loss, step); prediction (classes, logits); 3 steps of a " \
           "second training; all variables after" in found.to_text()


def test_stage_of_imports_says_so(runs):
    found = verified(runs, "imports", rtol=0.0)
    assert found.agree and found.again == STEPS and found.predicted, found.to_text()
    assert "the migrated one is of the stage imports" in found.to_text()


@pytest.mark.parametrize("fault, where", [
    ("evaluation moves averages", "Variables differ after the evaluation"),
    ("evaluation differs", "evaluation differs: loss"),
    ("prediction differs", "prediction differs: logits of sample 0"),
    ("prediction moves a table", "Variables differ after the prediction"),
    ("step starts from 0", "step 1 of the second training"),
    ("slots start from 0", "step 1 of the second training"),
    ("ends in its prediction", "ended before its prediction: KeyError"),
])
def test_fault_of_a_phase_is_found(runs, fault, where):
    found = verified(runs, fault)
    assert not found.agree
    assert where in found.to_text(), found.to_text()
    assert all(step.agrees for step in found.steps[:STEPS])


def test_program_that_only_trains_is_trained_again_and_says_what_is_missing(runs):
    found = verified(runs, "training", "legacy training")
    assert found.agree and found.again == STEPS, found.to_text()
    assert found.not_compared == ("evaluation (the legacy program does not evaluate)",
                                  "prediction (the legacy program does not predict)")
    assert json.loads((runs / "legacy training/run.json").read_text())["phases"] == [
        ["training", STEPS], ["second training", 2 * STEPS]]


def test_too_few_steps_that_agree_cannot_be_compared(runs):
    """As those of pipelined tables, whose update is seen a step later, without a Trainer."""
    old, new = runs / "legacy", runs / "nothing"
    short = dataclasses.replace(RecordedResult.load(new), losses=(0.5,) * 2, again=(), phases=())
    legacy = dataclasses.replace(RecordedResult.load(old), losses=(0.5,) * 3)
    with pytest.raises(comparison.FailedRunError, match="trained 2 of 3 steps, .* --steps 2"):
        comparison.compare_runs(old, legacy, new, short, rtol=1e-5, atol=None)


@pytest.mark.parametrize("stage, to, is_compared", [
    (TF2, None, True), (TF2, "layers", True), (KERAS3, "keras3", True),
    (ESTIMATOR, "imports", True),
    (ESTIMATOR, "keras3", False), (TF2, "keras3", False), (ESTIMATOR, None, False)])
def test_program_that_migrate_has_left_is_not_compared(tmp_path, stage, to, is_compared):
    (tmp_path / "embedding_config.py").touch()
    if is_compared:
        comparison._check_stage(tmp_path / "new.py", stage, to)
    else:
        with pytest.raises(comparison.FailedRunError, match="was not compared: it trains"):
            comparison._check_stage(tmp_path / "new.py", stage, to)
    comparison._check_stage(tmp_path / "other/new.py", ESTIMATOR, None)
