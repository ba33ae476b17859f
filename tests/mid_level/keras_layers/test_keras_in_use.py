# SPDX-License-Identifier: Apache-2.0
"""Of which Keras the public layers are: that of the program."""

import pytest

from tests.subprocesses import run_python

PROGRAM = """
    {imports}
    import tpu_estimator_embedding
    for name in ("PartialTPUEmbedding", "TPUEmbeddingLayer"):
        layer = getattr(tpu_estimator_embedding, name)
        print(layer.__name__, issubclass(layer, {base}))
"""


@pytest.mark.parametrize("imports, base, environment", [
    ("import keras", "keras.layers.Layer", {}),
    ("import tf_keras", "tf_keras.layers.Layer", {}),
    ("import tensorflow as tf; import tf_keras; tf.keras.layers", "tf.keras.layers.Layer", {}),
    ("import tensorflow as tf; import tf_keras", "tf_keras.layers.Layer",
     {"TF_USE_LEGACY_KERAS": "1"})])
def test_layers_are_of_the_keras_that_the_program_uses(imports, base, environment):
    done = run_python(PROGRAM.format(imports=imports, base=base), **environment)
    assert done.stdout == "PartialTPUEmbedding True\nTPUEmbeddingLayer True\n"
