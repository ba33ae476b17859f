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


def test_sample_of_the_page_learns(tmp_path):
    [sample] = [block for block in docs.code_blocks(docs.page("tf2_classes"))
                if "mid_level" in block]
    (tmp_path / "sample.py").write_text(sample)
    names = runpy.run_path(str(tmp_path / "sample.py"))
    rows = tf.gather(names["embedding"].embedding_tables[names["words"]], [3, 4, 5]).numpy()
    assert abs(rows[:2].mean(0) - 1.0).max() < 0.05 and abs(rows[2] - 1.0).max() < 0.05
