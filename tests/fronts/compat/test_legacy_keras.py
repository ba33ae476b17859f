# SPDX-License-Identifier: Apache-2.0
"""Which Keras `tf.keras` becomes, before and after it is touched."""

import pytest
import tensorflow as tf

from tests.subprocesses import run_python
from tpu_estimator_embedding import versions
from tpu_estimator_embedding.compat import legacy_keras

HAS_OWN_KERAS = tf.__version__.startswith("2.15.")
from_216 = pytest.mark.skipif(HAS_OWN_KERAS, reason="the Keras of TensorFlow 2.15 is Keras 2")

SHOW = """
        import os
        from tensorflow.keras import layers
        from tensorflow.compat.v1.keras import layers as v1_layers
        import tensorflow.keras
        print(tf.keras.layers.Dense.__module__.split(".")[0],
              layers.Dense is tf.keras.layers.Dense, v1_layers.Dense.__module__.split(".")[0],
              tensorflow.keras.layers.Dense is tf.keras.layers.Dense,
              tf.optimizers.SGD.__module__.split(".")[0], os.environ["TF_USE_LEGACY_KERAS"])
"""


@pytest.mark.long
@from_216
@pytest.mark.parametrize("first", [
    "tpu_estimator_embedding.install(); import tensorflow as tf",
    "import tensorflow as tf; tpu_estimator_embedding.install()",
    "import tensorflow as tf; from tensorflow import keras; import tensorflow.compat.v1; "
    "tpu_estimator_embedding.install(); keras.Model",
    "import keras; import tensorflow as tf; tpu_estimator_embedding.install()"])
def test_tf_keras_is_keras_2_under_every_name(first):
    done = run_python(f"""
        import tpu_estimator_embedding
        {first}
        {SHOW}""")
    assert done.stdout == "tf_keras True tf_keras True tf_keras 1\n"


@pytest.mark.long
@from_216
@pytest.mark.parametrize("touch, name", [
    ("tf.keras.layers", "tf.keras"), ("from tensorflow.keras import layers", "tf.keras"),
    ("tf.losses.Reduction", "tf.losses"), ("tf.compat.v1.layers.__name__",
                                           "tf.compat.v1.layers")])
def test_keras_3_in_use_names_the_line_to_move(touch, name):
    done = run_python(f"""
        import os
        import tensorflow as tf
        try:
            {touch}
        except AttributeError:
            pass  # what Keras 3 has not; it is in use all the same
        import tpu_estimator_embedding
        try:
            tpu_estimator_embedding.install()
        except RuntimeError as error:
            print(error)
        print(hasattr(tf, "estimator"), "TF_USE_LEGACY_KERAS" in os.environ)
    """)
    assert f"Keras 3 is already in use as {name}" in done.stdout
    assert f"above the first line that uses {name}" in done.stdout
    assert done.stdout.endswith("False False\n")


@from_216
def test_variable_set_to_no_is_an_error():
    done = run_python("""
        import tpu_estimator_embedding
        try:
            tpu_estimator_embedding.install()
        except RuntimeError as error:
            print(error)
    """, TF_USE_LEGACY_KERAS="0")
    assert done.stdout.startswith("`TF_USE_LEGACY_KERAS` must be 1, got '0'")


@pytest.mark.skipif(not HAS_OWN_KERAS, reason="later versions of TensorFlow need the variable")
def test_variable_and_keras_are_left_alone_on_215():
    done = run_python("""
        import os
        import tensorflow as tf
        before = tf.keras.layers.Dense
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        print(tf.keras.layers.Dense is before, "TF_USE_LEGACY_KERAS" in os.environ)
    """)
    assert done.stdout == "True False\n"


@pytest.fixture(name="installed")
def installed_versions(monkeypatch):
    installed = {}
    monkeypatch.setattr(versions, "installed_version",
                        lambda *names: next(filter(None, map(installed.get, names)), None))
    monkeypatch.setattr(versions, "tensorflow_version", lambda: next(
        version for name, version in installed.items() if name.startswith(("tensorflow", "tf-n"))))
    monkeypatch.setattr(legacy_keras, "keras_3_names", list)
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    return installed


def test_missing_tf_keras_names_the_command(installed):
    installed["tensorflow"] = "2.18.1"
    with pytest.raises(RuntimeError, match=r"TensorFlow 2\.18\.1 needs tf-keras .* "
                                           r"pip install 'tf-keras~=2\.18\.0'$"):
        legacy_keras.use()
    assert legacy_keras.found() == "none"


@pytest.mark.parametrize("distribution", ["tensorflow-cpu", "tf-nightly", "tensorflow-intel"])
def test_command_beside_another_distribution_installs_no_tensorflow(installed, distribution):
    installed[distribution] = "2.18.1"
    with pytest.raises(RuntimeError, match=r"pip install --no-deps 'tf-keras~=2\.18\.0'$"):
        legacy_keras.use()


def test_tf_keras_of_another_minor_version_names_the_command(installed):
    installed.update({"tensorflow": "2.16.2", "tf-keras": "2.17.0"})
    with pytest.raises(RuntimeError, match=r"tf-keras 2\.17\.0 does not match TensorFlow "
                                           r"2\.16\.2.* pip install 'tf-keras~=2\.16\.0'$"):
        legacy_keras.use()


def test_tf_keras_of_another_patch_version_is_right(installed):
    installed.update({"tensorflow": "2.16.2", "tf-keras": "2.16.0"})
    assert legacy_keras.problem() == ""
    assert legacy_keras.found() == "tf-keras 2.16.0"


def test_keras_3_on_215_names_the_command(installed):
    installed.update({"tensorflow": "2.15.1", "keras": "3.0.5"})
    assert legacy_keras.problem().endswith("pip install 'keras~=2.15.0'")
    installed["keras"] = "2.15.0"
    assert legacy_keras.problem() == "" and legacy_keras.found() == "keras 2.15.0"
