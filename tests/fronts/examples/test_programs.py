# SPDX-License-Identifier: Apache-2.0
"""Programs as they were written for TPUs, run by the command; what they learned is checked."""

import ast
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from examples import synthetic_data
from tests.fronts.examples.results import (
    EXAMPLES,
    area_under_curve,
    load_export,
    run,
    scalars,
    variables,
)

PROGRAMS = [path for path in sorted(EXAMPLES.glob("*.py"))
            if path.stem not in ("__init__", "synthetic_data")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_programs_do_not_know_this_package(program):
    tree = ast.parse(program.read_text())
    imports = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import)
               for name in node.names]
    imports += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "tensorflow" in {name.partition(".")[0] for name in imports}
    assert not [name for name in imports if name.startswith("tpu_estimator_embedding")]


def test_click_through_rate_learns_on_8_shards_and_continues(tmp_path):
    synthetic_data.main(["clicks", str(tmp_path / "data")])
    command = ["click_through_rate.py", "--data_dir=data", "--model_dir=model",
               "--tpu=grpc://127.0.0.1:1", "--eval_steps=4", "--iterations_per_loop=60"]
    output, log = run(*command, "--train_steps=120", cwd=tmp_path)
    metrics = json.loads(output)
    assert metrics["global_step"] == 120
    assert metrics["auc"] > 0.85
    assert abs(metrics["calibration"]) < 0.05
    auc = scalars(tmp_path / "model/eval", "auc")
    assert auc == {120: pytest.approx(metrics["auc"])}
    assert re.search(r"train with the embedding engine .*8 replicas", log)

    output, log = run(*command, "--train_steps=125", "--mode=train", cwd=tmp_path)
    assert "Restoring parameters from model/model.ckpt-120" in log
    checkpoints = tf.train.get_checkpoint_state(str(tmp_path / "model"))
    assert [path.rpartition("-")[2] for path in checkpoints.all_model_checkpoint_paths] == [
        "60", "120", "125"]
    before, after = (variables(tmp_path / f"model/model.ckpt-{step}") for step in (120, 125))
    tables = [name for name in after if name.endswith("/embedding_weights")]
    assert len(tables) == 3
    for table in tables:
        assert 0 < np.abs(after[table] - before[table]).max() < 2
        assert not np.array_equal(after[f"{table}/Adam/v"], before[f"{table}/Adam/v"])


def test_two_tower_finds_the_groups_of_items(tmp_path):
    synthetic_data.write_sessions(tmp_path)
    output, _ = run("two_tower.py", "--sessions=sessions.npz", "--model_dir=model",
                    "--output=vectors.npz", cwd=tmp_path)
    assert float(output.rpartition(":")[2]) > 0.93  # 10 % of the negatives are of the group
    vectors = np.load(tmp_path / "vectors.npz")
    users, items = vectors["users"], vectors["items"]
    assert users.shape == (2000, 16)  # the last batch of 64 is smaller
    assert items.shape == (200, 16)
    sessions = np.load(tmp_path / "sessions.npz")
    groups = sessions["positive"][:2000] % 10
    best = (users @ items.T).argmax(axis=1) % 10
    assert (best == groups).mean() > 0.98
    assert np.array_equal(items, variables(tmp_path / "model/model.ckpt-300")["items"])
    assert scalars(tmp_path / "model/eval_held_out", "ranked_right").keys() == {300}


def test_sentence_classifier_serves_what_it_learned(tmp_path):
    synthetic_data.write_sentences(tmp_path)
    run("sentence_classifier.py", "--train_file=train.tsv", "--dev_file=dev.tsv",
        "--vocab_file=vocab.txt", "--output_dir=out/model", "--use_tpu", "--tpu_name=my-tpu",
        cwd=tmp_path)
    results = dict(line.split(" = ") for line in
                   (tmp_path / "out/model/eval_results.txt").read_text().splitlines())
    assert float(results["eval_accuracy"]) > 0.95
    serve = load_export(tmp_path / "out/model/export").signatures["serving_default"]
    sentences = ["word1 good word2 not", "word1 not good", "awful word7 not", "not poor unseen",
                 "word99 fine not"]  # unseen and word99 are out of the vocabulary
    served = serve(sentences=tf.constant(sentences))
    assert served["label"].numpy().tolist() == [1, 0, 0, 1, 1]
    np.testing.assert_allclose(served["probabilities"].numpy().sum(axis=1), 1, rtol=1e-5)


