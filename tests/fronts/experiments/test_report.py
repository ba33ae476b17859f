# SPDX-License-Identifier: Apache-2.0
"""The report on one model's directory, whatever state it is in."""

import html
import re

import numpy as np
import pytest

from tests import browser
from tests.fronts.estimator import counting
from tpu_estimator_embedding import cli, figures
from tpu_estimator_embedding.checkpoint.contents import Table
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout
from tpu_estimator_embedding.experiments import model_report
from tpu_estimator_embedding.experiments.model_report import hot_rows

STEPS = 4
IDS = [0, 1, 1, 1, 2, 3, 3, 4]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("report") / "model"
    config = counting.run_config(save_summary_steps=1, log_step_count_steps=1)
    estimator = counting.new_estimator(directory, config=config)
    estimator.train(counting.input_of(IDS), max_steps=STEPS)
    estimator.evaluate(counting.input_of(IDS))
    estimator.evaluate(counting.input_of(IDS), name="later")
    return directory


def test_page_has_curves_tables_and_versions(model_dir, tmp_path, capsys):
    assert cli.main(["report", str(model_dir), "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"The newest checkpoint is from step {STEPS}. Last evaluation: later/loss" in page
    assert "<td>counts</td>" in page
    for name in ("training_loss", "speed", "row_norms"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert page.count("<figure><img") == len(list((tmp_path / "out").glob("*.png")))
    for kind in ("svg", "pdf"):
        assert len(list((tmp_path / "out").glob(f"*.{kind}"))) == page.count("<figure><img")
    own = re.sub("(?s)<(script|style)[ >].*?</\\1>", "", page)  # without the libraries
    assert "tpu_estimator_embedding" in own and "http" not in own
    assert "Recorded at one step only:" in page and "<td>later/loss</td>" in page  # no figure
    assert not list((tmp_path / "out").glob("evaluation_*"))
    assert str(tmp_path / "out" / "report.html") in capsys.readouterr().out
    browser.check_report(tmp_path / "out" / "report.html", tmp_path)


@pytest.mark.slow
def test_figures_come_in_the_formats_asked_for(model_dir, tmp_path, capsys):
    assert cli.main(["report", str(model_dir), "--out", str(tmp_path), "--figures", "pdf"]) == 0
    assert {path.suffix for path in tmp_path.iterdir()} == {".html", ".pdf"}
    files = len(list(tmp_path.glob("*.pdf")))
    assert (tmp_path / "report.html").read_text().count("<figure><img") == files
    assert f"figures  {files} beside it, each as PDF" in capsys.readouterr().out
    assert cli.main(["report", str(model_dir), "--figures", "pdf,eps"]) == 2
    assert "`--figures` must be one or more of png,svg,pdf" in capsys.readouterr().err


def test_figures_that_matplotlib_would_draw_are_named_as_missing(model_dir, tmp_path, capsys,
                                                                 monkeypatch):
    monkeypatch.setattr(figures, "can_draw", lambda: False)
    assert cli.main(["report", str(model_dir), "--out", str(tmp_path)]) == 0
    missing = "none: they need matplotlib, pip install 'tpu_estimator_embedding[plots]', and the"
    assert f"figures  {missing}" in capsys.readouterr().out
    assert f"Figures: {missing}" in html.unescape((tmp_path / "report.html").read_text())


@pytest.mark.slow
def test_directory_that_is_being_trained_into(model_dir, tmp_path):
    """Half an event at the end, and no checkpoint yet."""
    directory = tmp_path / "young"
    directory.mkdir()
    [events] = model_dir.glob("events*")
    content = events.read_bytes()
    (directory / events.name).write_bytes(content[:-5])
    page, *_ = model_report.write_report([directory], tmp_path / "out")
    assert "No checkpoint has been saved yet." in page.read_text()
    assert (tmp_path / "out" / "training_loss.png").exists()


@pytest.mark.slow
def test_checkpoint_deleted_under_the_reader_is_read_anew(model_dir, tmp_path, monkeypatch):
    inspect, missing = model_report.inspect, iter([True, False])

    def deleted_once(prefix):
        if next(missing):
            raise FileNotFoundError(prefix)
        return inspect(prefix)

    monkeypatch.setattr(model_report, "inspect", deleted_once)
    page, *_ = model_report.write_report([model_dir], tmp_path / "out")
    assert f"from step {STEPS}" in page.read_text()


@pytest.mark.parametrize("options", [["--watch"], ["--watch", "--port", "0"], ["--port", "80"]])
def test_following_a_training_is_left_to_tensorboard(options, tmp_path, capsys):
    assert cli.main(["report", *options, str(tmp_path / "a model")]) == 2
    assert f"`tensorboard --logdir '{tmp_path}/a model'`" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_directory_of_nothing_is_an_error(name, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert cli.main(["report", str(tmp_path / name)]) == 2
    assert ("`MODEL_DIR` must be a directory with a checkpoint or event files, got"
            in capsys.readouterr().err)
    assert not (tmp_path / name / "report").exists()


def test_hot_rows_and_their_neighbours_equal_numpy(monkeypatch):
    monkeypatch.setattr("tpu_estimator_embedding.checkpoint.stored_tensor.BLOCK_BYTES", 64)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=[50, 4]).astype(np.float32)
    gathered = rng.uniform(size=[50, 4]).astype(np.float32)
    table = Table("words", ArrayTensor(rows), {"accumulators": ArrayTensor(gathered)}, "Adagrad",
                  TableLayout("div", 1, 50))
    found = hot_rows(table, count=2, neighbours=3)
    assert [row.id for row in found] == np.argsort(-np.square(gathered).sum(1))[:2].tolist()
    for row in found:
        cosines = rows @ rows[row.id] / np.linalg.norm(rows, axis=1) / np.linalg.norm(rows[row.id])
        expected = np.argsort(-cosines)[1:4]  # the row itself comes first
        assert [other for other, _ in row.neighbours] == expected.tolist()
        np.testing.assert_allclose([cosine for _, cosine in row.neighbours], cosines[expected],
                                   rtol=1e-5)


def test_hot_rows_of_a_table_without_slots_have_the_largest_norms():
    rows = np.array([[1, 0], [3, 4], [0, 2], [np.nan, 1]], np.float32)
    table = Table("words", ArrayTensor(rows), {}, None, TableLayout("div", 1, 4))
    [hot] = hot_rows(table, count=1, neighbours=9)
    assert hot.id == 1
    assert len(hot.neighbours) == 3


def test_statistics_of_tables_are_figures_with_a_line_for_each_table():
    from tpu_estimator_embedding.experiments import model_report
    curves = {f"training/embedding/{table}/{name}": [(10, 0.5), (20, 0.25)]
              for table in ("user", "item") for name in ("update_ratio", "coverage")}
    curves["training/embedding/global_gradient_norm"] = [(10, 1.0)]
    figures = {name: caption for name, caption, _ in model_report._curve_figures(curves)}
    measured = "measured at 2 steps, from 10 to 20"
    assert figures == {
        "tables_update_ratio": f"Tables: update ratio over steps, {measured}.",
        "tables_coverage": f"Tables: coverage over steps, {measured}.",
        "training_embedding": "embedding over steps."}


def test_figure_of_many_tables_shows_those_with_the_largest_values():
    from tpu_estimator_embedding.experiments import model_report
    tables = {f"t{number}": [(1, float(number))] for number in range(12)}
    _, caption, draw = model_report._of_tables("coverage", tables)
    assert caption.endswith("of the 10 of 12 where it is largest at the end.")
    assert draw()["png"].startswith(b"\x89PNG")
