# SPDX-License-Identifier: Apache-2.0
"""Matches variables of a TF2 program with those in a checkpoint of TPUEstimator."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpu_estimator_embedding.migration.verify.reference import Reference
from tpu_estimator_embedding.migration.verify.seen_variables import (
    SeenVariables,
    first_parts,
    name_of,
    whole,
)
from tpu_estimator_embedding.migration.verify.watched_tables import WatchedTables


class Counterparts:
    """Name in a checkpoint of TPUEstimator -> variable of the program.

    A dense variable is found by its name, or by the name given for it; variables without a match
    are paired by shape, in the order of their creation.

    Attributes:
        notes: variables that could not be reset or compared.
        missing: names for which the program has no variable.
        is_pipelined: whether tables lack the last update.
    """

    def __init__(self, reference: Reference, tables: Iterable[WatchedTables],
                 seen: SeenVariables, given: Mapping[str, str]) -> None:
        self._reference, self._seen, self._given = reference, seen, given
        self._watched = [one for one in tables if one.updates]  # not those of a copy, at rest
        self.notes: list[str] = []
        self.missing: list[str] = []
        self.is_pipelined = any(one.is_pipelined for one in self._watched)
        self._tables = self._find_tables()
        of_tables = {id(variable) for variable in self._tables.values()}
        self._others = [one for one in seen.all if id(one) not in of_tables]
        self._dense = self._find_dense()

    def set_back(self) -> None:
        """Resets every variable to its value at the start of training."""
        for name, variable in {**self._tables, **self._dense}.items():
            whole(variable).assign({**self._reference.tables, **self._reference.variables}[name])
        set_back = {id(whole(variable)) for variable in self._dense.values()}
        for variable in self._others:
            start = self._seen.start(variable)
            if id(whole(variable)) in set_back:
                continue
            if start is not None:
                variable.assign(start)
            else:
                self.notes.append(f"variable {variable.name!r} is made by the first step: it is "
                                  "one step ahead of the legacy program's")
        for one in self._watched:
            one.forget()

    def values(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Returns the values of dense variables, and those of tables and slots."""
        dense = {name: variable.numpy() for name, variable in self._dense.items()}
        return dense, {name: variable.numpy() for name, variable in self._tables.items()}

    def starts(self, of_tables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the program's own initial values, where known."""
        found = {name: self._seen.start(variable) for name, variable in self._dense.items()}
        names = self._names_of_tables()
        found.update({names[name]: value for name, value in of_tables.items() if name in names})
        return {name: value for name, value in found.items() if value is not None}

    def _names_of_tables(self) -> dict[str, str]:
        """Returns table, or "table/slot", of the program -> name in a checkpoint."""
        recorded = self._reference.result.tables
        legacy: dict[str, str] = {}
        for one in self._watched:
            legacy.update(self._reference.names_of(one.features))
        names = {}
        for one in self._watched:
            for name in one.variables():
                table, slash, slot = name.partition("/")
                key = f"{legacy.get(table, table)}{slash}{slot}"
                if key in recorded:
                    names[name] = recorded[key]
        return names

    def _find_tables(self) -> dict[str, Any]:
        names = self._names_of_tables()
        found = {}
        for one in self._watched:
            for name, variable in one.variables().items():
                key = names.get(name)
                if key is not None and self._reference.tables[key].shape == tuple(variable.shape):
                    found[key] = variable
        known = [name for one in self._watched for name in one.variables()]
        self.missing += [f"table variable {name!r} has no counterpart among {known}"
                         for name in self._reference.tables if name not in found]
        return found

    def _find_dense(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        others = first_parts(self._others)
        for name, value in self._reference.variables.items():
            shape, wanted = np.shape(value), self._given.get(name, name)
            named = [variable for variable in others
                     if name_of(variable) == wanted and tuple(variable.shape) == shape]
            if len(named) > 1:
                self.notes.append(f"{len(named)} variables are called {wanted!r}; the first one "
                                  "is compared")
            if named:
                found[name] = named[0]
        self._pair_by_shape(found, others)
        for name in self._reference.variables:
            if name not in found and name in self._reference.result.of_hooks:
                self.notes.append(f"variable {name!r} was made by a hook, not by model_fn, and has "
                                  "no counterpart; what the hook does to the model's variables is "
                                  "compared")
            elif name not in found and name != "global_step":
                is_slot = name.endswith("_power") or any(
                    name.startswith(f"{other}/") for other in self._reference.result.trainable)
                text = f"variable {name!r} has no counterpart"
                (self.notes if is_slot else self.missing).append(
                    text if is_slot else f"{text}; --names says which one it is")
        return found

    def _pair_by_shape(self, found: dict[str, Any], others: list[Any]) -> None:
        """Pairs trainable variables without a name in common, shape by shape."""
        taken = {id(variable) for variable in found.values()}
        legacy = [name for name in self._reference.result.trainable if name not in found]
        own = [variable for variable in others
               if id(variable) not in taken and variable.trainable]
        for shape in {np.shape(self._reference.variables[name]) for name in legacy}:
            names = [name for name in legacy
                     if np.shape(self._reference.variables[name]) == shape]
            alike = [variable for variable in own if tuple(variable.shape) == shape]
            if len(names) == len(alike):
                found.update(zip(names, alike, strict=True))
                self.notes += [f"{name} is compared with {variable.name}, by its shape"
                               for name, variable in zip(names, alike, strict=True)]
