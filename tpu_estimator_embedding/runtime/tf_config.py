# SPDX-License-Identifier: Apache-2.0
"""Reading TF_CONFIG, which says of what cluster a process is which task."""

import json
import os

VARIABLE = "TF_CONFIG"


def check_tf_config() -> None:
    """Fails where TF_CONFIG is no JSON object; upstream checks what is in it.

    Raises:
        ValueError: with the text and the way out.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return
    try:
        is_object = isinstance(json.loads(text), dict)
    except json.JSONDecodeError:
        is_object = False
    if not is_object:
        raise ValueError(
            f"`{VARIABLE}` must be a JSON object, got {text!r}. It has the form "
            '{"cluster": {"chief": ["host:port"], "worker": [...], "ps": [...]}, '
            '"task": {"type": "chief", "index": 0}}.')
