# SPDX-License-Identifier: Apache-2.0
"""The code samples of the documents and of docs/, completed and run."""

import pathlib
import runpy
import sys

import pytest
import tensorflow as tf

from tests import docs, subprocesses

HERE = pathlib.Path(__file__).parent


@pytest.mark.long
def test_samples_of_both_releases_run_as_they_were_written_for_a_tpu():
    done = subprocesses.start([sys.executable, "-m", "tpu_estimator_embedding", "run",
                               HERE / "documented_program.py"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["replicas 2, learned True", "served True"] * 2


def test_samples_of_the_page_learn(tmp_path):
    samples = docs.code_blocks(docs.page("tf2_classes"))
    (tmp_path / "sample.py").write_text("\n".join(samples))
    names = runpy.run_path(str(tmp_path / "sample.py"))
    rows = tf.gather(names["embedding"].embedding_tables[names["words"]], [3, 4, 5]).numpy()
    assert abs(rows[:2].mean(0) - 1.0).max() < 0.05 and abs(rows[2] - 1.0).max() < 0.05
    assert len(samples) == 2 and names["losses"][-1] < 0.1
    assert any(variable.numpy().any() for variable in names["optimizer"].variables
               if tuple(variable.shape) == (1000, 8))  # moments of the table
