# SPDX-License-Identifier: Apache-2.0
"""TEE411: numbers that follow from the seed of the whole program are a decision, or kept."""

import re

import pytest

from tests.codemod.migration.test_to_tf2 import PROGRAM
from tests.docs import ROOT
from tpu_estimator_embedding.migration.codes import CODES, OPEN
from tpu_estimator_embedding.migration.rewrite import rewrite

TABLE = 'table = TableConfig(9, 2, tf.random_uniform_initializer(seed=1), combiner="sum")\n\n\n'
SEEDED = PROGRAM.replace("def model_fn", TABLE + "def model_fn").replace(
    "tf.layers.dense(net, 1)", "tf.layers.dense(net, 1, kernel_initializer=INITIALIZER)").replace(
        "INITIALIZER", "tf.truncated_normal_initializer(seed=2)").replace(
            'model_dir="model"', 'model_dir="model", tf_random_seed=7')


def seeds(program, to="tf2"):
    """Returns (line, message) of the findings about random draws."""
    lines = program.splitlines()
    return [(lines[one.line - 1].strip(), one.message)
            for one in rewrite(program, to=to).findings if one.code == "TEE411"]


def test_random_draws_are_a_decision():
    assert CODES["TEE411"].kind in OPEN


def test_initial_values_with_seeds_of_their_own_are_not_reported():
    assert seeds(SEEDED) == []


@pytest.mark.parametrize("old, new", [
    ("kernel_initializer=tf.truncated_normal_initializer(seed=2)", "activation=tf.tanh"),
    ("tf.truncated_normal_initializer(seed=2)", "tf.truncated_normal_initializer(0.1)"),
    ("tf.truncated_normal_initializer(seed=2)", "tf.truncated_normal_initializer(seed=None)"),
    ("tf.truncated_normal_initializer(seed=2)", "tf.keras.initializers.he_normal()"),
    ("tf.truncated_normal_initializer(seed=2)", "tf.glorot_uniform_initializer"),
    ("tf.truncated_normal_initializer(seed=2)", "'glorot_uniform'"),
    ("tf.truncated_normal_initializer(seed=2)", "None"),
    ("    # The rate falls.", "    loss += tf.get_variable('bias', [])"),
    ("tf.random_uniform_initializer(seed=1)", "tf.random_uniform_initializer()"),
    (", tf.random_uniform_initializer(seed=1)", ""),
    (TABLE, ""),
    (TABLE, TABLE + "column = tf.tpu.experimental.embedding_column(word, 2)\n\n\n"),
], ids=lambda text: text[-30:].strip())
def test_initial_values_that_follow_from_the_programs_seed_are_reported(old, new):
    assert old in SEEDED
    [(line, message)] = seeds(SEEDED.replace(old, new))
    assert "tf_random_seed=7" in line
    assert re.match(r"`tf_random_seed=7` is kept, but gives different numbers: "
                    r"(`[\w.]+\(\.\.\.\)` on line \d+ draws initial|the tables, which another)",
                    message)


@pytest.mark.parametrize("initializer, inside, is_reported", [
    ("tf.random_normal_initializer(seed=3)", "tf.get_variable('bias', [])", False),
    ("tf.random_normal_initializer(seed=3)", "tf.get_variable('bias', [], None, None)", False),
    ("tf.random_normal_initializer(seed=3)", "tf.reduce_sum(tf.layers.dense(net, 1))", False),
    ("tf.random_normal_initializer()", "tf.get_variable('bias', [])", True),
    ("None", "tf.get_variable('bias', [])", True),
    ("tf.random_normal_initializer(seed=3)", "tf.get_variable("
     "'bias', [], initializer=tf.random_normal_initializer())", True),
    ("tf.random_normal_initializer(seed=3)", "tf.reduce_sum("
     "tf.keras.utils.get_or_create_layer('d', lambda: tf.keras.layers.Dense(1))(net))", True),
])
def test_initializer_of_a_scope_is_the_one_of_its_variables(initializer, inside, is_reported):
    rate = "    # The rate falls."
    assert rate in SEEDED
    program = SEEDED.replace(rate, f"    with tf.variable_scope('a', initializer={initializer}):\n"
                             f"        loss += {inside}\n{rate}")
    assert bool(seeds(program)) is is_reported, seeds(program)


