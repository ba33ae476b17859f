# SPDX-License-Identifier: Apache-2.0
"""`verify` on a program, its migrations to all stages, and ones with a planted difference."""

import dataclasses
import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.docs import ROOT
from tests.subprocesses import start
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.migration.rewrite import rewrite
from tpu_estimator_embedding.migration.verify import (
    comparison,
    evaluation,
    recorded_run,
    steps,
)
from tpu_estimator_embedding.migration.verify.batches import RecordedBatches
from tpu_estimator_embedding.migration.verify.recording import RecordedResult, RecordingSettings
from tpu_estimator_embedding.migration.verify.steps import KINDS
from tpu_estimator_embedding.migration.verify.tf2_run import StepsDoneError

# The pair of a page of the guide is verified, too.
PROGRAM = ROOT / "migration_guide/columns/before.py"
STEPS = 3
STAGES = ("tf2", "layers", "tf2 keras", "layers keras")  # "keras": dense optimizer
WORDS = "input_layer/words_embedding/embedding_weights"

LOSE_SLOT = f"""\
class Lose(tf.train.SessionRunHook):
    def begin(self):
        [slot] = [one for one in tf.global_variables()
                  if one.name.startswith("{WORDS}/") and "/Adam/m" in one.name]
        self.lose, self.step = slot.assign(tf.zeros_like(slot)), tf.train.get_global_step()

    def after_run(self, run_context, run_values):
        if run_context.session.run(self.step) == 2:
            run_context.session.run(self.lose)


def main():
"""

# What is planted -> text of the migrated program, and what takes its place.
PLANTS = {
    "learning rate": [("AdamParameters(0.1", "AdamParameters(0.2")],
    "initializer": [("stddev=0.1", "stddev=0.2")],
    "combiner": [('combiner="mean"', 'combiner="sum"')],
    "clipping": [("clipping_limit=0.01", "clipping_limit=0.02")],
    "epsilon": [("epsilon=1e-6", "epsilon=1e-3")],
    "swapped features of the input": [("row, 2) * 7", "row, 2) * 3"),
                                      ("newaxis] * 3", "newaxis] * 7")],
    "swapped features of the model": [("matmul(inputs", "matmul(tf.roll(inputs, 4, axis=1)")],
    "lost slot": [("def main():\n", LOSE_SLOT), ("(input_fn, ", "(input_fn, hooks=[Lose()], ")],
    "dense optimizer": [("AdamOptimizer(0.01)", "AdamOptimizer(0.02)")],
    "saver of a Scaffold": [("train_op=train_op)", "train_op=train_op, scaffold_fn=lambda: "
                             "tf.train.Scaffold(saver=tf.train.Saver(tf.trainable_variables())))")],
}

WORDS_CONFIG = ("learning_rate=0.1, epsilon=1e-06, clipvalue=0.01),\n        combiner='mean', "
                "name='tbl_words'")

TRAINER_THAT_LOSES_SLOT = """\
class Own(Trainer):
    def train_step(self, features, labels):
        loss = super().train_step(features, labels)
        slot = self.variables[embedding_config.TABLE_VARIABLES["tbl_words/momenta"]]
        slot.assign(tf.where(self.global_step == 2, tf.zeros_like(slot), slot))
        return loss


def dense_learning_rate("""

TRAINER_OF_TWO_STEPS = """\
class Own(Trainer):
    def train_step(self, features, labels):
        super().train_step(features, labels)
        return super().train_step(features, labels)


def dense_learning_rate("""

# The same at stage 2, where the tables are configured in a separate file.
TF2_PLANTS = {
    "nothing": [],
    "learning rate": [(WORDS_CONFIG, WORDS_CONFIG.replace("=0.1", "=0.2"))],
    "initializer": [("tf.compat.v1.truncated_normal_initializer(stddev=0.1)",
                     "tf.compat.v1.truncated_normal_initializer(stddev=0.2)")],
    "dense initializer": [("tf.glorot_uniform_initializer()", "tf.ones_initializer()")],
    "combiner": [("combiner='mean', name='tbl_words'", "combiner='sum', name='tbl_words'")],
    "clipping": [(WORDS_CONFIG, WORDS_CONFIG.replace("=0.01", "=0.02"))],
    "epsilon": [(WORDS_CONFIG, WORDS_CONFIG.replace("=1e-06", "=1e-03"))],
    "swapped features of the input": PLANTS["swapped features of the input"],
    "swapped features of the model": PLANTS["swapped features of the model"],
    "lost slot": [("def dense_learning_rate(", TRAINER_THAT_LOSES_SLOT), ("Trainer(\n", "Own(\n")],
    "dense optimizer": [("dense_learning_rate(global_step, params):", """\
dense_learning_rate(global_step, params):
    return 0.02


def unused(global_step, params):""")],
    "pipelining": [("PIPELINED = False", "PIPELINED = True")],
    "several steps for a batch": [("def dense_learning_rate(", TRAINER_OF_TWO_STEPS),
                                  ("Trainer(\n", "Own(\n")],
}

