# SPDX-License-Identifier: Apache-2.0
"""Rewrites programs for a stage of the migration: the functions behind `migrate`."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence, Set

import tqdm

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.migration import (
    import_statements,
    later_stages,
    quick_scan,
    to_imports,
    to_keras3,
    to_tf2,
)
from tpu_estimator_embedding.migration.direct_names import ESTIMATOR
from tpu_estimator_embedding.migration.module_rewrite import Rewritten, parsed
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import ProgramFile
from tpu_estimator_embedding.migration.stages import LATER_STAGES, STAGES
from tpu_estimator_embedding.migration.targets import PACKAGE
from tpu_estimator_embedding.migration.tf1_programs import tf1_notes


@dataclasses.dataclass(frozen=True)
class MigratedFile:
    """A file before and after.

    Attributes:
        path: the file that was read.
        name: its path relative to the argument of `migrate`, for an output directory.
        before, after: its bytes.
        findings: what was changed in it and what is left to do.
    """

    path: pathlib.Path
    name: pathlib.PurePath
    before: bytes
    after: bytes
    findings: tuple[Finding, ...]


def rewrite(source: str | bytes, path: str = "<string>", is_tf1: bool | None = None,
            to: str = "imports", dense_optimizer: str = to_tf2.LEGACY) -> Rewritten:
    """Rewrites the text of one module for a stage.

    Args:
        source: the text; bytes if it declares its own encoding.
        path: its name in the findings.
        is_tf1: whether `import tensorflow` means TensorFlow 1.x; by default if the module
            uses names that only TensorFlow 1.x has.
        to: one of STAGES.
        dense_optimizer: "legacy" keeps that of the dense variables, "keras" takes one of tf_keras
            with the same hyperparameters in its place, at the stages "tf2" and "layers".

    Returns:
        The new bytes and the findings. If it cannot be parsed, the bytes are unchanged.

    >>> rewrite("import tensorflow as tf\\n"
    ...         "spec = tf.compat.v1.estimator.tpu.TPUEstimatorSpec\\n").data.decode().splitlines()
    ['from tpu_estimator_embedding import TPUEstimatorSpec',
     'import tensorflow as tf',
     'spec = TPUEstimatorSpec']
    """
    data = source.encode() if isinstance(source, str) else source
    [result] = _rewrite_all([(path, data)], is_tf1, to, dense_optimizer)
    return result


def rewrite_files(files: Sequence[tuple[pathlib.Path, pathlib.PurePath]],
                  is_tf1: bool | None = None, to: str = "imports",
                  dense_optimizer: str = to_tf2.LEGACY,
                  program: pathlib.Path | None = None) -> list[MigratedFile]:
    """Rewrites the files of one program: if one of them uses TensorFlow 1.x, all do.

    Other files in their directories are read, and what these import is kept.

    Args:
        files: the path of each, and its name relative to the argument.
        is_tf1, to, dense_optimizer: as for `rewrite`.
        program: the file that is run, beside which new modules are written; None if that is the
            one with the TPUEstimator.

    Raises:
        OSError: a file cannot be read.
    """
    read = [(path, name, path.read_bytes()) for path, name in files]
    given = {path.resolve() for path, _ in files}
    folders = sorted({path.parent for path in given}) if to in LATER_STAGES else []
    beside = [ProgramFile(os.path.relpath(path), path.read_bytes()) for folder in folders
              for path in sorted(folder.glob("*.py")) if path not in given and path.is_file()]
    results = _rewrite_all([(str(path), data) for path, _, data in read], is_tf1, to,
                           dense_optimizer, beside, program)
    return [MigratedFile(path, name, data, result.data, result.findings)
            for (path, name, data), result in zip(read, results, strict=True)]


def _rewrite_all(files: Sequence[tuple[str, bytes]], is_tf1: bool | None,
                 to: str, dense_optimizer: str, beside: Sequence[ProgramFile] = (),
                 program: pathlib.Path | None = None) -> list[Rewritten]:
    """Rewrites the files of one program, which other files beside them read."""
    checks.check_one_of("to", STAGES, to)
    checks.check_one_of("dense_optimizer", to_tf2.DENSE_OPTIMIZERS, dense_optimizer)
    checks.check(dense_optimizer == to_tf2.LEGACY or to in to_tf2.TRAINERS, "dense_optimizer",
                 "'legacy' at a stage other than tf2 and layers", dense_optimizer)
    programs = [ProgramFile(path, data) for path, data in files]
    notes = tf1_notes(programs) if is_tf1 is None else {}
    results = [
        _with_explicit_imports(file, bool(is_tf1) or file.path in notes)
        for file in tqdm.tqdm(programs, desc="Rewriting", unit="file", delay=2, disable=None)]
    words = [_words(file, result) for file, result in zip(programs, results, strict=True)]
    if to != to_keras3.STAGE:
        results = _with_loaders(programs, results, words)
    if to in LATER_STAGES:
        results = later_stages.rewrite(
            programs, results, words, to, dense_optimizer, beside, program)
    return [dataclasses.replace(result, findings=(*result.findings, notes[file.path]))
            if file.path in notes else result
            for file, result in zip(programs, results, strict=True)]


def _with_loaders(programs: Sequence[ProgramFile], results: Sequence[Rewritten],
                  words: Sequence[Set[str]]) -> list[Rewritten]:
    """Adds the imports that choose Keras 2, if a file of the program uses this package."""
    sources = [parsed(file, result) for file, result, one in zip(
        programs, results, words, strict=True) if PACKAGE in one]
    if not sources:
        return [*results]
    chooses = any(import_statements.chooses_keras(source) for source in sources if source)
    return [_with_loader(file, result, is_chosen=chooses)
            if file.scan and file.scan.uses_keras else result
            for file, result in zip(programs, results, strict=True)]


def _with_explicit_imports(file: ProgramFile, is_tf1: bool) -> Rewritten:
    """Rewrites a file for stage 1; it is unchanged if it needs or allows no rewriting."""
    scan = file.scan
    if not (scan or quick_scan.has_word(file.data)) or scan and not scan.may_be_legacy and not (
            is_tf1 and scan.uses_tensorflow):
        return Rewritten(file.data, ())
    if isinstance(file.source, Finding):
        return Rewritten(file.data, (file.source,))
    return to_imports.rewrite(file.source, is_tf1)


def _words(file: ProgramFile, result: Rewritten) -> frozenset[str]:
    """Returns the identifiers of a file; none if those that matter here are not in its text."""
    is_parsed = result.source is not None
    if not is_parsed and not any(quick_scan.has_word(file.data, word)
                                 for word in (PACKAGE, ESTIMATOR)):
        return frozenset()
    source = parsed(file, result)
    return source.words if source is not None else frozenset()


def _with_loader(file: ProgramFile, result: Rewritten, *, is_chosen: bool) -> Rewritten:
    """Adds the import that chooses Keras 2 if a module imports tf.keras, or uses layers.

    Args:
        is_chosen: whether another import of the program does, for layers that are used later.
    """
    source = parsed(file, result)
    if source is None:
        return result
    source, findings = import_statements.load_first(source, is_chosen=is_chosen)
    return Rewritten(source.module.bytes, (*result.findings, *findings), source)
