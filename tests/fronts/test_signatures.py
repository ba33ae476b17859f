# SPDX-License-Identifier: Apache-2.0
"""Names, order and defaults of the v1 API are those of TensorFlow 2.15, the last that has it.

Beside a newer one, `tests/public_surface.txt` holds them to what they were.
"""

import inspect
import json
import subprocess
import sys

import pytest
import tensorflow as tf

from tpu_estimator_embedding.config import optimization_parameters, slot_variable_names
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import shared_embedding_columns

pytestmark = [pytest.mark.every_tensorflow, pytest.mark.skipif(
    not tf.__version__.startswith("2.15."),
    reason="TensorFlow 2.15 is the last that has these classes")]

# Printed by a separate process, in which nothing has replaced TensorFlow's classes.
PRINT_INSTALLED = """
import inspect, json, sys
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding
members = {**vars(tpu_embedding), **vars(_tpu_estimator_embedding)}
for name in ("embedding_column", "shared_embedding_columns"):
    members[name] = getattr(tf.compat.v1.tpu.experimental, name)
print(json.dumps({name: [
    ", ".join(str(parameter.replace(annotation=parameter.empty))
              for parameter in inspect.signature(members[name]).parameters.values()),
    getattr(members[name], "_fields", ())] for name in json.loads(sys.argv[1])}))
"""


def our_members():
    modules = {**vars(optimization_parameters), **vars(slot_variable_names)}
    members = {name: member for name, member in modules.items()
               if name.endswith(("Parameters", "SlotVariableNames"))}
    for member in (TableConfig, FeatureConfig, EmbeddingConfigSpec, embedding_column,
                   shared_embedding_columns):
        members[member.__name__] = member
    return {name: member for name, member in members.items() if not name.startswith("_")}


def signature(member):
    """Names and defaults, without what the package adds: that is given by keyword alone."""
    return ", ".join(str(parameter.replace(annotation=parameter.empty))
                     for parameter in inspect.signature(member).parameters.values()
                     if parameter.kind is not parameter.KEYWORD_ONLY)


def test_members_are_those_of_the_installed_tensorflow():
    members = our_members()
    assert len(members) > 20
    process = subprocess.run([sys.executable, "-c", PRINT_INSTALLED, json.dumps(list(members))],
                             capture_output=True, text=True, check=True)
    for name, (theirs, fields) in json.loads(process.stdout.splitlines()[-1]).items():
        assert signature(members[name]) == theirs, name
        assert list(getattr(members[name], "_fields", ()))[:len(fields)] == fields, name
