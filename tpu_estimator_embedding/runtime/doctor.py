# SPDX-License-Identifier: Apache-2.0
"""The report of `doctor`: what was found and patched, and how to fix problems."""

import argparse
import itertools

import tpu_estimator_embedding
from tpu_estimator_embedding.runtime import environment, quiet_start
from tpu_estimator_embedding.runtime.environment import Diagnosis


def examine(*, with_patches: bool = False) -> tuple[str, bool]:
    """Examines the environment and calls `install`.

    Args:
        with_patches: whether to list the names that `install` patches.

    Returns:
        The report, and whether everything is in order.
    """
    findings = environment.requirements()
    if not _blocking(findings):
        findings += [_install(), *environment.resources()]
    patches = _patch_lines() if with_patches and not _blocking(findings) else []
    wrong = [finding for finding in findings if finding.advice]
    return "\n".join([
        f"tpu-estimator-embedding {tpu_estimator_embedding.__version__}: {_verdict(wrong)}", "",
        *itertools.chain(*map(_finding_lines, findings)), *patches]), not wrong


def _blocking(findings: list[Diagnosis]) -> bool:
    return any(finding.advice and finding.is_needed for finding in findings)


def _install() -> Diagnosis:
    try:
        tpu_estimator_embedding.install()
    except Exception as error:  # the report includes every failure
        return Diagnosis("install()", type(error).__name__, str(error) or repr(error))
    return Diagnosis("install()", "works")


def _finding_lines(finding: Diagnosis) -> list[str]:
    mark = "WRONG" if finding.advice else "ok"
    lines = [f"{mark:<6} {finding.subject:<11} {finding.found}"]
    return lines + [f"{'':6} {'':11} -> {finding.advice}"] * bool(finding.advice)


def _patch_lines() -> list[str]:
    from tpu_estimator_embedding.patches import patch
    from tpu_estimator_embedding.runtime import patch_list
    return ["", "Names that install() changed in this process, and uninstall() restores:",
            *(f"  {line}" for line in patch_list.lines(patch.originals()))]


def _verdict(wrong: list[Diagnosis]) -> str:
    if not wrong:
        return "Nothing is wrong."
    subjects = ", ".join(finding.subject for finding in wrong)
    return f"Follow the advice after the arrows ({subjects}), then run this again."


DESCRIPTION = ("Checks the installation and says how to fix problems.\n"
               "The exit status is 1 if there is a problem.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("--patches", action="store_true",
                        help="also list the names of other packages that install() changes")
    quiet_start.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the report; returns the exit status."""
    with quiet_start.quiet_start(args.verbose):
        report, is_well = examine(with_patches=args.patches)
    print(report)
    return 0 if is_well else 1
