# SPDX-License-Identifier: Apache-2.0
"""Renders a page in a real headless browser."""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import NamedTuple

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--virtual-time-budget=3000", "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND"]  # no network

_MEASURE = """
<script>
addEventListener("error", event => document.documentElement.dataset.failed = event.message, true);
addEventListener("load", () => {
  document.documentElement.dataset.measured = JSON.stringify({
    page_width: document.documentElement.scrollWidth, window_width: innerWidth,
    image_widths: [...document.images].map(image => image.naturalWidth)});
});
</script>
"""


class Measured(NamedTuple):
    """A page as the browser laid it out."""

    page_width: int
    window_width: int
    image_widths: list
    console: list


def open_page(path, directory, width=1280):
    """Measures a page in a window of that width, in a copy that is written to the directory."""
    copy = pathlib.Path(directory, "measured.html")
    copy.write_text(path.read_text("utf-8").replace("<head>", f"<head>{_MEASURE}"), "utf-8")
    done = _run([f"--window-size={width},800", "--dump-dom", copy.as_uri()])
    assert "data-failed" not in done.stdout
    [measured] = re.findall(r'data-measured="([^"]*)"', done.stdout)
    values = json.loads(html.unescape(measured))
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Measured(console=console, **values)


def _run(arguments):
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    if browser is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no Chromium: apt-get install chromium")
        pytest.skip("there is no Chromium here: apt-get install chromium")
    return subprocess.run([browser, *_OPTIONS, *arguments], capture_output=True, text=True,
                          timeout=120, check=True)


def check_report(path, directory):
    """Fails unless a report shows all of its pictures, without an error or sideways scrolling."""
    measured = open_page(path, directory)
    assert measured.console == []
    assert measured.window_width == 1280
    assert measured.page_width <= 1280
    assert measured.image_widths
    assert all(width > 100 for width in measured.image_widths)