@pytest.mark.parametrize("old, new", [
    ("tf.truncated_normal_initializer(seed=2)", "tf.zeros_initializer()"),
    ("tf.truncated_normal_initializer(seed=2)", "tf.zeros_initializer"),
    ("    # The rate falls.", "    loss += tf.get_variable('bias', initializer=0.5)"),
    ("    # The rate falls.", "    net = tf.layers.flatten(net)"),
    ("    # The rate falls.", "    net = tf.layers.batch_normalization(net)"),
], ids=lambda text: text[-30:].strip())
def test_what_draws_nothing_is_not_reported(old, new):
    assert old in SEEDED
    assert seeds(SEEDED.replace(old, new)) == []


@pytest.mark.parametrize("call", [
    "tf.nn.sampled_softmax_loss(weights, biases, labels, net, 5, 50, seed=3)",
    "tf.nn.nce_loss(weights, biases, labels, net, 5, 50)",
    "tf.nn.log_uniform_candidate_sampler(labels, 1, 5, True, 50)[0]",
    "tf.random.uniform_candidate_sampler(labels, 1, 5, True, 50)[0]",
    "tf.nn.fractional_max_pool(net, [1, 2, 2, 1])[0]", "tf.layers.dropout(net, 0.2)",
    "tf.random.normal([2])", "tf.random_gamma([2], 1.0)", "tf.random_crop(net, [2, 2])",
    "tf.keras.backend.random_uniform([2])", "tf.image.random_flip_left_right(net)",
])
def test_what_draws_in_each_step_is_named_as_such(call):
    rate = "    # The rate falls."
    found = rewrite(SEEDED.replace(rate, f"    loss += tf.reduce_sum({call})\n{rate}"),
                    to="tf2").findings
    name = call.partition("(")[0].removeprefix("tf.")
    assert [one.message for one in found if one.code in ("TEE410", "TEE411")] == [
        f"`{name}` draws different numbers from those in the Estimator"]


@pytest.mark.parametrize("new", ["", ", tf_random_seed=None"])
def test_a_program_without_a_seed_draws_anew_in_every_run_anyway(new):
    program = SEEDED.replace(", tf_random_seed=7", new).replace(
        "kernel_initializer=tf.truncated_normal_initializer(seed=2)", "activation=tf.tanh")
    assert seeds(program) == []


@pytest.mark.slow
def test_keras_3_draws_others_from_the_seeds_of_initializers():
    before = (ROOT / "migration_guide/jax/before.py").read_text()
    layer = 'tf.layers.dense(net, params["hidden"], '
    initializer = "kernel_initializer=tf.glorot_uniform_initializer(seed=3), "
    assert "tf_random_seed" not in before and before.count(layer) == 1
    assert seeds(before, "keras3") == []
    program = before.replace(layer, layer + initializer)
    [(line, message)] = seeds(program, "keras3")
    assert initializer in line
    assert message.endswith("Keras 3 draws other values from the same seed")
    assert seeds(program, "tf2") == []


def test_finding_has_the_place_in_the_text_that_the_user_wrote():
    program = SEEDED.replace("kernel_initializer=tf.truncated_normal_initializer(seed=2)",
                             "activation=tf.tanh")
    [found] = [one for one in rewrite(program, to="tf2").findings if one.code == "TEE411"]
    line = program.splitlines()[found.line - 1]
    assert "tf.estimator.tpu" in line[:found.column - 1]  # which a rewrite makes shorter
    assert line[found.column - 1:].startswith("7")
