# SPDX-License-Identifier: Apache-2.0
"""The argument `device` of `enqueue`."""


import tensorflow as tf

from tpu_estimator_embedding import checks


def parse_device(device: object, rule: str) -> tf.DeviceSpec:
    """Returns the parts of the name of a device.

    Args:
        device: a name, such as "/TPU:0".
        rule: what it must be, for errors.

    Raises:
        TypeError: if it is no string.
        ValueError: if it is no name of a device.

    >>> parse_device("/TPU:1", "a device").device_index
    1
    """
    checks.check_type(str, "device", rule, device, sentence=_sentence(device))
    try:
        return tf.DeviceSpec.from_string(device)
    except ValueError as error:  # which says what part of the name is unknown
        raise ValueError(f"{error} {refusal(device, rule)}") from error


def refusal(device: object, rule: str) -> str:
    """Says that a device is none that ids can be enqueued for."""
    return checks.complaint("device", rule, device, sentence=_sentence(device))


def _sentence(device: object) -> str:
    return f"Non-TPU device {device} passed to enqueue."
