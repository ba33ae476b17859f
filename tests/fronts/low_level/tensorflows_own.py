# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 2.15's own module, beside the one that stands under its name."""

import functools
import importlib.util
import pathlib

import tensorflow as tf


@functools.cache
def load_tensorflows_own(name="tpu_embedding"):
    """Loads the file as a module of another name, in which nothing has been replaced."""
    path = pathlib.Path(tf.__file__).parent / "python" / "tpu" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tensorflows_own_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
