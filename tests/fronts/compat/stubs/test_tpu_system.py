# SPDX-License-Identifier: Apache-2.0
"""Whether a TPU system answers: it does, a server without TPUs does, or nothing does."""

import http.server
import socket
import threading
import time

import pytest
import tensorflow as tf

from tests import fake_tpu
from tpu_estimator_embedding.compat.stubs import tpu_system

SHORT = 0.3  # seconds that a connection is given
PATIENCE = 10  # seconds that a loaded machine may take for some of those


@pytest.fixture(autouse=True)
def a_process_that_knows_nothing(monkeypatch):
    monkeypatch.setattr(tpu_system, "_answered", set())
    monkeypatch.setattr(tpu_system, "_logged", [])


@pytest.fixture(name="silent_port")
def a_port_that_accepts_and_says_nothing():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture(name="closed_port")
def a_free_port():
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        return unused.getsockname()[1]


def test_system_that_answers_is_present():
    with fake_tpu.serving() as address:
        assert not tpu_system.is_present()
        assert tpu_system.device_types(address) == {"CPU", "TPU"}
        assert tpu_system.answers(address.removeprefix("grpc://"))
        assert tpu_system.is_present()


def test_server_without_tpus_is_no_tpu_system():
    server = tf.distribute.Server.create_local_server()
    assert tpu_system.device_types(server.target) == {"CPU"}
    assert not tpu_system.answers(server.target) and not tpu_system.is_present()


def test_no_peer_is_waited_for(silent_port, closed_port, monkeypatch):
    monkeypatch.setattr(tpu_system, "CONNECT_SECONDS", SHORT)
    monkeypatch.setattr(tpu_system, "LIST_SECONDS", SHORT)
    start = time.monotonic()
    for address in (f"grpc://localhost:{closed_port}", f"localhost:{silent_port}",
                    "grpc://192.0.2.1:8470",  # a network that is kept free for examples
                    "grpc://no-such-host.invalid:8470", "grpc://[::1", "grpc://host:port"):
        assert tpu_system.device_types(address) is None
    assert time.monotonic() - start < PATIENCE


def test_name_that_takes_long_to_look_up_is_not_waited_for(monkeypatch):
    found = threading.Event()
    monkeypatch.setattr(tpu_system, "CONNECT_SECONDS", SHORT)
    monkeypatch.setattr(socket, "create_connection",
                        lambda *_: found.wait(3 * PATIENCE) and socket.socket())
    start = time.monotonic()
    assert tpu_system.device_types("grpc://slow:8470") is None
    assert time.monotonic() - start < PATIENCE
    found.set()


@pytest.mark.parametrize("of_host, of_ip", [
    ("localhost:{}", None), ("localhost:{}", "localhost:1"), (None, "localhost:{}"),
    ("", "localhost:{}")])
def test_machine_of_google_is_one_whose_server_says_so(monkeypatch, of_host, of_ip):
    class Metadata(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802 (Python's name)
            self.send_response(200)
            self.send_header("Metadata-Flavor", "Google")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("localhost", 0), Metadata) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        for name, address in (("GCE_METADATA_HOST", of_host), ("GCE_METADATA_IP", of_ip)):
            monkeypatch.delenv(name, raising=False)
            if address is not None:
                monkeypatch.setenv(name, address.format(server.server_port))
        assert tpu_system.is_on_google_cloud()


def test_this_is_no_machine_of_google(silent_port, closed_port, monkeypatch):
    monkeypatch.setattr(tpu_system, "CONNECT_SECONDS", SHORT)
    for port in (closed_port, silent_port):
        monkeypatch.setenv("GCE_METADATA_HOST", f"localhost:{port}")
        assert not tpu_system.is_on_google_cloud()
