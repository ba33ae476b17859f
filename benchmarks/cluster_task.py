# SPDX-License-Identifier: Apache-2.0
"""A task of the clusters that are measured: TF_CONFIG says which one.

    python -m benchmarks.cluster_task DIRECTORY WORKLOAD ours|stock
"""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.baselines import click_model, graph_inputs
from benchmarks.batches import make_batches, make_labels
from benchmarks.records import LABEL
from benchmarks.workloads import ALL, INITIAL_ACCUMULATOR, LEARNING_RATE, Workload
from tpu_estimator_embedding.compat import upstream

_BATCHES = 4


class CountSteps(tf.compat.v1.train.SessionRunHook):
    """Writes into a file how many steps this task has made."""

    def __init__(self, path: pathlib.Path):
        self._path, self._count = path, 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._count += 1
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(str(self._count))
        unfinished.rename(self._path)


def main(directory: str, name: str, kind: str) -> None:
    """Plays the part of this process until it is killed."""
    from tensorflow_estimator.python.estimator import training  # upstream makes it importable

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    workload = ALL[name]
    estimator = _new_estimator(workload, kind == "stock", str(pathlib.Path(directory, "model")))
    config, input_fn = estimator.config, _make_input_fn(workload)
    steps = CountSteps(pathlib.Path(directory, f"{config.task_type}-{config.task_id}.steps"))
    training.train_and_evaluate(
        estimator, training.TrainSpec(input_fn, max_steps=10 ** 9, hooks=[steps]),
        training.EvalSpec(input_fn))


def _new_estimator(workload: Workload, is_stock: bool, model_dir: str) -> Any:
    config = upstream.tpu_config.RunConfig(
        model_dir=model_dir, tf_random_seed=1, save_checkpoints_secs=None, save_summary_steps=0,
        log_step_count_steps=None, experimental_max_worker_delay_secs=0,
        tpu_config=upstream.tpu_config.TPUConfig(iterations_per_loop=1))
    columns = click_model.columns(workload)
    shared = {"model_fn": click_model.model_fn, "config": config,
              "train_batch_size": workload.batch_size, "eval_batch_size": workload.batch_size,
              "params": {"columns": columns,
                         "spec_class": upstream.tpu_estimator.TPUEstimatorSpec}}
    if is_stock:
        return upstream.tpu_estimator.TPUEstimator(use_tpu=False, **shared)
    import tpu_estimator_embedding as ours
    return ours.TPUEstimator(use_tpu=True, embedding_config_spec=ours.EmbeddingConfigSpec(
        feature_columns=columns, optimization_parameters=ours.AdagradParameters(
            LEARNING_RATE, initial_accumulator=INITIAL_ACCUMULATOR)), **shared)


def _make_input_fn(workload: Workload) -> Callable[[dict[str, Any]], tf.data.Dataset]:
    """Returns an input_fn that repeats a few batches, which are kept in memory."""
    def input_fn(params: dict[str, Any]) -> tf.data.Dataset:
        del params
        spec = {f"{part}{table}": tf.TensorSpec([None], tf.int64)
                for table in range(workload.num_tables) for part in ("ids", "splits")}
        spec[LABEL] = tf.TensorSpec([workload.batch_size, 1], tf.float32)

        def arrays():
            labels = make_labels(workload)
            for batch in make_batches(workload, _BATCHES):
                yield {**{f"ids{table}": ids for table, ids in enumerate(batch.ids)},
                       **{f"splits{table}": splits for table, splits in enumerate(batch.splits)},
                       LABEL: labels}

        def to_features(given: dict[str, tf.Tensor]) -> tuple[dict[str, Any], tf.Tensor]:
            return {graph_inputs.feature(table): graph_inputs.to_sparse(
                given[f"ids{table}"], given[f"splits{table}"])
                for table in range(workload.num_tables)}, given[LABEL]

        dataset = tf.data.Dataset.from_generator(arrays, output_signature=spec)
        return dataset.map(to_features).cache().repeat()

    return input_fn


if __name__ == "__main__":
    main(*sys.argv[1:])
