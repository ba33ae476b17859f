# SPDX-License-Identifier: Apache-2.0
"""From nested configs to a plan, of this package's words and of TensorFlow's own."""

import copy

import pytest
import tensorflow as tf

from tests.subprocesses import run_python
from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.mid_level import SGD, Adagrad, FeatureConfig, TableConfig
from tpu_estimator_embedding.mid_level.config.to_plan import to_plan
from tpu_estimator_embedding.mid_level.execution.table_variables import children, create_tables
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer

upstream = tf.tpu.experimental.embedding

SETTINGS = {
    "SGD": {"learning_rate": 0.5, "clipvalue": 1.0, "clip_weight_max": 2.0},
    "Adagrad": {"initial_accumulator_value": 0.5, "use_gradient_accumulation": False},
    "AdagradMomentum": {"momentum": 0.5, "beta2": 0.9, "exponent": 3, "use_nesterov": True},
    "Adam": {"beta_1": 0.5, "beta_2": 0.75, "lazy_adam": False, "sum_inside_sqrt": False},
    "FTRL": {"beta": 0.5, "l1_regularization_strength": 0.1, "learning_rate_power": -0.25,
             "weight_decay_factor": 0.1, "multiply_weight_decay_factor_by_learning_rate": True,
             "multiply_linear_by_learning_rate": True},
}


def nested(words, optimizer=None):
    shared = words.TableConfig(10, 2, combiner="sum", name="shared", optimizer=optimizer)
    other = words.TableConfig(5, 3, quantization_config=words.QuantizationConfig(4, -1.0, 1.0))
    return {"b": words.FeatureConfig(shared, max_sequence_length=3),
            "a": [words.FeatureConfig(other),
                  (words.FeatureConfig(shared, max_sequence_length=3, output_shape=[2, 2]),)]}


@pytest.mark.parametrize("kind", SETTINGS)
def test_configs_of_tensorflow_give_the_same_plan(kind):
    plans = [to_plan(nested(words), getattr(words, kind)(**SETTINGS[kind]))
             for words in (mid_level, upstream)]
    assert str(plans[0]) == str(plans[1])
    optimizers = [[table.optimizer for table in plan.tables] for plan in plans]
    assert optimizers[0] == optimizers[1] and isinstance(optimizers[0][0], RowOptimizer)
    assert [(table.quantization, table.combiner) for table in plans[0].tables] == [
        (table.quantization, table.combiner) for table in plans[1].tables]


def test_features_are_called_by_their_paths():
    plan = to_plan(nested(mid_level), SGD(0.5), pipelined=True, num_hosts=2)
    assert [(feature.name, feature.table, feature.max_sequence_length)
            for feature in plan.features] == [
        ("a/1/0", "shared", 0), ("b", "shared", 3), ("a/0", "table_0", 0)]
    assert plan.pipelined and plan.num_hosts == 2
    assert [table.dimension for table in plan.tables] == [2, 3]


def test_every_setting_reaches_the_row_optimizer():
    [table] = to_plan(FeatureConfig(TableConfig(3, 1)), mid_level.FTRL(**SETTINGS["FTRL"])).tables
    optimizer = table.optimizer
    assert (optimizer.rule.beta, optimizer.rule.l1_regularization_strength,
            optimizer.rule.learning_rate_power, optimizer.rule.multiply_linear_by_learning_rate,
            optimizer.weight_decay_factor, optimizer.multiply_weight_decay_by_learning_rate) == (
        0.5, 0.1, -0.25, True, 0.1, True)
    [table] = to_plan(FeatureConfig(TableConfig(3, 1)), SGD(**SETTINGS["SGD"])).tables
    assert (table.optimizer.gradient_limits, table.optimizer.weight_limits) == (
        (-1.0, 1.0), (None, 2.0))


@pytest.mark.parametrize("words", [mid_level, upstream])
def test_what_the_caller_passes_stays_as_it_was(words):
    config = nested(words)
    objects = [*tf.nest.flatten(config), *(leaf.table for leaf in tf.nest.flatten(config))]
    before = [copy.copy(vars(thing)) for thing in objects]
    embedding = mid_level.TPUEmbedding(config, words.Adagrad(0.5))
    embedding.build(2)
    assert [vars(thing) for thing in objects] == before


def test_name_of_a_slot_is_no_name_of_a_table():
    features = {"a": FeatureConfig(TableConfig(3, 2, name="t")),
                "b": FeatureConfig(TableConfig(3, 2, name="t/accumulators"))}
    with pytest.raises(ValueError, match="Names of tables must be other than those of slots, got "
                                         "'t/accumulators'.*slot of table 't': rename"):
        to_plan(features, Adagrad(0.1))
    assert len(to_plan(features, SGD(0.1)).tables) == 2


def test_own_optimizer_of_a_table_goes_first():
    plan = to_plan(nested(mid_level, optimizer=Adagrad(0.25)), SGD(0.5))
    assert [str(table.optimizer) for table in plan.tables] == ["Adagrad(0.25)", "SGD(0.5)"]


