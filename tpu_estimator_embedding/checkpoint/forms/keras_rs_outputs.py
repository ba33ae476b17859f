# SPDX-License-Identifier: Apache-2.0
"""Writes the values of a source to the checkpoint of a Keras 3 model with Keras RS."""

from collections.abc import Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle.bundle_tensor import BundleTensor
from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import StoredTensor
from tpu_estimator_embedding.checkpoint.contents import Contents
from tpu_estimator_embedding.checkpoint.forms.keras_rs_variables import (
    SAVE_COUNTER,
    KerasOptimizer,
    check_compiled,
    find_optimizer,
    find_others,
    find_tables,
)
from tpu_estimator_embedding.checkpoint.forms.object_graph import GRAPH_KEY, parse_graph
from tpu_estimator_embedding.checkpoint.forms.object_outputs import (
    Outputs,
    check_same_names,
)
from tpu_estimator_embedding.checkpoint.names import Names, unique


def keras_rs_outputs(contents: Contents, template: Mapping[str, BundleTensor],
                     names: Names) -> Outputs:
    """Returns the checkpoint of the template with the values of the source.

    Args:
        contents: the contents to write.
        template: key -> tensor of `tf.train.Checkpoint(model=model)`.
        names: names of tables and variables that differ.

    Raises:
        ValueError: if a table is missing on either side, or Keras 3 does not have the optimizer
            of the slots.
    """
    checks.check(GRAPH_KEY in template, "template", "a checkpoint of tf.train.Checkpoint(model="
                 "model)", "one of a tf.compat.v1.train.Saver")
    values = [value for value in parse_graph(template[GRAPH_KEY].text())
              if value.key in template]
    check_compiled(values, "template", "one without any")
    places = find_tables(values)
    by_name = names.tables(contents)
    check_same_names("tables", set(by_name), {table for table, _ in places})
    optimizer = find_optimizer(values)
    tensors: list[tuple[str, StoredTensor]] = []
    for name, table in by_name.items():
        _check_optimizer(name, table.optimizer, optimizer)
        tensors += [(places[name, slot].key, tensor) for slot, tensor in table.tensors()]
    others = find_others(values, names)
    names.check_found([value.full_name for value in others.values()],
                      contents.variables.keys(), "template")
    tensors += [(others[name].key, tensor) for name, tensor in contents.variables.items()
                if name in others]
    return Outputs({**template, **unique(tensors, "names", "different for different variables")},
                   tuple(sorted(contents.variables.keys() - others.keys())),
                   tuple(sorted(others.keys() - contents.variables.keys() - {SAVE_COUNTER})))


def _check_optimizer(table: str, source: str | None, keras: KerasOptimizer) -> None:
    checks.check(source != "FTRL" and keras.kind != "ftrl", f"optimizer of table {table!r}",
                 "another than FTRL for Keras RS: Keras 3's Ftrl computes every row anew from "
                 "its slots, also rows that were never looked up", "FTRL",
                 "Convert without the slots (`--without-slots`) to an optimizer such as Adagrad.")
    checks.check(source in (None, keras.rule_name), f"optimizer of table {table!r}",
                 f"that of the template, {keras.kind}", source,
                 "Compile the model with the same optimizer, or convert with --without-slots.")
