# SPDX-License-Identifier: Apache-2.0
"""The recorded run of the legacy program, as a TF2 program is compared with it."""

import pathlib
from collections.abc import Mapping

import numpy as np

from tpu_estimator_embedding.checkpoint.contents import PARAMETERS
from tpu_estimator_embedding.checkpoint.reading import read_checkpoint
from tpu_estimator_embedding.migration.verify.batches import Batches
from tpu_estimator_embedding.migration.verify.settings import BATCHES, INITIAL, RunResult


class Reference:
    """The files of a recorded legacy run.

    Attributes:
        result: its result.
        batches: of the first call of its input_fn.
        tables: name in a checkpoint of a table or slot -> initial value, by id.
        variables: the same of everything else.
    """

    def __init__(self, directory: str) -> None:
        root = pathlib.Path(directory)
        self.result = RunResult.load(root)
        self.batches = Batches.load(root / BATCHES / "0.pickle")
        contents = read_checkpoint(root / INITIAL)
        self.tables: dict[str, np.ndarray] = {
            table.key(slot) if slot != PARAMETERS else name: tensor.read_rows(0, tensor.shape[0])
            for name, table in contents.tables.items() for slot, tensor in table.tensors()}
        self.variables = {name: tensor.read() for name, tensor in contents.variables.items()}

    def names_of(self, features: Mapping[str, str]) -> dict[str, str]:
        """Returns table of a migrated program -> name of the corresponding legacy table.

        Args:
            features: feature -> table, of the migrated program.

        Tables are matched by name, otherwise by the features that look them up.
        """
        known = {name for name in self.result.tables if "/" not in name}
        own = {key.split("'")[1]: value.strip("'") for key, value in self.result.plan.items()
               if key.startswith("features[") and key.endswith("].table")}
        found: dict[str, str] = {}
        for feature, table in features.items():
            if table in known:
                found[table] = table
            elif feature in own:
                found[table] = own[feature]
        return found
