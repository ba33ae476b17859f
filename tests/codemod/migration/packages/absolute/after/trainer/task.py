# SPDX-License-Identifier: Apache-2.0
import argparse
from tpu_estimator_embedding.trainer import Trainer
from trainer import embedding_config
from trainer.model import dense_learning_rate, make_optimizer
import tensorflow as tf
from trainer.input import make_input_fn
from trainer.model import columns, model_fn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job-dir", default="out")
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    its_columns = columns()
    estimator = Trainer(
        model_fn, embedding_config, make_optimizer, dense_learning_rate,
        params={"columns": its_columns},
        model_dir=args.job_dir,
        train_batch_size=32,
        eval_batch_size=32)
    estimator.train(make_input_fn(1), max_steps=args.steps)
    print(estimator.evaluate(make_input_fn(2), steps=2))


if __name__ == "__main__":
    main()
