# SPDX-License-Identifier: Apache-2.0
"""Writes click logs; an interrupted run can resume."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import tqdm

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.demo.features import FEATURES, LABEL, PRICE
from tpu_estimator_embedding.demo.hidden_model import Clicks, HiddenModel
from tpu_estimator_embedding.demo.record_encoding import float_feature, int64_feature, records

_RECORDS_PER_FILE = 25_000
_EVAL_SHARE = 10  # one record in ten is held out


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
    import tensorflow as tf  # not above: checking arguments does not need it
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
    ones = np.ones(len(clicks.clicked), np.int64)
    features = [int64_feature(LABEL, clicks.clicked, ones),
                float_feature(PRICE, clicks.price, ones)]
    for feature in FEATURES:
        id_lists = clicks.id_lists[feature.name]
        features.append(int64_feature(feature.name, id_lists.ids, id_lists.lengths))
        if feature.weight_key:
            features.append(
                float_feature(feature.weight_key, id_lists.weights, id_lists.lengths))
    return records(features)


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
