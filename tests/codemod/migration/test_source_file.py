# SPDX-License-Identifier: Apache-2.0
"""Files that cannot be parsed or decoded stay as they are, with a line that says why."""

import pytest

from tpu_estimator_embedding.migration.rewrite import rewrite

USE = b"import tensorflow.compat.v1 as tf\nmode = tf.estimator.ModeKeys.TRAIN\n"


def finding_of(data, path="x.py"):
    result = rewrite(data, path)
    assert result.data == data
    [finding] = result.findings
    return finding


@pytest.mark.parametrize("line, column, text", [
    (2, 1, "print 'trained', steps"),
    (2, 1, "exec 'x = 1'"),
    (2, 1, "print >>log, 'trained'"),
    (3, 8, "try: pass\nexcept ValueError, error: pass"),
    (2, 18, "raise ValueError, 'wrong'"),
    (2, 4, "if a <> b: pass"),
    (2, 8, "name = `value`"),
    (2, 5, "x = 0777"),
    (2, 5, "x = 12L"),
    (2, 5, "x = ur'text'"),
])
def test_python_2_is_named(line, column, text):
    finding = finding_of(b"import tensorflow as tf\n" + text.encode() + b"\n")
    assert finding.code == "TEE206"
    assert finding.line == line
    assert abs(finding.column - column) <= 3
    assert "convert the file to Python 3 first" in finding.message


@pytest.mark.parametrize("line, column, text", [
    (2, 5, "x = = 1"),
    (3, 1, "if x:\ny = 2"),
    (2, 6, "f = (1,"),
])
def test_parse_error_names_line_and_column(line, column, text):
    finding = finding_of(b"import tensorflow as tf\n" + text.encode() + b"\n", "trainer/task.py")
    assert finding.code == "TEE207"
    assert (finding.path, finding.line) == ("trainer/task.py", line)
    assert abs(finding.column - column) <= 3
    assert str(finding).startswith(f"trainer/task.py:{line}:{finding.column}: TEE207 ")


def test_latin_1_keeps_its_encoding():
    text = "# -*- coding: latin-1 -*-\n# Größe\n".encode("latin-1") + USE
    result = rewrite(text)
    assert "Größe".encode("latin-1") in result.data
    assert b"tf_estimator.ModeKeys" in result.data


def test_bytes_that_are_not_of_the_encoding_are_named():
    finding = finding_of("# Größe\n".encode("latin-1") + USE)
    assert finding.code == "TEE208"
    assert "save it as UTF-8" in finding.message


def test_line_ends_that_cannot_be_kept_are_named():
    finding = finding_of(b"x = 1\r" + USE.replace(b"\n", b"\r"))
    assert finding.code == "TEE208"
    assert "save it as UTF-8 without a byte order mark, with \\n at the ends" in finding.message


def test_byte_order_mark_is_kept_or_reported():
    result = rewrite(b"\xef\xbb\xbf" + USE)
    assert result.data.startswith(b"\xef\xbb\xbf")
    assert b"tf_estimator.ModeKeys" in result.data or (
        [finding.code for finding in result.findings] == ["TEE208"])


def test_tabs_form_feeds_and_missing_last_newline_stay():
    text = USE + b"\x0c\ndef build():\n\treturn tf.estimator.tpu.TPUConfig()"
    result = rewrite(text)
    assert result.data.endswith(b"\x0c\ndef build():\n\treturn TPUConfig()")


def test_a_file_without_tensorflow_is_not_parsed():
    assert rewrite(b"this is not Python").findings == ()
