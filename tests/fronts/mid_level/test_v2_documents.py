# SPDX-License-Identifier: Apache-2.0
"""A program as the documents of TPUEmbeddingV2 and PartialTPUEmbedding say, run as it is."""

import pathlib
import sys

import pytest
import tensorflow as tf

from tests.subprocesses import start


@pytest.mark.long
@pytest.mark.skipif(tf.__version__.startswith("2.15"),
                    reason="programs for TensorFlow 2.15 have no tf.…TPUEmbeddingV2")
def test_program_of_the_documents_learns():
    program = pathlib.Path(__file__).with_name("v2_documented_program.py")
    done = start([sys.executable, "-m", "tpu_estimator_embedding", "run", program])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "TPUEmbeddingV2 learns: True", "['table_0'] TPUStrategy",
        "PartialTPUEmbedding learns: True", "['item']"]
