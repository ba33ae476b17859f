# SPDX-License-Identifier: Apache-2.0
"""A server that answers as the master of a TPU system does, as far as listing its devices.

It is a separate process: TensorFlow holds the interpreter while it waits for an answer.
"""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures


def _field(number: int, content: bytes) -> bytes:
    """Returns a length-delimited field of a message shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def _device(kind: str) -> bytes:
    name = f"/job:worker/replica:0/task:0/device:{kind}:0"
    return _field(1, name.encode()) + _field(2, kind.encode())


# The messages of TensorFlow's master service, which the wheel has no classes of.
_RESPONSES = {
    "CreateSession": _field(1, b"session"),
    "ListDevices": _field(1, _device("CPU")) + _field(1, _device("TPU")),
    "CloseSession": b"",
}


def main() -> None:
    """Prints the port and serves until it is ended."""
    import grpc

    class MasterService(grpc.GenericRpcHandler):
        def service(self, call):
            response = _RESPONSES.get(call.method.rpartition("/")[2])
            return None if response is None else grpc.unary_unary_rpc_method_handler(
                lambda request, context: response)

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[MasterService()])
    print(server.add_insecure_port("localhost:0"), flush=True)
    server.start()
    threading.Event().wait()


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Yields the address of the server, "grpc://localhost:port"."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            yield f"grpc://localhost:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    main()
