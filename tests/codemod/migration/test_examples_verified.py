# SPDX-License-Identifier: Apache-2.0
"""Legacy programs, migrated to TF2: `verify` finds every step equal to the Estimator's.

What is needed by hand is in patches/: NAME.before.patch is for the legacy program, so that the
tool can split its model_fn, NAME.after.patch is for what the tool has written.
"""

import json
import pathlib
import re
import sys

import pytest

from examples import synthetic_data
from tests.fronts.examples.results import EXAMPLES
from tests.subprocesses import start
from tpu_estimator_embedding.migration.rewrite import rewrite
from tpu_estimator_embedding.migration.verify import comparison
from tpu_estimator_embedding.migration.verify.recording import RecordedResult, RecordingSettings

PATCHES = pathlib.Path(__file__).parent / "patches"
STEPS = 20

# Program -> what writes its data, and its arguments.
PROGRAMS = {
    "continuous_evaluation": (
        lambda directory: synthetic_data.write_visits(directory, 4000, 2048),
        ["--data_dir=.", "--eval_every=40", "--batch_size=64", "--job_dir=model"]),
    "neural_collaborative_filtering": (
        synthetic_data.write_interactions, ["--data_dir=.", "--model_dir=model"]),
    "sentence_classifier": (
        lambda directory: synthetic_data.write_sentences(directory, 4000, 400),
        ["--train_file=train.tsv", "--dev_file=dev.tsv", "--vocab_file=vocab.txt", "--use_tpu",
         "--output_dir=model"]),
    "video_ranking_task": (
        lambda directory: synthetic_data.write_feed(directory, 40000),
        ["--data_dir=.", "--model_dir=model"]),
    "contrib_ranking": (  # of TensorFlow 1.x, which stays so in its process: the last one
        lambda directory: synthetic_data.write_purchases(directory, 10000, 1000),
        ["--clicks=clicks.csv", "--purchases=purchases.csv", "--candidates=candidates.csv",
         "--base_dir=model"]),
}

# Program -> lines that a hand has to add or change, of the program and of what was written.
# Programs compute other numbers in every run by these; input is recorded and needs no seed,
# except where the legacy program reads lines that the migrated one has parsed.
RANDOM = [("rate=0.1)", "rate=0.0)"), ("Dropout(0.2)", "Dropout(0.0)"),
          ("dropout(net, 0.2)", "dropout(net, 0.0)"), (".cache().shuffle(20000)", "")]

IN_ONE_PROCESS = """
    import json, os, pathlib, sys
    from absl import app, flags, logging  # whose flags stay
    from tpu_estimator_embedding.migration import captured_config, captured_file
    from tpu_estimator_embedding.migration.verify import recorded_run
    from tpu_estimator_embedding.migration.verify.recording import RecordingSettings
    kept = set(flags.FLAGS)

    def forget_program():
        for name in set(flags.FLAGS) - kept:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
        sys.modules.pop("embedding_config", None)

    def capture(path, arguments, is_tf1):
        captured = captured_config.capture(path, arguments, is_tf1=is_tf1, steps=1)
        text, findings = captured_file.written(captured)
        pathlib.Path("embedding_config.py").write_text(text)
        pathlib.Path("findings.json").write_text(json.dumps([one.code for one in findings]))

    for path in sys.argv[1:]:
        settings = RecordingSettings.load(path)
        os.chdir(pathlib.Path(settings.program).parent)
        if settings.is_legacy:
            forget_program()
            capture(settings.program, settings.arguments, settings.is_tf1)
        forget_program()
        recorded_run.run(settings)
"""


