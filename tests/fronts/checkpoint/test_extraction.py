# SPDX-License-Identifier: Apache-2.0
"""Tables extracted from checkpoints."""

import builtins

import numpy as np
import pytest
from pyarrow import parquet

from tests.fronts.checkpoint.saved import save_v1, variables
from tpu_estimator_embedding import checkpoint

MOD = checkpoint.Reading(from_hosts=3)


def extract(tmp_path, output, **options):
    saved = variables("Adam")
    count = checkpoint.extract(save_v1(tmp_path / "v1", saved, 3, "mod"), "words",
                               tmp_path / output, reading=MOD, **options)
    return saved.tables, count


def test_parquet_has_ids_and_rows(tmp_path):
    tables, count = extract(tmp_path, "words.parquet")
    found = parquet.read_table(tmp_path / "words.parquet")
    assert found.column_names == ["id", "embedding"]
    assert found["id"].to_pylist() == list(range(13))
    assert count == 13
    np.testing.assert_array_equal(np.array(found["embedding"].to_pylist(), np.float32),
                                  tables["words"])


def test_parquet_with_slots_and_some_rows(tmp_path):
    tables, count = extract(tmp_path, "words.parquet", slots=True, rows=(4, 11))
    found = parquet.read_table(tmp_path / "words.parquet")
    assert found["id"].to_pylist() == list(range(4, 11))
    assert count == 7
    for column, key in (("embedding", "words"), ("momenta", "words/Adam/m"),
                        ("velocities", "words/Adam/v")):
        np.testing.assert_array_equal(np.array(found[column].to_pylist(), np.float32),
                                      tables[key][4:11])


def test_tsv_reads_back_to_the_same_bits(tmp_path):
    tables, _ = extract(tmp_path, "words.tsv")
    found = np.loadtxt(tmp_path / "words.tsv", delimiter="\t", dtype=np.float32)
    np.testing.assert_array_equal(found, tables["words"])


def test_table_may_be_called_as_in_tf2(tmp_path):
    saved = variables(table="input_layer/words_embedding/embedding_weights")
    source = save_v1(tmp_path / "v1", saved)
    assert checkpoint.extract(source, "words", tmp_path / "a.tsv") == 13
    assert checkpoint.extract(source, "input_layer/words_embedding/embedding_weights",
                              tmp_path / "b.tsv") == 13
    assert (tmp_path / "a.tsv").read_bytes() == (tmp_path / "b.tsv").read_bytes()


@pytest.mark.parametrize("table, output, options, sentence", [
    ("terms", "x.tsv", {}, "`table` must be one of .*'tags', 'words'.*, got 'terms'"),
    ("words", "x.csv", {}, "`output` must be a name that ends in .parquet or .tsv"),
    ("words", "x.tsv", {"slots": True}, "`slots` applies only to .parquet, got slots=True"),
    ("words", "x.tsv", {"rows": (3, 3)}, "`rows` must be a range within 0:13, got '3:3'"),
    ("words", "x.tsv", {"rows": (3, 14)}, "`rows` must be a range within 0:13, got '3:14'")])
def test_wrong_arguments(table, output, options, sentence, tmp_path):
    source = save_v1(tmp_path / "v1", variables())
    with pytest.raises(ValueError, match=sentence):
        checkpoint.extract(source, table, tmp_path / output, **options)
    assert not list(tmp_path.glob("*x.*"))


def test_missing_pyarrow_names_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    source = save_v1(tmp_path / "v1", variables())
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'tpu_estimator_embedding\[parquet\]'"):
        checkpoint.extract(source, "words", tmp_path / "words.parquet")
    assert not list(tmp_path.glob("*words*"))
