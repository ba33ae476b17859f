# SPDX-License-Identifier: Apache-2.0
"""Values of a checkpoint: warm start of tables, variables by id, and errors that explain a restore.

TensorFlow's own warm start applies its pattern to trainable variables only, and tables of the
engine are not trainable. Here the same pattern also covers tables, and slots in the checkpoint.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from tpu_estimator_embedding import checks, settings
from tpu_estimator_embedding.checkpoint.model_directory import translate_write_errors
from tpu_estimator_embedding.checkpoint.names import table_of
from tpu_estimator_embedding.checkpoint.saver_patches import (
    FIX_OF_DAMAGE,
    damage_in_session,
    layout_in,
    saved_layouts,
    translate_checkpoint_errors,
)
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout
from tpu_estimator_embedding.engine.variables import TableNames, TableVariables
from tpu_estimator_embedding.estimator.vocabulary_warm_start import (
    VocabInfo,
    check_vocabulary,
    former_ids,
    start_from,
)
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.plan.partition_strategy import saved_rows

if TYPE_CHECKING:
    from tpu_estimator_embedding.checkpoint.table_saver import TableSaver

# TensorFlow's message about a table, or another variable that is saved in parts.
_OTHER_SHAPE = re.compile(r"tensor_name = (\S+); shape in shape_and_slice spec \[([\d,]+)\] does "
                          r"not match the shape stored in checkpoint: \[([\d,]+)\]")

# TensorFlow's message about a table that is read in place.
_READ_IN_PLACE = re.compile(r"[Tt]rying to read variable with wrong dtype. Expected float got "
                            r"variant")

# TensorFlow's message about a changed byte, where another op than a Saver's restores it.
_CHANGED_BYTE = re.compile(r"TensorBundle at (.+) shard \d+ .*Checksum does not match")

# TensorFlow's message where the file `checkpoint` names what is not there.
_NO_INDEX = "The passed save_path is not a valid checkpoint"

LOADED_BYTES = 512 << 20  # of small tables, all together: loading them takes a second


class WarmStartSettings(Protocol):
    """What this package uses of tensorflow_estimator's `WarmStartSettings`."""

    @property
    def ckpt_to_initialize_from(self) -> str: ...

    @property
    def vars_to_warm_start(self) -> str | Sequence[str | tf.Variable] | None: ...

    @property
    def var_name_to_prev_var_name(self) -> Mapping[str, str] | None: ...

    @property
    def var_name_to_vocab_info(self) -> Mapping[str, VocabInfo] | None: ...

    def _replace(self, **changes: Any) -> "WarmStartSettings": ...


@contextlib.contextmanager
def translate_restore_errors(
        model_dir: str, warm_start: WarmStartSettings | None = None,
        checkpoint_path: str | None = None) -> Iterator[None]:
    """Turns errors about missing or different values in a checkpoint into ValueErrors.

    Args:
        model_dir: the directory of the model.
        warm_start: `tf.estimator.WarmStartSettings` of a model without a checkpoint, or None.
        checkpoint_path: the checkpoint that is restored; None for the newest of the model.

    Raises:
        ValueError: if the checkpoint lacks its index or a slot, or a table has a different shape
            there. The engine and a model's optimizer share the slot names of some optimizers
            (Adagrad), but not of all (Adam).
        tf.errors.DataLossError: if the checkpoint of a warm start is damaged.
        tf.errors.PermissionDeniedError: if this process may not write to `model_dir`.
    """
    try:
        with translate_write_errors(model_dir):
            yield
    except tf.errors.InvalidArgumentError as error:
        found = _OTHER_SHAPE.search(error.message or "")
        if found is None:
            raise
        checkpoint = checkpoint_path or tf.train.latest_checkpoint(model_dir)
        if checkpoint is None and warm_start:
            source = os.fspath(warm_start.ckpt_to_initialize_from)
            message = _explain_shape(tf.train.latest_checkpoint(source) or source, *found.groups(),
                                     warm_starts=True)
        else:
            message = _explain_shape(checkpoint or model_dir, *found.groups(), warm_starts=False)
        raise ValueError(message) from error
    except tf.errors.NotFoundError as error:
        key = re.search(r"Key (\S+) not found in checkpoint", error.message or "")
        checkpoint = checkpoint_path or tf.train.latest_checkpoint(model_dir)
        if key is None or checkpoint is None:
            raise
        explanation = _explain(key[1], checkpoint)
        if explanation is None:
            raise
        raise ValueError(explanation) from error
    except tf.errors.DataLossError as error:
        changed = _CHANGED_BYTE.search(error.message or "")
        if changed is None or FIX_OF_DAMAGE in error.message:
            raise
        raise damage_in_session(changed[1], error) from None
    except ValueError as error:
        if _NO_INDEX not in str(error):
            raise
        raise ValueError(f"{error}: its index is missing. {FIX_OF_DAMAGE}") from error


