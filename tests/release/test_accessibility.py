# SPDX-License-Identifier: Apache-2.0
"""Whole reports, for readers with a screen reader, a keyboard or a small screen."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
from tensorboard.compat.proto import summary_pb2

from tests.fronts.experiments.test_logs import LOSSES, write_run
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.experiments.event_files import write_summaries

for library in ("matplotlib", "plotly", "itables"):
    pytest.importorskip(library)
devtools = pytest.importorskip("tests.devtools", reason="it needs websocket-client")

READY = "document.documentElement?.dataset.explorer === 'ready'"
# Of WCAG 2 nothing; of what are good manners, nothing that keeps a reader out.
FIND = ("axe.run().then(result => result.violations.filter(each => each.tags.some(tag => "
        "tag.startsWith('wcag')) || ['serious', 'critical'].includes(each.impact)).map(each => "
        "[each.id, each.impact, each.nodes.map(node => node.html.slice(0, 300))]))")
CONTROLS = {"curve-metric", "smoothing", "curve-log", "table-statistic", "table-names", "scatter-x",
            "scatter-y", "scatter-log", "parallel-plot"}


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The source of axe-core: the newest one from npm, or the one that a package of PyPI has."""
    directory = tmp_path_factory.mktemp("axe")
    if shutil.which("npm"):
        got = subprocess.run(["npm", "pack", "axe-core@4", "--silent"], cwd=directory, timeout=180,
                             capture_output=True, text=True, check=False)
        if got.returncode == 0:
            shutil.unpack_archive(directory / got.stdout.strip(), directory)
            return (directory / "package" / "axe.min.js").read_text("utf-8")
    package = pytest.importorskip("axe_core_python", reason="neither npm nor PyPI has axe-core")
    return (pathlib.Path(package.__path__[0]) / "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The pages of `sweep`, of `report`, and of `report` of several models."""
    out = tmp_path_factory.mktemp("reports")
    for multiplier, losses in LOSSES.items():
        write_run(out / "sweep", multiplier, losses)
    models = sorted((out / "sweep" / "runs").glob("*/model"))
    for model in models:
        write_summaries(model, "2", [(step, summary_pb2.Summary(value=[
            summary_pb2.Summary.Value(tag=f"embedding/{table}/update_ratio", simple_value=0.5)
            for table in ("user", "item")])) for step in (5, 15)])
    program = out / "program.py"
    program.write_text("")
    assert cli.main(["sweep", str(program), "--multiplier", *LOSSES, "--figures", "svg",
                     "--out", str(out / "sweep")]) == 0
    assert cli.main(["report", str(model), "--figures", "svg", "--out", str(out / "model")]) == 0
    assert cli.main(["report", *map(str, models), "--figures", "svg",
                     "--out", str(out / "models")]) == 0
    return [out / name / "report.html" for name in ("sweep", "model", "models")]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with devtools.open_browser(tmp_path_factory.mktemp("browser")) as page:
        yield page
        assert page.console == []
        assert {re.match("[a-z]+:", address)[0] for address in page.requests} <= {
            "file:", "blob:", "data:"}


@pytest.mark.parametrize("width", [1280, 390])
def test_checker_finds_nothing_and_pages_fit(page, reports, axe, width):
    for report in reports:
        page.open(report, width, READY)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(axe)
        found = page.evaluate(FIND)
        assert not found, json.dumps(found, indent=1)[:6000]


def test_keyboard_reaches_all_controls(page, reports):
    page.open(reports[0], 1280, READY)
    reached = set()
    while "end" not in reached:
        page.press("Tab", 9)
        reached.add(page.evaluate(
            "(e => e === document.body ? 'end' : e.closest('th') ? 'header' : e.id || e.type)"
            "(document.activeElement)"))
    assert CONTROLS | {"dt-search-0", "header"} <= reached
