# SPDX-License-Identifier: Apache-2.0
"""Values in a checkpoint of the Estimator, by name."""

from collections.abc import Callable

import numpy as np

from tpu_estimator_embedding.checkpoint.reading import read_checkpoint


def read_values(path: str) -> Callable[[str], np.ndarray] | None:
    """Returns a function of names in a checkpoint of the Estimator; None if it is of TF2.

    Tables have their rows in the order of ids, whatever hosts saved them.

    Raises:
        FileNotFoundError: there is no such checkpoint.
    """
    contents = read_checkpoint(path)
    if contents.form != "v1":
        return None
    tables = {table.key(slot): tensor for table in contents.tables.values()
              for slot, tensor in table.tensors()}

    def value(name: str) -> np.ndarray:
        if name in tables:
            return tables[name].read_rows(0, tables[name].shape[0])
        if name not in contents.variables:
            raise ValueError(f"The checkpoint {path!r} has no variable {name!r}, but "
                             f"{sorted((*tables, *contents.variables))}.")
        return contents.variables[name].read()

    return value
