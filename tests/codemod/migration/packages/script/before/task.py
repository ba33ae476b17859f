# SPDX-License-Identifier: Apache-2.0
import argparse

import model
import tensorflow as tf
from input import make_input_fn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job-dir", default="out")
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    columns = model.columns()
    config = tf.compat.v1.estimator.tpu.RunConfig(
        model_dir=args.job_dir,
        tpu_config=tf.compat.v1.estimator.tpu.TPUConfig(iterations_per_loop=10))
    estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
        model_fn=model.model_fn, config=config, params={"columns": columns, "rate": 0.2},
        train_batch_size=32, eval_batch_size=32,
        embedding_config_spec=tf.compat.v1.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=tf.compat.v1.tpu.experimental.AdagradParameters(0.1)))
    estimator.train(make_input_fn(1), max_steps=args.steps)
    print(estimator.evaluate(make_input_fn(2), steps=2))


if __name__ == "__main__":
    main()