RUN_ALL = """
    import os, sys
    from tpu_estimator_embedding.migration.verify import recorded_run
    from tpu_estimator_embedding.migration.verify.recording import RecordingSettings
    for path in sys.argv[1:]:
        sys.modules.pop("embedding_config", None)  # each directory has its own
        recorded_run.run(RecordingSettings.load(path))
"""


# Migrates a program to TF2 and to layers, and records others.
PREPARE = """
    import pathlib, sys
    from tpu_estimator_embedding.migration import captured_config, captured_file
    from tpu_estimator_embedding.migration.rewrite import rewrite
    from tpu_estimator_embedding.migration.verify import recorded_run
    from tpu_estimator_embedding.migration.verify.recording import RecordingSettings
    root, program, *recorded = sys.argv[1:]
    captured = captured_config.capture(program, ["never"], steps=1)
    for stage in ("tf2", "layers", "tf2 keras", "layers keras"):
        new = pathlib.Path(root, f"to {stage}")
        new.mkdir()
        stage, _, dense = stage.partition(" ")
        text, findings = captured_file.written(captured, stage)
        result = rewrite(pathlib.Path(program).read_bytes(), program, to=stage,
                         dense_optimizer=dense or "legacy")
        assert not [one for one in (*findings, *result.findings)
                    if one.about.kind in ("left", "decision") and one.code != "TEE406"]
        (new / "program.py").write_bytes(result.data)
        (new / "embedding_config.py").write_text(text)
    for settings in recorded:
        recorded_run.run(RecordingSettings.load(settings))
"""

TRAIN = "estimator.train(input_fn, max_steps=20)"
TRAIN_TWICE = """\
estimator.train(input_fn, steps=2)
    estimator.train(input_fn, steps=30)"""


@pytest.fixture(name="runs", scope="module")
def run_of_the_command(tmp_path_factory):
    """Verifies the program by the command."""
    directory = tmp_path_factory.mktemp("verify")
    migrated = directory / "after_imports.py"
    migrated.write_bytes(rewrite(PROGRAM.read_bytes()).data)
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "verify", "--steps", STEPS,
                  "--keep", directory / "runs", PROGRAM, migrated, "--",
                  directory / "never"])
    return directory, done


@pytest.fixture(name="run_plants", scope="module")
def runs_of_plants(runs):
    """Runs all plants in one process."""
    directory, _ = runs
    migrated = (directory / "after_imports.py").read_text()
    run_planted([plant(directory, name, {"program.py": migrated}, replacements)
                 for name, replacements in PLANTS.items()])


@pytest.fixture(name="run_tf2_plants", scope="module")
def runs_of_plants_in_tf2(runs):
    """Runs all plants of the later stages in one process."""
    directory, _ = runs
    new = migrated_programs(directory)
    run_planted([
        *(plant(directory, f"tf2 {name}", new["tf2"], replacements)
          for name, replacements in TF2_PLANTS.items()),
        *(plant(directory, stage, new[stage], []) for stage in STAGES[1:]),
        plant(directory, "trained twice tf2", new["tf2"], [(TRAIN, TRAIN_TWICE)],
              "trained twice", 2),
        *(plant(directory, f"trained once {stage}", new[stage],
                [(TRAIN, TRAIN.replace("max_steps=20", limit))], "trained twice", 2)
          for stage, limit in (("tf2", "max_steps=2"), ("layers", "steps=2")))])


def migrated_programs(directory):
    """Migrates the program to all stages; one with two calls of `train` is recorded, too."""
    name = "trained twice"
    (directory / f"{name}.py").write_text(PROGRAM.read_text().replace(TRAIN, TRAIN_TWICE))
    (directory / name).mkdir()
    settings = RecordingSettings(
        str(directory / f"{name}.py"), (str(directory / "never"),), str(directory / name),
        STEPS, True).save()
    done = start([sys.executable, "-c", PREPARE.replace("\n    ", "\n"), directory, PROGRAM,
                  settings])
    assert done.returncode == 0, done.stderr
    return {stage: {path.name: path.read_text() for path in (directory / f"to {stage}").iterdir()}
            for stage in STAGES}


