# SPDX-License-Identifier: Apache-2.0
"""Programs that drive the TPU by hand: what they learn, and where they go on."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from examples import synthetic_data
from tests.fronts.examples.results import EXAMPLES, run, variables
from tpu_estimator_embedding.channels import channel

pytestmark = pytest.mark.skipif(not channel.are_available(), reason="channels need native kernels")

DLRM = ["hand_driven_dlrm.py", "--data_dir=.", "--train_steps=120", "--steps_per_round=40",
        "--decay_start=80"]


@pytest.fixture(scope="module")
def impressions(tmp_path_factory):
    directory = tmp_path_factory.mktemp("impressions")
    synthetic_data.write_impressions(directory, num_train=61440, num_eval=8192)
    return directory


def rounds(output):
    return [json.loads(line) for line in output.splitlines()]


def assert_equal_rounds(some, others, **tolerance):
    assert [done["step"] for done in some] == [done["step"] for done in others]
    for value in ("loss", "auc", "eval_loss"):
        np.testing.assert_allclose([done[value] for done in some],
                                   [done[value] for done in others], **tolerance)


def kill_after_first_round(program, *arguments, cwd):
    """Kills a program as soon as it prints; checks that none of its processes is left."""
    started = subprocess.Popen(
        [sys.executable, "-m", "tpu_estimator_embedding", "run", "--cores", "2",
         EXAMPLES / program, *arguments], cwd=cwd, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True)
    first = started.stdout.readline()
    os.kill(started.pid, signal.SIGKILL)
    started.communicate(timeout=60)
    with pytest.raises(ProcessLookupError):
        os.killpg(started.pid, 0)
    return rounds(first)


def test_dlrm_learns_and_goes_on_after_a_kill_as_if_there_was_none(impressions):
    output, log = run(*DLRM, "--model_dir=model", cwd=impressions, options=["--cores", "2"])
    found = rounds(output)
    assert "Starts at step 0" in log
    assert [done["step"] for done in found] == [40, 80, 120]
    assert found[0]["auc"] < found[1]["auc"] < found[2]["auc"]
    assert found[2]["auc"] > 0.64  # 0.5 without training
    assert found[2]["eval_loss"] < found[0]["eval_loss"]
    saved = variables(impressions / "model/model.ckpt-120")
    assert {"category_00", "category_00/Adagrad", "dense/category_09",
            "dense/category_09/Momentum"} <= saved.keys()

    command = [*DLRM, "--model_dir=killed"]
    before = kill_after_first_round(*command, cwd=impressions)
    output, log = run(*command, cwd=impressions, options=["--cores", "2"])
    after = rounds(output)
    assert f"Starts at step {120 - 40 * len(after)}" in log
    assert 1 <= len(after) <= 2
    assert_equal_rounds([*before, *after], [found[0], *found[-len(after):]], rtol=1e-5)
    output, _ = run(*command, cwd=impressions, options=["--cores", "2"])
    assert not output


def test_dlrm_has_equal_losses_on_1_and_2_cores(impressions):
    one, two = (rounds(run(*DLRM, f"--model_dir=on_{cores}", "--nobfloat16_sums",
                           cwd=impressions, options=["--cores", cores])[0])
                for cores in ("1", "2"))
    assert_equal_rounds(one, two, rtol=1e-4)


def test_images_are_classified_alike_on_1_and_2_cores(tmp_path):
    synthetic_data.write_images(tmp_path)
    outputs = [run("hand_driven_images.py", "--data_dir=.", f"--model_dir=on_{cores}",
                   f"--num_cores={cores}", cwd=tmp_path, options=["--cores", cores])[0]
               for cores in ("1", "2")]
    one, two = ([float(value) for value in re.findall(r"\d+\.\d+", output)]
                for output in outputs)
    first_loss, last_loss, accuracy = one
    assert last_loss < 0.3 < 2 < first_loss
    assert accuracy > 0.9
    np.testing.assert_allclose(one, two, atol=0.01)
    some, others = (variables(tmp_path / f"on_{cores}/model.ckpt-80") for cores in (1, 2))
    for name, value in some.items():
        np.testing.assert_allclose(others[name], value, atol=0.01, err_msg=name)