def test_rating_tables_have_their_own_optimizers_and_host_calls_write(tmp_path):
    synthetic_data.write_ratings(tmp_path)
    run("rating_tables.py", "--ratings=ratings.npz", "--model_dir=model", "--num_shards=2",
        "--train_steps=400", cwd=tmp_path)
    rmse = scalars(tmp_path / "model/eval", "rmse")
    assert 0.2 < rmse[400] < 0.4  # the noise is 0.2, ratings have a deviation of 1.4
    rates = scalars(tmp_path / "model/host_call", "training/learning_rate")
    assert list(rates) == list(range(0, 400, 50))  # the steps before they are counted
    for step, rate in rates.items():
        assert rate == pytest.approx(0.025 * (1 + np.cos(np.pi * step / 400)), abs=1e-6)
    losses = scalars(tmp_path / "model/host_call", "training/loss")
    assert losses[350] < 0.3 < 5 < losses[0]
    saved = variables(tmp_path / "model/model.ckpt-400")
    assert {"users/Ftrl", "users/Ftrl_1", "movies/Adam/m", "movies/Adam/v", "tags/Adagrad",
            "biases/Adagrad"} <= saved.keys()
    assert np.abs(saved["users"]).max() <= 3


def test_continuous_evaluation_stops_early_and_exports_the_best(tmp_path):
    synthetic_data.write_visits(tmp_path)
    output, _ = run("continuous_evaluation.py", "--data_dir=.", "--job_dir=job",
                    "--eval_every=100", "--patience=100", "--max_steps=3000", cwd=tmp_path)
    auc = scalars(tmp_path / "job/eval", "auc")
    *earlier, last, stopped_at = sorted(auc)  # it stops when the last one is not the best
    assert json.loads(output)["global_step"] == stopped_at < 3000
    assert auc[last] <= max(auc[step] for step in earlier)
    best = max(auc.values())
    assert best > 0.85
    assert len(list((tmp_path / "job/export/latest").iterdir())) == 2
    predict = load_export(tmp_path / "job/export/best").signatures["predict"]
    rows = np.loadtxt(tmp_path / "eval.csv", delimiter=",", skiprows=1)
    country, device, hour = (tf.constant(rows[:, [column]], tf.int64) for column in range(3))
    served = predict(country=country, device=device, hour=hour,
                     visits=tf.constant(rows[:, 3], tf.float32))["probability"].numpy()
    assert area_under_curve(rows[:, 4], served) == pytest.approx(best, abs=0.005)


def test_video_ranking_task_has_the_replicas_that_run_asks_for(tmp_path):
    synthetic_data.write_feed(tmp_path)
    output, log = run("video_ranking_task.py", "--data_dir=.", "--model_dir=model", cwd=tmp_path,
                      options=["--cores", "8"])
    assert float(output.rpartition(" ")[2]) > 0.7  # the noise of the clicks leaves about 0.8
    assert re.search(r"train with the embedding engine .*8 replicas", log)
    assert scalars(tmp_path / "model/host", "replicas") == dict.fromkeys(range(0, 300, 50), 8)
    losses = scalars(tmp_path / "model/host", "loss")
    assert losses[250] < 0.65 < losses[0]
    saved = variables(tmp_path / "model/model.ckpt-300")
    assert {"user_bias/Ftrl", "user_bias/Ftrl_1", "authors/Adagrad", "videos/Adagrad"} <= (
        saved.keys())


def test_collaborative_filtering_ends_when_its_hit_rate_is_reached(tmp_path):
    synthetic_data.write_interactions(tmp_path)
    output, log = run("neural_collaborative_filtering.py", "--data_dir=.", "--model_dir=model",
                      cwd=tmp_path)
    rounds = json.loads(output)
    assert 1 <= len(rounds) < 8 and rounds[-1]["hit_rate"] >= 0.8  # by chance: 5 of 32
    assert all(done["hit_rate"] < 0.8 for done in rounds[:-1])
    assert [done["global_step"] for done in rounds] == [
        71 * (number + 1) for number in range(len(rounds))]
    assert 0.4 < rounds[-1]["ndcg"] < rounds[-1]["hit_rate"]
