# SPDX-License-Identifier: Apache-2.0
"""The stages of migration, from the legacy program on: values of `--to`, and columns of a page."""

import argparse
import sys
from typing import Any

STAGES = ("imports", "tf2", "layers", "keras3")
LATER_STAGES = STAGES[1:]  # those without a TPUEstimator

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