def plant(directory, name, files, replacements, reference="runs/legacy", steps=STEPS):
    """Writes a program with a difference; returns the settings that run it."""
    run = directory / name
    run.mkdir()
    texts = dict(files)
    for old, new in replacements:
        [file] = [file for file in texts if old in texts[file]]
        assert texts[file].count(old) == 1, old
        texts[file] = texts[file].replace(old, new)
    for file, text in texts.items():
        (run / file).write_text(text)
    return RecordingSettings(str(run / "program.py"), (str(run / "model"),), str(run), steps, False,
                             reference=str(directory / reference)).save()


def run_planted(paths):
    """Runs programs in one process."""
    planted = start([sys.executable, "-c", RUN_ALL.replace("\n    ", "\n"), *paths])
    assert planted.returncode == 0, planted.stderr


@pytest.fixture(name="verify")
def verification_of_a_plant(runs, request):
    directory, _ = runs

    def verify(plant, reference="runs/legacy", **tolerance):
        request.getfixturevalue("run_plants" if plant in PLANTS else "run_tf2_plants")
        old, new = directory / reference, directory / plant
        return comparison.compare_runs(old, RecordedResult.load(old), new, RecordedResult.load(new),
                                       **{"rtol": 0.0, "atol": 0.0, **tolerance})
    return verify


def test_rewritten_program_agrees_bit_for_bit_and_writes_to_no_model_dir(runs):
    directory, done = runs
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("They agree in all 6 steps (3 + 3 of the second training).\n")
    lines = done.stdout.splitlines()  # head, first and last row, what was compared and not, verdict
    assert [line.split()[0] for line in lines[1:4]] == ["0", "...", "6"] and len(lines) == 4 + 4
    assert ".cc:" not in done.stderr and "absl" not in done.stderr
    assert lines[-4] == "Compared: 3 steps of training; 3 steps of a second training."
    assert lines[-3].startswith("Not compared: evaluation (the legacy program does not evaluate)")
    assert not (directory / "never").exists() and not pathlib.Path("never").exists()


@pytest.mark.parametrize("plant, configuration, step, tensor", [
    ("learning rate", "optimizer.learning_rate: 0.1, migrated 0.2", 1, "words"),
    ("initializer", "initializer: TruncatedNormal", 0, "words"),
    ("combiner", "combiner: 'mean', migrated 'sum'", 1, "words"),
    ("clipping", "gradient_limits", 1, "words"),
    ("epsilon", "epsilon: 1e-06, migrated 0.001", 1, "words"),
    ("lost slot", None, 2, "words, momenta"),
    ("swapped features of the model", None, 1, "kernel"),
    ("dense optimizer", None, 1, "kernel"),
])
def test_planted_difference_is_found_where_it_begins(verify, plant, configuration, step, tensor):
    found = verify(plant)
    assert not found.agree and found.first.step == step
    differing = [", ".join(filter(None, (one.name, one.slot)))
                 for one in found.first.checkpoint.tensors if one.differing_rows]
    assert tensor.replace("words", WORDS) in ", ".join(differing)
    assert not found.inputs
    if configuration is None:
        assert not found.configuration
    else:
        assert any(configuration in one for one in found.configuration), found.configuration
    verdict = found.to_text().splitlines()[-1]
    place = f"after step {step}" if step else "in the initial values"
    assert verdict.startswith("They differ: ") and place in verdict
    assert ("configuration" in verdict) == (configuration is not None)


def test_program_whose_scaffold_saves_few_variables_is_compared_in_all(verify):
    found = verify("saver of a Scaffold")
    assert found.agree and found.steps[-1].step == 2 * STEPS, found.to_text()


def test_migrated_tf2_program_agrees_bit_for_bit(verify):
    found = verify("tf2 nothing")
    assert found.agree, found.to_text()
    assert not found.notes
    assert [step.step for step in found.steps] == list(range(1, 2 * STEPS + 1))
    assert found.steps[0].activations.keys() == {"users", "words"}
    assert found.steps[0].largest() == dict.fromkeys(KINDS, 0.0)


def test_keras_model_agrees_bit_for_bit(verify):
    found = verify("layers")
    assert found.agree, found.to_text()
    assert not found.notes and len(found.steps) == 2 * STEPS


