# SPDX-License-Identifier: Apache-2.0
"""What an Estimator does to TensorFlow's Savers: in its calls only, below a program's wrappers."""

import pytest

from tests.subprocesses import run_python

pytestmark = pytest.mark.every_tensorflow

PROGRAM = """
        import functools, tempfile, warnings
        import tpu_estimator_embedding
        import tensorflow as tf
        from tensorflow.python.training import checkpoint_utils, saver
        from tensorflow.python.training.saving import saveable_object_util
        NAMES = ((saver.Saver, "save"), (saver.Saver, "restore"),
                 (saver.BaseSaverBuilder, "save_op"),
                 (checkpoint_utils, "_set_checkpoint_initializer"),
                 (saveable_object_util, "saveable_objects_for_op"))
        calls = []

        def values():
            return [getattr(owner, name) for owner, name in NAMES]

        def wrap():
            for name in ("save", "restore"):
                def wrapper(*args, inner=getattr(saver.Saver, name), name=name, **options):
                    calls.append(name)
                    return inner(*args, **options)
                setattr(saver.Saver, name, wrapper)

        def model_fn(features, labels, mode, params):
            weight = tf.compat.v1.get_variable("weight", initializer=0.0)
            loss = tf.reduce_mean(weight * features["x"])
            step = tf.compat.v1.train.get_or_create_global_step()
            return tpu_estimator_embedding.TPUEstimatorSpec(
                mode, loss=loss, train_op=step.assign_add(1).op)

        def train(steps):
            config = tpu_estimator_embedding.RunConfig(model_dir=directory)
            estimator = tpu_estimator_embedding.TPUEstimator(
                model_fn, train_batch_size=1, config=config)
            estimator.train(lambda params: tf.data.Dataset.from_tensors(
                {"x": [1.0]}).repeat(), max_steps=steps)

        directory = tempfile.mkdtemp()
        originals = values()
"""


@pytest.mark.long
def test_without_install_training_leaves_every_name_and_calls_wrappers():
    done = run_python(PROGRAM + """
        tpu_estimator_embedding.TPUEstimator  # imports what patches
        wrap()
        wrapped = values()
        train(1)
        train(2)
        print(values() == wrapped, "save" in calls, "restore" in calls)
    """)
    assert done.stdout == "True True True\n"


@pytest.mark.long
def test_wrappers_that_a_model_puts_on_stay():
    done = run_python(PROGRAM + """
        plain = model_fn
        def model_fn(features, labels, mode, params):
            wrap()
            wrapped[:] = values()[:2]
            return plain(features, labels, mode, params)

        wrapped = []
        with warnings.catch_warnings(record=True) as warned:
            train(1)
        print(values()[:2] == wrapped, values()[2:] == originals[2:], "save" in calls)
        print(sorted({str(each.message).split()[0] for each in warned
                      if "tpu_estimator_embedding" in str(each.message)}))
        model_fn = plain
        calls.clear()
        train(2)
        print(values()[:2] == wrapped, "save" in calls)
    """)
    names = [f"tensorflow.python.training.saver.Saver.{name}" for name in ("restore", "save")]
    assert done.stdout == f"True True True\n{names}\nTrue True\n"


@pytest.mark.long
def test_wrappers_stay_on_top_after_install_and_after_uninstall():
    done = run_python(PROGRAM + """
        tpu_estimator_embedding.install()
        installed = values()
        print(any(one is other for one, other in zip(installed, originals)))
        wrap()
        wrapped = values()
        tpu_estimator_embedding.install()
        train(1)
        print(values() == wrapped, "save" in calls)
        tpu_estimator_embedding.uninstall()
        left = values()
        print(left[:2] == wrapped[:2], left[2:] == originals[2:])
        train(2)
        print(values() == left)
        saver.Saver.save, saver.Saver.restore = installed[:2]
        tpu_estimator_embedding.uninstall()
        print(values() == originals)
        train(3)
        print(values() == originals)
    """)
    assert done.stdout == "False\nTrue True\nTrue True\nTrue\nTrue\nTrue\n"
