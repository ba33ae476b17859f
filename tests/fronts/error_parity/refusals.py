# SPDX-License-Identifier: Apache-2.0
"""Checks the type of a refusal and how its message begins, here and in TensorFlow itself."""

import pytest


def check_refusal(trigger, error, beginning):
    """Checks the type and the beginning of what `trigger()` raises."""
    with pytest.raises(Exception) as raised:  # whatever it is: the next line says what it must be
        trigger()
    assert type(raised.value) is error
    message = str(raised.value)
    assert message[:len(beginning)] == beginning, message
