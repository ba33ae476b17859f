# SPDX-License-Identifier: Apache-2.0
"""Names, order and defaults of the engine are those of TensorFlow 2.15, the last that has one.

Beside a newer one, `tests/public_surface.txt` holds them to what they were.
"""

import inspect

import pytest
import tensorflow as tf

from tests.fronts.low_level.tensorflows_own import load_tensorflows_own
from tpu_estimator_embedding.compat.modules import tpu_embedding, tpu_embedding_gradient

pytestmark = pytest.mark.skipif(not tf.__version__.startswith("2.15."),
                                reason="TensorFlow 2.15 is the last that has these")
METHODS = ["__init__", "create_variables_and_ops", "generate_enqueue_ops",
           "generate_send_gradients_op", "get_activations"]


def signature(function):
    return ", ".join(str(parameter.replace(annotation=parameter.empty))
                     for parameter in inspect.signature(function).parameters.values())


def members(module):
    """Signatures of the engine's methods and of functions, properties, fields of tuples."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    engine = public.get("TPUEmbedding")
    return {
        "methods": [signature(getattr(engine, name)) for name in METHODS if engine],
        "properties": [name for name, _ in inspect.getmembers(
            engine, lambda member: isinstance(member, property))],
        "functions": {name: signature(value) for name, value in public.items()
                      if "gradients" in name or "dummy" in name},
        "fields": {name: value._fields for name, value in public.items()
                   if name.endswith(("SlotVariables", "SlotVariable", "DeviceConfig",
                                     "VariablesAndOps"))}}


@pytest.mark.parametrize("module", [tpu_embedding, tpu_embedding_gradient])
def test_members_are_those_of_the_installed_tensorflow(module):
    own = load_tensorflows_own(module.__name__.rpartition(".")[2])
    assert members(module) == members(own)


def test_every_public_name_of_the_installed_modules_is_here():
    for module in (tpu_embedding, tpu_embedding_gradient):
        own = load_tensorflows_own(module.__name__.rpartition(".")[2])
        names = {name for name, value in vars(own).items() if not name.startswith("_")
                 and getattr(value, "__module__", None) == own.__name__}
        assert names <= set(dir(module))
    assert {name for name in dir(load_tensorflows_own().TPUEmbedding)
            if not name.startswith("_")} == {
        name for name in dir(tpu_embedding.TPUEmbedding) if not name.startswith("_")}
