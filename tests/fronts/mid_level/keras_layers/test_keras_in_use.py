# SPDX-License-Identifier: Apache-2.0
"""Of which Keras the public layers are: that of the program."""

import pytest

from tests.subprocesses import run_python

PROGRAM = """
    {imports}
    from tpu_estimator_embedding import mid_level
    for name in ("PartialTPUEmbedding", "TPUEmbeddingLayer"):
        layer = getattr(mid_level, name)
        print(layer.__name__, issubclass(layer, {base}))
"""


@pytest.mark.long
@pytest.mark.parametrize("imports, base", [
    ("import tf_keras", "tf_keras.layers.Layer"),
    ("import keras, tensorflow as tf; import tf_keras; tf.keras.layers", "keras.layers.Layer")])
def test_layers_are_of_the_keras_that_the_program_uses(imports, base):
    done = run_python(PROGRAM.format(imports=imports, base=base))
    assert done.stdout == "PartialTPUEmbedding True\nTPUEmbeddingLayer True\n"
