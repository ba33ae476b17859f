# SPDX-License-Identifier: Apache-2.0
"""Detects a TPU system within seconds; otherwise this machine replaces it.

Every stub checks this first, and is not used if there is a TPU.
"""

import http.client
import socket
import threading
import urllib.parse

import tensorflow as tf

from tpu_estimator_embedding import settings

LOCAL = ("", "local")  # the masters that mean this process
CONNECT_SECONDS = 2.0  # a TPU answers in milliseconds, an unused address never
LIST_SECONDS = 5.0

_DEFAULT_PORT = 8470
_METADATA_SERVER = "169.254.169.254"

# Global, because the devices of a process are.
_answered: set[str] = set()
_logged: list[str] = []


def is_present() -> bool:
    """Whether this process has TPU devices, or a TPU system has answered it."""
    return bool(_answered) or bool(tf.config.list_physical_devices("TPU"))


def answers(address: str) -> bool:
    """Whether a TPU system answers at an address, "grpc://host:port" or "host:port"."""
    if "TPU" not in (device_types(address) or ()):
        return False
    _answered.add(address)
    return True


def device_types(address: str) -> set[str] | None:
    """Requests the list of devices from the server at an address.

    Returns:
        The types of its devices; None if no TensorFlow server answers in time.
    """
    if not is_listening(address):
        return None
    host = address.removeprefix("grpc://")
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=int(1000 * LIST_SECONDS))
    try:
        with tf.compat.v1.Session(f"grpc://{host}", tf.Graph(), config) as session:
            return {device.device_type for device in session.list_devices()}
    except tf.errors.OpError:
        return None


def is_listening(address: str) -> bool:
    """Whether a server listens at an address, even if it is waiting for its cluster."""
    accepted: list[bool] = []

    def connect() -> None:
        try:
            parts = urllib.parse.urlsplit(f"//{address.removeprefix('grpc://')}")
            where = (parts.hostname or "", parts.port or _DEFAULT_PORT)
            socket.create_connection(where, CONNECT_SECONDS).close()
        except (OSError, ValueError):
            return
        accepted.append(True)

    # In a thread, because name resolution has no timeout.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    return bool(accepted)


def or_this_machine(master: str) -> str:
    """Returns the master if it is local or reachable, otherwise the local master."""
    if not master.startswith("grpc://") or is_listening(master):
        return master
    log_stub(master)
    return ""


def is_on_google_cloud() -> bool:
    """Whether TPU names can be resolved, which works on machines of Google Cloud only."""
    server = (settings.GCE_METADATA_HOST.read() or settings.GCE_METADATA_IP.read()
              or _METADATA_SERVER)
    connection = http.client.HTTPConnection(server, timeout=CONNECT_SECONDS)
    try:
        connection.request("GET", "/computeMetadata/v1/", headers={"Metadata-Flavor": "Google"})
        return connection.getresponse().getheader("Metadata-Flavor") == "Google"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def log_stub(sought: str = "") -> None:
    """Logs, once per process, that this machine stands in for a TPU system.

    Args:
        sought: where a TPU was searched, if not on this machine.
    """
    if not _logged:
        _logged.append("tpu_estimator_embedding: no TPU answers"
                     f"{f' at {sought}' if sought else ''}; this machine stands in for it.")
        tf.compat.v1.logging.warning("%s", _logged[0])


def is_logged() -> bool:
    """Whether `log_stub` was called: the program has met this machine as its TPU system."""
    return bool(_logged)


def is_this_machine(resolver: object) -> bool:
    """Whether a TPUClusterResolver found no TPU, so that this machine stands in for it."""
    return getattr(resolver, "is_this_machine", False)
