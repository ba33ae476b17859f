# SPDX-License-Identifier: Apache-2.0
"""A cluster whose tasks are all in this process: two servers, a chief and a worker."""

import socket

import pytest
import tensorflow as tf


def free_address():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(scope="session")
def cluster():
    """Job name -> servers of its tasks, which run."""
    addresses = {job: [free_address() for _ in range(count)]
                 for job, count in (("ps", 2), ("chief", 1), ("worker", 1))}
    return {job: [tf.distribute.Server(addresses, job, number) for number in range(len(hosts))]
            for job, hosts in addresses.items()}
