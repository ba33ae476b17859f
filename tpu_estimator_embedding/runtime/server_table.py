# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches for the servers of a cluster."""

from tpu_estimator_embedding.compat.patch import Patch
from tpu_estimator_embedding.compat.patch_table import OURS

_SERVER = "tensorflow.python.training.server_lib:Server"

SERVER = (
    Patch(_SERVER, "__init__", f"{OURS}.compat.stand_ins.server:start",
          "a server does not run ops that are loaded after it has started", replaces=True),
    Patch(_SERVER, "join", f"{OURS}.compat.stand_ins.server:join",
          "blocks signals, so that Ctrl-C does not end a server", replaces=True))
