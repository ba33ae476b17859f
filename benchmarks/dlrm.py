# SPDX-License-Identifier: Apache-2.0
"""One DLRM, trained in several ways on equal samples: examples per second and AUC, side by side.

`python -m benchmarks.dlrm WAY SETTINGS` trains in one way, in its own process, and prints its
figures as JSON. The samples are like those of Criteo: 13 numbers, and 26 ids that follow Zipf's law
in vocabularies of its sizes, up to a limit. Labels are drawn from a hidden model.
"""

import dataclasses
import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Way:
    """One way of training the model.

    Attributes:
        title: description in the table.
        function: "module:function", which is called with the settings, the batches of training
            and those of evaluation.
        needs: modules that must be installed.
    """

    title: str
    function: str
    needs: tuple[str, ...] = ("tensorflow",)

    @property
    def missing(self) -> list[str]:
        """The required modules that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


WAYS = {
    "hand_driven": Way("program that drives the TPU by hand", "dlrm_ways:hand_driven"),
    "estimator": Way("TPUEstimator, this package", "dlrm_ways:estimator"),
    "mid_level": Way("mid_level.TPUEmbedding in a tf.function", "dlrm_ways:mid_level"),
    "stock_graph": Way("stock TensorFlow, v1 graph", "dlrm_ways:stock_graph"),
    "keras": Way("stock Keras 2, layers and fit", "dlrm_keras:train", ("tensorflow", "tf_keras")),
    "fbgemm": Way("PyTorch, FBGEMM's tables", "dlrm_torch:train", ("torch", "fbgemm_gpu"))}
NUM_NUMBERS = 13
LEARNING_RATE = 0.05
INITIAL_ACCUMULATOR = 0.1
_SIZES = (39_884_406, 39_043, 17_289, 7_420, 20_263, 3, 7_120, 1_543, 63, 38_532_951, 2_953_546,
          403_346, 10, 2_208, 11_938, 155, 4, 976, 14, 39_979_771, 25_641_295, 39_664_984,
          585_935, 12_972, 108, 36)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The size of the measurement.

    Attributes:
        batch_size: samples of a step.
        steps: steps of training, at least three loops; those of the first loop are not timed.
        loop: steps of a run of the session, where there are loops.
        eval_steps: batches over which the AUC is computed.
        limit: no vocabulary is larger.
        dim: width of embeddings, and of the last layer below the interactions.
    """

    batch_size: int = 2048
    steps: int = 220
    loop: int = 20
    eval_steps: int = 16
    limit: int = 200_000
    dim: int = 16

    @property
    def sizes(self) -> list[int]:
        """The rows of every table."""
        return [min(size, self.limit) for size in _SIZES]


QUICK = Settings(steps=60, limit=20_000)
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]  # [batch, 13], [26, batch], [batch]
Figures = Mapping[str, float]


def make_batches(settings: Settings) -> tuple[list[Batch], list[Batch]]:
    """Returns the batches of training and those of evaluation."""
    random = np.random.default_rng(0)
    sizes = np.array(settings.sizes)
    effects = [random.normal(0, 0.4, size).astype(np.float32) for size in sizes]
    slopes = random.normal(0, 0.3, NUM_NUMBERS).astype(np.float32)

    def batch() -> Batch:
        numbers = random.normal(0, 1, [settings.batch_size, NUM_NUMBERS]).astype(np.float32)
        # The logarithm of a rank by Zipf's law is uniform.
        ranks = (sizes[:, np.newaxis] + 1) ** random.random([len(sizes), settings.batch_size])
        ids = np.minimum(ranks.astype(np.int64) - 1, sizes[:, np.newaxis] - 1)
        log_odds = numbers @ slopes + sum(
            effect[own] for effect, own in zip(effects, ids, strict=True))
        labels = random.random(settings.batch_size) < 1 / (1 + np.exp(-log_odds))
        return numbers, ids.astype(np.int32), labels.astype(np.float32)

    return ([batch() for _ in range(settings.steps)],
            [batch() for _ in range(settings.eval_steps)])


def initial_weights(settings: Settings) -> list[np.ndarray]:
    """Returns kernels and biases, by turns, of two layers below and two above the products."""
    random = np.random.default_rng(1)
    vectors = len(settings.sizes) + 1
    widths = [(NUM_NUMBERS, 64), (64, settings.dim),
              (vectors * (vectors - 1) // 2 + vectors * settings.dim, 64), (64, 1)]
    weights = []
    for rows, columns in widths:
        weights += [random.normal(0, (2 / (rows + columns)) ** 0.5, [rows, columns]),
                    np.zeros(columns)]
    return [values.astype(np.float32) for values in weights]


def initial_table(size: int, dim: int) -> np.ndarray:
    """Returns the first values of a table."""
    return np.random.default_rng(size).normal(0, 0.05, [size, dim]).astype(np.float32)


def area_under_curve(labels: np.ndarray, scores: np.ndarray) -> float:
    """The probability that a positive sample scores higher than a negative one."""
    ranks = np.argsort(np.argsort(scores))
    positive = labels.sum()
    return float((ranks[labels == 1].sum() - positive * (positive - 1) / 2)
                 / (positive * (labels.size - positive)))


def measure(settings: Settings, progress: Callable[[str], None]) -> dict[str, Figures]:
    """Trains in every way that is installed, one after another; calls `progress` with each.

    Returns:
        Way -> figures, without the ways that fail: the others' figures took minutes.
    """
    figures = {}
    for way in WAYS:
        progress(way)
        if WAYS[way].missing:
            continue
        done = subprocess.run(
            [sys.executable, "-m", __name__, way, json.dumps(dataclasses.asdict(settings))],
            check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode == 0:
            figures[way] = json.loads(done.stdout.splitlines()[-1])
    return figures


def text(settings: Settings, figures: Mapping[str, Figures]) -> str:
    """Returns a table of the ways; those that were not measured say what they miss."""
    lines = [f"DLRM, 26 tables of up to {settings.limit:,} rows × {settings.dim}, "
             f"{settings.batch_size} samples per step, {settings.steps} steps",
             f"  {'':<42}{'examples/s':>12}{'AUC':>8}"]
    for way, described in WAYS.items():
        if way in figures:
            speed, auc = figures[way]["examples_per_second"], figures[way]["auc"]
            lines.append(f"  {described.title:<42}{speed:>12,.0f}{auc:>8.4f}")
        else:
            missing = " and ".join(described.missing)
            why = f"it needs {missing}" if missing else "it failed"
            lines.append(f"  {described.title:<42}  not measured: {why}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Trains in the way that the command line names."""
    way, given = arguments
    settings = Settings(**json.loads(given))
    training, evaluation = make_batches(settings)
    module, _, function = WAYS[way].function.partition(":")
    train = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    seconds, log_odds = train(settings, training, evaluation)
    labels = np.concatenate([batch[2] for batch in evaluation])
    print(json.dumps({
        "examples_per_second": (settings.steps - settings.loop) * settings.batch_size / seconds,
        "auc": area_under_curve(labels, log_odds)}))


if __name__ == "__main__":
    main(sys.argv[1:])
