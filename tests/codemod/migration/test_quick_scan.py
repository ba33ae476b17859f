# SPDX-License-Identifier: Apache-2.0
"""The quick scan of a file clears nothing that the slow analysis changes or reports."""

import pytest

from tests.codemod.cases import read_cases
from tpu_estimator_embedding.migration import quick_scan, source_file, tf1_programs, to_imports

BEFORE = {case.name: case.before for case in read_cases() if case.stage == "imports"}


@pytest.mark.all_cases
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_what_is_changed_or_reported_is_not_cleared(before):
    scanned = quick_scan.scan(before.encode())
    if scanned is None:
        return
    source = source_file.parse(before.encode(), "case.py")
    if not scanned.may_be_tf1:
        assert not tf1_programs.own_note(source)
    if not scanned.may_be_legacy:
        result = to_imports.rewrite(source, is_tf1=False)
        assert (result.data, result.findings) == (before.encode(), ())


@pytest.mark.parametrize("text, cleared", [
    ("import tensorflow as tf\nx = tf.add(1, 2)\n", True),
    ("import tensorflow.compat.v1 as tf\ntf.Print(1)\n", True),  # as it was and may stay
    ("import os, tensorflow\nos.environ.get('tpu')\n", True),
    ("import tensorflow as tf\na = tf\ndef f():\n  b = a.compat\n  return b.v1.estimator\n", False),
    ("import tensorflow as tf\nf(tf)\n", False),
    ("from tensorflow.python import tpu\n", False),
    ("import tensorflow as tf\ngetattr(tf, 'estimator')\n", False),
    ("import tensorflow as tf\ngetattr(x, 'estimator')\n", True),
    ("import tensorflow as tf\nx = 'tf.estimator'\n", False),
    ("import tensorflow as tf\nx: 'tf.estimator.Estimator' = None\n", False),
])
def test_look(text, cleared):
    assert quick_scan.scan(text.encode()).may_be_legacy is not cleared


@pytest.mark.parametrize("text, names", [
    ("from trainer.model import *\n", {"*"}),
    ("from trainer import *\nprint(model.COLUMNS)\n", {"COLUMNS"}),
    ("from trainer import data\nprint(data.model)\n", set()),
])
def test_names_that_another_module_reads(text, names):
    assert quick_scan.read_by([text.encode()], "trainer/model.py") == names
