# SPDX-License-Identifier: Apache-2.0
"""The configuration message, written out and beside that of TensorFlow 2.15's own engine."""

import pytest
import tensorflow as tf
from google.protobuf import text_format

from tests.fronts.low_level.tensorflows_own import load_tensorflows_own
from tpu_estimator_embedding.compat.modules import tpu_embedding as ours
from tpu_estimator_embedding.optimizers.registry import rules

EXPECTED = """
table_descriptor {
  name: "users"
  vocabulary_size: 5
  dimension: 3
  optimization_parameters {
    learning_rate { constant: 0.5 }
    gradient_accumulation_status: ENABLED
    clipping_limits { lower { value: -1 } upper { value: 2 } }
    gradient_clipping_limits { lower { value: -0.25 } upper { value: 0.75 } }
    weight_decay_factor: 0.125
    multiply_weight_decay_factor_by_learning_rate: true
    hot_id_replication_configuration { status: ENABLED }
    adam {
      beta1: 0.75
      beta2: 0.5
      epsilon: 0.25
      use_non_lazy_adam: true
      use_sum_inside_sqrt: false
    }
  }
}
table_descriptor {
  name: "words"
  vocabulary_size: 4
  dimension: 2
  optimization_parameters {
    learning_rate { dynamic { tag: 0 } }
    gradient_accumulation_status: DISABLED
    stochastic_gradient_descent {}
  }
}
mode: TRAINING
batch_size_per_tensor_core: 2
num_hosts: 4
num_tensor_cores: 8
sharding_strategy: MOD
pipeline_execution_with_tensor_core: true
feature_descriptor { table_id: 0 input_shape: 2 }
feature_descriptor { table_id: 1 input_shape: 2 input_shape: 6 }
feature_descriptor { table_id: 1 input_shape: 2 }
"""


def rate(step):
    return tf.cast(step, tf.float32)


def make_engine(words):
    """An engine of the classes in `words`, with every setting that the message has."""
    adam = words.AdamParameters(
        0.1, 0.75, 0.5, 0.25, lazy_adam=False, sum_inside_sqrt=False, clip_weight_min=-1.0,
        clip_weight_max=2.0, clip_gradient_min=-0.25, clip_gradient_max=0.75,
        weight_decay_factor=0.125, multiply_weight_decay_factor_by_learning_rate=True)
    return words.TPUEmbedding(
        {"words": words.TableConfig(2, 2, learning_rate_fn=rate),
         "users": words.TableConfig(5, 3, hot_id_replication=True, learning_rate=0.5,
                                    optimization_parameters=adam)},
        {"title": words.FeatureConfig("words"), "user": words.FeatureConfig("users"),
         "history": words.FeatureConfig("words", max_sequence_length=6)}, 16, words.TRAINING,
        optimization_parameters=words.StochasticGradientDescentParameters(
            0.2, use_gradient_accumulation=False),
        pipeline_execution_with_tensor_core=True, partition_strategy="mod",
        device_config=words.DeviceConfig(4, 8, "/job:tpu_worker"))


def make_small_engine(words, optimizer):
    return words.TPUEmbedding(
        {"words": words.TableConfig(10, 1)}, {"title": words.FeatureConfig("words")}, 2,
        words.TRAINING, optimization_parameters=optimizer,
        device_config=words.DeviceConfig(1, 1, "/job:worker"))


def make_inference_engine(words):
    return words.TPUEmbedding(
        {"words": words.TableConfig(10, 1), "users": words.TableConfig(
            10, 2, optimization_parameters=words.AdagradParameters(0.3))},
        {"title": words.FeatureConfig("words"), "user": words.FeatureConfig("users")}, 2,
        words.INFERENCE, device_config=words.DeviceConfig(1, 1, "/job:worker"))


def test_message_is_the_one_written_out():
    expected = text_format.Parse(EXPECTED, type(make_engine(ours).config_proto)())
    assert make_engine(ours).config_proto == expected


