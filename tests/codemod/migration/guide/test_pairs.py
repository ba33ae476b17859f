# SPDX-License-Identifier: Apache-2.0
"""The programs of the guide: those of every stage compute what those before them computed.

Most are what `migrate` writes, of which the pages show parts.
"""

import concurrent.futures
import re
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from tests import docs
from tests.codemod.migration.guide.run_programs import STEPS, WHOLE
from tests.codemod.migration.guide.written import GUIDE, PAGES, is_by_hand, stages
from tests.subprocesses import start
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.migration.verify import comparison
from tpu_estimator_embedding.migration.verify.recording import RecordedResult, step_name

STAGES = ("after_tf2", "after_layers")
PROGRAMS = [(page, stage) for page in PAGES for stage in stages(page)]
LATER = [(page, stage) for page, stage in PROGRAMS if stage in STAGES]
BY_HAND = [(page, stage) for page, stage in LATER if is_by_hand(page)]
WRITTEN = sorted({page for page, _ in LATER} - {page for page, _ in BY_HAND})

# Page -> names of the checkpoints to compare, where it trains more than one model.
CHECKPOINTS = {"checkpoints": [("first/model.ckpt-40", "first/ckpt-40"),
                               ("second/model.ckpt-20", "second/ckpt-20")]}

# What one side of a pair does not keep: powers and slots of a new optimizer, its learning rate.
NOT_COMPARED = {"beta1_power", "beta2_power", "kernel/Adam", "kernel/Adam_1"}


# Pages whose programs are compared with each other.
COMPARED_WHOLE = ("evaluation", "export", "summaries")


def selected_programs(items):
    """Returns (page, stage) of the programs that these tests need."""
    selected = set()
    for item in items:
        settings = item.callspec.params if hasattr(item, "callspec") else {}
        if page := settings.get("page"):
            selected |= {(page, "before"), (page, settings.get("stage", "after_imports"))}
        elif "written" in settings:
            selected |= {(settings["written"], "before")}
        else:
            selected |= {program for program in PROGRAMS if program[0] in COMPARED_WHOLE}
    return selected


def run_stage(directory, stage, programs):
    pages = [page for page, found in programs if found == stage]
    if not pages:
        return
    pages.sort(key=lambda page: page != "replicas")  # it splits the CPU before TensorFlow starts
    done = start([sys.executable, "-m", "tests.codemod.migration.guide.run_programs", directory,
                  stage, *pages], timeout=1800)
    assert done.returncode == 0, f"{stage}: {done.stderr}"


@pytest.fixture(name="runs", scope="module")
def runs_of_selected_programs(tmp_path_factory, request):
    programs = selected_programs(item for item in request.session.items
                                 if item.path == request.path)
    directory = tmp_path_factory.mktemp("guide")
    done = start([sys.executable, "-m", "tests.codemod.migration.guide.written",
                  directory / "programs", *sorted({page for page, _ in programs})], timeout=1800)
    assert done.returncode == 0, done.stderr
    run_stage(directory, "before", programs)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda stage: run_stage(directory, stage, programs),
                          ["after_imports", *STAGES]):
            pass
    return directory


@pytest.mark.parametrize("page", PAGES)
def test_explicit_imports_compute_the_same_bits(page, runs):
    old, new = runs / page / "before", runs / page / "after_imports"
    found = comparison.compare_runs(old, RecordedResult.load(old), new, RecordedResult.load(new),
                                    rtol=0.0, atol=0.0)
    assert found.agree and not found.notes, found.to_text()
    assert len(found.steps) == 1 + STEPS + 5 and found.again == 5


@pytest.mark.parametrize("page, stage", LATER)
def test_later_stages_are_verified_step_by_step(page, stage, runs):
    old, new = runs / page / "before", runs / page / stage
    found = comparison.compare_runs(old, RecordedResult.load(old), new, RecordedResult.load(new),
                                    rtol=1e-5, atol=2e-6)
    assert found.agree, found.to_text()
    assert len(found.steps) == STEPS + found.again == STEPS + (0 if is_by_hand(page) else 5)


@pytest.mark.parametrize("written", WRITTEN)
def test_pages_show_what_is_written(written, runs):
    texts = ["\n".join(map(str.strip, path.read_text().splitlines()))
             for path in (runs / "programs" / written).glob("*.py")]
    blocks = docs.code_blocks((GUIDE / f"{written}.rst").read_text())
    assert written == "hosts" or blocks
    for block in map(textwrap.dedent, blocks):
        shown = "\n".join(map(str.strip, block.strip().splitlines()))
        assert any(shown in text for text in texts), block


@pytest.mark.parametrize("page, stage", BY_HAND)
def test_later_stages_go_on_from_a_checkpoint_to_the_same_numbers(page, stage, runs):
    for old, new in CHECKPOINTS.get(page, [(f"model.ckpt-{STEPS}", f"ckpt-{STEPS}")]):
        legacy = runs / page / "before" / ("whole/" + old if page in WHOLE else step_name(STEPS))
        found = checkpoint.compare(
            legacy, runs / page / stage / "whole" / new, rtol=1e-5, atol=1e-7)
        assert not [one for one in found.tensors if one.differing_rows]
        assert {*found.only_in_a, *found.only_in_b} <= NOT_COMPARED
        names = {one.name for one in found.tensors}
        assert {"global_step", "kernel"} < names and any(one.slot for one in found.tensors)


def outputs(page):
    """Returns the directory of each whole program of a page, that of `before` first."""
    stages = [stage for found, stage in PROGRAMS if found == page]
    stages.sort(key=["before", "after_imports", *STAGES].index)
    return [f"{page}/{stage}/whole" for stage in stages]


def test_evaluation_and_predictions_are_the_same(runs):
    legacy, *others = [[float(number) for number in re.findall(
        r"-?\d+\.\d+", (runs / path / "stdout.txt").read_text())] for path in outputs("evaluation")]
    assert len(legacy) == 2 + 8
    for numbers in others:
        np.testing.assert_allclose(numbers, legacy, atol=2e-5)  # of the last printed digit


def test_exports_serve_the_same_logits(runs):
    inputs = {"words": tf.constant([[0, 1, 1], [7, 8, 49]], tf.int64),
              "users": tf.constant([[0], [19]], tf.int64)}
    logits = []
    for path in outputs("export"):
        [export] = {file.parent for file in (runs / path).rglob("saved_model.pb")}
        served = tf.saved_model.load(str(export)).signatures["serving_default"](**inputs)
        logits.append(served["logits"].numpy())
    for values in logits[1:]:
        np.testing.assert_allclose(values, logits[0], rtol=1e-5)


def test_exports_need_no_op_of_this_package(runs):
    for path in outputs("export"):
        for file in (runs / path).rglob("saved_model.pb"):
            assert b"TpuEmbedding" not in file.read_bytes()


def test_summaries_have_the_same_values(runs):
    legacy, *others = [scalars(runs / path / "summaries") for path in outputs("summaries")]
    assert {tag: len(values) for tag, values in legacy.items()} == {
        "training/loss": STEPS, "training/norm_of_kernel": STEPS}
    for found in others:
        assert found.keys() == legacy.keys()
        for tag, values in legacy.items():
            np.testing.assert_allclose(found[tag], values, rtol=1e-5)


def scalars(directory):
    """Returns tag -> [(step, value), ...]."""
    values = {}
    for path in directory.glob("*tfevents*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                values.setdefault(value.tag, []).append(
                    (event.step, float(tf.make_ndarray(value.tensor))))
    return values
