# SPDX-License-Identifier: Apache-2.0
"""How two recorded runs differ after a step, and a figure of it."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from tpu_estimator_embedding import checkpoint, figures
from tpu_estimator_embedding.checkpoint.comparison import absolute_tolerance
from tpu_estimator_embedding.checkpoint.files import check_new_figure, new_files
from tpu_estimator_embedding.migration.verify import recording
from tpu_estimator_embedding.migration.verify.recording import step_name

Losses = tuple[float | None, float | None]

# Kinds of differences; the plot has a line for each.
KINDS = ("loss", "activations", "tables", "slots", "dense variables")


@dataclasses.dataclass(frozen=True)
class Step:
    """How two programs differ after a step.

    Attributes:
        step: 1 is the first; 0 stands for the initial values of each program itself.
        losses: of the legacy and of the migrated program; None at step 0.
        loss_agrees: whether they are within the tolerance.
        checkpoint: how tables, slots and variables differ; None where `problem` says why they
            cannot be compared.
        problem: a table, slot or shape that one program does not have.
        activations: feature -> the largest difference, and whether it is within the tolerance.
    """

    step: int
    losses: Losses | None
    loss_agrees: bool
    checkpoint: checkpoint.Comparison | None
    problem: str = ""
    activations: dict[str, tuple[float, bool]] = dataclasses.field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether everything is within the tolerance."""
        return (self.loss_agrees and self.checkpoint is not None and self.checkpoint.agree
                and all(agrees for _, agrees in self.activations.values()))

    @property
    def worst(self) -> tuple[str, float]:
        """The tensor with the largest difference, and the difference."""
        differences = {
            ", ".join(filter(None, (one.name, one.slot))): one.max_difference
            for one in (self.checkpoint.tensors if self.checkpoint else ())
            if one.worst_row is not None}
        differences.update({f"activations of {name}": difference for name, (difference, _)
                            in self.activations.items() if difference})
        name = max(differences, key=lambda name: _rank(differences[name]), default="-")
        return name, differences.get(name, 0.0)

    def largest(self) -> dict[str, float]:
        """Returns the largest difference of each of KINDS that was compared."""
        found: dict[str, list[float]] = {kind: [] for kind in KINDS}
        if self.losses and None not in self.losses:
            found["loss"].append(abs(self.losses[0] - self.losses[1]))  # type: ignore[operator]
        found["activations"] += [difference for difference, _ in self.activations.values()]
        for one in self.checkpoint.tensors if self.checkpoint else ():
            kind = ("dense variables" if one.slot is None else
                    "tables" if one.slot == "parameters" else "slots")
            found[kind].append(one.max_difference)
        return {kind: max(values, key=_rank) for kind, values in found.items() if values}


def compare_step(step: int, old: pathlib.Path, new: pathlib.Path, losses: Losses, rtol: float,
                 atol: float | None, excused: Callable[[str], bool] = lambda name: False) -> Step:
    """Compares the files of a step in the directories of two runs.

    Args:
        step: its number, from 1.
        old, new: the directories of the legacy and of the migrated run.
        losses: of both.
        rtol, atol: values agree if `|a - b| ≤ atol + rtol |b|`; None as for `compare`.
        excused: whether one of the programs may lack a variable.
    """
    compared = compare_values(step, old / step_name(step), new / step_name(step), rtol, atol,
                              excused)
    return dataclasses.replace(
        compared, losses=losses, loss_agrees=_are_close(losses, rtol, atol),
        activations=recording.activation_differences(
            recording.load_activations(old, step), recording.load_activations(new, step),
            rtol, atol))


def compare_values(step: int, a: pathlib.Path, b: pathlib.Path, rtol: float,
                   atol: float | None,
                   excused: Callable[[str], bool] = lambda name: False) -> Step:
    """Compares two checkpoints of one step."""
    try:
        found = checkpoint.compare(a, b, rtol=rtol, atol=atol)
    except ValueError as error:  # a table, a slot or a shape
        return Step(step, None, True, None, str(error))
    only = [tuple(name for name in names if not excused(name))
            for names in (found.only_in_a, found.only_in_b)]
    return Step(step, None, True, dataclasses.replace(
        found, only_in_a=only[0], only_in_b=only[1]))


def _are_close(losses: Losses, rtol: float, atol: float | None) -> bool:
    old, new = losses
    if old is None or new is None:
        return True
    atol = absolute_tolerance(rtol, [np.array(new)]) if atol is None else atol
    return old == new or (math.isnan(old) and math.isnan(new)) or (
        abs(old - new) <= atol + rtol * abs(new))


def _rank(difference: float) -> tuple[bool, float]:
    return math.isnan(difference), difference


def save_plot(steps: Sequence[Step], path: pathlib.Path) -> None:
    """Writes a figure with the largest difference of each kind after every step.

    Raises:
        OSError: if the file cannot be written.
    """
    check_new_figure("plot", path)
    from matplotlib.ticker import MaxNLocator
    with figures.figure(8, 4.5) as figure:
        axes = figure.subplots()
        for kind in KINDS:
            points = [(step.step, step.largest()[kind]) for step in steps
                      if step.step and kind in step.largest()]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=kind)
        axes.set_yscale("symlog", linthresh=1e-9)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("step")
        axes.set_ylabel("largest |legacy - migrated|")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend()
        content = figures.content(figure, path.suffix[1:])
    with new_files([path], 1 << 20) as [unfinished]:
        unfinished.write_bytes(content)
