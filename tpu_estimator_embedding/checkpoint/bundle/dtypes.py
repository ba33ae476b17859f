# SPDX-License-Identifier: Apache-2.0
"""The numbers of TensorFlow's data types and their NumPy dtypes."""

import numpy as np

STRING, FLOAT32, INT64 = 7, 1, 9

_NUMPY = {FLOAT32: "f4", 2: "f8", 3: "i4", 4: "u1", 5: "i2", 6: "i1", 8: "c8", INT64: "i8",
          10: "?", 17: "u2", 18: "c16", 19: "f2", 22: "u4", 23: "u8"}
_BFLOAT16 = 14


def numpy_dtype(number: int) -> np.dtype:
    """Returns NumPy's dtype for a number of TensorFlow's DataType.

    bfloat16, which NumPy lacks, maps to pairs of bytes, so values can be copied but not computed.

    Raises:
        ValueError: if the values have no fixed size, or the number is unknown.
    """
    if number == _BFLOAT16:
        return np.dtype("V2")
    if number not in _NUMPY:
        raise ValueError(f"`dtype` must be one of numbers, got TensorFlow's DataType {number}.")
    return np.dtype(f"<{_NUMPY[number]}" if _NUMPY[number] != "?" else "?")


def tensorflow_number(dtype: np.dtype) -> int:
    """Returns the number of TensorFlow's DataType.

    Raises:
        ValueError: if TensorFlow does not have the dtype.
    """
    for number in (*_NUMPY, _BFLOAT16):
        if numpy_dtype(number) == dtype:
            return number
    raise ValueError(f"`dtype` must be one that TensorFlow has, got {dtype}.")
