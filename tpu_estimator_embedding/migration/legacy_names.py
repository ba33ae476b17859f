# SPDX-License-Identifier: Apache-2.0
"""The table of the Estimator-era API: each public name and its counterpart per stage.

The rewriter and the page of names in the migration guide both use it. Names are written as in
`tf.compat.v1`, without the prefix "tf.compat.v1". `legacy_names.toml` has all but the optimizers,
which follow from their records.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from tpu_estimator_embedding.optimizers.registry import rules
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.patches.patch_table import EXPORTED
from tpu_estimator_embedding.toml_table import read_table


@dataclasses.dataclass(frozen=True)
class LegacyName:
    """A public name and its replacements.

    Attributes:
        name: dotted, below `tf.compat.v1`; "tpu_embedding." stands for
            "tensorflow.python.tpu.tpu_embedding.".
        imports: the name below `tpu_estimator_embedding` at stage 1.
        tf2: what to write in a TF2 training loop.
        layers: what to write in a Keras model of tf_keras.
        keras3: what to write in a Keras 3 model.
    """

    name: str
    imports: str
    tf2: str
    layers: str
    keras3: str

    def counterpart(self, stage: str) -> str:
        """Returns the replacement of the name at one of STAGES."""
        return str(getattr(self, stage))


def _rows(row: Mapping[str, str]) -> Iterator[LegacyName]:
    layers = row.get("layers", row["tf2"])
    for name in row["names"].split():
        yield LegacyName(f"{row['of']}.{name}", f"{row.get('home', '')}.{name}".lstrip("."),
                         row["tf2"], layers, row.get("keras3", layers))


def _optimizer(rule: type[UpdateRule]) -> LegacyName:
    name, is_in_tf2 = rule.record.parameters, rule.record.v2_attributes is not None
    prefix = "tpu.experimental." if name in EXPORTED else "tpu_embedding."
    tf2 = f"mid_level.{rule.__name__}" if is_in_tf2 else "none in tf.tpu.experimental.embedding"
    return LegacyName(f"{prefix}{name}", name, tf2, tf2, _IN_KERAS_3.get(rule.__name__, "none"))


_IN_KERAS_3 = {
    "Adagrad": "keras.optimizers.Adagrad(epsilon=0), gradients of repeated ids summed",
    "Adam": "keras_training.TableAdam, which migrate writes",
    "FTRL": "keras_training.TableFtrl, which migrate writes",
    "SGD": "keras.optimizers.SGD",
}

_TABLE = read_table(__package__, "legacy_names.toml")

NAMES = {row.name: row for rows in (*map(_rows, _TABLE["name"]), map(_optimizer, rules()))
         for row in rows}

# Whose classes TensorFlow 2's own `tf.estimator` has replaced by others.
V2_DIFFERS = frozenset(_TABLE["v2_differs"].split())

# Names at the top of this package that a rewritten program imports directly.
TOP_LEVEL = frozenset(row.imports for row in NAMES.values() if "." not in row.imports)
