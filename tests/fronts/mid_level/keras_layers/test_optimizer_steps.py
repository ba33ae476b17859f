# SPDX-License-Identifier: Apache-2.0
"""Tables of layers learn when an optimizer is given their gradient, once, and at no other time."""

import contextlib
import gc
import importlib
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tpu_estimator_embedding
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import SGD, Adagrad
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.keras_layers import layer_tables, pending_updates
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class
from tpu_estimator_embedding.patches import patch, patch_table

IDS = {"f": tf.constant([1])}
IS_215 = tf.__version__.startswith("2.15")


@pytest.fixture(params=["eager", "function"])
def wrapped(request):
    """Returns what a program wraps its step in."""
    return tf.function if request.param == "function" else lambda step: step


def config(start=0.0, optimizer=None):
    return {"f": FeatureConfig(TableConfig(5, 1, tf.compat.v1.constant_initializer(start),
                                           optimizer or SGD(1.0), "sum", name="t"))}


def new_layer(keras, start=0.0, optimizer=None, **options):
    return embedding_layer_class(keras)(config(start, optimizer), None, **options)


def row(layer):
    """Returns row 1 of the table, the only one that is looked up."""
    [table] = layer.embedding_tables.values()
    values = table.numpy()[:, 0]
    assert np.all(np.delete(values, 1) == values[0])
    return float(values[1])


def total(layer, ids=IDS):
    return tf.reduce_sum(layer(ids)["f"])


def apply(optimizer, gradients, variables):
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def dense_of(keras, value=2.0):
    """Returns a layer that multiplies by a value."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(
        value))
    layer.build([None, 1])
    return layer


def model_of(keras, layer, optimizer=None):
    ids = keras.Input([], dtype="int64", name="f")
    model = keras.Model({"f": ids}, layer({"f": ids})["f"])
    compile_model(keras, model, optimizer)
    return model


def compile_model(keras, model, optimizer=None):
    model.compile(optimizer or keras.optimizers.SGD(0.5), loss=lambda y, p: tf.reduce_mean(p, -1))


def fit(model, steps=1):
    model.fit({"f": np.ones([steps], np.int64)}, np.zeros([steps, 1]), batch_size=1, verbose=0)


OPTIMIZERS = {
    "sgd": lambda keras: keras.optimizers.SGD(0.1),
    "adam, clipped": lambda keras: keras.optimizers.Adam(0.1, clipnorm=1e-3),
    "legacy": lambda keras: keras.optimizers.legacy.Adagrad(0.1, global_clipnorm=1e-3),
    "v1": lambda keras: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_step_is_one_update_whatever_the_optimizer(keras, wrapped, name):
    if name == "legacy" and keras.__version__ >= "3":
        pytest.skip("Keras 3 has no legacy optimizers")
    layer, optimizer = new_layer(keras), OPTIMIZERS[name](keras)
    variables = layer.trainable_variables
    if name == "v1":  # which knows no variables of Keras 3
        variables = [getattr(variable, "_value", variable) for variable in variables]

    @wrapped
    def step(factor):
        with tf.GradientTape() as tape:
            loss = factor * total(layer)
        apply(optimizer, tape.gradient(loss, variables), variables)

    rows = []
    for factor in (1.0, 3.0):
        step(tf.constant(factor))
        rows.append(row(layer))
    assert rows == [-1, -4]
    assert np.all(tf.convert_to_tensor(layer.trainable_variables[0]) == 0)


def test_uninstall_restores_optimizers_until_a_layer_is_called(keras, tensorflows_own):
    rows = {row: current(row) for row in (
        *patch_table.V1_OPTIMIZERS, *patch_table.KERAS_2_OPTIMIZERS,
        *patch_table.KERAS_3_OPTIMIZERS)}
    layer, optimizer = new_layer(keras), keras.optimizers.SGD(0.1)
    assert train_step(layer, optimizer) == -1
    patched = [row for row in rows if current(row) != rows[row]]
    assert set(patched) == patch.originals().keys() & rows.keys()
    assert {row.module.partition(".")[0] for row in patched} == {"tensorflow", keras.__name__}
    tpu_estimator_embedding.uninstall()
    assert {row: current(row) for row in rows} == rows
    assert train_step(layer, optimizer) == -2


def current(row):
    """Returns the present value of a row's name; None where this Keras has no such class."""
    try:
        return patch.current_attribute(row)
    except (ImportError, AttributeError):
        return None


