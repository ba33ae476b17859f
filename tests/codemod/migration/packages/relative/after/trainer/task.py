# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
from . import embedding_config
import tensorflow as tf

from . import model
from .input import make_input_fn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job-dir", default="out")
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    columns = model.columns()
    estimator = model.GradientTrainer(
        functools.partial(model.model_fn, rate=0.2),
        embedding_config,
        model.make_optimizer,
        functools.partial(model.dense_learning_rate, rate=0.2),
        params={"columns": columns},
        model_dir=args.job_dir,
        train_batch_size=32,
        eval_batch_size=32)
    estimator.train(make_input_fn(1), max_steps=args.steps)
    print(estimator.evaluate(make_input_fn(2), steps=2))


if __name__ == "__main__":
    main()
