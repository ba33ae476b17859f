# SPDX-License-Identifier: Apache-2.0
"""A program with V1 behaviour: reference variables, V1 shapes and V1 control flow.

Every kind of feature trains beside the oracle, below the directory that is its argument.
"""

import sys
import warnings

import numpy as np
import tensorflow.compat.v1 as tf

from tests.fronts.estimator import columns, counting, linear
from tests.spec.oracle import Optimizer
from tpu_estimator_embedding import tf_estimator  # noqa: F401 (chooses Keras 2)
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec


def check(model_dir, names, spec, activations_of, tables):
    """Trains on Datasets, evaluates and predicts on tensors.

    Args:
        tables: table -> name of its variable.
    """
    data = linear.random_data(names, [5, 5, 3])

    def input_fn(params):
        return tf.data.make_one_shot_iterator(linear.to_dataset(data, 5)).get_next()

    estimator = counting.new_estimator(
        model_dir, linear.new_model_fn(activations_of), spec=spec, batch_size=5)
    estimator.train(lambda params: linear.to_dataset(data, 5), max_steps=100)
    first = tf.train.load_checkpoint(f"{model_dir}/model.ckpt-0")
    oracle = linear.LinearOracle(
        names, {table: first.get_tensor(name) for table, name in tables.items()},
        Optimizer("Adagrad", 0.1))
    oracle.train(data)
    for table, name in tables.items():
        np.testing.assert_allclose(
            estimator.get_variable_value(name), oracle.tables.tables[table].values,
            rtol=1e-4, atol=1e-5)
    assert estimator.evaluate(input_fn)["global_step"] == 3
    np.testing.assert_allclose([prediction["z"] for prediction in estimator.predict(input_fn)],
                               oracle.predict(data), rtol=1e-4, atol=1e-4)


def main(directory):
    tf.disable_v2_behavior()
    warnings.simplefilter("ignore")  # dense ids with a combiner
    names = ["b", "c", "s", "w"]
    embeddings = columns.new_columns(names)
    check(f"{directory}/columns", names,
          EmbeddingConfigSpec(list(embeddings.values()), AdagradParameters(0.1)),
          lambda features: columns.apply(embeddings, features),
          columns.variable_names(embeddings))
    names = ["d", "o", "r"]
    tables = [linear.FEATURES[name].table for name in names]
    check(f"{directory}/dictionaries", names,
          columns.new_dict_spec(AdagradParameters(0.1), names),
          lambda features: {name: features[name] for name in names},
          dict(zip(tables, tables, strict=True)))
    print("done")


if __name__ == "__main__":
    main(sys.argv[1])
