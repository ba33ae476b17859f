# SPDX-License-Identifier: Apache-2.0
"""The Savers that a program brings to a training: in its Scaffold, a collection, or hooks.

They are changed in place, because the program's hooks and listeners use them as well.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

Hooks: TypeAlias = Iterable[tf.compat.v1.train.SessionRunHook]


def savers_of(scaffold: tf.compat.v1.train.Scaffold | None,
              hooks: Hooks) -> list[tf.compat.v1.train.Saver]:
    """Returns the Savers that are made, each once.

    Args:
        scaffold: the Scaffold of the session, which may have a Saver.
        hooks: hooks of the session, some of which may save.
    """
    found = [scaffold and scaffold.saver,
             *tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS),
             *(hook._saver for hook in that_save(hooks))]
    return list({id(saver): saver for saver in found if isinstance(
        saver, tf.compat.v1.train.Saver)}.values())


def shard_savers(scaffold: tf.compat.v1.train.Scaffold, hooks: Hooks) -> None:
    """Makes every Saver of a training sharded, because others collect all tables in one process."""
    for saver in savers_of(scaffold, hooks):
        if not saver._sharded:
            saver._sharded = True
            _build_again(saver)


def add_tables(tables: Mapping[str, Sequence[tf.Variable]],
               scaffold: tf.compat.v1.train.Scaffold | None, hooks: Hooks,
               model_dir: str) -> None:
    """Adds tables to the Savers that a model_fn has made; tables are created after its call.

    Savers of the Scaffold and of the collection get them, those of hooks if they save in the
    directory of the model, or save all variables of the model. Others save what the program chose,
    and so do those that a `scaffold_fn` makes, when the tables exist.

    Args:
        tables: name of a table or slot -> its parts.
        scaffold: the Scaffold that the model_fn has made, if it made one.
        hooks: those that the model_fn has made.
        model_dir: the directory of the model.
    """
    parts = [part for of_table in tables.values() for part in of_table]
    others = {variable.op.name for variable in tf.compat.v1.global_variables()
              } - {part.op.name for part in parts}
    elsewhere = {id(hook._saver) for hook in that_save(hooks)
                 if hook._saver is not None
                 and os.path.abspath(hook._checkpoint_dir) != os.path.abspath(model_dir)
                 and not others <= _names(hook._saver)}
    order = {op.name: place for place, op in enumerate(
        tf.compat.v1.get_default_graph().get_operations())}
    for saver in savers_of(scaffold, hooks):
        variables = saver._var_list
        if variables is None or id(saver) in elsewhere or _names(saver) & {
                part.op.name for part in parts} or _is_after(saver, parts, order):
            continue
        saver._var_list = ({**variables, **tables} if isinstance(variables, Mapping)
                           else [*variables, *parts])
        _build_again(saver)
        tf.compat.v1.logging.info(
            "tpu_estimator_embedding: a Saver that model_fn created before the tables existed also "
            "saves them")


def _is_after(saver: tf.compat.v1.train.Saver, parts: Sequence[tf.Variable],
              order: Mapping[str, int]) -> bool:
    """Whether a Saver's ops were added to the graph after the tables."""
    if not parts or saver.saver_def is None:
        return False
    saving = saver.saver_def.save_tensor_name.partition(":")[0]
    return order.get(saving, -1) > max(order[part.op.name] for part in parts)


def that_save(hooks: Hooks) -> Iterator[tf.compat.v1.train.CheckpointSaverHook]:
    """Returns the hooks that save checkpoints."""
    return (hook for hook in hooks if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook))


def _names(saver: tf.compat.v1.train.Saver) -> set[str]:
    """Returns the names of the variables that a Saver saves."""
    variables = saver._var_list or ()
    items = variables.values() if isinstance(variables, Mapping) else variables
    return {each.op.name for item in items
            for each in (item if isinstance(item, list | tuple) else [item])
            if getattr(each, "op", None) is not None}


def _build_again(saver: tf.compat.v1.train.Saver) -> None:
    if saver._is_built and saver._var_list is not None:  # else it was made from a SaverDef
        saver._is_built, saver.saver_def = False, None
        with tf.control_dependencies(None):
            saver.build()
