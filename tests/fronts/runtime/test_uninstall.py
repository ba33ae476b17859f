# SPDX-License-Identifier: Apache-2.0
"""uninstall(): every name is again what it was, and install() works again."""

import pytest

from tests.subprocesses import run_python
from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.patches.patch import NOTHING, Patch

IDENTITIES = """
        import importlib, logging, os, sys
        import tensorflow as tf
        from tpu_estimator_embedding.patches import patch
        from tpu_estimator_embedding.runtime import patch_list
        import tpu_estimator_embedding

        def seen(rows):
            found = {}
            for row in rows:
                try:
                    attribute = patch.current_attribute(row)
                except ImportError:  # of a module that only install() has put there
                    attribute = patch.NOTHING
                found[row] = id(attribute), id(sys.modules.get(row.path, patch.NOTHING))
            return found
"""


@pytest.mark.long
def test_nothing_differs_from_before():
    done = run_python(IDENTITIES + """
        has_estimator = tf.__version__.startswith("2.15.")
        if has_estimator:
            tf.keras.layers.Dense, tf.estimator.Estimator, tf.compat.v1.estimator.tpu
        rows = []
        for row in patch_list.ROWS:
            # Later versions cannot import tensorflow_estimator without install().
            if has_estimator or not row.module.startswith("tensorflow_estimator"):
                rows.append(row)
                # Of later versions, the path of tf.keras would load Keras 3.
                is_harmless = has_estimator or ".v1.distribute" in row.path
                for name in (row.module.partition(":")[0], row.path)[:1 + is_harmless]:
                    try:  # what importing alone changes is no concern of uninstall()
                        importlib.import_module(name or "sys")
                    except ImportError:
                        pass
        before, filters = seen(rows), list(logging.getLogger("tensorflow").filters)
        tpu_estimator_embedding.install()
        changed = seen(rows)
        print(sum(changed[row] != before[row] for row in rows) > 150)
        tpu_estimator_embedding.uninstall()
        after = seen(rows)
        print([row.path for row in rows if after[row] != before[row]])
        print(logging.getLogger("tensorflow").filters == filters,
              "TF_USE_LEGACY_KERAS" in os.environ)
        tpu_estimator_embedding.uninstall()
        print([row.path for row in rows if seen(rows)[row] != before[row]])
    """)
    assert done.stdout == "True\n[]\nTrue False\n[]\n"


@pytest.mark.long
def test_program_trains_after_uninstall_and_install():
    done = run_python(IDENTITIES + """
        tpu_estimator_embedding.install()
        rows = patch.originals()
        tpu_estimator_embedding.uninstall()
        print(len(patch.originals()), hasattr(tf.tpu, "CrossShardOptimizer"))
        leftovers = [name for name, module in list(sys.modules.items())
                     if name.startswith("tensorflow.")
                     for value in list(vars(module).values())
                     if str(getattr(value, "__module__", "")).startswith("tpu_estimator_embed")]
        print(leftovers)
        tpu_estimator_embedding.install()
        print(list(patch.originals()) == list(rows))
        print(tf.compat.v1.estimator.tpu.TPUEstimator is tpu_estimator_embedding.TPUEstimator)

        def model_fn(features, labels, mode, params):
            weight = tf.compat.v1.get_variable("weight", initializer=0.0)
            loss = tf.reduce_mean((weight * features["x"] - labels) ** 2)
            optimizer = tf.tpu.CrossShardOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(0.5))
            return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(
                mode, loss=loss, train_op=optimizer.minimize(
                    loss, tf.compat.v1.train.get_global_step()))

        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
            model_fn, train_batch_size=1, config=tf.compat.v1.estimator.tpu.RunConfig())
        estimator.train(lambda params: tf.data.Dataset.from_tensors(
            ({"x": [1.0]}, [2.0])).repeat(), steps=2)
        print(estimator.get_variable_value("weight"))
    """)
    assert done.stdout == "0 False\n[]\nTrue\nTrue\n2.0\n"


@pytest.mark.long
def test_wrappers_put_on_before_install_are_called():
    done = run_python("""
        import contextlib
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()  # which imports all replacements
        tpu_estimator_embedding.uninstall()
        import tensorflow as tf
        from tensorflow.python.client import session
        from tensorflow.python.eager.polymorphic_function import atomic_function
        from tensorflow.python.framework import function, importer
        from tensorflow.python.ops import while_loop
        from tensorflow.python.tpu import tpu_system_metadata
        from tensorflow.python.training import server_lib
        from tensorflow_estimator.python.estimator import run_config
        from tensorflow_estimator.python.estimator.tpu import tpu_config
        NAMES = ((session.BaseSession, "__init__"), (session.BaseSession, "_do_run"),
                 (session.BaseSession, "_extend_graph"), (server_lib.Server, "__init__"),
                 (tpu_config.RunConfig, "__init__"), (run_config.RunConfig, "__init__"),
                 (importer, "_import_graph_def_internal"), (while_loop, "while_loop"),
                 (atomic_function, "from_func_graph"), (function, "func_graph_from_py_func"),
                 (tpu_system_metadata, "_query_tpu_system_metadata"))
        calls = set()

        def wrapped(owner, name):
            def wrapper(*args, inner=getattr(owner, name), **options):
                calls.add((owner, name))
                return inner(*args, **options)
            return wrapper

        for owner, name in NAMES:
            setattr(owner, name, wrapped(owner, name))
        tpu_estimator_embedding.install()
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as sess:
            @function.Defun(tf.float32)
            def twice(x):
                return 2 * x

            called = tf.function(lambda x: x)(twice(tf.constant(1.0)))
            loop = while_loop.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
            tf.import_graph_def(tf.Graph().as_graph_def())
            sess.run([called, loop])
        tf.distribute.Server.create_local_server()
        v1.estimator.tpu.RunConfig(), tf.estimator.RunConfig()
        with contextlib.suppress(RuntimeError):  # there is no TPU
            tpu_system_metadata._query_tpu_system_metadata("")
        print([name for name in NAMES if name not in calls])
    """)
    assert done.stdout == "[]\n"


class Parent:
    inherited = "parent's"
    own = "parent's"


class Child(Parent):
    own = "child's"


@pytest.fixture(autouse=True)
def no_patches(monkeypatch):
    monkeypatch.setattr(patch, "_originals", {})


def test_attributes_of_a_class_are_put_back(monkeypatch):
    monkeypatch.setitem(patch.sys.modules, "classes", patch.sys.modules[__name__])
    for name in ("own", "inherited", "absent"):
        patch.apply(Patch("classes:Child", name, "math:pi", "needed", replaces=True))
    assert Child.own == Child.inherited == Child.absent != Parent.inherited
    patch.undo_all()
    assert (Child.own, Child.inherited) == ("child's", "parent's")
    assert "inherited" not in vars(Child) and not hasattr(Child, "absent")


def test_module_at_the_top_is_put_back():
    row = Patch("", "no_such_module_at_all", "math", "needed", is_module=True, replaces=True)
    assert row.path == "no_such_module_at_all"
    patch.apply(row)
    import no_such_module_at_all
    assert no_such_module_at_all is patch.sys.modules["math"]
    assert patch.originals()[row].module is NOTHING
    patch.undo_all()
    assert "no_such_module_at_all" not in patch.sys.modules