@pytest.mark.parametrize("plant", ["trained twice tf2", "trained once tf2", "trained once layers"])
def test_first_of_several_trainings_is_compared(verify, plant):
    found = verify(plant, "trained twice")
    assert found.agree and len(found.steps) == 4 and found.again == 2, found.to_text()
    assert found.notes == (f"the program's first call of train has 2 steps, fewer than {STEPS}, "
                           "and verify compares these",)


def test_migrated_program_trains_the_steps_of_the_first_training(monkeypatch):
    asked = []

    def record(settings):
        asked.append(settings.steps)
        return RecordedResult((0.5, 0.25), {}, (), (), True, steps=2)

    monkeypatch.setattr(comparison, "record", record)
    monkeypatch.setattr(comparison, "compare_runs", lambda *runs, **tolerance: None)
    comparison.compare(PROGRAM, PROGRAM)
    assert asked == [20, 2]


@pytest.mark.parametrize("stage", ["tf2 keras", "layers keras"])
def test_keras_optimizer_agrees_within_the_stated_tolerance(verify, stage):
    found = verify(stage, rtol=1e-4)
    assert found.agree, found.to_text()
    assert len(found.steps) == 2 * STEPS and found.steps[-1].largest()["dense variables"] > 0
    assert {note for note in found.notes if "kernel/Adam" in note}  # Keras names slots otherwise


@pytest.mark.parametrize("plant, configuration, step, tensor", [
    ("learning rate", "optimizer.learning_rate: 0.1, migrated 0.2", 1, "words"),
    ("initializer", "initial value of input_layer/words_embedding", None, None),
    ("dense initializer", "initial value of kernel: random, migrated constant 1", None, None),
    ("combiner", "table of words: combiner: 'mean', migrated 'sum'", 1, "words"),
    ("clipping", "gradient_limits[1]: 0.01, migrated 0.02", 1, "words"),
    ("epsilon", "epsilon: 1e-06, migrated 0.001", 1, "words"),
    ("lost slot", None, 2, "words, momenta"),
    ("swapped features of the model", None, 1, "kernel"),
    ("dense optimizer", None, 1, "kernel"),
    ("pipelining", "pipelined: False, migrated True", None, None),
    ("several steps for a batch", "made 2 steps between two batches", None, None),
])
def test_planted_difference_in_a_tf2_program_is_found(verify, plant, configuration, step, tensor):
    found = verify(f"tf2 {plant}")
    assert not found.agree
    if step is None:
        assert found.first is None
    else:
        assert found.first.step == step
        name = tensor.split(",")[0].replace("words", WORDS)
        assert any(one.name == name and one.differing_rows
                   for one in found.first.checkpoint.tensors), found.to_text()
    if configuration is None:
        assert not found.configuration
    else:
        assert any(configuration in one for one in found.configuration), found.configuration


def test_other_batches_of_a_tf2_program_are_found(verify):
    found = verify("tf2 swapped features of the input")
    assert found.inputs == ("batch 0 of call 0 of the input_fn has other values",)


