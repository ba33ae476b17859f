# SPDX-License-Identifier: Apache-2.0
"""The option `--to` of the commands `migrate` and `verify`."""

import argparse
import sys
from typing import Any

from tpu_estimator_embedding.migration.stages import STAGES

_KERAS_RS = "keras-rs"  # a stage of earlier releases


def add_stage(parser: argparse.ArgumentParser, **settings: Any) -> None:
    """Adds the option; it also takes "keras-rs", which means "keras3" and says so."""
    parser.add_argument("--to", type=_stage, choices=STAGES, **settings)


def _stage(name: str) -> str:
    if name != _KERAS_RS:
        return name
    print("--to keras-rs means --to keras3: a Keras 3 model with the tables of Keras RS",
          file=sys.stderr)
    return "keras3"
