# SPDX-License-Identifier: Apache-2.0
"""`report --watch`: a page that follows a training, in a real browser."""

import http.client
import re
import signal
import subprocess
import sys

import pytest

from tests.estimator import counting
from tests.experiments.test_comparison import write_model
from tpu_estimator_embedding import cli

pytest.importorskip("plotly", reason="the extra `interactive` has it")
pytest.importorskip("itables", reason="the extra `interactive` has it")
devtools = pytest.importorskip("tests.devtools", reason="it needs websocket-client")

IDS = [0, 1, 1, 1, 2, 3, 3, 4]
STEPS_OF_CURVE = "document.getElementById('curve-plot')?.data?.[0]?.x?.length"


@pytest.fixture
def watch(tmp_path):
    """Starts the command; gives the process and the port. Ctrl-C has to end it, with status 0."""
    process = None

    def started(*directories):
        nonlocal process
        process = subprocess.Popen(
            [sys.executable, "-m", "tpu_estimator_embedding", "report", *map(str, directories),
             "--watch", "--port", "0", "--out", str(tmp_path / "out")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        return int(re.fullmatch(r"report   http://127\.0\.0\.1:(\d+)/\n", line)[1])

    yield started
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0 and "Traceback" not in errors, errors


def get(port, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=180)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_page_follows_a_training(watch, tmp_path):
    model_dir = tmp_path / "model"
    port = watch(model_dir)
    with devtools.open_browser(tmp_path) as page:
        page.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
        page.wait_for("document.body?.textContent.includes('Waiting for a checkpoint')")
        config = counting.run_config(save_summary_steps=1, log_step_count_steps=1)
        estimator = counting.new_estimator(model_dir, config=config)
        estimator.train(counting.input_of(IDS), max_steps=2)
        page.wait_for("document.body?.textContent.includes('newest checkpoint is from step 2')")
        page.wait_for(f"{STEPS_OF_CURVE} === 2")
        page.evaluate("document.getElementById('curve-log').click()")
        estimator.train(counting.input_of(IDS), max_steps=4)
        page.wait_for("document.body?.textContent.includes('newest checkpoint is from step 4')")
        page.wait_for(f"{STEPS_OF_CURVE} === 4")
        page.wait_for("document.getElementById('curve-plot').layout.yaxis.type === 'log'")
        assert page.console == []
        assert {re.match("[a-z]+:(//[^/]*)?", address)[0] for address in page.requests} <= {
            f"http://127.0.0.1:{port}", "blob:", f"blob:http://127.0.0.1:{port}", "data:"}
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".html"}  # only the page
    assert "/version" not in (tmp_path / "out" / "report.html").read_text()  # without a server


def test_comparison_waits_for_all_models(watch, tmp_path):
    write_model(tmp_path / "before", [0.75, 0.5], [0.25])
    port = watch(tmp_path / "before", tmp_path / "after")
    assert "Waiting for" in get(port, "/")[1]
    write_model(tmp_path / "after", [0.75, 0.125], [0.25])
    while (version := get(port, "/version")[1]) == "0":
        pass
    assert "Comparison of 2 models" in get(port, "/")[1]
    assert get(port, "/version")[1] == version  # nothing new, no new page


def test_other_names_of_this_machine_and_other_files_are_not_served(watch, tmp_path):
    port = watch(tmp_path)
    assert get(port, "/", f"localhost:{port}")[0] == 200
    assert get(port, "/", f"attacker.example:{port}")[0] == 404
    assert get(port, "/../../etc/passwd")[0] == 404


@pytest.mark.parametrize("words, error", [
    (["--port", "80"], "`--port` must be used with --watch only, got 80"),
    (["--watch", "--port", "65536"], "`--port` must be at least 0 and below 65536, got 65536")])
def test_port_is_checked(words, error, tmp_path, capsys):
    assert cli.main(["report", str(tmp_path), *words]) == 2
    assert error in capsys.readouterr().err