def test_differences_are_drawn(verify, tmp_path):
    steps.save_plot(verify("tf2 learning rate").steps, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_other_batches_are_found_though_both_are_fed_the_same(verify):
    found = verify("swapped features of the input")
    assert found.inputs == ("batch 0 of call 0 of the input_fn has other values",)
    assert found.first is None and not found.agree


def test_results_of_evaluations_are_compared():
    legacy = {"loss": 0.5, "accuracy": 0.75, "global_step": 3.0}
    assert not evaluation.differences(legacy, {**legacy, "loss": 0.5 + 1e-8}, 1e-7, None)
    found = evaluation.differences(legacy, {"loss": 0.51, "accuracy": 0.75}, 0, 1e-3)
    assert found == ("global_step: 3, migrated nan", "loss: 0.5, migrated 0.51")


def test_tolerance_of_zero_holds_for_evaluations():
    legacy = {"loss": 0.5}
    assert not evaluation.differences(legacy, legacy, 0, None)
    assert evaluation.differences(legacy, {"loss": 0.5 + 6e-8}, 0, None) == (
        "loss: 0.5, migrated 0.50000006",)


@pytest.fixture(name="evaluated")
def settings_of_a_recorded_evaluation(tmp_path):
    """Settings of a run whose reference has evaluated two batches of one int64 feature."""
    folder = tmp_path / "evaluation" / "batches"
    folder.parent.mkdir()
    RecordedBatches([[np.array([1, 2])], [np.array([3, 4])]], ended=True).save(folder / "0.pickle")
    return RecordingSettings("new.py", (), str(tmp_path), STEPS, False, reference=str(tmp_path))


def test_evaluation_that_fails_is_a_difference(evaluated):
    def evaluate(input_fn, steps):
        raise KeyError("labels")

    found = evaluation.of_trainer(evaluate, lambda: tf.data.Dataset.range(2), evaluated)
    assert found.results is None
    assert found.problem == ("the migrated program cannot evaluate the legacy program's batches: "
                             "KeyError: 'labels'")


def sum_of(input_fn, steps):
    batches = list(input_fn(params=None, mode="eval"))
    return {"sum": sum(int(tf.reduce_sum(batch)) for batch in batches), "batches": len(batches)}


def test_evaluation_of_the_programs_own_batches_is_noted(evaluated):
    own = evaluation.of_trainer(
        sum_of, lambda: tf.data.Dataset.from_tensors([5.0]), evaluated)
    assert own.results == {"sum": 5.0, "batches": 1.0} and "evaluated its own" in own.note
    same = evaluation.of_trainer(
        sum_of, lambda: tf.data.Dataset.range(4).batch(2, drop_remainder=True), evaluated)
    assert (same.results, same.note) == ({"sum": 10.0, "batches": 2.0}, "")


@pytest.mark.usefixtures("run_tf2_plants")
def test_program_that_ends_before_its_evaluation_differs(runs):
    directory, _ = runs
    old = RecordedResult.load(directory / "runs/legacy")
    new = RecordedResult.load(directory / "tf2 nothing")
    found = comparison.compare_runs(
        directory / "runs/legacy", dataclasses.replace(old, evaluation={"loss": 0.5}),
        directory / "tf2 nothing", dataclasses.replace(new, failure="KeyError: 'x'"),
        rtol=0.0, atol=None)
    assert not found.agree and found.evaluation == (
        "the migrated program ended before its evaluation: KeyError: 'x'",)


def test_only_errors_of_the_program_are_its_failure():
    assert recorded_run._failure(KeyError("x")) == "KeyError: 'x'"
    assert recorded_run._failure(SystemExit(1)) == ""
    assert recorded_run._failure(StepsDoneError("seen")) == ""
    assert recorded_run._failure(tf.errors.UnknownError(
        None, None, "StepsDoneError: seen Traceback ...")) == ""


def test_tolerance_lets_small_differences_pass(verify):
    assert verify("lost slot", atol=10.0).agree


def test_status_tells_of_a_difference(verify, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "compare", lambda *args, **kwargs: verify("learning rate"))
    assert cli.main(["verify", str(PROGRAM), str(PROGRAM)]) == 1
    assert "The first difference is after step 1:" in capsys.readouterr().out


def test_program_without_an_estimator_is_reported(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text("print('no estimator')\n")
    assert cli.main(["verify", str(program), str(program)]) == 2
    assert "ended before a TPUEstimator with an embedding_config_spec" in capsys.readouterr().err
    program.write_text("import os\nos._exit(0)\n")
    assert cli.main(["verify", str(program), str(program)]) == 2
    assert ("program.py ended its process before a TPUEstimator with an embedding_config_spec had "
            "trained, or at once with os._exit") in capsys.readouterr().err


@pytest.mark.parametrize("arguments, sentence", [
    (["no.py", "no.py"], "There is no program 'no.py'."),
    (["--steps", "0", "no.py", "no.py"], "`steps` must be"),
    (["--rtol", "-1", "no.py", "no.py"], "`rtol` must be at least 0"),
    (["--plot", "a.gif", "no.py", "no.py"], "`plot` must be a name that ends in one of .png, "),
    (["--names", "no.json", "no.py", "no.py"], "no.json"),
])
def test_wrong_use_is_reported_before_anything_runs(arguments, sentence, capsys):
    assert cli.main(["verify", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said and "both programs run now" not in said


def test_directory_with_a_run_is_kept(tmp_path, capsys):
    (tmp_path / "runs/legacy").mkdir(parents=True)
    (tmp_path / "runs/legacy/run.json").write_text(json.dumps({}))
    assert cli.main(["verify", "--keep", str(tmp_path / "runs"), str(PROGRAM), str(PROGRAM)]) == 2
    assert "must be an empty directory" in capsys.readouterr().err
