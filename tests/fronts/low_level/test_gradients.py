# SPDX-License-Identifier: Apache-2.0
"""Both ways to the gradients of activations."""

import collections

import pytest
import tensorflow as tf

from tpu_estimator_embedding.compat.modules import tpu_embedding, tpu_embedding_gradient


def test_gradients_keep_order_and_keys():
    with tf.Graph().as_default():
        activations = collections.OrderedDict(
            b=tf.constant([[1.0, 2.0]]), a=tf.constant([[3.0]]), unused=tf.constant([[5.0]]))
        loss = tf.reduce_sum(2 * activations["b"]) + tf.reduce_sum(activations["a"] ** 2)
        gradients = tpu_embedding_gradient.get_gradients_through_compute_gradients(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), loss, activations)
        assert list(gradients) == ["b", "a", "unused"]
        assert gradients["unused"] is None
        with tf.compat.v1.Session() as session:
            b, a = session.run([gradients["b"], gradients["a"]])
    assert (b.tolist(), a.tolist()) == ([[2.0, 2.0]], [[6.0]])


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def make_engine(mode=tpu_embedding.TRAINING, num_cores=1):
    is_training = mode == tpu_embedding.TRAINING
    return tpu_embedding.TPUEmbedding(
        {"words": tpu_embedding.TableConfig(10, 2), "users": tpu_embedding.TableConfig(10, 3)},
        {"title": tpu_embedding.FeatureConfig("words"),
         "history": tpu_embedding.FeatureConfig("words", max_sequence_length=4),
         "user": tpu_embedding.FeatureConfig("users")}, 2 * num_cores, mode,
        optimization_parameters=tpu_embedding.AdagradParameters(0.1) if is_training else None,
        device_config=tpu_embedding.DeviceConfig(1, num_cores, "/job:localhost"))


def constants(**values):
    """Activations of 2 samples that hold one value each."""
    shapes = {"title": [2, 2], "history": [2, 4, 2], "user": [2, 3]}
    return {name: tf.fill(shapes[name], float(value)) for name, value in values.items()}


def tie(engine, **values):
    dummies, _ = tpu_embedding_gradient.create_dummy_table_variables(engine)
    return tpu_embedding_gradient.hook_dummy_table_variables_to_activations(
        engine, constants(**values), dummies)


def test_dummy_variables_are_those_of_programs_that_look_them_up(graph):
    dummies, initializer = tpu_embedding_gradient.create_dummy_table_variables(make_engine())
    assert list(dummies) == ["users", "words"]
    assert [variable.op.name for variable in dummies.values()] == [
        "tpu_embedding_dummy_table_variable_users", "tpu_embedding_dummy_table_variable_words"]
    assert all(variable.shape == [1] for variable in dummies.values())
    assert graph.get_collection("tpu_embedding_dummy_table_variables") == list(dummies.values())
    assert graph.get_collection("trainable_variables") == list(dummies.values())
    assert not graph.get_collection("variables") and not graph.get_collection("local_variables")
    with tf.compat.v1.Session() as session:
        session.run(initializer)
        assert session.run(list(dummies.values())) == [[0.0], [0.0]]


def test_tied_activations_are_the_activations(graph):
    engine = make_engine()
    dummies, initializer = tpu_embedding_gradient.create_dummy_table_variables(engine)
    tied = tpu_embedding_gradient.hook_dummy_table_variables_to_activations(
        engine, constants(user=3, title=2), dummies)
    assert list(tied) == ["user", "title"]
    with tf.compat.v1.Session() as session:
        session.run(initializer)
        values = session.run(dict(tied))
    assert values["user"].tolist() == [[3.0] * 3] * 2
    assert values["title"].tolist() == [[2.0] * 2] * 2


def test_gradients_are_caught_and_go_no_further(graph):
    engine = make_engine()
    tied = tie(engine, title=2, history=3, user=4)
    loss = sum(tf.reduce_sum(activation ** 2) for activation in tied.values())
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    pairs = optimizer.compute_gradients(loss)
    caught = tpu_embedding_gradient.get_gradients_through_dummy_table_variables(engine)
    assert list(caught) == ["user", "history", "title"]
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.variables_initializer([variable for _, variable in pairs]))
        values = session.run(dict(caught))
        dummy_gradients = session.run([gradient for gradient, _ in pairs])
    assert {name: value.flat[0] for name, value in values.items()} == {
        "title": 4.0, "history": 6.0, "user": 8.0}
    assert {name: value.shape for name, value in values.items()} == {
        "title": (2, 2), "history": (2, 4, 2), "user": (2, 3)}
    assert dummy_gradients == [[0.0], [0.0]]


