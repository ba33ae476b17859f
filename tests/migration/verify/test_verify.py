# SPDX-License-Identifier: Apache-2.0
"""`verify` on a program, its migration, and migrations with a planted difference."""

import json
import pathlib
import sys

import pytest

from tests.docs import ROOT
from tests.subprocesses import start
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.migration.verify import comparison
from tpu_estimator_embedding.migration.verify.settings import LOG, RunResult, Settings

# The pair of a page of the guide is verified, too.
PROGRAM = ROOT / "migration_guide/columns/before.py"
MIGRATED = ROOT / "migration_guide/columns/after_imports.py"
STEPS = 3
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
}

RUN_ALL = """
    import sys
    from tpu_estimator_embedding.migration.verify import recorded_run
    from tpu_estimator_embedding.migration.verify.settings import Settings
    for path in sys.argv[1:]:
        recorded_run.run(Settings.load(path))
"""


@pytest.fixture(name="runs", scope="module")
def runs_of_all_programs(tmp_path_factory):
    """Verifies the program by the command, then runs all plants in one process."""
    directory = tmp_path_factory.mktemp("verify")
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "verify", "--steps", STEPS,
                  "--keep", directory / "runs", PROGRAM, MIGRATED, "--",
                  directory / "never"])
    paths = []
    for plant, replacements in PLANTS.items():
        text = MIGRATED.read_text()
        for old, new in replacements:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        run = directory / plant
        run.mkdir()
        (run / "program.py").write_text(text)
        paths.append(Settings(str(run / "program.py"), ("never",), str(run), STEPS, False,
                              reference=str(directory / "runs/legacy")).save())
    planted = start([sys.executable, "-c", RUN_ALL.replace("\n    ", "\n"), *paths])
    assert planted.returncode == 0, planted.stderr
    return directory, done


@pytest.fixture(name="verify")
def verification_of_a_plant(runs):
    directory, _ = runs
    old = directory / "runs/legacy"

    def verify(plant, **tolerance):
        new = directory / plant
        return comparison.compare_runs(old, RunResult.load(old), new, RunResult.load(new),
                                       **{"rtol": 0.0, "atol": 0.0, **tolerance})
    return verify


def test_rewritten_program_agrees_bit_for_bit_and_writes_to_no_model_dir(runs):
    directory, done = runs
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("They agree in all of 3 steps.\n")
    assert len(done.stdout.splitlines()) == 2 + STEPS + 1  # head, step 0, steps, verdict
    assert "trained to the end" not in (directory / "runs/legacy" / LOG).read_text()
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
    assert any(name.startswith(tensor) for name in differing), differing
    assert not found.inputs
    if configuration is None:
        assert not found.configuration
    else:
        assert any(configuration in one for one in found.configuration), found.configuration
    assert "They differ." in found.to_text()


def test_other_batches_are_found_though_both_are_fed_the_same(verify):
    found = verify("swapped features of the input")
    assert found.inputs == ("batch 0 of call 0 of the input_fn has other values",)
    assert found.first is None and not found.agree


def test_tolerance_lets_small_differences_pass(verify):
    assert verify("lost slot", atol=10.0).agree


def test_status_tells_of_a_difference(verify, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "compare", lambda *args, **kwargs: verify("learning rate"))
    assert cli.main(["verify", "a.py", "b.py"]) == 1
    assert "The first difference is after step 1:" in capsys.readouterr().out


def test_program_without_an_estimator_is_told(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text("print('no estimator')\n")
    assert cli.main(["verify", str(program), str(program)]) == 2
    assert "ended before a TPUEstimator with an embedding_config_spec" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, sentence", [
    (["no.py", "no.py"], "There is no program 'no.py'."),
    (["--steps", "0", "no.py", "no.py"], "`steps` must be"),
    (["--rtol", "-1", "no.py", "no.py"], "`rtol` must be at least 0"),
])
def test_wrong_use_is_told_before_anything_runs(arguments, sentence, capsys):
    assert cli.main(["verify", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_directory_with_a_run_is_kept(tmp_path, capsys):
    (tmp_path / "runs/legacy").mkdir(parents=True)
    (tmp_path / "runs/legacy/run.json").write_text(json.dumps({}))
    assert cli.main(["verify", "--keep", str(tmp_path / "runs"), str(PROGRAM), str(PROGRAM)]) == 2
    assert "must be an empty directory" in capsys.readouterr().err