def patched(text, patch):
    """Applies the hunks of a unified diff, each of which is in the text once."""
    for hunk in re.split(r"^@@.*\n", patch.read_text(), flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        assert text.count(old) == 1, f"{patch.name}: {hunk}"
        text = text.replace(old, "".join(line[1:] for line in lines if line[0] in " +"))
    return text


def without_chance(text):
    for old, new in RANDOM:
        text = text.replace(old, new)
    return text


def migrated(directory, name):
    """Writes the migrated program beside the captured configuration; returns its codes."""
    source = (EXAMPLES / f"{name}.py").read_text()
    before, after = (PATCHES / f"{name}.{when}.patch" for when in ("before", "after"))
    if before.exists():
        assert {one.code for one in rewrite(source, to="tf2").findings} & {"TEE402"}
        source = patched(source, before)
    result = rewrite(without_chance(source), f"{name}.py", to="tf2")
    files = {f"{name}.py": result.data.decode(),
             "embedding_config.py": (directory / "embedding_config.py").read_text()}
    if after.exists():
        [file] = [file for file in files if f"+++ b/{file}" in after.read_text()]
        files[file] = patched(files[file], after)
    for file, text in files.items():
        (directory / file).write_text(text)
    return {one.code for one in result.findings if one.about.kind in ("left", "decision")}


@pytest.fixture(name="runs", scope="module")
def runs_of_all_programs(tmp_path_factory):
    root = tmp_path_factory.mktemp("examples")
    legacy, new, left = [], [], {}
    for name, (write_data, arguments) in PROGRAMS.items():
        directory = root / name
        (directory / "old").mkdir(parents=True)
        (directory / "new").mkdir()
        write_data(directory)
        (directory / "legacy.py").write_text(
            without_chance((EXAMPLES / f"{name}.py").read_text()))
        legacy.append(RecordingSettings(
            str(directory / "legacy.py"), tuple(arguments), str(directory / "old"), STEPS, True,
            is_tf1=name == "contrib_ranking").save())
        new.append(RecordingSettings(
            str(directory / f"{name}.py"), tuple(arguments), str(directory / "new"), STEPS, False,
            reference=str(directory / "old")).save())
    run(legacy)
    for name in PROGRAMS:
        left[name] = migrated(root / name, name)
    run(new)
    return root, left


def run(settings):
    done = start([sys.executable, "-c", IN_ONE_PROCESS.replace("\n    ", "\n"), *settings])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_twenty_steps_give_equal_numbers(name, runs):
    old, new = runs[0] / name / "old", runs[0] / name / "new"
    found = comparison.compare_runs(old, RecordedResult.load(old), new, RecordedResult.load(new),
                                    rtol=1e-5, atol=1e-6)
    assert found.agree, found.to_text()
    assert len(found.steps) == STEPS + 5 and found.again == 5


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_variables_of_hooks_and_no_others_are_named_and_left_out(name, runs):
    made = {"continuous_evaluation": ("signal_early_stopping/STOP",)}.get(name, ())
    assert RecordedResult.load(runs[0] / name / "old").of_hooks == made
    notes = " ".join(RecordedResult.load(runs[0] / name / "new").notes)
    assert all(f"{variable!r} was made by a hook" in notes for variable in made)
    assert ("made by a hook" in notes) == bool(made)


@pytest.mark.parametrize("name, codes", [
    ("continuous_evaluation", {"TEE411"}), ("contrib_ranking", {"TEE408", "TEE411"}),
    ("neural_collaborative_filtering", {"TEE408", "TEE411"}),
    ("sentence_classifier", {"TEE408", "TEE411"}),
    ("video_ranking_task", {"TEE404", "TEE411"}),
])
def test_what_is_left_is_reported(name, codes, runs):
    assert runs[1][name] == codes
    captured = set(json.loads((runs[0] / name / "findings.json").read_text()))
    assert captured <= {"TEE301", "TEE306"} | (
        {"TEE302"} if name == "video_ranking_task" else set())


def test_ensemble_of_several_optimizers_is_refused_and_stays_at_stage_1():
    source = (EXAMPLES / "rating_ensemble.py").read_text()
    result = rewrite(source, "rating_ensemble.py", to="tf2")
    [found] = [one for one in result.findings if one.code == "TEE402"]
    assert "the train_op is `[subnetwork.train_op(labels, " in found.message
    assert result.data == rewrite(source, "rating_ensemble.py").data
