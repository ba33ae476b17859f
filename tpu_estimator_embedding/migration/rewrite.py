# SPDX-License-Identifier: Apache-2.0
"""Rewrites programs for a stage of the migration: the functions behind `migrate`."""

import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence

import tqdm

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.migration import (
    import_statements,
    quick_scan,
    source_file,
    to_imports,
    to_keras3,
    to_tf2,
)
from tpu_estimator_embedding.migration.module_rewrite import Rewritten
from tpu_estimator_embedding.migration.quick_scan import QuickScan
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile, UnreadableError
from tpu_estimator_embedding.migration.targets import PACKAGE, is_legacy_word
from tpu_estimator_embedding.migration.tf1_programs import tf1_notes

LATER_STAGES = (*to_tf2.TRAINERS, to_keras3.STAGE)
STAGES = ("imports", *LATER_STAGES)


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
                  dense_optimizer: str = to_tf2.LEGACY) -> list[MigratedFile]:
    """Rewrites the files of one program: if one of them uses TensorFlow 1.x, all do.

    Other files in their directories are read, and what these import is kept.

    Args:
        files: the path of each, and its name relative to the argument.
        is_tf1, to, dense_optimizer: as for `rewrite`.

    Raises:
        OSError: a file cannot be read.
    """
    read = [(path, name, path.read_bytes()) for path, name in files]
    given = {path.resolve() for path, _ in files}
    beside = [path.read_bytes() for folder in sorted({path.parent for path in given})
              for path in sorted(folder.glob("*.py")) if path not in given and path.is_file()
              ] if to in LATER_STAGES else []
    results = _rewrite_all([(str(path), data) for path, _, data in read], is_tf1, to,
                           dense_optimizer, beside)
    return [MigratedFile(path, name, data, result.data, result.findings)
            for (path, name, data), result in zip(read, results, strict=True)]


def _rewrite_all(files: Sequence[tuple[str, bytes]], is_tf1: bool | None,
                 to: str, dense_optimizer: str, beside: Sequence[bytes] = ()) -> list[Rewritten]:
    checks.check_one_of("to", STAGES, to)
    checks.check_one_of("dense_optimizer", to_tf2.DENSE_OPTIMIZERS, dense_optimizer)
    checks.check(dense_optimizer == to_tf2.LEGACY or to in ("tf2", "layers"), "dense_optimizer",
                 "'legacy' at a stage other than tf2 and layers", dense_optimizer)
    scans = {path: scan for path, data in files if is_legacy_word(data.decode("latin-1"))
             and (scan := quick_scan.scan(data))}
    notes = _tf1_notes(files, scans) if is_tf1 is None else {}
    results = []
    for path, data in tqdm.tqdm(files, desc="Rewriting", unit="file", delay=2, disable=None):
        is_old = bool(is_tf1) or path in notes
        scan = scans.get(path)
        if scan and not scan.may_be_legacy and not (is_old and scan.uses_tensorflow):
            results.append(Rewritten(data, ()))
            continue
        source = _parse(path, data)
        results.append(to_imports.rewrite(source, is_old) if isinstance(source, SourceFile)
                       else source)
    if to != to_keras3.STAGE and any(PACKAGE.encode() in result.data for result in results):
        chooses = any(re.search(rb"%s(\.| import .*)tf_(estimator|tpu)\b" % PACKAGE.encode(),
                                result.data) for result in results)
        results = [_with_loader(path, result, is_chosen=chooses)
                   if path in scans and scans[path].uses_keras else result
                   for (path, _), result in zip(files, results, strict=True)]
    if to in LATER_STAGES:
        make = to_keras3.writer if to == to_keras3.STAGE else None
        has_estimator = any(b"TPUEstimator" in result.data for result in results)
        results = [to_tf2.report_uses(result, data, path)
                   if has_estimator and b"TPUEstimator" not in result.data
                   else to_tf2.rewrite(result, data, path, to, dense_optimizer, [
                       *beside, *(text for other, text in files if other != path)], make)
                   for (path, data), result in zip(files, results, strict=True)]
    return [dataclasses.replace(result, findings=(
        *result.findings, *([notes[path]] if path in notes else [])))
        for (path, _), result in zip(files, results, strict=True)]


def _tf1_notes(files: Sequence[tuple[str, bytes]],
               scans: Mapping[str, QuickScan]) -> dict[str, Finding]:
    """Returns path -> what shows that a file is of a TensorFlow 1.x program."""
    candidates = [_parse(path, data) for path, data in files
                  if path in scans and scans[path].may_be_tf1]
    return tf1_notes(
        [source for source in candidates if isinstance(source, SourceFile)],
        {path: None if b"compat" in data else scans[path].imported
         for path, data in files if path in scans})


def _parse(path: str, data: bytes) -> SourceFile | Rewritten:
    """Parses a file; returns an unchanged result if it needs or allows no rewriting."""
    if not is_legacy_word(data.decode("latin-1")):
        return Rewritten(data, ())
    try:
        return source_file.parse(data, path)
    except UnreadableError as error:
        return Rewritten(data, (error.finding,))


def _with_loader(path: str, result: Rewritten, *, is_chosen: bool) -> Rewritten:
    """Adds the import that chooses Keras 2 if a module imports tf.keras, or uses layers.

    Args:
        is_chosen: whether another import of the program does, for layers that are used later.
    """
    if b"tensorflow" not in result.data or not re.search(rb"keras|layers", result.data):
        return result
    source = _parse(path, result.data)
    if not isinstance(source, SourceFile):
        return result
    data, findings = import_statements.load_first(source, is_chosen=is_chosen)
    return Rewritten(data, (*result.findings, *findings))
