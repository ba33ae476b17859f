# SPDX-License-Identifier: Apache-2.0
"""A program for TensorFlow 1.15: `tf.contrib.tpu`, a subclass of TPUEstimator, two stages."""

import json

import numpy as np

from examples import synthetic_data
from tests.fronts.examples.results import run, variables


def test_contrib_ranking_ranks_what_was_never_bought(tmp_path):
    synthetic_data.write_purchases(tmp_path)
    run("contrib_ranking.py", "--clicks=clicks.csv", "--purchases=purchases.csv",
        "--candidates=candidates.csv", "--base_dir=models", cwd=tmp_path, options=["--tf1"])
    result = json.loads((tmp_path / "models/ranking.json").read_text())
    assert result["auc"] > 0.85
    assert len(result["ranking"]) == 1100  # also those of the last batch, which is smaller
    products = np.array([product for _, product, _ in result["ranking"]])
    assert (products[:400] % 2).mean() > 0.95
    assert (products[-400:] % 2).mean() < 0.05
    clicks, purchases = (variables(tmp_path / "models" / path) for path in (
        "clicks/model.ckpt-300", "purchases/model.ckpt-30"))
    [table] = [name for name in clicks if name.endswith("product_embedding/embedding_weights")]
    for name in (table, f"{table}/Adagrad"):
        assert np.array_equal(purchases[name][50:], clicks[name][50:])
        assert not np.array_equal(purchases[name][:50], clicks[name][:50])
