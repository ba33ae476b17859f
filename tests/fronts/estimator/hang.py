# SPDX-License-Identifier: Apache-2.0
"""Makes tests that might hang fail instead."""

import threading

from tpu_estimator_embedding.kernels import load


def finish(function, *args, seconds=60, **kwargs):
    """Returns or raises what `function` does; fails if it takes longer than `seconds`."""
    load.native_ops()  # compiles the kernels, if they are not, before the time starts
    outcome = {}

    def run():
        try:
            outcome["value"] = function(*args, **kwargs)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"{function} hangs"
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]
