# SPDX-License-Identifier: Apache-2.0
"""`migrate --to keras3 --verify`, and `verify` of programs with a planted difference.

Each program runs in its own process, on both backends.
"""

import sys

import pytest

from tests.codemod.migration.test_keras3 import BEFORE, missing
from tests.subprocesses import start
from tpu_estimator_embedding.migration.verify import comparison
from tpu_estimator_embedding.migration.verify.recording import RecordedResult, RecordingSettings

COMMAND = [sys.executable, "-m", "tpu_estimator_embedding"]
STEPS = 3
RTOL = 1e-4
TIMEOUT = 900

RATE_OF_WORDS = "'words': keras.optimizers.Adagrad(0.1,"
OF_WORDS = RATE_OF_WORDS + " initial_accumulator_value=0.1, epsilon=0.0)"
SHAPE_OF_WORDS = "'words', words, input_shape=(None, None), output_shape=(None, 4)"
LOSS = "return keras.ops.mean("
HIDDEN = 'keras.layers.Dense(params["hidden"], activation=\'relu\', name="hidden")(net)'

OTHER_NAME = [(HIDDEN, HIDDEN.replace('name="hidden"', 'name="other"'))]
NAMES = {f"hidden/{name}": f"other/{name}" for name in ("kernel", "bias")}

# What is planted -> text of the migrated files, and what takes its place.
PLANTS = {
    "loss scale": [(LOSS, LOSS.replace("keras", "2.0 * keras"))],
    "activation": [(HIDDEN, HIDDEN.replace("'relu'", "'tanh'"))],
    "units": [(HIDDEN, HIDDEN.replace('params["hidden"]', "9"))],
    "name of a layer": OTHER_NAME,
    "given name of a layer": OTHER_NAME,
    "settings of a table": [
        (OF_WORDS, OF_WORDS.replace("epsilon=0.0", "epsilon=1e-3, clipvalue=0.01")),
        ("combiner='mean'", "combiner='sum'")],
    "optimizer of a table": [(OF_WORDS, "'words': keras.optimizers.SGD(0.1)")],
    "size of a table": [
        ("vocabulary_size=50, embedding_dim=4", "vocabulary_size=60, embedding_dim=8"),
        (SHAPE_OF_WORDS, SHAPE_OF_WORDS.replace("4", "8"))],
    "initial values, input and metric": [
        (HIDDEN, HIDDEN.replace("activation=", "kernel_initializer='ones', activation=")),
        (RATE_OF_WORDS + " initial_accumulator_value=0.1",
         RATE_OF_WORDS + " initial_accumulator_value=0.2"),
        ("words.sum(axis=1) % 2", "words.sum(axis=1) % 3"),
        ("keras.ops.round(probabilities)", "keras.ops.round(probabilities - 0.4)")],
}

RUN_ALL = """
import sys
from tpu_estimator_embedding.migration.verify import recorded_run
from tpu_estimator_embedding.migration.verify.recording import RecordingSettings
for path in sys.argv[1:]:
    for name in ("embedding_config", "keras_training"):  # each directory has its own
        sys.modules.pop(name, None)
    recorded_run.run(RecordingSettings.load(path))
"""


class Runs:
    """A directory with the legacy program, what it became, and its plants, on one backend."""

    def __init__(self, directory, backend):
        self.directory, self.backend = directory, backend

    def command(self, *arguments):
        return start([*COMMAND, *arguments], cwd=self.directory, timeout=TIMEOUT,
                     KERAS_BACKEND=self.backend)

    def plant(self, name, replacements):
        """Writes a program with a difference; returns its directory."""
        folder = self.directory / name
        folder.mkdir()
        texts = {path.name: path.read_text() for path in (self.directory / "new").glob("*.py")}
        for old, new in replacements:
            [file] = [file for file in texts if old in texts[file]]
            assert texts[file].count(old) == 1, old
            texts[file] = texts[file].replace(old, new)
        for file, text in texts.items():
            (folder / file).write_text(text)
        return folder

    def settings_of(self, name):
        folder = self.directory / name
        return RecordingSettings(
            str(folder / "before.py"), ("never",), str(folder), STEPS, False,
            reference=str(self.directory / "runs/legacy"),
            names=tuple(NAMES.items()) if name.startswith("given") else ()).save()

    def compared(self, name, new=None):
        old, new = self.directory / "runs/legacy", new or self.directory / name
        return comparison.compare_runs(old, RecordedResult.load(old), new, RecordedResult.load(new),
                                       rtol=RTOL, atol=None)


@pytest.fixture(scope="module", params=["jax", "tensorflow"])
def runs(request, tmp_path_factory):
    """What `migrate --verify` says of the program; then all plants, in one process."""
    if missing(request.param):
        pytest.skip(f"needs the extra `jax`: {', '.join(missing(request.param))} not installed")
    found = Runs(tmp_path_factory.mktemp(request.param), request.param)
    (found.directory / "before.py").write_text(BEFORE)
    found.migrated = found.command(
        "migrate", "--to", "keras3", "--output", "new", "--verify", "before.py", "--", "never")
    found.plant("learning rate", [(RATE_OF_WORDS, RATE_OF_WORDS.replace("0.1", "0.2"))])
    found.verified = found.command(
        "verify", "--steps", STEPS, "--rtol", RTOL, "--keep", "runs", "before.py",
        "learning rate/before.py", "--", "never")
    for name, replacements in PLANTS.items():
        found.plant(name, replacements)
    done = start([sys.executable, "-c", RUN_ALL, *map(found.settings_of, PLANTS)],
                 cwd=found.directory, timeout=TIMEOUT, KERAS_BACKEND=request.param)
    assert done.returncode == 0, done.stderr
    return found


