# SPDX-License-Identifier: Apache-2.0
"""Writes click logs; an interrupted run can resume."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tqdm

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.demo.features import FEATURES, LABEL, PRICE, ClickFeature

_BIAS = -1.0
_EXPONENT = 1.05  # exponent of the power law
_RECORDS_PER_FILE = 25_000
_EVAL_SHARE = 10  # one record in ten is held out


class IdLists(NamedTuple):
    """The ids of all records, concatenated.

    Attributes:
        ids: `[n]` int64.
        lengths: `[records]` int64, at least 1, n in total.
        weights: `[n]` float32.
    """

    ids: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray


class Clicks(NamedTuple):
    """Records of a click log, column by column.

    Attributes:
        id_lists: feature name -> ids.
        price: `[records]` float32.
        clicked: `[records]` int64, 0 or 1.
        probability: `[records]` float64, probability of a click; not part of a log.
    """

    id_lists: Mapping[str, IdLists]
    price: np.ndarray
    clicked: np.ndarray
    probability: np.ndarray


@dataclasses.dataclass(frozen=True)
class HiddenModel:
    """Draws records and their clicks.

    Attributes:
        scores: vocabulary -> `[vocabulary_size]`, standard normal.
        id_of_rank: vocabulary -> `[vocabulary_size]`, ids by descending frequency.

    >>> clicks = HiddenModel.from_seed(1).draw(np.random.default_rng(2), 1000)
    >>> int(clicks.id_lists["keywords"].lengths.max()), clicks.clicked.shape
    (8, (1000,))
    """

    scores: Mapping[str, np.ndarray]
    id_of_rank: Mapping[str, np.ndarray]

    @classmethod
    def from_seed(cls, seed: int) -> "HiddenModel":
        """Draws a model, deterministically for a seed."""
        rng = np.random.default_rng([seed, 0])
        sizes = {feature.hidden_table: feature.vocabulary_size for feature in FEATURES}
        return cls(scores={name: rng.standard_normal(size) for name, size in sizes.items()},
                   id_of_rank={name: rng.permutation(size) for name, size in sizes.items()})

    def draw(self, rng: np.random.Generator, count: int) -> Clicks:
        """Returns `count` records."""
        id_lists = {feature.name: self._draw_ids(rng, feature, count) for feature in FEATURES}
        price = rng.exponential(0.5, count).astype(np.float32)
        log_odds = _BIAS - price + sum(
            feature.effect * self._combined_score(feature, id_lists[feature.name])
            for feature in FEATURES)
        probability = 1 / (1 + np.exp(-log_odds))
        clicked = (rng.random(count) < probability).astype(np.int64)
        return Clicks(id_lists, price, clicked, probability)

    def _draw_ids(self, rng: np.random.Generator, feature: ClickFeature, count: int) -> IdLists:
        lengths = rng.integers(1, feature.max_ids + 1, count)
        total = int(lengths.sum())
        ranks = np.searchsorted(_cumulative_power_law(feature.vocabulary_size), rng.random(total))
        ids = self.id_of_rank[feature.hidden_table][ranks]
        weights = np.ones(total, np.float32)
        if feature.weight_key:
            weights = rng.uniform(0.2, 2.0, total).astype(np.float32)
        return IdLists(ids, lengths, weights)

    def _combined_score(self, feature: ClickFeature, id_lists: IdLists) -> np.ndarray:
        records = np.repeat(np.arange(len(id_lists.lengths)), id_lists.lengths)
        weights = id_lists.weights
        if feature.is_sequence:
            weights = 0.5 ** _positions_from_the_end(id_lists.lengths)
        scores = self.scores[feature.hidden_table][id_lists.ids]
        power = 2 if feature.combiner == "sqrtn" else 1
        total_weight = np.bincount(records, weights ** power) ** (1 / power)
        return np.bincount(records, weights * scores) / total_weight


def _cumulative_power_law(size: int) -> np.ndarray:
    shares = np.arange(1, size + 1) ** -_EXPONENT
    cumulative = np.cumsum(shares) / shares.sum()
    cumulative[-1] = 1.0  # a draw just below 1 must not exceed the last rank
    return cumulative


def _positions_from_the_end(lengths: np.ndarray) -> np.ndarray:
    ends = np.repeat(np.cumsum(lengths), lengths)
    return ends - 1 - np.arange(len(ends))


@dataclasses.dataclass(frozen=True)
class ClickLogs:
    """The logs of one demo.

    Attributes:
        directory: directory of the files.
        examples: total number of records.
        seed: seed of the hidden model and of all records.

    >>> logs = ClickLogs("/tmp/logs", examples=60_000, seed=1)
    >>> logs.train_examples, logs.eval_examples, [path.name for path in logs.eval_files]
    (54000, 6000, ['eval-00000.tfrecord'])
    """

    directory: str | pathlib.Path
    examples: int
    seed: int

    def __post_init__(self) -> None:
        checks.check(self.examples >= _EVAL_SHARE, "--examples", f"at least {_EVAL_SHARE}",
                     self.examples)

    @property
    def eval_examples(self) -> int:
        """Number of held-out records."""
        return self.examples // _EVAL_SHARE

    @property
    def train_examples(self) -> int:
        """Number of training records."""
        return self.examples - self.eval_examples

    @property
    def train_files(self) -> list[pathlib.Path]:
        """The training files, in the order in which they are read."""
        return [path for path, _ in self._files("train", self.train_examples)]

    @property
    def eval_files(self) -> list[pathlib.Path]:
        """The files of held-out records."""
        return [path for path, _ in self._files("eval", self.eval_examples)]

    def write(self) -> bool:
        """Writes missing files; returns whether any were missing.

        Every file has its own seed and gets its name when it is complete, so existing files are
        kept.
        """
        pathlib.Path(self.directory).mkdir(parents=True, exist_ok=True)
        missing = [(path, count) for path, count in self._all_files() if not path.exists()]
        if not missing:
            return False
        model = HiddenModel.from_seed(self.seed)
        with tqdm.tqdm(total=sum(count for _, count in missing), desc="Writing click logs",
                       unit=" examples", unit_scale=True) as progress:
            for path, count in missing:
                _write_file(path, self._draw(model, path, count))
                progress.update(count)
        return True

    def best_auc(self) -> float:
        """Returns the AUC of the hidden model's own probabilities on the eval files."""
        model = HiddenModel.from_seed(self.seed)
        clicks = [self._draw(model, path, count)
                  for path, count in self._files("eval", self.eval_examples)]
        return area_under_curve(np.concatenate([item.clicked for item in clicks]),
                                np.concatenate([item.probability for item in clicks]))

    def _draw(self, model: HiddenModel, path: pathlib.Path, count: int) -> Clicks:
        return model.draw(np.random.default_rng([self.seed, *path.name.encode()]), count)

    def _all_files(self) -> list[tuple[pathlib.Path, int]]:
        return [*self._files("train", self.train_examples),
                *self._files("eval", self.eval_examples)]

    def _files(self, split: str, count: int) -> list[tuple[pathlib.Path, int]]:
        starts = range(0, count, _RECORDS_PER_FILE)
        return [(pathlib.Path(self.directory, f"{split}-{number:05d}.tfrecord"),
                 min(_RECORDS_PER_FILE, count - start)) for number, start in enumerate(starts)]


