# SPDX-License-Identifier: Apache-2.0
"""Matches variables of a running TF2 program with those in the checkpoint of a recorded run."""

import contextlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_utils

from tpu_estimator_embedding.checkpoint.contents import PARAMETERS
from tpu_estimator_embedding.checkpoint.reading import read_checkpoint
from tpu_estimator_embedding.migration.verify.batches import RecordedBatches
from tpu_estimator_embedding.migration.verify.recording import BATCHES, INITIAL, RecordedResult
from tpu_estimator_embedding.migration.verify.watched_tables import WatchedTables, stored
from tpu_estimator_embedding.trainer.dense_optimizer import name_of


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
        self.result = RecordedResult.load(root)
        self.batches = RecordedBatches.load(root / BATCHES / "0.pickle")
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


class SeenVariables:
    """Variables in the order of their creation.

    Attributes:
        all: the variables.
    """

    def __init__(self) -> None:
        self.all: list[tf.Variable] = []
        self._starts: dict[int, np.ndarray] = {}

    @contextlib.contextmanager
    def seeing(self) -> Iterator[None]:
        """Records the variables that are created, also in functions."""
        def create(make: Callable[..., tf.Variable], **arguments: object) -> tf.Variable:
            variable = make(**arguments)
            self.all.append(variable)
            if tf.executing_eagerly():
                self._note(variable)
            return variable

        with tf.variable_creator_scope(create):
            yield

    def note_starts(self) -> None:
        """Records the current values as those at the start of training."""
        for variable in self.all:
            self._note(variable)

    def note_new_starts(self) -> None:
        """Notes the values of variables that had none before the step that is running.

        What it has noted of others stays: the step may have changed them by now.
        """
        for variable in self.all:
            if id(variable) not in self._starts:
                self._note(variable)

    def start(self, variable: tf.Variable) -> np.ndarray | None:
        """Returns the initial value of a variable; None if a step created it."""
        return self._starts.get(id(variable))

    def named(self, name: str, shape: tuple[int, ...]) -> list[tf.Variable]:
        """Returns the variables of a name and shape."""
        return [variable for variable in self.all
                if name_of(variable) == name and tuple(variable.shape) == shape]

    def _note(self, variable: tf.Variable) -> None:
        with contextlib.suppress(tf.errors.OpError, NotImplementedError, AttributeError):
            self._starts[id(variable)] = variable.numpy()


def whole(variable: tf.Variable) -> tf.Variable:
    """Returns the variable that one replica's is a part of, or else the variable itself."""
    return distribute_utils.value_container(variable)


def first_parts(variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Returns the variables without those of further replicas."""
    found: dict[int, tf.Variable] = {}
    for variable in variables:
        found.setdefault(id(whole(variable)), variable)
    return list(found.values())


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
        return dense, stored(self._tables)

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

    def _find_tables(self) -> dict[str, tf.Variable]:
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

    def _find_dense(self) -> dict[str, tf.Variable]:
        found: dict[str, tf.Variable] = {}
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
                    text if is_slot else f"{text}; name it with --names")
        return found

    def _pair_by_shape(self, found: dict[str, tf.Variable], others: list[tf.Variable]) -> None:
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
