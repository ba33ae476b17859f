# SPDX-License-Identifier: Apache-2.0
"""The code that replaces a TPUEstimator, per stage."""

import dataclasses

from tpu_estimator_embedding.migration import (
    keras_rs_template,
    layers_template,
    tf2_template,
)


@dataclasses.dataclass(frozen=True)
class Template:
    """The texts of a stage.

    Attributes:
        imports: the imports at the top of the program.
        trainer: the class Trainer, with the code that only it needs.
        bound: names that the texts bind.
    """

    imports: str
    trainer: str
    bound: tuple[str, ...]


TEMPLATES = {
    "tf2": Template(tf2_template.IMPORTS, tf2_template.TRAINER, tf2_template.BOUND),
    "layers": Template(tf2_template.IMPORTS, layers_template.TRAINER,
                       (*tf2_template.BOUND, *layers_template.BOUND)),
    "keras-rs": Template(keras_rs_template.IMPORTS, keras_rs_template.TRAINER,
                         (*tf2_template.BOUND, *keras_rs_template.BOUND)),
}
