# SPDX-License-Identifier: Apache-2.0
"""Programs that begin with `tf.compat.v1.disable_v2_behavior()`, as most legacy ones do."""

import pytest

from tests.subprocesses import run_python


@pytest.mark.smoke
def test_program_with_v1_behavior_trains_evaluates_and_predicts(tmp_path):
    """Reference variables, V1 shapes and V1 control flow; every kind of feature."""
    done = run_python(f"""
        import warnings
        import numpy as np
        import tensorflow.compat.v1 as tf
        tf.disable_v2_behavior()
        from tests.estimator import columns, counting, linear
        from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
        from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
        from tests.oracle import Optimizer

        warnings.simplefilter("ignore")
        def check(names, spec, activations_of, tables):
            data = linear.random_data(names, [5, 5, 3])

            def input_fn(params):
                return tf.data.make_one_shot_iterator(linear.to_dataset(data, 5)).get_next()

            estimator = counting.new_estimator(
                "{tmp_path}/" + names[0], linear.new_model_fn(activations_of), spec=spec,
                batch_size=5)
            estimator.train(lambda params: linear.to_dataset(data, 5), max_steps=100)
            first = tf.train.load_checkpoint(estimator.model_dir + "/model.ckpt-0")
            oracle = linear.LinearOracle(
                names, {{table: first.get_tensor(name) for table, name in tables.items()}},
                Optimizer("Adagrad", 0.1))
            oracle.train(data)
            for table, name in tables.items():
                np.testing.assert_allclose(
                    estimator.get_variable_value(name), oracle.tables.tables[table].values,
                    rtol=1e-4, atol=1e-5)
            assert estimator.evaluate(input_fn)["global_step"] == 3
            np.testing.assert_allclose(
                [prediction["z"] for prediction in estimator.predict(input_fn)],
                oracle.predict(data), rtol=1e-4, atol=1e-4)

        names = ["b", "c", "s", "w"]
        embeddings = columns.new_columns(names)
        check(names, EmbeddingConfigSpec(list(embeddings.values()), AdagradParameters(0.1)),
              lambda features: columns.apply(embeddings, features),
              columns.variable_names(embeddings))
        names = ["d", "o", "r"]
        check(names, columns.new_dict_spec(AdagradParameters(0.1), names),
              lambda features: {{name: features[name] for name in names}},
              {{linear.FEATURES[name].table: linear.FEATURES[name].table for name in names}})
        print("done")
    """)
    assert done.stdout.splitlines()[-1] == "done"
