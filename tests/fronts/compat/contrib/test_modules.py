# SPDX-License-Identifier: Apache-2.0
"""tf.contrib: what exists leads there, what does not says what to use."""

import importlib
import pathlib
import sys
from types import ModuleType

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.subprocesses import run_python
from tpu_estimator_embedding.compat.contrib import contents, reasons
from tpu_estimator_embedding.compat.contrib import modules as contrib
from tpu_estimator_embedding.compat.contrib.missing import Missing
from tpu_estimator_embedding.runtime import install_table

tpu_estimator_embedding.install()


def read(module, name):
    """Reads an attribute as programs write it: `getattr` would ask whether there is one."""
    return eval(f"module.{name}", {"module": module})


@pytest.mark.parametrize("name", [
    "TPUEstimator", "TPUEstimatorSpec", "TPUConfig", "RunConfig", "InputPipelineConfig",
    "CrossShardOptimizer", "cross_replica_sum", "bfloat16_scope", "initialize_system", "shard",
    "outside_compilation", "embedding_column", "AdagradParameters", "Topology", "repeat",
    "AsyncCheckpointSaverHook", "TPUContext", "device_assignment"])
def test_names_of_contrib_tpu(name):
    value = getattr(tf.contrib.tpu, name)
    assert value.__name__.removesuffix("_v2") == name
    assert value is getattr(tf.compat.v1.contrib.tpu, name) and name in dir(tf.contrib.tpu)


def test_classes_of_contrib_tpu_are_this_packages():
    assert tf.contrib.tpu.TPUEstimator is tpu_estimator_embedding.TPUEstimator
    from tensorflow.contrib.tpu.python.tpu import feature_column, tpu_embedding, tpu_estimator
    assert tpu_estimator.TPUEstimator is tpu_estimator_embedding.TPUEstimator
    assert tpu_embedding.TableConfig is tpu_estimator_embedding.TableConfig
    assert callable(feature_column.embedding_column)


def test_every_name_of_the_table_exists():
    for path, shown in contents.CONTENTS.items():
        module = importlib.import_module(f"tensorflow.contrib.{path}")
        for name in {**shown.names, **shown.otherwise}:
            assert getattr(module, name) is not None, f"{path}.{name}"
            assert name in dir(module)


@pytest.mark.parametrize("row", install_table.CONTRIB, ids=lambda row: row.path)
def test_every_module_is_importable_under_both_forms(row):
    path, found = row.path.partition("contrib")[2].lstrip("."), {}
    if path in contents.HIDDEN:
        assert importlib.import_module(row.path) is contrib.MODULES[path]
        return
    exec(f"from {row.module} import {row.name} as found", found)
    if row.is_module:
        exec(f"import {row.path} as imported", found)
        assert found["imported"] is found["found"]
    assert found["found"] is contrib.MODULES.get(path, found["found"])


@pytest.mark.parametrize("path, sentence", [
    ("tpu.keras_to_tpu_model", r"Use tf\.distribute\.experimental\.TPUStrategy"),
    ("learn.DNNClassifier", r"Use tf\.estimator\.DNNClassifier\. It differs"),
    ("learn.python.learn.estimators.dnn.DNNClassifier", r"Use tf\.estimator\.DNNClassifier\."),
    ("rnn.python.ops.rnn_cell.NASCell", "No current package has this cell"),
    ("distributions.quadrature_scheme_lognormal_quantiles", r"Install tensorflow-probability"),
    ("gan.GANModel", "Install tensorflow-gan"),
    ("cloud.ConfigureGcsHook", "Set the variables of the environment"),
    ("slim.no_such_name", "tf-slim does not have it either"),
    ("framework.no_such_name", "tf-slim does not have it either. Look for the same name"),
    ("tpu.no_such_name", "TensorFlow no longer has an equivalent"),
    ("timeseries", "TensorFlow 2.0 removed the readers")])
def test_what_is_nowhere_names_what_to_use(path, sentence):
    *parents, name = path.split(".")
    value = read(importlib.import_module(".".join(["tensorflow.contrib", *parents])), name)
    with pytest.raises(AttributeError,
                       match=rf"^TensorFlow 2\.0 removed tf\.contrib\.{path}\. {sentence}"):
        value()


