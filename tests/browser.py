# SPDX-License-Identifier: Apache-2.0
"""Renders pages in a real headless browser."""

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
            "--hide-scrollbars", "--enable-unsafe-swiftshader", "--virtual-time-budget=3000",
            "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"]  # no network

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


# Pages in frames, because one browser is started faster than a hundred.
_MEASURE_ALL = """
<!doctype html>
<body>
<script>
async function measure(page, width) {
  const frame = document.createElement("iframe");
  frame.width = width;
  frame.src = page;
  await new Promise(done => { frame.onload = done; document.body.append(frame); });
  const root = frame.contentDocument.documentElement;
  const missing = [...frame.contentDocument.images].filter(image => !image.naturalWidth);
  const measured = [page, width, root.scrollWidth, missing.map(image => image.src)];
  frame.remove();
  return measured;
}
(async () => {
  const measured = [];
  for (const page of PAGES) {
    for (const width of WIDTHS) measured.push(await measure(page, width));
  }
  document.documentElement.dataset.measured = JSON.stringify(measured);
})();
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


class Layout(NamedTuple):
    """A page as the browser laid it out in a window of some width."""

    page: str
    width: int
    page_width: int
    missing_images: list


def lay_out(paths, widths, directory):
    """Lays out every page in windows of all widths; writes a page to the directory for it."""
    frames = pathlib.Path(directory, "frames.html")
    frames.write_text(_MEASURE_ALL.replace("WIDTHS", json.dumps(widths)).replace(
        "PAGES", json.dumps([path.as_uri() for path in paths])), "utf-8")
    done = _run(["--allow-file-access-from-files", "--virtual-time-budget=60000", "--dump-dom",
                 frames.as_uri()])
    [measured] = re.findall(r'data-measured="([^"]*)"', done.stdout)
    return [Layout(*values) for values in json.loads(html.unescape(measured))]


def text_of(address):
    """Returns what a page says after its scripts have run: its elements, as HTML."""
    return _run(["--dump-dom", address]).stdout


def find():
    """Returns the browser's path; without one, skips the test, or fails it in CI."""
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    if browser is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no Chromium: apt-get install chromium")
        pytest.skip("there is no Chromium here: apt-get install chromium")
    return browser


def _run(arguments):
    return subprocess.run([find(), *_OPTIONS, *arguments], capture_output=True, text=True,
                          timeout=120, check=True)


def check_report(path, directory):
    """Fails unless a report shows all of its pictures, without an error or sideways scrolling."""
    measured = open_page(path, directory)
    assert measured.console == []
    assert measured.window_width == 1280
    assert measured.page_width <= 1280
    assert measured.image_widths
    assert all(width > 100 for width in measured.image_widths)
