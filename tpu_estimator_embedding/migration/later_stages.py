# SPDX-License-Identifier: Apache-2.0
"""Rewrites programs for the stages without a TPUEstimator.

The module with the TPUEstimator is rewritten together with the one that has its model_fn, which may
be another one. A program of an unsupported form is left as it is and reported.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from tpu_estimator_embedding.migration import (
    estimator_uses,
    quick_scan,
    to_keras3,
    unused_configs,
    usual_shapes,
)
from tpu_estimator_embedding.migration.direct_names import (
    ESTIMATOR,
    OLD_EXPORT,
    constructs_estimator,
    estimators_as_values,
    with_direct_names,
    with_names_of_trainer,
)
from tpu_estimator_embedding.migration.effects import SPEC
from tpu_estimator_embedding.migration.model_fn_parts import NotSplitError
from tpu_estimator_embedding.migration.module_rewrite import Rewritten, parsed
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import calls_of
from tpu_estimator_embedding.migration.report import Finding, in_words_of_program
from tpu_estimator_embedding.migration.source_file import ProgramFile, SourceFile
from tpu_estimator_embedding.migration.to_tf2 import TRAINERS, Readers, SplitModel, Writer

# Why a model_fn stays as it is for another TPUEstimator.
_KEPT = ("needs it as it is: mend what the report says there, or give each a function for its "
         "TPUEstimator alone")
_OTHER_MODEL = ("has a TPUEstimator with another model_fn of that module, or other arguments: "
                "put each model_fn into a module without a TPUEstimator, and give it the same "
                "arguments")


class ProgramModule(NamedTuple):
    """A module of a program.

    Attributes:
        imports: the module with explicit imports.
        source: the same, parsed.
        elsewhere: names that other modules read of it, as `quick_scan.read_by` returns them.
        readers: returns the paths of the modules that read a name of it, as `to_tf2.Readers`.
    """

    imports: Rewritten
    source: SourceFile
    elsewhere: Set[str]
    readers: Readers


# Returns a module of the program, given what imports it; None if it is not one.
FindModule = Callable[[str], ProgramModule | None]


def rewrite(programs: Sequence[ProgramFile], results: Sequence[Rewritten],
            words: Sequence[Set[str]], stage: str, dense_optimizer: str,
            beside: Sequence[ProgramFile], program: pathlib.Path | None) -> list[Rewritten]:
    """Rewrites the files with a TPUEstimator, and reports how the others use one.

    Args:
        programs: the files of one program.
        results: these with explicit imports.
        words: the identifiers of each.
        stage: one of LATER_STAGES.
        dense_optimizer: as for `rewrite.rewrite`.
        beside: other files, which may read what the program defines.
        program: the file that is run; None if that is the one with the TPUEstimator.
    """
    found = {file.path: (file, result) for file, result in zip(programs, results, strict=True)}
    callers = [file for file, its_words in zip(programs, words, strict=True) if any(
        word.startswith(ESTIMATOR) and word != SPEC for word in its_words)
        and _uses_estimator(*found[file.path])]
    if not callers:
        return [*results]
    others = [file for file in programs if file not in callers]

    def names_read(file: ProgramFile) -> frozenset[str]:
        return quick_scan.read_by(
            [one.data for one in (*beside, *programs) if one is not file], file.path)

    def module(path: str) -> ProgramModule | None:
        file, result = found[path]
        source = parsed(file, result)
        if source is None:
            return None
        # Callers that read a model_fn are rewritten with it, or it stays.
        readers = [one for one in (*beside, *others) if one is not file]
        return ProgramModule(result, source, names_read(file), functools.partial(
            readers_of, readers, path))

    attempts: dict[str, _Attempt] = {}
    for caller in callers:
        def find_module(imported: str, caller: ProgramFile = caller) -> ProgramModule | None:
            path = imported_file(
                imported, caller.path, [file.path for file in programs if file is not caller],
                os.fspath(program) if program else None)
            return module(path) if path else None

        if one := module(caller.path):
            attempts[caller.path] = _attempt(one, find_module, stage, dense_optimizer, program)
    written = {path: attempt.results(_kept_by(attempt, callers, attempts))
               for path, attempt in attempts.items()}
    has_trainer = stage in TRAINERS and all(
        its_results[path].data != found[path][1].data for path, its_results in written.items())
    new = {}
    for file, result in found.values():
        if file in others:
            elsewhere = names_read(file) if has_trainer else None
            result = _with_uses(file, result, elsewhere)
        new[file.path] = result
    for path, its_results in written.items():  # a caller that has another one's model_fn, too
        new |= {one: result for one, result in its_results.items()
                if one == path or one not in written}
    return [new[file.path] for file in programs]


def _kept_by(attempt: _Attempt, callers: Sequence[ProgramFile],
             attempts: Mapping[str, _Attempt]) -> dict[str, str]:
    """Returns the modules with a TPUEstimator for which a model_fn cannot be written, and why."""
    model = attempt.model
    if model is None:
        return {}
    found = {}
    for caller in callers:
        other = attempts[caller.path].model if caller.path in attempts else None
        if other != model and (
                caller.path == model.path or other is not None and other.path == model.path
                or any(readers_of([caller], model.path, *names) for names in model.read_as)):
            has_other = other is not None and other.path == model.path
            found[caller.path] = _OTHER_MODEL if has_other else _KEPT
    return found


def readers_of(files: Sequence[ProgramFile], path: str, name: str, method: str = "") -> list[str]:
    """Returns the paths of the files that may read a name of a module.

    Args:
        files: the other files.
        path: of the module.
        name: of a function or class in it.
        method: of the class, whose name such a file must have, too.
    """
    found = []
    for file in files:
        read = quick_scan.read_by([file.data], path)
        others = [one for one in files if one is not file]
        if "*" in read and not method:  # `from .model import *`, and others read it from there
            found += readers_of(others, file.path, name)
        may_read = name in read or "*" in read and quick_scan.has_word(file.data, name)
        if not (may_read and quick_scan.has_word(file.data, f".{method}" if method else name)):
            continue
        is_package = pathlib.PurePath(file.path).name == "__init__.py"
        if is_package and not method and quick_scan.only_imports(file.data, name):
            found += readers_of(others, file.path, name)
        else:
            found.append(file.path)
    return [*dict.fromkeys(found)]


def _uses_estimator(file: ProgramFile, result: Rewritten) -> bool:
    """Whether a file constructs a TPUEstimator, and does not only mention the class."""
    source = parsed(file, result)
    return source is None or bool(calls_of(source.module, ESTIMATOR)) or constructs_estimator(
        source) or bool(estimators_as_values(source.module, Names(source.module)))


def imported_file(imported: str, importer: str, files: Sequence[str],
                  program: str | None = None) -> str | None:
    """Returns the file that a module imports; None if it is not one of the files, or not known.

    Args:
        imported: the name of the module, with the dots of a relative import.
        importer: the path of the file that imports it.
        files: the paths of the other files.
        program: the file that is run, in whose directory Python looks; None for the importer.

    >>> imported_file(".model", "trainer/task.py", ["trainer/model.py", "model.py"])
    'trainer/model.py'
    >>> imported_file("trainer.model", "trainer/task.py", ["trainer/model.py", "model.py"])
    'trainer/model.py'
    """
    words = tuple(filter(None, imported.split(".")))
    level = len(imported) - len(imported.lstrip("."))
    folder = pathlib.PurePath(importer).parent

    def parts(path: str) -> tuple[str, ...]:
        plain = pathlib.PurePath(path).with_suffix("")
        return plain.parent.parts if plain.name == "__init__" else plain.parts

    if level:
        folder = pathlib.PurePath(os.path.normpath(folder.joinpath(*[".."] * (level - 1))))
        return next((path for path in files if parts(path) == (*folder.parts, *words)), None)
    first = pathlib.PurePath(program or importer).parent
    beside = [path for path in files if parts(path) == (*first.parts, *words)]
    anywhere = [path for path in files if parts(path)[-len(words):] == words]
    return beside[0] if beside else anywhere[0] if len(anywhere) == 1 else None


def _with_uses(file: ProgramFile, result: Rewritten, elsewhere: Set[str] | None) -> Rewritten:
    """Adds what a file does with the Estimator of another one, which is quoted as written.

    Args:
        file: the file.
        result: it with explicit imports.
        elsewhere: names that other modules read of it, if that Estimator is a Trainer now, so that
            `train_and_evaluate` takes one, too; None if it stays an Estimator.
    """
    may_use = any(quick_scan.has_word(file.data, word) for word in estimator_uses.WORDS)
    if not may_use or isinstance(file.source, Finding):
        return result
    source, present = file.source, parsed(file, result)
    if elsewhere is not None and present and any(
            quick_scan.has_word(file.data, word) for word in ("train_and_evaluate", OLD_EXPORT)):
        source = with_names_of_trainer(present)
        module = unused_configs.with_imports(source.module, "", elsewhere)
        if module.bytes != present.module.bytes:
            result = dataclasses.replace(result, data=module.bytes)
    return dataclasses.replace(result, findings=(*result.findings, *(
        source.finding(problem.node, problem.code, problem.message) for problem in
        estimator_uses.problems_elsewhere(source.module, Names(source.module)))))


def _attempt(module: ProgramModule, find_module: FindModule, stage: str, dense_optimizer: str,
             program: pathlib.Path | None) -> _Attempt:
    """Writes a module with a TPUEstimator, and the one that has its model_fn.

    Args:
        module: the module; one without a TPUEstimator is unchanged.
        find_module: finds another module of the program.
        stage, dense_optimizer, program: as for `rewrite`.
    """
    make: Callable[..., Writer]
    if stage == to_keras3.STAGE:
        make = functools.partial(to_keras3.writer, program=program)
    else:
        make = functools.partial(Writer, dense_optimizer=dense_optimizer,
                                 trainer=TRAINERS[stage], program=program)
    attempt = _Attempt(module, find_module, stage, make, has_usual_shapes=False)
    if attempt.texts is None:
        again = _Attempt(module, find_module, stage, make, has_usual_shapes=True)
        # What stands in a function would be quoted as a part of the model_fn.
        if again.is_changed and not (again.texts is None and again.is_inlined):
            attempt = again
    return attempt


class _Attempt:
    """Writes a program, or finds why it has an unsupported form.

    Args:
        module, find_module, stage: as for `_attempt`.
        make: makes the writer of a module.
        has_usual_shapes: whether the usual shapes are rewritten, too.

    Attributes:
        texts: path -> text of each module that was written; None if the form is unsupported.
        model: its model_fn, if it was written.
        is_changed: whether there was a usual shape.
        is_inlined: whether there was a function to inline.
    """

    def __init__(self, module: ProgramModule, find_module: FindModule, stage: str,
                 make: Callable[..., Writer], *, has_usual_shapes: bool) -> None:
        self._stage, self._make, self._has_usual_shapes = stage, make, has_usual_shapes
        self._written: dict[str, tuple[ProgramModule, Writer]] = {}
        self.is_changed = self.is_inlined = False
        self.texts: Mapping[str, bytes] | None = None
        self.model: SplitModel | None = None

        def find_writer(path: str) -> Writer | None:
            found = find_module(path)
            return self._writer(found) if found else None

        self._path, writer = module.source.path, self._writer(module)
        try:
            self.texts = writer.run(find_writer)
        except NotSplitError as error:
            writer.report_all(error.problems)
            return
        self.model = next((one.split for _, one in self._written.values() if one.split), None)

    def results(self, kept_by: Mapping[str, str]) -> dict[str, Rewritten]:
        """Returns path -> what became of each module.

        Args:
            kept_by: other modules for which the model_fn cannot be written, so that nothing is,
                and why.
        """
        if kept_by and self.model is not None:
            place = f" of {self.model.path}" * (self.model.path != self._path)
            left = Finding(self._path, 0, 0, NotSplitError.code, f"its model_fn, "
                           f"`{self.model.function}`{place}, is not for it alone: "
                           + "; ".join(f"{path} {reason}" for path, reason in kept_by.items()))
            imports = self._written[self._path][0].imports
            return {self._path: dataclasses.replace(
                imports, findings=(*imports.findings, left))}
        return {path: Rewritten((self.texts or {}).get(path, module.imports.data), (
            *module.imports.findings, *(dataclasses.replace(
                finding, message=in_words_of_program(finding, module.imports.findings))
                for finding in writer.findings)))
            for path, (module, writer) in self._written.items()}

    def _writer(self, module: ProgramModule) -> Writer:
        path = module.source.path
        if path not in self._written:
            source, inlined = with_direct_names(module.source), frozenset[str]()
            if self._stage in TRAINERS and constructs_estimator(source):
                source = with_names_of_trainer(source)
            if self._has_usual_shapes:
                before = source
                source, inlined = usual_shapes.rewritten(
                    before, module.elsewhere, with_layers=self._stage in TRAINERS)
                self.is_changed |= source is not before
                self.is_inlined |= bool(inlined)
            self._written[path] = module, self._make(
                source, elsewhere=module.elsewhere, readers=module.readers, inlined=inlined)
        return self._written[path][1]
