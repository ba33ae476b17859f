# SPDX-License-Identifier: Apache-2.0
"""A job runs although one of its servers has no native kernels, and says so.

It trains the tables that one process without kernels trains.
"""

import re

import numpy as np
import tensorflow as tf

import tpu_estimator_embedding
from tests.cluster import train as program
from tests.cluster.faults import training
from tests.kernel_choice import choose_kernels

STEPS = 20


def test_a_server_without_kernels(tmp_path, monkeypatch):
    choose_kernels("native", monkeypatch)
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_KERNELS", "")
    monkeypatch.setenv("TASK_WITHOUT_KERNELS", "ps 1")
    with training(tmp_path / "cluster", STEPS, workers=0, strategy="div",
                  seconds_per_step=0) as cluster:
        cluster.wait_for_end()
        assert re.search("server 0 of 2 .* kernels: native", cluster["ps 0"].text)
        assert re.search("server 1 of 2 .* kernels: TF ops", cluster["ps 1"].text)
        assert re.search(r"this task trains with TF ops, several times slower: ps 1 \([\d.:]+\) "
                         "has no native kernels", cluster["chief 0"].text)
        assert re.search("train with the embedding engine .* kernels: TF ops",
                         cluster["chief 0"].text)
        assert "may hold a table of one step and its slot of the next" in cluster["chief 0"].text
    tpu_estimator_embedding.install()
    choose_kernels("off", monkeypatch)
    alone = program.new_estimator(str(tmp_path / "alone"), "div", num_hosts=2)
    alone.train(program.input_fn, max_steps=STEPS)
    readers = [tf.train.load_checkpoint(str(tmp_path / name / f"model.ckpt-{STEPS}"))
               for name in ("cluster", "alone")]
    for name in alone.get_variable_names():
        np.testing.assert_array_equal(*(reader.get_tensor(name) for reader in readers),
                                      err_msg=name)