def train_step(layer, optimizer):
    with tf.GradientTape() as tape:
        loss = total(layer)
    variables = layer.trainable_variables
    apply(optimizer, tape.gradient(loss, variables), variables)
    return row(layer)


def test_gradient_penalty_has_the_outer_gradient_alone(keras, wrapped):
    layer, optimizer = new_layer(keras, 1.0, SGD(0.125)), keras.optimizers.SGD(0.5)

    @wrapped
    def step():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                activations = layer(IDS)["f"]
                score = tf.reduce_sum(activations**3)
            penalty = tf.reduce_sum(inner.gradient(score, activations)**2)
            loss = score + penalty  # a³ + 9 a⁴
        variables = layer.trainable_variables
        apply(optimizer, outer.gradient(loss, variables), variables)

    step()
    assert row(layer) == pytest.approx(1 - 0.125 * (3 + 36))


@pytest.mark.slow
def test_lookups_inside_of_control_flow(keras):
    layer, optimizer = new_layer(keras), keras.optimizers.SGD(0.5)

    @tf.function
    def step(times, is_more):
        with tf.GradientTape() as tape:
            loss = tf.constant(0.0)
            for index in tf.range(times):
                loss += tf.cast(index + 1, tf.float32) * total(layer)
            loss += tf.cond(is_more, lambda: 10.0 * total(layer), lambda: tf.constant(0.0))
        variables = layer.trainable_variables
        apply(optimizer, tape.gradient(loss, variables), variables)

    rows = []
    for times, is_more in ((3, False), (0, True), (0, False), (2, True)):
        step(tf.constant(times), tf.constant(is_more))
        rows.append(row(layer))
    assert rows == [-6, -16, -16, -29]


@pytest.mark.slow
def test_step_in_a_branch_around_the_optimizer(keras):
    layer, dense, optimizer = new_layer(keras), dense_of(keras), keras.optimizers.SGD(0.5)
    variables = [*layer.trainable_variables, *dense.trainable_variables]
    optimizer.build(variables)

    @tf.function
    def step(is_due):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dense(layer(IDS)["f"]))
        gradients = tape.gradient(loss, variables)
        if is_due:
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

    rows = []
    for is_due in (True, False, True):
        step(tf.constant(is_due))
        rows.append(row(layer))
    assert rows == [-2, -2, -4]  # kernel 2: its gradient is the row before the step, 0 and -2
    assert float(tf.squeeze(dense.kernel)) == 3


def test_tape_around_a_function(keras):
    layer = new_layer(keras)
    function = tf.function(lambda: total(layer) + 2.0 * total(layer))
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = function()
        layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))
    assert row(layer) == -6


@pytest.mark.parametrize("normalized", [
    tf.sign, lambda gradient: gradient / tf.norm(gradient),
    lambda gradient: gradient / (tf.norm(gradient) + 1e-6)])
def test_normalized_gradients_are_refused(keras, wrapped, normalized):
    layer, optimizer = new_layer(keras), keras.optimizers.SGD(0.5)

    @wrapped
    def step(change):
        with tf.GradientTape() as tape:
            loss = total(layer)
        apply(optimizer, [change(value) for value in tape.gradient(
            loss, layer.trainable_variables)], layer.trainable_variables)

    step(lambda gradient: gradient * 65536.0)
    with pytest.raises((RuntimeError, tf.errors.InvalidArgumentError), match="by their norm"):
        step(normalized)
    assert row(layer) == -65536


@pytest.mark.slow
@pytest.mark.parametrize("frozen", ["layer", "model", "partial", "submodel"])
def test_frozen_layers_learn_nothing(keras, frozen):
    if frozen == "partial":
        outer = partial_layer_class(keras)(config(), None, size_threshold=0)
        layer = outer.tpu_embedding
    else:
        layer = outer = new_layer(keras)
    model = inner = model_of(keras, outer)
    if frozen == "submodel":
        ids = keras.Input([], dtype="int64", name="f")
        model = keras.Model({"f": ids}, dense_of(keras, 1.0)(inner({"f": ids})))
    switch = {"layer": outer, "partial": outer}.get(frozen, inner)
    rows = []
    for trainable in (False, True, False, True):
        switch.trainable = trainable
        compile_model(keras, model, keras.optimizers.SGD(0.0))
        if switch is model and not trainable:
            model.evaluate({"f": np.ones([1], np.int64)}, np.zeros([1, 1]), verbose=0)
        elif not trainable and frozen != "submodel":
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model({"f": tf.constant([1])}))
            assert tape.gradient(loss, layer.weights[0]) is None if keras.__version__ < "3" else 1
        else:
            fit(model)
        rows.append(row(layer))
    assert rows == [0, -1, -1, -2]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer, expected", [
    (SGD(1.0), -1), (Adagrad(1.0, initial_accumulator_value=1.0), -0.5**0.5)])