def test_tables_without_any_optimizer_only_look_up():
    assert [table.optimizer for table in to_plan(nested(mid_level)).tables] == [None, None]


def test_tables_share_the_function_of_a_learning_rate():
    calls = []
    optimizer = SGD(lambda: calls.append(1) or 0.5)
    first, second = to_plan(nested(mid_level), optimizer).tables
    assert first.optimizer == second.optimizer
    assert first.optimizer.learning_rate(7) == 0.5 and calls == [1]


def test_subclasses_of_optimizers_are_what_they_derive_from():
    class Tuned(upstream.Adagrad):
        pass

    [table] = to_plan(FeatureConfig(TableConfig(3, 1)), Tuned(0.5)).tables
    assert str(table.optimizer) == "Adagrad(0.5)"


@pytest.mark.skipif(not hasattr(upstream, "CustomOptimizer"), reason="new in TensorFlow 2.21")
def test_computations_for_sparse_cores_are_refused():
    optimizer = upstream.CustomOptimizer(lambda *_: None)
    with pytest.raises(ValueError, match="Optimizer of table 'words' must be one of SGD.*A "
                                         "CustomOptimizer is compiled by XLA"):
        to_plan(FeatureConfig(TableConfig(3, 1, name="words")), optimizer)
    combiner = upstream.CustomCombiner(lambda *_: None, max_valency=2)
    config = upstream.FeatureConfig(upstream.TableConfig(3, 1, combiner=combiner, name="words"))
    with pytest.raises(ValueError, match="Combiner of table 'words' must be .*A CustomCombiner "
                                         "is compiled by XLA for a SparseCore"):
        to_plan(config, SGD(0.1))


@pytest.mark.parametrize("dtype", [tf.int32])
def test_tables_of_integers_are_refused(dtype):
    config = TableConfig(3, 1, name="words")
    config.dtype = dtype
    with pytest.raises(ValueError, match="Dtype of table 'words' must be tf.float32"):
        to_plan(FeatureConfig(config), SGD(0.1))


def test_initializers_of_other_dtypes_give_float32():
    [table] = to_plan(FeatureConfig(TableConfig(
        3, 1, lambda shape, dtype: tf.ones(shape, tf.float64)))).tables
    assert table.initializer([3, 1], tf.float32).dtype == tf.float32


@pytest.mark.parametrize("words", [mid_level, upstream], ids=["ours", "TensorFlow's"])
@pytest.mark.parametrize("initializer", [
    tf.ones_initializer, tf.compat.v1.ones_initializer, tf.keras.initializers.Ones])
def test_class_of_an_initializer_makes_one_without_arguments(words, initializer):
    [table] = to_plan(words.FeatureConfig(words.TableConfig(3, 1, initializer))).tables
    assert table.initializer([3, 1], tf.float32).numpy().tolist() == [[1.0]] * 3


def test_parts_of_a_table_are_one_variable_in_checkpoints():
    plan = to_plan(FeatureConfig(TableConfig(10, 2, name="words")), Adagrad(), num_hosts=2)
    variables = create_tables(plan, {})
    assert [len(variables["words"].parts), len(variables["words"].slots["accumulators"])] == [2, 2]
    saved = children(variables)
    assert {name: variable.shape.as_list() for name, variable in saved.items()} == {
        "words": [10, 2], "words/accumulators": [10, 2]}


@pytest.mark.long
def test_missing_engine_is_not_replaced_by_another_object():
    done = run_python("""
        from tpu_estimator_embedding import mid_level
        config = mid_level.FeatureConfig(mid_level.TableConfig(3, 1))
        def make(initialize):
            return mid_level.TPUEmbedding(config, 2, mid_level.SGD(), False, initialize)
        try:
            make(False)
        except RuntimeError as error:
            print(error)
        first = make(True)
        second = make(False)
        import tensorflow as tf
        print(type(vars(tf)["keras"]).__name__)
    """)
    assert done.stdout == ("`initialize_tpu_embedding` must be True if there is no other "
                           "TPUEmbedding, got False.\nKerasLazyLoader\n")


def test_initializer_that_takes_no_dtype_is_refused():
    table = TableConfig(10, 2, lambda shape: tf.zeros(shape), name="words")
    with pytest.raises(ValueError, match="Initializer of table 'words' must be a function of shape "
                       "and dtype, got <function.*Give it an argument `dtype`"):
        to_plan(FeatureConfig(table), SGD(1.0))


@pytest.mark.parametrize("values", [None, "zeros"])
def test_initializer_that_returns_no_numbers_is_refused(values):
    table = TableConfig(10, 2, lambda shape, dtype: values, name="words")
    with pytest.raises(ValueError, match="Initializer of table 'words' must be a function that "
                       f"returns numbers, got {values!r}"):
        mid_level.TPUEmbedding(FeatureConfig(table), SGD(1.0)).build()