def test_tables_share_the_tag_of_a_function_and_have_one_each_else():
    tables = {name: ours.TableConfig(10, 1, learning_rate_fn=function)
              for name, function in (("a", rate), ("b", lambda step: 1.0), ("c", rate))}
    engine = ours.TPUEmbedding(
        tables, {f"of {name}": ours.FeatureConfig(name) for name in tables}, 2, ours.TRAINING, "",
        ours.AdagradParameters(0.1))
    rates = [table.optimization_parameters.learning_rate
             for table in engine.config_proto.table_descriptor]
    assert [learning_rate.dynamic.tag for learning_rate in rates] == [0, 1, 0]
    assert all(learning_rate.HasField("dynamic") for learning_rate in rates)


OPTIMIZERS = {
    "AdagradParameters": (0.1, 0.3),
    "AdagradMomentumParameters": (0.1, 0.8, True, 3, 0.9, 1e-4),
    "AdamParameters": (0.1, 0.7, 0.8, 1e-4),
    "FrequencyEstimatorParameters": (0.2, 100.0, 5.0, 1.5),
    "FtrlParameters": (0.1, -0.4, 0.3, 0.01, 0.02, True, None, None, None, None, True, 0.5, True),
    "MomentumParameters": (0.1, 0.8, True),
    "ProximalAdagradParameters": (0.1, 0.3, 0.01, 0.02),
    "ProximalYogiParameters": (0.1, 0.7, 0.8, 1e-4, 0.01, 0.02, 0.3),
    "RMSPropParameters": (0.1, 0.7, 0.8, 1e-4),
    "StochasticGradientDescentParameters": (0.1,),
}


@pytest.mark.filterwarnings("ignore:Activations under FrequencyEstimator")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_fills_its_message(name):
    engine = make_small_engine(ours, getattr(ours, name)(*OPTIMIZERS[name]))
    (table,) = engine.config_proto.table_descriptor
    (record,) = (rule.record for rule in rules() if rule.record.parameters == name)
    message, fields = record.proto, record.proto_fields
    assert table.optimization_parameters.WhichOneof("parameters") == message
    filled = {field.name for field, _ in
              getattr(table.optimization_parameters, message).ListFields()}
    assert filled == set(fields) - {"use_non_lazy_adam"}  # lazy here, which is not filled in


def assert_same_message(engine, own):
    message = type(engine.config_proto)()
    message.CopyFrom(engine.config_proto)
    message.ClearField("batch_size_per_tensor_core")  # set up to 2.4 only
    assert message == own.config_proto


@pytest.mark.skipif(not tf.__version__.startswith("2.15."),
                    reason="TensorFlow 2.15 is the last that has an engine")
@pytest.mark.filterwarnings("ignore:Activations under FrequencyEstimator")
class TestBesideTensorFlowsOwn:
    """The same configuration in both vocabularies."""

    @pytest.mark.parametrize("make", [make_engine, make_inference_engine])
    def test_message(self, make):
        assert_same_message(make(ours), make(load_tensorflows_own()))

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_message_of_every_optimizer(self, name):
        assert_same_message(*(
            make_small_engine(words, getattr(words, name)(*OPTIMIZERS[name]))
            for words in (ours, load_tensorflows_own())))

    @pytest.mark.parametrize("name", ["hosts", "num_cores", "num_cores_per_host",
                                      "batch_size_per_core", "table_to_features_dict"])
    def test_property(self, name):
        own = make_engine(load_tensorflows_own())
        assert getattr(make_engine(ours), name) == getattr(own, name)

    def test_configs_of_tensorflows_own_classes_are_taken(self):
        own = load_tensorflows_own()
        engine = ours.TPUEmbedding(
            {"words": own.TableConfig(10, 1)}, {"title": own.FeatureConfig("words")}, 2,
            ours.TRAINING, "", own.AdagradParameters(0.1))
        with tf.Graph().as_default():
            (op,) = engine.generate_enqueue_ops([{"title": own.EnqueueData(
                tf.constant([1, 2]), tf.constant([[0, 0], [1, 0]]))}])
        assert isinstance(op, tf.Operation)