class NoSlim:
    """Finds no tf-slim, as if it were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tf_slim":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("path", [
    "layers.fully_connected", "slim.arg_scope", "slim.nets", "framework.arg_scope",
    "losses.add_loss", "metrics.streaming_auc", "training.create_train_op"])
def test_without_tf_slim_its_names_say_how_to_install_it(path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tf_slim"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoSlim(), *sys.meta_path])
    module, _, name = path.rpartition(".")
    with pytest.raises(AttributeError, match=r"Run `pip install tf-slim`, which has .* Without"):
        read(contrib.ContribModule(module, contents.CONTENTS[module]), name)()
    with pytest.raises(TypeError, match=r"Run `pip install tf-slim`"):
        contrib.MODULES["framework.python.ops.arg_scope"]([], padding="SAME")
    layer_norm = contrib.find("layers.layer_norm")
    assert layer_norm.__module__ == "tpu_estimator_embedding.compat.contrib.layers"


@pytest.mark.parametrize("path", [path for path in reasons.INSTEAD if not (
    tf.__version__.startswith("2.15.") and path == "data.CheckpointInputPipelineHook")])
def test_reason_is_for_names_that_are_nowhere(path):
    if path in contrib.MODULES:  # whose other names are nowhere
        path += ".no_such_name"
    module, _, name = path.replace("*", "x").rpartition(".")
    assert isinstance(read(importlib.import_module(f"tensorflow.contrib.{module}".rstrip(".")),
                           name), Missing)


NAMES_OF_115 = dict(line.split(":") for line in pathlib.Path(__file__).with_name(
    "names_of_tf115.txt").read_text().splitlines())


@pytest.mark.parametrize("module", NAMES_OF_115)
def test_every_public_name_of_1_15_exists_or_says_why_not(module):
    found = read(tf.contrib, module)
    for name in NAMES_OF_115[module].split():
        value = read(found, name)
        if isinstance(value, Missing):
            reason = contrib.missing(f"{module}.{name}").partition(". ")[2]
            assert reason and "no longer has an equivalent." not in reason, name
        else:
            assert not isinstance(value, ModuleType) or name.islower(), name


def test_what_1_15_had_not_is_refused_at_once():
    with pytest.raises(AttributeError, match="1.15 has no 'no_such_part'"):
        _ = tf.contrib.no_such_part
    with pytest.raises(ImportError, match="1.15 has no 'no_such_part'"):
        importlib.import_module("tensorflow.contrib.no_such_part.ops")


def test_private_names_of_the_homes_are_not_shown():
    assert not hasattr(tf.contrib.data, "_sys")
    assert not hasattr(tf.contrib.tpu, "__file__")


PROGRAM_OF_2018 = """
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        import sys
        assert "tf_slim" not in sys.modules  # only programs that read it wait for it
        assert "google_crc32c" not in sys.modules  # nor do they wait for the checkpoint tools
        import tensorflow.compat.v1 as tf
        tf.disable_v2_behavior()
        from tensorflow.contrib import summary
        from tensorflow.contrib.cluster_resolver import TPUClusterResolver
        import tensorflow.contrib.tpu as tpu
        from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer
        import glob, tempfile

        directory = tempfile.mkdtemp()

        def input_fn(params):
            dataset = tf.data.Dataset.range(64).repeat()
            dataset = dataset.apply(tf.contrib.data.map_and_batch(
                lambda n: (tf.cast([n % 2], tf.float32), tf.cast([n % 2], tf.float32)),
                params["batch_size"], drop_remainder=True))
            return dataset.make_one_shot_iterator().get_next()

        def model_fn(features, labels, mode, params):
            prediction = tf.layers.dense(features, 1, use_bias=False)
            loss = tf.losses.mean_squared_error(labels, prediction)

            def host_call_fn(step, loss):
                with summary.create_file_writer(params["dir"]).as_default():
                    with summary.always_record_summaries():
                        summary.scalar("my_loss", loss[0], step=step[0])
                        return summary.all_summary_ops()

            optimizer = tpu_optimizer.CrossShardOptimizer(tf.train.AdamOptimizer(0.1))
            step = tf.contrib.framework.get_or_create_global_step()
            return tpu_estimator.TPUEstimatorSpec(
                mode, loss=loss, train_op=optimizer.minimize(loss, global_step=step),
                host_call=(host_call_fn, [tf.reshape(step, [1]), tf.reshape(loss, [1])]))

        resolver = TPUClusterResolver(tpu="my-tpu", zone=None, project=None)
        config = tpu_config.RunConfig(
            cluster=resolver, model_dir=directory,
            tpu_config=tpu_config.TPUConfig(iterations_per_loop=10, num_shards=2))
        estimator = tpu.TPUEstimator(model_fn, config=config, use_tpu=True,
                                     train_batch_size=8, params={"dir": directory + "/host"})
        estimator.train(input_fn, max_steps=60)
        [events] = glob.glob(directory + "/host/*")
        losses = [value for event in tf.train.summary_iterator(events)
                  for value in event.summary.value if value.tag == "my_loss"]
        print(estimator.get_variable_value("dense/kernel")[0, 0] > 0.8, len(losses) > 50)
"""


@pytest.mark.long
def test_program_of_2018_trains():
    done = run_python(PROGRAM_OF_2018, GCE_METADATA_HOST="localhost:1")
    assert done.stdout == "True True\n"
    assert done.stderr.count("this machine stands in for it") == 1
