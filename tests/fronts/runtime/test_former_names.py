# SPDX-License-Identifier: Apache-2.0
"""Private names of TensorFlow that Estimator-era libraries read where they were."""

import pytest

from tests.subprocesses import run_python

# Every import as a library of the time writes it, then what shows that the name still works.
PROGRAM = '''
import tpu_estimator_embedding
tpu_estimator_embedding.install()
import tensorflow.compat.v1 as tf

from tensorflow.python.util.nest import is_sequence
from tensorflow.contrib.framework import nest
print([is_sequence(value) for value in ([1], (), {"a": 1}, "text", 1)])

from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, control_flow_ops, variable_scope, variables
print(nest.is_sequence is is_sequence, ops.Tensor is tf.Tensor,
      ops.IndexedSlices is tf.IndexedSlices,
      variables.VariableV1 is tf.Variable, variable_scope.variable is tf.Variable,
      ops.register_tensor_conversion_function is tf.register_tensor_conversion_function,
      ops.convert_to_tensor_or_indexed_slices is tf.convert_to_tensor_or_indexed_slices)
print(variables.RefVariable.__mro__[1] is tf.Variable,
      ops.IndexedSlicesValue._fields, callable(variables.default_variable_creator),
      callable(ops.convert_n_to_tensor_or_indexed_slices))


class Celsius:
    name = property(lambda self: "celsius")
    dtype = property(lambda self: tf.float32)
    shape = property(lambda self: tf.TensorShape([]))


print(tf.is_tensor(Celsius()))
ops.register_dense_tensor_like_type(Celsius)
ops.register_tensor_conversion_function(
    Celsius, lambda value, dtype=None, name=None, as_ref=False: tf.constant(21.0))
print(tf.is_tensor(Celsius()))
for faulty in (dict, type("Unnamed", (), {"dtype": Celsius.dtype, "shape": Celsius.shape})):
    try:
        ops.register_dense_tensor_like_type(faulty)
    except TypeError as error:
        print(str(error).partition(".")[0])

with tf.Graph().as_default(), tf.Session() as session:
    one, two = tf.constant(1.0), tf.constant(2.0)
    print([float(value) for value in session.run([
        ops.convert_to_tensor(Celsius()), *array_ops.unstack(array_ops.stack([one, two])),
        control_flow_ops.cond(one < two, lambda: one, lambda: two),
        control_flow_ops.case([(two < one, lambda: one)], default=lambda: two),
        control_flow_ops.case_v2([(two < one, lambda: one)], default=lambda: two),
        control_flow_ops.cond_for_tf_v2(one > two, lambda: one, lambda: two),
        control_flow_ops.switch_case(tf.constant(1), [lambda: one, lambda: two]),
        control_flow_ops.while_loop(lambda x: x < 8, lambda x: x * 2, [one]),
        control_flow_ops.while_loop_v2(lambda x: x < 8, lambda x: x * 2, [one])[0]])])
    try:
        session.run(control_flow_ops.Assert(one > two, [one]))
    except tf.errors.InvalidArgumentError as error:
        print("assertion failed" in str(error))
    variable_scope.enable_resource_variables()
    is_resource = variable_scope.variable(1.0).dtype, variable_scope.resource_variables_enabled()
    variable_scope.disable_resource_variables()
    print(is_resource, variable_scope.variable(1.0).dtype,
          variable_scope.resource_variables_enabled() == tf.resource_variables_enabled() == False)

    from tensorflow.python.training import gen_training_ops, training_ops
    variable_scope.enable_resource_variables()
    weight = tf.Variable(3.0)
    step = training_ops.resource_apply_gradient_descent(weight.handle, 0.5, 2.0)
    session.run(weight.initializer)
    session.run(step)
    print(*map(float, session.run([weight, variables.is_variable_initialized(weight)])),
          training_ops.apply_adam is gen_training_ops.apply_adam)

from tensorflow.python.distribute import distribution_strategy_context
import tensorflow.python.distribute.distribution_strategy_context as ds_context
with tf.distribute.OneDeviceStrategy("cpu:0").scope():
    print(ds_context.has_strategy(), ds_context.in_cross_replica_context(),
          distribution_strategy_context.get_strategy() is tf.distribute.get_strategy())
    print(distribution_strategy_context.get_strategy().run(
        lambda: ds_context.get_replica_context().num_replicas_in_sync))

from tensorflow.python.util.tf_export import estimator_export


@estimator_export("estimator.Mine")
def mine():
    return 1


print(mine(), mine.__wrapped__._estimator_api_names)

from tensorflow.python.keras import utils
from tensorflow.python.keras.utils import deserialize_keras_object, serialize_keras_object


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def get_config(self):
        return {"factor": self.factor}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


saved = serialize_keras_object(Scale(3))
print(saved["class_name"], saved["config"],
      deserialize_keras_object(saved, module_objects={"Scale": Scale}).factor)
with utils.CustomObjectScope({"Scale": Scale}):
    print(sorted(utils.get_custom_objects()), deserialize_keras_object(saved).factor)
print(utils.to_categorical([1], 3).tolist(), utils.normalize([[3.0, 4.0]]).tolist(),
      issubclass(utils.GeneratorEnqueuer, utils.SequenceEnqueuer),
      *(callable(getattr(utils, name)) for name in (
          "OrderedEnqueuer", "Sequence", "get_file", "Progbar", "custom_object_scope",
          "get_source_inputs", "print_summary", "model_to_dot", "plot_model")))

with tf.Graph().as_default(), tf.Session() as session:
    from tensorflow.python.keras.layers import (
        GRU, LSTM, BatchNormalization, Bidirectional, LayerNormalization, TimeDistributed)
    inputs = tf.ones([2, 3, 4])
    hidden = Bidirectional(LSTM(5, return_sequences=True))(inputs)
    hidden = BatchNormalization()(TimeDistributed(LayerNormalization())(hidden))
    output = GRU(6)(hidden)
    session.run(tf.global_variables_initializer())
    print(session.run(output).shape, len(tf.trainable_variables()))

if int(tf.__version__.split(".")[1]) > 15:
    import tf_keras.legacy_tf_layers.core
    from tf_keras import legacy_tf_layers
    from tf_keras.legacy_tf_layers import (
        base, convolutional, migration_utils, normalization, pooling, variable_scope_shim)
    print(tf_keras.legacy_tf_layers.core.Dense is tf.layers.Dense is legacy_tf_layers.core.Dense,
          issubclass(convolutional.Conv2D, base.Layer))
else:
    print(True, True)
'''