def test_loss_scale_is_divided_out_in_fit(keras, optimizer, expected):
    policy = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        layer = new_layer(keras, optimizer=optimizer)
        fit(model_of(keras, layer))
    finally:
        keras.mixed_precision.set_global_policy(policy)
    assert row(layer) == pytest.approx(expected)


def test_step_that_overflows_is_skipped(keras, wrapped):
    policy = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        layer = new_layer(keras)
        inner = keras.optimizers.SGD(0.5)
        optimizer = (keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
                     if keras.__version__ >= "3" else
                     keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=4.0))
        scaled = optimizer.scale_loss if keras.__version__ >= "3" else optimizer.get_scaled_loss

        @wrapped
        def step(factor):
            with tf.GradientTape() as tape:
                loss = scaled(tf.reduce_sum(factor * tf.cast(layer(IDS)["f"], tf.float16)))
            gradients = tape.gradient(loss, layer.trainable_variables)
            if keras.__version__ < "3":
                gradients = optimizer.get_unscaled_gradients(gradients)
            apply(optimizer, gradients, layer.trainable_variables)

        rows = []
        for factor in (3.0, 60000.0, 5.0):  # 4 × 60000 is infinite
            step(tf.constant(factor, tf.float16))
            rows.append(row(layer))
    finally:
        keras.mixed_precision.set_global_policy(policy)
    assert rows == [-3, -3, -8]


@pytest.mark.slow
@pytest.mark.skipif(IS_215, reason="Keras 2")
def test_accumulation_steps_of_keras_3():
    keras = importlib.import_module("keras")
    layer = new_layer(keras, optimizer=Adagrad(1.0, initial_accumulator_value=0.25))
    model = model_of(keras, layer, keras.optimizers.SGD(0.5, gradient_accumulation_steps=2))
    rows = []
    for _ in range(4):
        fit(model)
        rows.append(row(layer))
    first = -1 / np.sqrt(1.25)
    np.testing.assert_allclose(rows, [0, first, first, first - 1 / np.sqrt(2.25)], rtol=1e-6)


def test_norms_of_dense_variables_do_not_see_the_tables(keras, wrapped):
    layer, dense = new_layer(keras, 3.0), dense_of(keras, 4.0)
    optimizer = keras.optimizers.SGD(1.0, global_clipnorm=0.5)

    @wrapped
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dense(layer(IDS)["f"]))
        variables = [*layer.trainable_variables, *dense.trainable_variables]
        gradients = tape.gradient(loss, variables)
        apply(optimizer, gradients, variables)
        return tf.linalg.global_norm(gradients)

    assert step() == 3
    assert row(layer) == 3 - 4 and tf.convert_to_tensor(dense.kernel) == 3.5


def test_jacobian_of_dense_variables(keras, wrapped):
    layer, dense = new_layer(keras, 3.0), dense_of(keras)

    @wrapped
    def step():
        with tf.GradientTape(persistent=True) as tape:
            outputs = dense(layer({"f": tf.constant([1, 0])})["f"])
        kernel = tf.nest.map_structure(  # jacobian wants what TensorFlow calls a variable
            lambda variable: getattr(variable, "_value", variable), dense.kernel)
        return tape.jacobian(outputs, kernel)

    np.testing.assert_array_equal(step(), np.full([2, 1, 1, 1], 3.0))
    assert row(layer) == 3


def test_forward_mode_changes_nothing(keras):
    layer, kernel = new_layer(keras, 3.0), tf.Variable(2.0)
    carrier = layer.trainable_variables[0]
    carrier = getattr(carrier, "_value", carrier)
    with tf.autodiff.ForwardAccumulator(
            [carrier, kernel], [tf.ones_like(carrier), tf.constant(1.0)]) as accumulator:
        loss = kernel * total(layer)
    assert accumulator.jvp(loss) == 3 and row(layer) == 3


