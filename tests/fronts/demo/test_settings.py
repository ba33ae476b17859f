# SPDX-License-Identifier: Apache-2.0
"""A directory of the demo is bound to the settings that created it."""

import pytest

from tpu_estimator_embedding import cli
from tpu_estimator_embedding.demo.main import keep_settings


@pytest.mark.parametrize("options, directory", [
    ([], "tpu-estimator-embedding-demo"), (["--cluster"], "tpu-estimator-embedding-demo-cluster"),
    (["--cluster", "--model-dir", "mine"], "mine")])
def test_a_cluster_has_a_directory_of_its_own(options, directory, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    keep_settings(tmp_path / directory, {"seed": 7})  # so that the demo ends here
    assert cli.main(["demo", *options]) == 2
    assert f"with which {tmp_path / directory} was created" in capsys.readouterr().err


def test_the_same_settings_pass(tmp_path):
    kept = []
    for _ in range(2):
        keep_settings(tmp_path / "demo", {"examples": 100, "seed": 1})
        kept.append([path.read_text() for path in (tmp_path / "demo").iterdir()])
    assert kept[0] == kept[1] != []


def test_other_settings_name_the_option_and_the_fix(tmp_path):
    keep_settings(tmp_path, {"examples": 100, "seed": 1})
    sentence = rf"`--seed` must be 1, with which {tmp_path} was created, got 2. Or choose another"
    with pytest.raises(ValueError, match=sentence):
        keep_settings(tmp_path, {"examples": 100, "seed": 2})