PRINTED = """\
[True, True, True, False, False]
True True True True True True True
True ('values', 'indices', 'dense_shape') True True
False
True
Type dict does not define a `name` property
Type Unnamed does not define a `name` property
[21.0, 1.0, 2.0, 1.0, 2.0, 2.0, 2.0, 2.0, 8.0, 8.0]
True
(tf.float32, True) <dtype: 'float32_ref'> True
2.0 1.0 True
True True True
1
1 ('estimator.Mine',)
Scale {'factor': 3} 3
['Scale'] 3
[[0.0, 1.0, 0.0]] [[0.6, 0.8]] True True True True True True True True True True
(2, 6) 13
True True
"""


@pytest.mark.slow
def test_every_name_works_where_it_was():
    done = run_python(PROGRAM)
    assert done.stdout == PRINTED


@pytest.mark.long
def test_class_of_feature_columns_and_canned_estimators():
    done = run_python("""
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        import tensorflow as tf
        from tensorflow.python.feature_column import feature_column_v2
        print(isinstance(tf.feature_column.numeric_column("x"), feature_column_v2.FeatureColumn))
        for estimator in (tf.estimator, tf.compat.v1.estimator):
            found = estimator.BoostedTreesClassifier
            try:
                found([], 1)
            except AttributeError as error:
                print(str(error)[:49], "XGBoost" in str(error))
    """)
    assert done.stdout.splitlines() == [
        "True", *["There is no tf.estimator.BoostedTreesClassifier a True"] * 2]


@pytest.mark.slow
def test_every_row_names_the_version_and_exists():
    """No row is without effect: the name is there after install(), and says what moved it."""
    done = run_python("""
        import re
        from tpu_estimator_embedding import versions
        from tpu_estimator_embedding.patches import patch
        from tpu_estimator_embedding.runtime import former_names_table
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        for row in former_names_table.FORMER_NAMES:
            since = re.search(r"(TensorFlow|Keras) 2[.][0-9]+", row.reason)
            there = row.path in patch.sys.modules if row.is_module else (
                patch.current_attribute(row) is not patch.NOTHING)
            if not since or not (there or row.since):
                print(row)
        print(len(former_names_table.FORMER_NAMES) > 50)
    """)
    assert done.stdout == "True\n"