def _write_file(path: pathlib.Path, clicks: Clicks) -> None:
    import tensorflow as tf
    unfinished = path.with_suffix(f".{os.getpid()}.unfinished")  # several processes may write
    with tf.io.TFRecordWriter(str(unfinished)) as writer:
        for record in encode(clicks):
            writer.write(record)
    with contextlib.suppress(FileNotFoundError):  # another process was faster and removed it
        unfinished.rename(path)
    for left_over in path.parent.glob(f"{path.stem}*.unfinished"):
        left_over.unlink(missing_ok=True)


def encode(clicks: Clicks) -> Iterator[bytes]:
    """Returns the records as serialized `tf.train.Example`s."""
    import tensorflow as tf  # not above: checking arguments does not need it
    of_features = [(feature, *_by_record(clicks.id_lists[feature.name])) for feature in FEATURES]
    for record, (clicked, price) in enumerate(
            zip(clicks.clicked.tolist(), clicks.price.tolist(), strict=True)):
        example = tf.train.Example()
        features = example.features.feature
        features[LABEL].int64_list.value.append(clicked)
        features[PRICE].float_list.value.append(price)
        for feature, ids, weights in of_features:
            features[feature.name].int64_list.value.extend(ids[record])
            if feature.weight_key:
                features[feature.weight_key].float_list.value.extend(weights[record])
        yield example.SerializeToString(deterministic=True)


def _by_record(lists: IdLists) -> tuple[list[list[int]], list[list[float]]]:
    """Returns the ids and the weights of each record."""
    ends = np.cumsum(lists.lengths).tolist()
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    ids, weights = lists.ids.tolist(), lists.weights.tolist()
    return [ids[start:end] for start, end in spans], [weights[start:end] for start, end in spans]


def area_under_curve(clicked: np.ndarray, score: np.ndarray) -> float:
    """Returns the probability that a clicked record has a higher score than an unclicked one.

    It is NaN if all records are clicked, or none.

    >>> area_under_curve(np.array([0, 1, 0, 1]), np.array([0.1, 0.2, 0.3, 0.4]))
    0.75
    """
    ranks = np.empty(len(score))
    ranks[np.argsort(score)] = np.arange(1, len(score) + 1)
    positives = int(clicked.sum())
    pairs = positives * (len(clicked) - positives)
    above = float(ranks[clicked == 1].sum()) - positives * (positives + 1) / 2
    return above / pairs if pairs else float("nan")
