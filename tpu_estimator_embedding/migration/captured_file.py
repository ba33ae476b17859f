# SPDX-License-Identifier: Apache-2.0
"""`embedding_config.py` of a program: captured, written and checked."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

from tpu_estimator_embedding.migration import captured_config, plan_comparison
from tpu_estimator_embedding.migration.captured_config import CapturedConfig
from tpu_estimator_embedding.migration.config_text import FILE_NAME, ConfigWriter
from tpu_estimator_embedding.migration.keras3_text import Keras3Writer
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.rewrite import MigratedFile
from tpu_estimator_embedding.runtime.capture import NoEstimatorError


def capture_file(path: str | os.PathLike[str], name: pathlib.PurePath,
                 arguments: Sequence[str] = (), *, is_tf1: bool = False,
                 steps: int = 0, stage: str = "imports") -> MigratedFile:
    """Runs a program until its TPUEstimator is made, and returns its `embedding_config.py`.

    Args:
        path: the program.
        name: of the program in an output directory; the new file is beside it.
        arguments, is_tf1, steps: as for `captured_config.capture`.
        stage: the stage to migrate to; "keras3" has another config.

    Raises:
        runtime.program_runner.NotStartedError: the program cannot be started.
    """
    new = pathlib.Path(path).with_name(FILE_NAME)
    before = new.read_bytes() if new.exists() else b""
    try:
        with _as_it_was():
            captured = captured_config.capture(os.fspath(path), arguments, is_tf1=is_tf1,
                                               steps=steps)
            text, findings = written(captured, stage)
    except NoEstimatorError as error:
        finding = Finding(os.fspath(path), 0, 0, "TEE304", str(error))
        return MigratedFile(new, name.with_name(FILE_NAME), before, before, (finding,))
    findings = [dataclasses.replace(finding, path=finding.path or str(new))
                for finding in findings]
    return MigratedFile(new, name.with_name(FILE_NAME), before, text.encode(), tuple(findings))


def written(captured: CapturedConfig, stage: str = "imports") -> tuple[str, list[Finding]]:
    """Returns the text of a captured program's `embedding_config.py`, checked, and findings.

    Findings have the path of a module of the program where their lines are those of the module.
    """
    is_keras3 = stage == "keras3"
    writer = (Keras3Writer if is_keras3 else ConfigWriter)(captured)
    text = writer.write()
    differences = (plan_comparison.keras3_differences if is_keras3 else
                   functools.partial(plan_comparison.differences, left=writer.left))
    tables, features = len(captured.plan.tables), len(captured.plan.features)
    findings = [*writer.findings, Finding(
        "", 0, 0, "TEE301", f"{tables} tables and {features} features")]
    findings += writer.values_of_one_run()
    if stage == "imports":  # where the program goes on to read its own configuration
        findings = [finding for finding in findings if finding.code != "TEE307"]
    elif captured.tensor_core_features:
        findings.append(Finding("", 0, 0, "TEE309", "the columns of the features "
                                f"{list(captured.tensor_core_features)}, which have no table here"))
    for difference in _differences(differences, captured, text):
        findings.append(Finding("", 0, 0, "TEE305", difference))
    return text, findings


def _differences(compare: Callable[[CapturedConfig, str], list[str]], captured: CapturedConfig,
                 text: str) -> list[str]:
    try:
        return compare(captured, text)
    except Exception as error:  # of the written code, which then cannot be used as it is
        return [f"it does not run: {type(error).__name__}: {error}"]


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Sends stdout to stderr while a program runs in this process, and then restores all."""
    argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main
