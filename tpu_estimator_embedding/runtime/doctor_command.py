# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding doctor`."""

import argparse

from tpu_estimator_embedding.runtime import quiet_start

DESCRIPTION = ("Reports the environment, the names that install() patches, and how to fix "
               "problems.\nThe exit status is 1 if there is a problem.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    quiet_start.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the report; returns the exit status."""
    from tpu_estimator_embedding.runtime import doctor
    with quiet_start.quiet_start(args.verbose):
        report, is_well = doctor.examine()
    print(report)
    return 0 if is_well else 1
