# SPDX-License-Identifier: Apache-2.0
"""The values of a program's columns, dictionaries and parameters, captured by running it."""

import dataclasses
import functools
import importlib.metadata
import os
import pathlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence, Set

import tpu_estimator_embedding
from tpu_estimator_embedding.checkpoint.names import slot_variable_names
from tpu_estimator_embedding.migration.value_sources import ProgramModule, Source, sources_of
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.runtime import capture as program_capture
from tpu_estimator_embedding.runtime import program_runner
from tpu_estimator_embedding.runtime.program_setup import ProgramSetup


@dataclasses.dataclass(frozen=True)
class CapturedConfig:
    """The embeddings of a program's TPUEstimator.

    Attributes:
        program: the file that made it.
        plan: for training.
        batch_size: of training, over all replicas; None if it was not given.
        table_variables: "table" or "table/slot" -> its name in a checkpoint of the Estimator;
            None if the program was stopped before its model_fn chose it, or failed.
        failure: the error with which it failed before; None if it did not.
        sources: the expressions that its constructors got.
        tensor_core_features: those whose columns are for a TensorCore, and not in the plan.
    """

    program: str
    plan: EmbeddingPlan
    batch_size: int | None = None
    table_variables: Mapping[str, str] | None = None
    failure: str | None = None
    sources: tuple[Source, ...] = ()
    tensor_core_features: tuple[str, ...] = ()


def capture(path: str, arguments: Sequence[str] = (), *, is_tf1: bool = False,
            steps: int = 0) -> CapturedConfig:
    """Runs a program until its TPUEstimator is constructed, or until its model_fn was called.

    Args:
        path: the program.
        arguments: its own arguments.
        is_tf1: whether `import tensorflow` means TensorFlow 1.x in it.
        steps: 0 stops at the constructor; 1 continues until the first call of model_fn has
            named the tables, before any step is run.

    Raises:
        runtime.capture.NoEstimatorError: the program ends or fails before.
        runtime.program_runner.NotStartedError: it cannot be started.
    """
    run = functools.partial(program_runner.run_program, path, arguments)
    set_up = ProgramSetup(is_tf1, "quiet")
    names = failure = None
    earlier, directory = frozenset(sys.modules), os.getcwd()
    try:
        if steps:
            found, names, failure = _run_to_model_fn(run, set_up, path)
        else:
            found = program_capture.capture(run, set_up, program=path)
    finally:
        os.chdir(directory)  # to which the path is relative
    from tpu_estimator_embedding.estimator.embedding_config_spec import spec_to_plan
    spec = found.spec
    assert spec is not None
    plan = spec_to_plan(spec, training=True,
                        num_hosts=found.constructor_arguments["num_hosts"] or 1)
    return CapturedConfig(pathlib.Path(path).name, plan,
                          found.constructor_arguments["train_batch_size"],
                          names and _with_slots(names, plan), failure,
                          tuple(sources_of(_program_modules(path, earlier))),
                          tuple(column.get_feature_key_name() for column in
                                spec.tensor_core_feature_columns or ()))


def _with_slots(names: Mapping[str, str], plan: EmbeddingPlan) -> dict[str, str]:
    """Returns "table", and "table/slot" -> name; an evaluation of the program has no slots.

    Args:
        names: of the tables.
        plan: of training.
    """
    found: dict[str, str] = {}
    for table, name in names.items():
        found[table] = name
        if optimizer := plan.table_by_name[table].optimizer:
            found.update({f"{table}/{slot}": variable for slot, variable in
                          slot_variable_names(name, optimizer.rule).items()})
    return found


def _program_modules(path: str, earlier: Set[str]) -> list[ProgramModule]:
    """Returns the modules of the program that has just run, libraries not included.

    Args:
        path: the program.
        earlier: names of the modules that were imported before it ran.
    """
    folder = pathlib.Path(path).resolve().parent
    libraries = [pathlib.Path(sysconfig.get_path(name)).resolve()
                 for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    libraries.append(pathlib.Path(tpu_estimator_embedding.__file__).resolve().parent)
    installed = functools.cache(_installed_files)
    found = [ProgramModule(path, "__main__", pathlib.Path(path).read_bytes(),
                           vars(sys.modules["__main__"]))]
    for name, module in sorted(sys.modules.items()):
        file = pathlib.Path(getattr(module, "__file__", None) or "").resolve()
        if name == "__main__" or file.suffix != ".py" or any(
                file.is_relative_to(library) for library in libraries) or any(
                    file in installed(above) for above in file.parents):
            continue
        if name not in earlier or file.is_relative_to(folder):
            shown = os.path.join(os.path.dirname(path), os.path.relpath(file, folder))
            found.append(ProgramModule(os.path.normpath(shown), name, file.read_bytes(),
                                       vars(module)))
    return found


def _installed_files(folder: pathlib.Path) -> set[pathlib.Path]:
    """Returns the files of the distributions that were installed into a folder."""
    return {folder / path for found in folder.glob("*.dist-info")
            for path in importlib.metadata.PathDistribution(found).files or ()}


def _run_to_model_fn(
        run: Callable[[program_capture.SetUp], None], set_up: ProgramSetup, path: str,
) -> tuple[program_capture.Captured, Mapping[str, str] | None, str | None]:
    """Returns what was captured, and the names of its tables or the error before they are known.

    As in `runtime.capture`, an estimator without tables is skipped.
    """
    outcome = program_capture.run_until(run, set_up, "_use_step")
    if outcome.captured is not None:
        names = outcome.captured.method_arguments["step"].names
        return outcome.captured, {table: one.table for table, one in names.items()}, None
    if outcome.error is None:
        raise program_capture.NoEstimatorError(
            "The program ended without a TPUEstimator with tables that calls its model_fn: the "
            "names of its tables are not known. Its own arguments come after `--`.")
    with_tables = [found for found in outcome.constructed if found.spec is not None]
    if not with_tables:
        raise program_capture.ended_early(
            outcome.error, path, "constructed a TPUEstimator with tables")
    return with_tables[-1], None, _told(outcome.error, path)


def _told(error: BaseException, path: str) -> str:
    """Returns the line of a program, or of what it calls, that raised an error, and the error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.abspath(frame.filename) == os.path.abspath(path)]
    line = f"line {own[-1].lineno}: " if own else ""
    return f"{line}{type(error).__name__}: {error}"