def differing(step):
    return {", ".join(filter(None, (one.name, one.slot)))
            for one in step.checkpoint.tensors if one.differing_rows}


def test_what_migrate_writes_agrees_and_leaves_nothing_behind(runs):
    done = runs.migrated
    assert done.returncode == 0, done.stdout + done.stderr  # in spite of the decisions
    assert "0 things left to do by hand, 2 decisions to make." in done.stderr
    assert done.stdout.endswith("They agree in all 25 steps (20 + 5 of the second training).\n")
    assert f"ran on Keras's backend {runs.backend}\n" in done.stdout
    assert "accuracy, auc, global_step, loss, mean" in done.stdout
    assert "configuration differs" not in done.stdout
    assert not (runs.directory / "never").exists()


def test_other_learning_rate_of_a_table_is_found_by_the_command(runs):
    done = runs.verified
    assert done.returncode == 1, done.stdout + done.stderr
    assert "\nThey differ: " in done.stdout
    assert "The first difference is after step 1:" in done.stdout
    found = runs.compared("learning rate", runs.directory / "runs/migrated")
    assert differing(found.first) == {"words, parameters"}
    assert found.configuration == (
        "table of words: optimizer.learning_rate: 0.1, migrated 0.2",)
    assert found.to_text() == done.stdout.removesuffix("\n")


def test_other_loss_is_found_though_all_starts_equal(runs):
    found = runs.compared("loss scale")
    assert not found.configuration and not found.inputs and found.first.step == 1
    old, new = found.first.losses
    assert new == pytest.approx(2 * old)
    assert f"The first difference is after step 1:\nloss: {old:.9g}, migrated {new:.9g}\n" in (
        found.to_text())
    assert {"words, parameters", "words, accumulators", "hidden/kernel"} <= differing(found.first)


def test_other_activation_of_a_layer_is_found(runs):
    found = runs.compared("activation")
    assert not found.configuration and not found.inputs and found.first.step == 1
    assert "hidden/kernel" in differing(found.first)
    assert not found.first.loss_agrees


def test_other_settings_of_a_table_are_named_as_at_every_stage(runs):
    found = runs.compared("settings of a table")
    assert set(found.configuration) == {
        "table of words: combiner: 'mean', migrated 'sum'",
        "table of words: optimizer.epsilon: missing, migrated 0.001",
        "table of words: optimizer.gradient_limits[0]: None, migrated -0.01",
        "table of words: optimizer.gradient_limits[1]: None, migrated 0.01"}
    assert "configuration differs: table of words: combiner:" in found.to_text()
    assert "words, parameters" in differing(found.first)


def test_other_optimizer_of_a_table_is_named(runs):
    found = runs.compared("optimizer of a table")
    assert not found.agree and not found.steps and not found.inputs
    rule, accumulator, values = found.configuration
    assert rule == "table of words: optimizer.rule: Adagrad, migrated SGD"
    assert accumulator == (
        "table of words: optimizer.rule.initial_accumulator: 0.1, migrated missing")
    assert values.startswith("initial values: Table 'words' has the slots of Adagrad, but ")
    assert "cannot start from values of another optimizer, so it was not trained" in found.to_text()


def test_other_size_of_a_table_is_named(runs):
    found = runs.compared("size of a table")
    assert not found.agree and not found.steps
    assert {"table of words: vocabulary_size: 50, migrated 60",
            "table of words: dimension: 4, migrated 8",
            "shape of words: [50, 4], migrated [60, 8]"} <= set(found.configuration)


def test_other_size_of_a_layer_names_its_variables_and_not_their_slots(runs):
    found = runs.compared("units")
    assert not found.agree and not found.inputs and not found.steps
    assert "shape of hidden/kernel: [13, 8], migrated [13, 9]" in found.configuration
    assert "shape of hidden/bias: [8], migrated [9]" in found.configuration
    assert not [one for one in found.configuration if "Adagrad" in one]
    assert "cannot start from values of other shapes" in found.to_text()


def test_layer_of_another_name_must_be_given(runs):
    found = runs.compared("name of a layer")
    for name in ("kernel", "bias"):
        assert f"variable 'other/{name}' of the migrated program has no counterpart" in (
            found.configuration)
        assert (f"variable 'hidden/{name}' has no counterpart; name it with --names"
                in found.configuration)
    given = runs.compared("given name of a layer")
    assert given.agree, given.to_text()
    assert "hidden/kernel" in {one.name for one in given.steps[0].checkpoint.tensors}


def test_other_initial_values_input_and_metric_are_found_though_the_training_agrees(runs):
    found = runs.compared("initial values, input and metric")
    assert set(found.configuration) == {
        "initial value of hidden/kernel: random, migrated constant 1",
        "initial value of words/Adagrad: mean 0.1, migrated 0.2",
        "table of words: optimizer.rule.initial_accumulator: 0.1, migrated 0.2"}
    assert found.inputs == ("batch 0 of call 0 of the input_fn has other values",)
    [metric] = found.evaluation
    assert metric.startswith("accuracy: ")
    assert found.first is None and not found.agree
