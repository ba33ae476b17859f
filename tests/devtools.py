# SPDX-License-Identifier: Apache-2.0
"""Drives a page in a headless browser, through the port that its developer tools use."""

import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import time
import urllib.request

import websocket

from tests import browser

# WebGL in software, and no name resolves: a page that asks another host for anything fails.
_OPTIONS = ["--headless", "--no-sandbox", "--disable-dev-shm-usage", "--use-angle=swiftshader",
            "--enable-unsafe-swiftshader",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--remote-debugging-port=0", "--remote-allow-origins=*", "--no-first-run",
            "--disable-component-update", "--disable-background-networking"]
_SECONDS = 180  # a machine may have much else to do


class Page:
    """A page and what happened in it.

    Attributes:
        requests: the addresses that it asked for.
        console: what it wrote to the console, and errors that nothing caught.
    """

    def __init__(self, address):
        self._socket = websocket.create_connection(address, timeout=_SECONDS)
        self._numbers = itertools.count(1)
        self.requests, self.console = [], []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Calls a method of the protocol; returns its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (message := json.loads(self._socket.recv())).get("id") != number:
            self._note(message)
        assert "error" not in message, message
        return message["result"]

    def _note(self, message):
        method, parameters = message["method"], message.get("params")
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded":
            self.console.append(parameters["entry"]["text"])

    def evaluate(self, expression):
        """Returns the value of an expression, awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression):
        """Waits until an expression is true; meanwhile the page may load itself again."""
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                if self.evaluate(f"Boolean({expression})"):
                    return
            except AssertionError as error:
                if "Inspected target navigated or closed" not in str(error):
                    raise
            assert time.monotonic() < deadline, f"{expression} stays false; {self.console}"
            time.sleep(0.05)

    def open(self, path, width, ready):
        """Opens a file in a window of a width, and waits until an expression is true."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for(ready)

    def middle(self, expression):
        """Scrolls to an element; returns the middle of it in the window."""
        return self.evaluate(
            f"(() => {{ const e = {expression}; e.scrollIntoView({{block: 'center'}});"
            "const box = e.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()")

    def mouse(self, kind, x, y, **more):
        """Moves the mouse, or presses or releases its button."""
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **more)

    def click(self, expression):
        """Clicks the middle of an element."""
        x, y = self.middle(expression)
        self.mouse("Moved", x, y)
        for kind in ("Pressed", "Released"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def type(self, text):
        """Types text into the element that has the focus, and lets the page react to each key."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def press(self, key, code, text=""):
        """Presses a key that is no letter."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, text=text,
                  windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key,
                  windowsVirtualKeyCode=code)

    def close(self):
        self._socket.close()


@contextlib.contextmanager
def open_browser(directory):
    """Yields a new page of a browser that keeps its files in a directory."""
    profile = pathlib.Path(directory, "profile")
    process = subprocess.Popen(
        [browser.find(), *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        page = Page(_address(profile / "DevToolsActivePort", process))
        yield page
        page.close()
    finally:
        process.terminate()
        process.wait(timeout=_SECONDS)


def _address(path, process):
    deadline = time.monotonic() + _SECONDS
    while not (path.exists() and path.read_text().count("\n")):
        assert process.poll() is None and time.monotonic() < deadline, "the browser did not start"
        time.sleep(0.05)
    port = path.read_text().split()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=_SECONDS) as response:
        [target] = [item for item in json.load(response) if item["type"] == "page"]
    return target["webSocketDebuggerUrl"]
