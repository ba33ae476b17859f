# SPDX-License-Identifier: Apache-2.0
"""Restores some variables from a checkpoint, as `tf.contrib.framework` did."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf


def assign_from_checkpoint_fn(
        model_path: str, var_list: Sequence[tf.Variable] | Mapping[str, tf.Variable],
        ignore_missing_vars: bool = False,
        reshape_variables: bool = False) -> Callable[[tf.compat.v1.Session], None] | None:
    """Returns a function of a session that restores variables from a checkpoint.

    Args:
        model_path: a checkpoint, or a directory, whose latest checkpoint is used.
        var_list: variables, or name in the checkpoint -> variable.
        ignore_missing_vars: whether variables that the checkpoint lacks keep their values;
            a warning names them.
        reshape_variables: whether to accept values of another shape with as many elements.

    Returns:
        The function; None if the checkpoint has none of the variables.

    Raises:
        ValueError: if `var_list` is empty.
    """
    if not var_list:
        raise ValueError(f"var_list cannot be empty: `var_list` must name variables, "
                         f"got {var_list!r}.")
    wanted = var_list if isinstance(var_list, Mapping) else {
        name_in_checkpoint(variable): variable for variable in var_list}
    if ignore_missing_vars:
        present = {name for name, _ in tf.train.list_variables(model_path)}
        for name in wanted.keys() - present:
            tf.compat.v1.logging.warning("Variable %s missing in checkpoint %s", name, model_path)
        wanted = {name: variable for name, variable in wanted.items() if name in present}
        if not wanted:
            tf.compat.v1.logging.warning("No variables to restore from %s", model_path)
            return None
    saver = tf.compat.v1.train.Saver(wanted, reshape=reshape_variables)
    path = tf.train.latest_checkpoint(model_path) or model_path

    def restore(session: tf.compat.v1.Session) -> None:
        saver.restore(session, path)

    return restore


def get_variables_to_restore(include: Sequence[str] | None = None,
                             exclude: Sequence[str] | None = None) -> list[tf.Variable]:
    """Returns the global variables below the scopes `include`, without those below `exclude`.

    Args:
        include: scopes; None means all variables.
        exclude: scopes whose variables are not returned.
    """
    found = _below(include) if include is not None else tf.compat.v1.global_variables()
    left_out = {variable.ref() for variable in _below(exclude or ())}
    return [variable for variable in found if variable.ref() not in left_out]


def _below(scopes: Sequence[str]) -> list[tf.Variable]:
    return [variable for scope in scopes for variable in tf.compat.v1.get_collection(
        tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, scope)]


def name_in_checkpoint(variable: tf.Variable) -> str:
    """Returns the name under which a saver stores a variable."""
    # A part of a partitioned variable is saved under the name of the whole variable.
    sliced = getattr(variable, "_save_slice_info", None)
    return sliced.full_name if sliced else variable.op.name
