# SPDX-License-Identifier: Apache-2.0
"""A save that fails is an error, and leaves the last complete checkpoint and nothing else."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator import counting
from tests.fronts.estimator.restore import full_disk_program
from tests.subprocesses import start
from tpu_estimator_embedding.patches import patch, patch_table

FULL = "No space left on device. Free space, keep fewer checkpoints with `keep_checkpoint_max` of "
PROGRAM = pathlib.Path(__file__).with_name("full_disk_program.py")


@pytest.fixture
def small_disk(tmp_path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", tmp_path],
                             capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("Only root can mount a separate disk.")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.long
@pytest.mark.parametrize("use_tpu, kind, step, sentence", [
    (True, "disk", 0, "No space left on device"),  # for graph.pbtxt
    (True, "disk", 2, FULL),
    (True, "limit", 2, "not the end of the input: .*File too large"),
    (False, "limit", 2, "not the end of the input: .*File too large"),
])
def test_failed_save_is_an_error(small_disk, use_tpu, kind, step, sentence):
    done = start([sys.executable, PROGRAM, small_disk, use_tpu, kind, step])
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if "Error: " in line]
    assert "allocated tensors" not in done.stderr.partition("Traceback")[2]
    assert tf.strings.regex_full_match(errors[-1], f".*{sentence}.*"), errors
    left = {path.name for path in small_disk.iterdir()}
    assert not [name for name in left if "temp" in name], left
    if step:
        assert tf.train.latest_checkpoint(str(small_disk)) == f"{small_disk}/model.ckpt-0"
        assert tf.train.load_variable(str(small_disk), "global_step") == 0
    else:
        assert not [name for name in left if name.startswith("model.ckpt")], left


def test_checkpoint_whose_graph_has_no_room_is_saved(small_disk):
    path = f"{small_disk}/model.ckpt"
    with (patch.applied(patch_table.SAVERS), tf.Graph().as_default(),
          tf.compat.v1.Session() as session):
        tf.constant(np.arange(13 << 20, dtype=np.uint8))
        variable = tf.compat.v1.get_variable("weights", [3])
        session.run(variable.initializer)
        with pytest.raises(tf.errors.OpError, match=f"The checkpoint {path} was saved, but its "
                           f"graph, .* was not: .*{FULL}"):
            tf.compat.v1.train.Saver().save(session, path, 1)
    assert tf.train.latest_checkpoint(str(small_disk)) == f"{path}-1"
    assert tf.train.load_variable(f"{path}-1", "weights").shape == (3,)
    assert not list(small_disk.glob("*.tmp*"))


@pytest.mark.long
@pytest.mark.parametrize("kind, sentence", [("disk", FULL), ("limit", "File too large")])
def test_save_that_fails_while_training_goes_on_is_an_error(small_disk, kind, sentence):
    done = start([sys.executable, PROGRAM, small_disk, True, kind, 2],
                 TPU_ESTIMATOR_EMBEDDING_ASYNC_CHECKPOINTS="1")
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if "Error: " in line]
    assert tf.strings.regex_full_match(  # the first one may lack its graph when the disk is full
        errors[-1], f".*{small_disk}/model.ckpt-[0246].*{sentence}.*"), errors
    left = {path.name for path in small_disk.iterdir()}
    assert not [name for name in left if "temp" in name], left
    # A checkpoint may be on its way while the disk becomes full.
    newest = tf.train.latest_checkpoint(str(small_disk))
    assert tf.train.load_variable(newest, "counts").shape == (100_000, 8)
    assert newest.endswith(f"-{tf.train.load_variable(newest, 'global_step')}")


def test_export_that_fails_names_the_file_and_the_fix(small_disk, tmp_path_factory):
    def model_fn(features, labels, mode, params):
        spec = counting.model_fn(features, labels, mode, params)
        return spec._replace(export_outputs={"serving_default": tf_estimator.export.PredictOutput(
            {"count": features["id"]})}, predictions={"count": features["id"]})

    def receive():
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        return tf_estimator.export.ServingInputReceiver({"id": ids}, {"id": ids})

    estimator = counting.new_estimator(tmp_path_factory.mktemp("model"), model_fn)
    estimator.train(counting.input_of([0, 1]), max_steps=1)
    full_disk_program.fill(small_disk, "disk")
    with pytest.raises(tf.errors.ResourceExhaustedError,  # as with use_tpu=False
                       match=rf"The variables {small_disk}/export/\S+/variables were not saved: "
                       "No space left on device. Free space, or export to another disk"):
        estimator.export_saved_model(str(small_disk / "export"), receive)