@contextlib.contextmanager
def translate_read_errors() -> Iterator[None]:
    """Says how to read a whole table in a session whose tables are read in place.

    Raises:
        tf.errors.InvalidArgumentError: if the session fetches such a table.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if not _READ_IN_PLACE.search(error.message or ""):
            raise
        raise tf.errors.InvalidArgumentError(
            error.node_def, None, "A large table that is read in place can be looked up but not "
            f"fetched, got a session that fetches one. Set {settings.TABLES_IN_PLACE.variable}=off "
            f"in the environment to load tables. ({error.message})"
        ) from None


def saver_of_tables(plan: EmbeddingPlan, scaffold: tf.compat.v1.train.Scaffold, *,
                    is_export: bool, training: bool, loads_tables: bool) -> "TableSaver | None":
    """Returns a Saver that does not load tables; None if the session's own one is to restore them.

    Args:
        plan: the tables.
        scaffold: the Scaffold of the model.
        is_export: whether the graph is exported.
        training: whether it trains the tables.
        loads_tables: whether the environment says that tables are loaded.
    """
    if not plan.tables or (is_export and (loads_tables or scaffold.saver is not None)):
        return None
    # Loaded only here, because it loads what reads checkpoints: `install()` does not wait for that.
    from tpu_estimator_embedding.checkpoint import export_saver, in_place_saver
    if is_export:
        return export_saver.ExportSaver()
    size = sum(4 * table.vocabulary_size * table.dimension for table in plan.tables)
    if training or size <= LOADED_BYTES:
        return None
    reason = ""
    if loads_tables:
        reason = f"{settings.TABLES_IN_PLACE.variable}=off"
    elif scaffold.saver is not None or tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS):
        reason = "the model_fn gives a saver"
    elif type(scaffold) is not tf.compat.v1.train.Scaffold:  # which a copy would not be
        reason = f"the Scaffold of the model_fn is a {type(scaffold).__name__}"
    elif load.native_ops() is None:
        reason = "only the native kernels can read rows in place"
    if reason:
        tf.compat.v1.logging.info(
            "tpu_estimator_embedding: tables are loaded, not read in place: %s", reason)
        return None
    return in_place_saver.InPlaceSaver(LOADED_BYTES)


def _explain_shape(checkpoint: str, name: str, ours: str, saved: str, *, warm_starts: bool) -> str:
    complaint = checks.complaint(f"shape of {name!r} in {checkpoint}",
                                 f"[{ours}], as in this program", [*map(int, saved.split(","))])
    rows, *dimension = ours.split(",")
    if dimension != saved.split(",")[1:]:
        fix = ("leave it out of `vars_to_warm_start`" if warm_starts else
               "train in a new model_dir")
        return f"{complaint} Its dimension cannot change: {fix}."
    folder, use = ("NEW_DIR", "for warm_start_from") if warm_starts else (
        "NEW_MODEL_DIR", "for a new model_dir")
    return (f"{complaint} To grow or shrink the vocabulary, write a checkpoint {use}: "
            f"`tpu-estimator-embedding checkpoint convert {checkpoint} {folder}/"
            f"{os.path.basename(checkpoint)} --resize {table_of(name)}={rows}`.")


def _explain(key: str, checkpoint: str) -> str | None:
    saved = [name for name, _ in tf.train.list_variables(checkpoint)]
    whole = re.sub(r"/part_\d+", "", key)
    if whole != key and whole in saved:  # as `ExponentialMovingAverage.variables_to_restore` has it
        return checks.complaint(
            "var_list of the Saver", "names of variables, not of parts of them", key,
            "A checkpoint has all parts under one name: give the Saver "
            f"{{{whole!r}: [the parts]}}.")
    owners = [name for name in saved if key.startswith(f"{name}/")]
    if not owners:
        return None
    owner = min(owners, key=len)  # longer names are themselves slots, such as T/Adam
    slots = sorted(name for name in saved if name.startswith(f"{owner}/"))
    return (f"`checkpoint` must have the slot {key!r} of {owner!r}, got {slots} in "
            f"{checkpoint}. It was written with another optimizer or another use_tpu. To keep "
            "the tables and the model and reset their slots, train in a new model_dir with "
            f"warm_start_from={checkpoint!r}.")


def tell_of_unused_slots(model_dir: str, tables: Mapping[str, TableNames]) -> None:
    """Warns if training goes on without slots that the latest checkpoint has.

    Args:
        model_dir: directory of the checkpoints.
        tables: table name -> names of its variables.
    """
    checkpoint = tf.train.latest_checkpoint(model_dir)
    if checkpoint is None:
        return
    saved_layouts(checkpoint)  # says so if the checkpoint is damaged
    used = {_whole_name(variable.op.name)
            for variable in tf.compat.v1.global_variables()}
    for names in tables.values():
        used |= {names.table, *names.slots.values()}
    unused = sorted(
        name for name, _ in tf.train.list_variables(checkpoint) if name not in used
        and any(name.startswith(f"{names.table}/") for names in tables.values()))
    if unused:
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: training continues without %s of %s, which this program does "
            "not use. Later checkpoints will lack them: keep a copy of this one to be able to "
            "return to the former optimizer.", unused, checkpoint)


def value_by_id(checkpoint: str, name: str, plan: EmbeddingPlan,
                checkpoint_num_hosts: int | None) -> Any:
    """Returns the value of a variable; row i of a table or slot is that of id i.

    Args:
        checkpoint: a checkpoint, or a directory of checkpoints.
        name: name of the variable.
        plan: the tables of the program.
        checkpoint_num_hosts: number of hosts that wrote a checkpoint without a record of its
            layout; None if unknown.

    Raises:
        tf.errors.DataLossError: if a file of the checkpoint is truncated, damaged or missing.
        ValueError: if the program's tables use `mod`, and the row layout of the checkpoint is
            unknown.
    """
    layout = _layout(checkpoint, name, plan, checkpoint_num_hosts)
    with translate_checkpoint_errors(checkpoint):
        value = tf.train.load_variable(checkpoint, name)
    if layout is None or layout.is_by_id:
        return value
    return value[saved_rows(layout.vocabulary_size, layout.num_hosts, layout.partition_strategy)]


def _layout(checkpoint: str, name: str, plan: EmbeddingPlan, checkpoint_num_hosts: int | None
            ) -> TableLayout | None:
    layouts = saved_layouts(checkpoint)
    shape = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map().get(name)
    is_like_table = shape in [[table.vocabulary_size, table.dimension] for table in plan.tables]
    if layouts or not is_like_table:  # a checkpoint with a record has one of every table
        return layouts.get(name)
    ours = TableLayout(plan.partition_strategy, plan.num_hosts, shape[0])
    return layout_in(checkpoint, layouts, name, ours, checkpoint_num_hosts)


def warm_start_tables(settings: WarmStartSettings,
                      names: Mapping[str, TableNames],
                      variables: Mapping[str, TableVariables],
                      read: Callable[[str, str], Any]) -> list[str]:
    """Initializes matching tables and slots from a checkpoint.

    Args:
        settings: `tf.estimator.WarmStartSettings`.
        names: table name -> names of its variables.
        variables: table name -> its variables.
        read: returns the values of a variable of a checkpoint, row i those of id i. Takes the
            checkpoint and the name.

    Returns:
        The names of the variables that start from the checkpoint.

    Raises:
        ValueError: if `var_name_to_prev_var_name` has a name for a table or slot that is not
            in the checkpoint, or a vocabulary does not fill its table.
    """
    checkpoint = settings.ckpt_to_initialize_from
    saved = {name for name, _ in tf.train.list_variables(checkpoint)}
    vocabularies = settings.var_name_to_vocab_info or {}
    previous = _previous_names(settings, names)
    for name, source in previous.items():
        checks.check(source in saved, f"var_name_to_prev_var_name[{name!r}]",
                     f"a variable of {checkpoint}", source)
    started = []
    for table, name, parts in _named_parts(names, variables):
        source = previous.get(name, name)
        if not _matches(settings.vars_to_warm_start, name) or source not in saved:
            continue
        if table in vocabularies:
            info = vocabularies[table]
            check_vocabulary(info, table, sum(part.shape[0] for part in parts))
            start_from(parts, former_ids(info), functools.partial(read, checkpoint, source),
                       # TensorFlow sets new words to zero by default.
                       (info.backup_initializer or tf.compat.v1.zeros_initializer())
                       if name == table else None)
        else:
            tf.compat.v1.train.init_from_checkpoint(checkpoint, {source: parts})
        started.append(name)
    return started


class ModelWarmStart(tf.compat.v1.train.SessionRunHook):
    """Warm-starts the variables of a model once all of them exist, as Estimator does."""

    def __init__(self, settings: WarmStartSettings):
        """Takes the settings of `without_tables`."""
        self._settings: Any = settings

    def begin(self) -> None:
        """Makes the checkpoint the initial value of the variables."""
        tf.compat.v1.logging.info("Warm-starting with WarmStartSettings: %s", repr(self._settings))
        tf.compat.v1.train.warm_start(*self._settings)


def without_tables(settings: WarmStartSettings,
                   names: Mapping[str, TableNames]) -> WarmStartSettings:
    """Returns the settings for the remaining variables, those of the model.

    TensorFlow's warm start rejects former names of variables that its pattern does not match,
    and a pattern matches trainable variables only. As a list it matches all variables, so the list
    becomes one of variables.

    Args:
        settings: `tf.estimator.WarmStartSettings`.
        names: table name -> names of its variables.
    """
    chosen: Any = settings.vars_to_warm_start
    own = _own_names(names)
    if chosen and not isinstance(chosen, str) and all(isinstance(each, str) for each in chosen):
        matching = [variable for pattern in chosen for variable in tf.compat.v1.get_collection(
            tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, scope=pattern)]
        unique = {variable.ref(): variable for variable in matching}.values()
        chosen = [variable for variable in unique if _whole_name(variable.op.name) not in own]
    return settings._replace(
        vars_to_warm_start=chosen,
        var_name_to_prev_var_name=_without(settings.var_name_to_prev_var_name, own),
        var_name_to_vocab_info=_without(settings.var_name_to_vocab_info, own))


def _without(by_name: Mapping[str, Any] | None, names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in (by_name or {}).items() if name not in names}


def _previous_names(settings: WarmStartSettings,
                    names: Mapping[str, TableNames]) -> dict[str, str]:
    own = _own_names(names)
    previous = settings.var_name_to_prev_var_name or {}
    return {name: source for name, source in previous.items() if name in own}


def _whole_name(name: str) -> str:
    return re.sub(r"/part_\d+$", "", name)


def _own_names(names: Mapping[str, TableNames]) -> set[str]:
    return {name for table in names.values() for name in (table.table, *table.slots.values())}


def _named_parts(names: Mapping[str, TableNames], variables: Mapping[str, TableVariables]
                 ) -> Iterator[tuple[str, str, Sequence[tf.Variable]]]:
    """Yields the name of the table, that of the table or a slot of it, and its parts."""
    for table, table_names in names.items():
        yield table_names.table, table_names.table, variables[table].parts
        for slot, slot_name in table_names.slots.items():
            yield table_names.table, slot_name, variables[table].slots[slot]


def _matches(vars_to_warm_start: str | Sequence[str | tf.Variable] | None, name: str) -> bool:
    if vars_to_warm_start is None:
        return False
    if isinstance(vars_to_warm_start, str):
        return re.match(vars_to_warm_start, name) is not None
    names = [getattr(item, "name", item) for item in vars_to_warm_start]
    return any(re.match(pattern, name) for pattern in names)
