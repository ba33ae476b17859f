# SPDX-License-Identifier: Apache-2.0
"""The names that the programs for TPUs of 2018 to 2020 read from tf.contrib.

Every name exists.
"""

import importlib
import re

import tpu_estimator_embedding
from tpu_estimator_embedding.compat.contrib import reasons
from tpu_estimator_embedding.compat.contrib.missing import Missing

tpu_estimator_embedding.install()

def test_advice_names_what_exists():
    """Every `tf.x.y` in an advice is a name of TensorFlow, and no advice names a dead package."""
    roots = [importlib.import_module(f"tensorflow.compat.{version}") for version in ("v1", "v2")]
    for path, advice in reasons.INSTEAD.items():
        for name in re.findall(r"\btf\.([\w.]*\w)", advice):
            values = roots
            for part in name.removeprefix("compat.v1.").removeprefix("compat.v2").split("."):
                values = [getattr(value, part, None) for value in values] if part else values
            assert any(value is not None and not isinstance(value, Missing)
                       for value in values), f"{path}: {advice}"
        assert "addons" not in advice
