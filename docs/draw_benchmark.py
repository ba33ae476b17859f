# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/benchmark.png from the figures in docs/benchmarks.json.

Run `python docs/draw_benchmark.py` after a run of `python -m benchmarks` whose medians were copied
there.
"""

import json
import pathlib
import sys

DOCS = pathlib.Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from benchmarks import plots  # noqa: E402 (needs the path above)
from benchmarks.timing import Result  # noqa: E402


def main() -> None:
    """Draws one bar for each baseline and workload."""
    figures = json.loads((DOCS / "benchmarks.json").read_text(encoding="utf-8"))
    results = {workload: {name: Result(name, samples=[milliseconds / 1e3])
                          for name, milliseconds in medians.items()}
               for workload, medians in figures["ms_per_step"].items()}
    plots.bars(results, DOCS / "images" / "benchmark.png")


if __name__ == "__main__":
    main()
