# SPDX-License-Identifier: Apache-2.0
"""Draws the figures."""

import pathlib
from collections.abc import Mapping, Sequence

from benchmarks import baselines
from benchmarks.targets import Results
from benchmarks.workloads import ALL

_BAR_HEIGHT = 0.35  # inches


def bars(results: Results, path: pathlib.Path) -> None:
    """Draws the examples per second of every baseline as bars."""
    pyplot = _pyplot()
    sizes = [len(measured) for measured in results.values()]
    figure, axes = pyplot.subplots(
        len(results), 1, squeeze=False, height_ratios=sizes, layout="constrained",
        figsize=(9, 1.2 * len(results) + _BAR_HEIGHT * sum(sizes)))
    for axis, (workload, measured) in zip(axes[:, 0], results.items(), strict=True):
        shown = [result for result in measured.values() if result.samples][::-1]
        rates = [ALL[workload].batch_size / result.median for result in shown]
        titles = [baselines.ALL[result.baseline].title for result in shown]
        colors = ["tab:blue" if "this package" in title or "TPUEstimator.train" in title
                  else "tab:gray" for title in titles]
        axis.bar_label(axis.barh(titles, rates, color=colors),
                       [f" {rate:,.0f}" for rate in rates])
        axis.set_title(f"{workload}: examples per second", loc="left")
        axis.margins(x=0.15)
        axis.set_xticks([])  # every bar is labelled with its value
        axis.spines[["top", "right", "bottom"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def curves(title: str, x_label: str, points: Mapping[str, Sequence[tuple[float, float]]],
           slopes: Mapping[str, float], path: pathlib.Path) -> None:
    """Draws the time of a step against one size, on logarithmic axes.

    Args:
        title: title of the figure.
        x_label: the varied size.
        points: baseline -> (size, seconds) pairs.
        slopes: baseline -> exponent of the fitted power law.
        path: path of the figure.
    """
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name, pairs in points.items():
        sizes, seconds = zip(*pairs, strict=True)
        label = f"{baselines.ALL[name].title} (slope {slopes[name]:.2f})"
        axis.loglog(sizes, [1e3 * value for value in seconds], marker="o", label=label)
    axis.set(title=title, xlabel=x_label, ylabel="ms per step")
    axis.grid(True, which="both", alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _pyplot():
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    return pyplot
