# SPDX-License-Identifier: Apache-2.0
"""Serves a report while a model trains, and makes it anew when the training has written."""

import http.server
import pathlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence

from tpu_estimator_embedding.experiments import html_page

_ADDRESS = "127.0.0.1"  # no other machine reads it
_LEAST_SECONDS = 1.0  # between two looks at the files
_SHARE_OF_TIME = 0.5  # that may be spent on making the report: training needs the cores

# A page asks whether it is the newest one, and else loads that, with its controls as they are. A
# server that has ended gives no answer.
_REFRESH = """\
<link rel="icon" href="data:,">
<script>
(() => {
  const kept = "report-controls";
  const name = control => control.type === "checkbox" ? "checked" : "value";
  const parts = control => control.multiple ? [...control.options].map(
    option => [option, "selected"]) : [[control, name(control)]];
  addEventListener("load", () => {
    for (const [id, values] of JSON.parse(sessionStorage.getItem(kept) || "[]")) {
      const control = document.getElementById(id);
      if (!control) continue;
      parts(control).forEach(([part, field], place) => { part[field] = values[place]; });
      control.dispatchEvent(new Event("input"));
    }
  });
  setInterval(async () => {
    const answer = await fetch("/version").catch(() => null);
    if (!answer || !answer.ok || await answer.text() === "VERSION") return;
    const controls = [...document.querySelectorAll("select[id], input[id]")];
    sessionStorage.setItem(kept, JSON.stringify(
      controls.map(control => [control.id, parts(control).map(([part, field]) => part[field])])));
    location.reload();
  }, 1000);
})();
</script>
"""


class Watch:
    """A report that is served, and that follows what its models write.

    Args:
        model_dirs: directories of models; nothing needs to be there yet.
        write_report: writes the report; returns the path of its page.
        port: port on this machine; 0 chooses a free one.

    Raises:
        OSError: if the port is taken.
    """

    def __init__(self, model_dirs: Sequence[pathlib.Path], write_report: Callable[[], pathlib.Path],
                 port: int) -> None:
        self._model_dirs = model_dirs
        self._write_report = write_report
        self._written: object = None
        self._version = 0
        self._page = html_page.page("Nothing to report yet", [html_page.paragraph(
            f"Waiting for a checkpoint or an event file in {', '.join(map(str, model_dirs))}.")])
        self._server = _Server((_ADDRESS, port), self)

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{_ADDRESS}:{self._server.server_port}/"

    def answer(self, path: str) -> tuple[str, str] | None:
        """Returns the type and the content of what the server has at a path."""
        version, page = self._version, self._page
        if path == "/version":
            return "text/plain", str(version)
        if path == "/":
            script = _REFRESH.replace("VERSION", str(version))
            return "text/html", page.replace("</head>", f"{script}</head>", 1)
        return None

    def run(self) -> None:
        """Serves until KeyboardInterrupt, which it raises."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            while True:
                start = time.monotonic()
                self.look()
                spent = time.monotonic() - start
                time.sleep(max(_LEAST_SECONDS, spent / _SHARE_OF_TIME - spent))
        finally:
            self._server.shutdown()
            self._server.server_close()

    def look(self) -> None:
        """Makes the report anew if there is something new."""
        found = [_state(directory) for directory in self._model_dirs]
        if found == self._written or not all(found):
            return
        try:
            page = self._write_report().read_text("utf-8")
        except FileNotFoundError:  # training deleted what was being read: look again
            return
        # The page is replaced before the version says so, or a reader would keep the old one.
        self._page = page
        self._version += 1
        self._written = found


def _state(model_dir: pathlib.Path) -> dict[pathlib.Path, tuple[int, int]]:
    """What training has written: names, sizes and times of event files and of the checkpoint."""
    found = {}
    for path in [*model_dir.rglob("*.tfevents.*"), model_dir / "checkpoint"]:
        try:
            facts = path.stat()
        except FileNotFoundError:
            continue
        found[path] = facts.st_size, facts.st_mtime_ns
    return found


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], watch: Watch) -> None:
        super().__init__(address, _Handler)
        self.watch = watch

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket],
                     client_address: object) -> None:
        """Says nothing of a browser that left before it had all of the page."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        # Another site whose name was made to mean this machine may not read the report.
        host = self.headers.get("Host", "").rpartition(":")[0]
        found = self.server.watch.answer(self.path) if host in (_ADDRESS, "localhost") else None
        if found is None:
            self.send_error(http.HTTPStatus.NOT_FOUND)
            return
        kind, text = found
        content = text.encode("utf-8")
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing of requests: there is one every second."""
