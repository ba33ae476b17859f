# SPDX-License-Identifier: Apache-2.0
"""Runs the experiment of `experiment.rst` and puts its pictures and its table into docs/.

    python docs/draw_experiment.py

takes some minutes on 2 cores. With the directory of a sweep that has been run it only copies. Needs
Chromium, for the picture of the report (`apt-get install chromium`).
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).parent
COMMAND = (
    "sweep -m tpu_estimator_embedding --multiplier 0 0.1 1 warmup:100 --seeds 2 --jobs 2 "
    "--metric auc --target 0.7 --out {out} -- demo --examples 200000 --model-dir {data}")
PICTURES = ("final_metric", "metric_over_steps", "loss_over_steps", "table_norms")


def main(arguments: list[str]) -> int:
    """Runs the sweep where none is given; returns its exit status."""
    if arguments:
        copy(pathlib.Path(arguments[0]))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory, "sweep")
        words = COMMAND.format(out=out, data=pathlib.Path(directory, "data")).split()
        status = subprocess.run([sys.executable, "-m", "tpu_estimator_embedding", *words],
                                cwd=DOCS.parent, check=False).returncode
        if status == 0:
            copy(out)
    return status


def copy(sweep: pathlib.Path) -> None:
    """Copies what the page shows."""
    for name in PICTURES:
        shutil.copyfile(sweep / f"{name}.png", DOCS / "images" / f"experiment_{name}.png")
    shutil.copyfile(sweep / "results.csv", DOCS / "experiment.csv")
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--virtual-time-budget=3000", "--window-size=1100,1100",
         f"--screenshot={DOCS / 'images' / 'report.png'}", (sweep / "report.html").as_uri()],
        check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
