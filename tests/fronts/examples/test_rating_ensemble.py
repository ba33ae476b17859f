# SPDX-License-Identifier: Apache-2.0
"""The ensemble: every part learns by itself, and the export computes what the checkpoint says."""

import json

import numpy as np
import tensorflow as tf

from examples import synthetic_data
from tests.fronts.examples.results import run, variables

ROWS = 50  # of the evaluation, served


def sparse(name, values, is_given=None):
    """Returns the arguments of a signature for the sparse input `name`."""
    is_given = np.ones(values.shape, bool) if is_given is None else is_given
    return {f"{name}_indices": tf.constant(np.argwhere(is_given)),
            f"{name}_values": tf.constant(values[is_given]),
            f"{name}_dense_shape": tf.constant(values.shape, tf.int64)}


def expected_ratings(saved, rows):
    """Computes what the variables of a checkpoint say, with NumPy."""
    def table(name):
        [found] = [value for key, value in saved.items()
                   if key.endswith("/embedding_weights") and f"/{name}" in key]
        return found

    parts = saved["biases/mean"] + (table("biases_user")[rows["user"]]
                                    + table("biases_movie")[rows["movie"]])[:, 0]
    product = table("factors_user")[rows["user"]] * table("factors_movie")[rows["movie"]]
    factors = (product @ saved["factors/dense/kernel"] + saved["factors/dense/bias"])[:, 0]
    weights = np.where(rows["tags"] >= 0, rows["tag_weights"], 0)[:, :, np.newaxis]
    net = (table("tags_tags")[np.maximum(rows["tags"], 0)] * weights).sum(axis=1)
    net = np.maximum(net @ saved["tags/dense/kernel"] + saved["tags/dense/bias"], 0)
    tags = (net @ saved["tags/dense_1/kernel"] + saved["tags/dense_1/bias"])[:, 0]
    mixed = np.stack([parts, factors, tags], 1) @ saved["ensemble/weights"]
    return {"biases": parts, "factors": factors, "tags": tags,
            "ensemble": mixed + saved["ensemble/bias"]}


def test_sub_networks_learn_and_their_mixture_learns_more(tmp_path):
    synthetic_data.write_ratings(tmp_path)
    output, log = run("rating_ensemble.py", "--ratings=ratings.npz", "--model_dir=model",
                      "--export_dir=export", cwd=tmp_path)
    assert "train with the embedding engine (TPU numerics), 1 host, 2 replicas" in log
    rmse = json.loads(output)
    best = min(rmse[name] for name in ("biases", "factors", "tags"))
    assert best < 1.25 and rmse["ensemble"] < best - 0.15
    saved = variables(tmp_path / "model/model.ckpt-400")
    tables = [name for name in saved if name.endswith("/embedding_weights")]
    assert len(tables) == 5
    assert all(saved[f"{name}/Adagrad"].max() > 0.1 for name in tables)  # which it starts with

    with np.load(tmp_path / "ratings.npz") as file:
        rows = {name: file[name][:ROWS] for name in file.files}
    inputs = {**sparse("user", rows["user"][:, np.newaxis]),
              **sparse("movie", rows["movie"][:, np.newaxis]),
              **sparse("tags", rows["tags"], rows["tags"] >= 0),
              **sparse("weights", rows["tag_weights"], rows["tags"] >= 0)}
    [exported] = (tmp_path / "export").iterdir()
    for tags in (["serve"], ["serve", "tpu"]):
        served = tf.saved_model.load(str(exported), tags).signatures["serving_default"](**inputs)
        for name, ratings in expected_ratings(saved, rows).items():
            np.testing.assert_allclose(served[name], ratings, rtol=1e-4, atol=1e-5)
