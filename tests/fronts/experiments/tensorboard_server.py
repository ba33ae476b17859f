# SPDX-License-Identifier: Apache-2.0
"""TensorBoard itself, started on a directory and asked over HTTP."""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

_TIMEOUT = 120.0


class Client:
    """Asks a TensorBoard for what its dashboards show."""

    def __init__(self, url):
        self._url = url

    def get(self, path, **query):
        return self._ask(f"{path}?{urllib.parse.urlencode(query)}")

    def post(self, path, **body):
        return self._ask(path, json.dumps(body).encode())

    def wait_for(self, path, is_there):
        """Asks until TensorBoard has read what is waited for; returns it."""
        deadline = time.monotonic() + _TIMEOUT
        while not is_there(answer := self.get(path)):
            assert time.monotonic() < deadline, answer
            time.sleep(0.3)
        return answer

    def _ask(self, path, body=None):
        request = urllib.request.Request(f"{self._url}data/plugin/{path}", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            return json.load(answer)


@contextlib.contextmanager
def serving(directory):
    """Yields a client of a TensorBoard that serves a directory on 127.0.0.1."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), "--host",
         "127.0.0.1", "--port", "0", "--load_fast", "false"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        for line in process.stderr:
            if match := re.search(r"http://127\.0\.0\.1:\d+/", line):
                yield Client(match[0])
                return
        raise AssertionError("TensorBoard did not start")
    finally:
        process.terminate()
        process.communicate(timeout=30)
