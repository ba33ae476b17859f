# SPDX-License-Identifier: Apache-2.0
"""Trains six steps and saves every second; one save meets a full disk or a limit of files.

    full_disk_program.py MODEL_DIR USE_TPU {disk,limit} STEP
"""

import resource
import signal
import sys

import tensorflow as tf

from tests.fronts.estimator import counting
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

ROWS = 100_000  # 3.2 MB in a checkpoint


class Fill(tf.compat.v1.train.SessionRunHook):
    def __init__(self, model_dir, kind):
        self._model_dir, self._kind = model_dir, kind

    def before_run(self, run_context):
        if tf.train.latest_checkpoint(self._model_dir):
            fill(self._model_dir, self._kind)


def fill(directory, kind):
    if kind == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        return
    try:
        with open(f"{directory}/filler", "wb") as file:
            while True:
                file.write(bytes(100_000))
                file.flush()
    except OSError:
        pass


def main(model_dir, use_tpu, kind, step):
    spec = EmbeddingConfigSpec(
        table_to_config_dict={"counts": TableConfig(ROWS, 8, combiner=None)},
        feature_to_config_dict={"id": FeatureConfig("counts")},
        optimization_parameters=StochasticGradientDescentParameters(1.0))

    def dense_model_fn(features, labels, mode, params):
        table = tf.compat.v1.get_variable("counts", [ROWS, 8])
        return counting.model_fn({"id": tf.gather(table, features["id"])}, labels, mode, params)

    engine = use_tpu == "True"
    estimator = counting.new_estimator(
        model_dir, counting.model_fn if engine else dense_model_fn, use_tpu=engine,
        embedding_config_spec=spec if engine else None,
        config=counting.run_config(save_checkpoints_steps=2))
    if step == "0":
        fill(model_dir, kind)
    estimator.train(counting.input_of(range(12)), max_steps=6, hooks=[Fill(model_dir, kind)])


if __name__ == "__main__":
    main(*sys.argv[1:])
