# SPDX-License-Identifier: Apache-2.0
"""The command line, with `planted_child` as what every run starts."""

import sys

from tpu_estimator_embedding import cli
from tpu_estimator_embedding.experiments import program_search, program_sweep

if __name__ == "__main__":
    program_sweep._CHILD = "tests.fronts.experiments.planted_child"
    program_search._LEAST_SECONDS = 0.05
    sys.exit(cli.main(sys.argv[1:]))