def test_gradients_of_each_core_are_kept_apart(graph):
    engine = make_engine(num_cores=2)
    dummies, _ = tpu_embedding_gradient.create_dummy_table_variables(engine)
    cores = [tpu_embedding_gradient.hook_dummy_table_variables_to_activations(
        engine, constants(title=1, history=1, user=1), dummies) for _ in range(2)]
    for factor, tied in enumerate(cores, start=2):
        loss = sum(tf.reduce_sum(factor * activation) for activation in tied.values())
        tf.compat.v1.train.GradientDescentOptimizer(1.0).compute_gradients(loss)
    with tf.compat.v1.Session() as session:
        values = [session.run(dict(
            tpu_embedding_gradient.get_gradients_through_dummy_table_variables(engine)))
            for _ in range(2)]
    assert [core["title"].flat[0] for core in values] == [2.0, 3.0]


def test_gradients_of_unused_activations_are_zeros_with_a_warning(graph):
    engine = make_engine()
    tied = tie(engine, title=2, history=3, user=4)
    tf.compat.v1.train.GradientDescentOptimizer(1.0).compute_gradients(
        tf.reduce_sum(tied["title"]))
    with pytest.warns(UserWarning, match=r"activations of \['user', 'history'\]"):
        caught = tpu_embedding_gradient.get_gradients_through_dummy_table_variables(engine)
    with tf.compat.v1.Session() as session:
        history, user = session.run([caught["history"], caught["user"]])
    assert history.shape == (2, 4, 2) and not history.any()
    assert user.shape == (2, 3) and not user.any()


def test_dummy_variables_are_created_once(graph):
    engine = make_engine()
    tpu_embedding_gradient.create_dummy_table_variables(engine)
    with pytest.raises(RuntimeError, match="must be called once in a graph"):
        tpu_embedding_gradient.create_dummy_table_variables(engine)


def test_gradients_are_computed_once(graph):
    engine = make_engine()
    tied = tie(engine, title=2)
    loss = tf.reduce_sum(tied["title"])
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    optimizer.compute_gradients(loss)
    with pytest.raises(RuntimeError, match="feature 'title' must be computed once"):
        optimizer.compute_gradients(loss)


def test_gradients_are_asked_for_after_dummy_variables(graph):
    with pytest.raises(RuntimeError, match="`create_dummy_table_variables` must be called before"):
        tpu_embedding_gradient.get_gradients_through_dummy_table_variables(make_engine())


def test_gradients_are_computed_after_dummy_variables(graph):
    engine = make_engine()
    own = {name: tf.compat.v1.get_variable(f"own_{name}", [1], use_resource=True)
           for name in ("words", "users")}
    tied = tpu_embedding_gradient.hook_dummy_table_variables_to_activations(
        engine, constants(title=2), own)
    with pytest.raises(RuntimeError, match="before gradients of activations are computed"):
        tf.compat.v1.train.GradientDescentOptimizer(1.0).compute_gradients(
            tf.reduce_sum(tied["title"]))


def test_gradients_in_inference(graph):
    engine = make_engine(tpu_embedding.INFERENCE)
    with pytest.raises(RuntimeError, match="`mode` must be TRAINING to compute gradients, got 1"):
        tpu_embedding_gradient.get_gradients_through_dummy_table_variables(engine)


def test_activations_of_unknown_features(graph):
    engine = make_engine()
    with pytest.raises(ValueError, match=r"`activations` must be keyed by the features .*'body'"):
        tpu_embedding_gradient.hook_dummy_table_variables_to_activations(
            engine, {"body": tf.zeros([2, 2])}, {})


def test_dummy_variable_is_missing(graph):
    with pytest.raises(ValueError, match=r"`dummy_table_variables` .* Missing: \['words'\]"):
        tpu_embedding_gradient.hook_dummy_table_variables_to_activations(
            make_engine(), constants(title=1), {"users": None})