@pytest.mark.slow
def test_many_backward_passes_without_a_step(keras):
    layer, optimizer = new_layer(keras), keras.optimizers.SGD(0.5)
    variables = layer.trainable_variables
    gradients = []
    for _ in range(70):  # such as in evaluation
        with tf.GradientTape() as tape:
            loss = total(layer)
        gradients.append(tape.gradient(loss, variables))
    assert row(layer) == 0
    with pytest.raises(RuntimeError, match="no longer pending"):
        apply(optimizer, gradients[0], variables)
    apply(optimizer, gradients[-2], variables)
    apply(optimizer, gradients[-1], variables)
    with pytest.raises(RuntimeError, match="were applied before"):
        apply(optimizer, gradients[-1], variables)
    assert row(layer) == -2


def test_gradient_that_went_elsewhere_is_told_at_the_next_lookup(keras):
    layer = new_layer(keras)
    [variable] = layer.trainable_variables
    with tf.GradientTape() as tape:
        loss = total(layer)
    [gradient] = tape.gradient(loss, [variable])
    variable.assign(variable - 0.1 * gradient)
    with pytest.raises(RuntimeError, match="`apply_gradients` of an optimizer"), tf.GradientTape():
        total(layer)
    assert row(layer) == 0
    with pytest.raises(ValueError, match=r"`gradients` must be a gradient of shape \(\d+,\), that "
                                         r"of the layer's trainable variable, got .*3"):
        layer.apply_gradients([tf.ones([3])])
    for wrong in ([None], None, {"f": gradient}, [gradient, gradient]):
        with pytest.raises(ValueError, match="`gradients` must be a list of one gradient"):
            layer.apply_gradients(wrong)


def test_lookups_of_inputs_of_several_types_are_one_update(keras, wrapped):
    """Adagrad shows whether it is one update, and the combiner whether weights are kept."""
    layer = new_layer(keras, optimizer=Adagrad(1.0, initial_accumulator_value=0.25))
    ragged, sparse = tf.ragged.constant([[1, 1], [], [1]]), tf.sparse.from_dense([[0, 1], [1, 1]])
    weights = tf.SparseTensor([[0, 1], [1, 0], [1, 1]], [0.5, 2.0, 3.0], [2, 2])

    @wrapped
    def step():
        with tf.GradientTape() as tape:
            loss = total(layer) + 2.0 * total(layer, {"f": ragged}) + tf.reduce_sum(
                tf.constant([[3.0], [5.0]]) * layer({"f": sparse}, {"f": weights})["f"])
        layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))

    step()
    gradient = 1 + 2 * 3 + 3 * 0.5 + 5 * (2 + 3)
    assert row(layer) == pytest.approx(-gradient / np.sqrt(0.25 + gradient**2))
    with tf.GradientTape() as tape:
        loss = total(layer) + total(layer, {"f": tf.constant([[1, 1]])})
    with pytest.raises(RuntimeError, match="must have activations of the same shapes"):
        layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))


@pytest.mark.long
@pytest.mark.parametrize("way", ["fit", "function"])
def test_dropped_layers_are_freed(keras, way):
    def tables():
        layer = new_layer(keras)
        if way == "fit":
            fit(model_of(keras, layer))
        else:
            @tf.function
            def step():
                with tf.GradientTape() as tape:
                    loss = total(layer)
                layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))
            step()
        assert row(layer) == -1
        [table] = layer.embedding_tables.values()
        return weakref.ref(table)

    table = tables()
    keras.backend.clear_session()
    gc.collect()
    gc.collect()
    assert table() is None


def test_checkpoints_have_one_zero_for_the_carrier(keras, tmp_path):
    layer = new_layer(keras)
    path = tf.train.Checkpoint(layer=layer).write(str(tmp_path / "checkpoint"))
    [shape] = [shape for key, shape in tf.train.list_variables(path) if "trap" in key]
    assert shape == [1]
    tf.train.Checkpoint(layer=new_layer(keras)).read(path).assert_consumed()


def test_saved_model_loads_as_a_model_of_keras_2_that_trains_on(keras, tmp_path):
    if keras.__version__ >= "3":
        pytest.skip("Keras 3 loads no SavedModels as models")
    model = model_of(keras, new_layer(keras, 1.0, Adagrad(0.5, initial_accumulator_value=1.0)))
    fit(model)
    model.save(str(tmp_path / "model"))
    loaded = keras.models.load_model(str(tmp_path / "model"), compile=False)
    compile_model(keras, loaded)
    np.testing.assert_allclose(row(loaded.layers[-1]), 1 - 0.5 / np.sqrt(2), rtol=1e-6)
    fit(loaded)
    np.testing.assert_allclose(
        row(loaded.layers[-1]), 1 - 0.5 / np.sqrt(2) - 0.5 / np.sqrt(3), rtol=1e-6)


@pytest.mark.parametrize("name, options, slots, is_compiled", [
    ("Adam", {}, 64, True), ("Adam", {}, 8, True),  # half the elements of the carrier, when saved
    ("Adagrad", {}, 64, False), ("SGD", {"momentum": 0.9}, 64, False)])
def test_saved_model_loads_with_the_slots_of_a_legacy_optimizer(
        keras, name, options, slots, is_compiled, tmp_path, monkeypatch):
    if keras.__version__ >= "3":
        pytest.skip("Keras 3 has no legacy optimizers")
    with monkeypatch.context() as patched:
        for module in (layer_tables, pending_updates):
            patched.setattr(module, "SLOTS", slots)
        model = keras.Sequential([
            keras.Input([], dtype="int64"), embedding_layer_class(keras)(
                config(1.0, SGD(0.5))["f"], None)])
        model.compile(getattr(keras.optimizers.legacy, name)(0.1, **options), "mse")
        model.fit(np.ones([1], np.int64), np.zeros([1, 1]), verbose=0)
        model.save(str(tmp_path / "model"), save_format="tf")
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    for scope in (contextlib.nullcontext(), strategy.scope()):
        with scope:
            loaded = keras.models.load_model(str(tmp_path / "model"), compile=is_compiled)
            if not is_compiled:
                loaded.compile(keras.optimizers.legacy.SGD(0.1), "mse")
        assert row(loaded.layers[-1]) == row(model.layers[-1]) == 0
        loaded.fit(np.ones([1], np.int64), np.ones([1, 1]), verbose=0)
        assert row(loaded.layers[-1]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("save", ["tf.saved_model.save", "model.save"])
def test_saved_model_of_a_trained_model_needs_no_op_of_this_package(keras, save, tmp_path):
    model = model_of(keras, new_layer(keras))
    fit(model)
    if save == "tf.saved_model.save":
        tf.saved_model.save(model, str(tmp_path))
    elif keras.__version__ >= "3":
        model.export(str(tmp_path), verbose=False)
    else:
        model.save(str(tmp_path))
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    library = saved.meta_graphs[0].graph_def.library
    assert library.function
    assert not [node.name for function in library.function for node in function.node_def
                if node.op.startswith("TpuEmbedding")]


@pytest.mark.slow
def test_loaded_model_does_not_train(keras, tmp_path):
    layer = new_layer(keras)
    tf.saved_model.save(model_of(keras, layer), str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    serve = loaded.signatures["serving_default"]
    [name] = serve.structured_input_signature[1]
    rows = []
    for _ in range(2):
        with tf.GradientTape() as tape:
            tape.watch(serve.variables)
            [value] = serve(**{name: tf.constant([1], tf.int64)}).values()
        gradients = tape.gradient(value, serve.variables)
        assert all(gradient is None for gradient, variable in zip(
            gradients, serve.variables, strict=True) if variable.shape == [128])  # the carrier
        rows.append(float(tf.squeeze(value)))
    assert rows == [0, 0]


def test_pipelined_layer_delays_what_an_optimizer_asked_for(keras, wrapped):
    layer = new_layer(keras, 1.0, SGD(0.25), pipeline_execution_with_tensor_core=True)

    @wrapped
    def step(is_asked):
        with tf.GradientTape() as tape:
            loss = total(layer)
        gradients = tape.gradient(loss, layer.trainable_variables)
        if is_asked:
            layer.apply_gradients(gradients)
        return loss

    seen = [float(step(is_asked)) for is_asked in (True, False, True, True)]
    assert seen == [1, 1, 1, 0.75] and row(layer) == 0.25


@pytest.mark.slow
@pytest.mark.parametrize("fits_first", [False, True])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_restored_compiled_model_matches_all_of_its_objects(keras, optimizer, fits_first,
                                                              tmp_path):
    def new_model():
        layer = new_layer(keras)
        return layer, model_of(keras, layer, getattr(keras.optimizers, optimizer)(0.5))

    saved_layer, saved = new_model()
    fit(saved, 3)
    path = tf.train.Checkpoint(model=saved).save(str(tmp_path / "saved"))
    layer, model = new_model()
    if fits_first:
        fit(model)
    status = tf.train.Checkpoint(model=model).restore(path)
    assert row(layer) == row(saved_layer) == -3
    fit(model)
    status.assert_existing_objects_matched()
    assert row(layer) == -4
