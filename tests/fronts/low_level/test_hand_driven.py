# SPDX-License-Identifier: Apache-2.0
"""Programs that drive the TPU by hand, beside NumPy: infeed, loop, tables, outfeed."""

import time

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests import subprocesses
from tests.fronts.low_level.hand_driven_program import DENSE, FEATURES, RATE, HandDriven
from tests.spec import oracle
from tpu_estimator_embedding.channels import channel
from tpu_estimator_embedding.compat.modules import tpu_embedding
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding

tpu_estimator_embedding.install()

pytestmark = pytest.mark.skipif(not channel.are_available(), reason="channels need native kernels")

v1 = tf.compat.v1

BATCH, STEPS = 8, 4
RULES = {
    "SGD": (tpu_embedding.StochasticGradientDescentParameters(0.1),
            oracle.Optimizer("SGD", 0.1)),
    "Adagrad": (tpu_embedding.AdagradParameters(0.1), oracle.Optimizer("Adagrad", 0.1)),
    "Adam": (tpu_embedding.AdamParameters(0.1, sum_inside_sqrt=True),
             oracle.Optimizer("Adam", 0.1))}


def new_tables():
    rng = np.random.default_rng(1)
    return {"words": rng.normal(size=[13, 3]).astype(np.float32),
            "shops": rng.normal(size=[7, 2]).astype(np.float32)}


def new_batches(steps=STEPS, seed=2):
    rng = np.random.default_rng(seed)
    rows = {"words": 13, "shops": 7}
    return [{"ids": {name: rng.integers(0, rows[table], BATCH)
                     for name, table in FEATURES.items()},
             "x": rng.normal(size=[BATCH, 2]).astype(np.float32),
             "y": rng.normal(size=BATCH).astype(np.float32)} for _ in range(steps)]


class Reference:
    """The same model in NumPy."""

    def __init__(self, rule, cores, pipelined=False, linear=False):
        self.tables = oracle.Oracle(
            [oracle.Table(name, values, "sum", RULES[rule][1])
             for name, values in new_tables().items()],
            [oracle.Feature(name, table) for name, table in FEATURES.items()], num_cores=cores)
        self.dense, self.cores, self.pipelined = DENSE.astype(np.float64), cores, pipelined
        self.step, self.pending, self.linear = 0, None, linear

    def predict(self, batch):
        activations = self.tables.activations(entries(batch))
        prediction = batch["x"] @ self.dense + sum(
            value.sum(1) for value in activations.values())
        errors = prediction - batch["y"]
        losses = errors if self.linear else np.square(errors)
        return prediction, np.mean(losses.reshape(self.cores, -1), 1)

    def train(self, batch):
        prediction, losses = self.predict(batch)
        error = 2 * (prediction - batch["y"]) / BATCH  # of the mean over all cores
        if self.linear:
            error = np.full(BATCH, 1 / BATCH)
        self.dense = self.dense - RATE * error @ batch["x"]
        widths = {"words": 3, "shops": 2}
        gradients = {name: np.repeat(error[:, np.newaxis], widths[table], 1)
                     for name, table in FEATURES.items()}
        update = entries(batch), gradients, self.step
        self.step += 1
        if self.pipelined:
            update, self.pending = self.pending, update
        if update:
            self.tables.apply(*update)
        return prediction, losses

    def retrieve(self):
        if self.pending:
            self.tables.apply(*self.pending)
            self.pending = None
        return {name: table.values for name, table in self.tables.tables.items()}


def entries(batch):
    return {name: [[oracle.Entry(int(id))] for id in ids] for name, ids in batch["ids"].items()}


def check(rule, cores, *, pipelined=False, linear=False, **options):
    program = HandDriven(new_tables(), RULES[rule][0], cores, BATCH, linear=linear,
                         pipeline_execution_with_tensor_core=pipelined, **options)
    reference = Reference(rule, cores, pipelined, linear)
    for seed in (2, 3):
        losses, predictions = program.train(new_batches(seed=seed))
        for step, batch in enumerate(new_batches(seed=seed)):
            prediction, expected = reference.train(batch)
            np.testing.assert_allclose(predictions[step], prediction, atol=2e-6, rtol=2e-6)
        np.testing.assert_allclose(losses, expected, atol=2e-6, rtol=2e-6)
        reference.retrieve()  # evaluation sees all updates, also where the last one was delayed
        losses, predictions = program.evaluate(new_batches(2, seed=9))
        for step, batch in enumerate(new_batches(2, seed=9)):
            prediction, expected = reference.predict(batch)
            np.testing.assert_allclose(predictions[step], prediction, atol=2e-6, rtol=2e-6)
        np.testing.assert_allclose(losses, expected, atol=2e-6, rtol=2e-6)
    tables = program.tables()
    for name, values in reference.retrieve().items():
        np.testing.assert_allclose(tables[name][0], values, atol=2e-6, rtol=2e-6)
    np.testing.assert_allclose(program.session.run(program.weights), reference.dense, atol=2e-6)
    assert program.session.run(program.global_step) == 2 * STEPS
    return program


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("cores", [1, 2, 4, 8])
@pytest.mark.parametrize("rule", RULES)
def test_trains_and_evaluates_as_numpy(rule, cores, pipelined):
    check(rule, cores, pipelined=pipelined)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [2, 4])
@pytest.mark.parametrize("options", [
    {"loop": "queue"}, {"loop": "nested"}, {"loop": "while"}, {"loop": "none"},
    {"loop": "nested", "pipelined": True}, {"loop": "while", "pipelined": True},
    {"dummies": True}, {"dummies": True, "pipelined": True}], ids=str)
def test_other_ways_to_loop_and_to_differentiate(cores, options):
    check("Adagrad", cores, **options)


@pytest.fixture
def slow_lookups(monkeypatch):
    """Lookups that come last, if nothing waits for them."""
    lookup = PartitionedEmbedding.lookup

    def slow_lookup(engine, ids):
        with tf.control_dependencies([tf.numpy_function(lambda: time.sleep(0.03), [], [])]):
            return lookup(engine, ids)

    monkeypatch.setattr(PartitionedEmbedding, "lookup", slow_lookup)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("options", [
    {"loop": "none"}, {"loop": "none", "pipelined": True}, {"loop": "queue"}, {"loop": "nested"},
    {"loop": "while", "pipelined": True}], ids=str)
def test_update_waits_for_lookups_on_which_no_gradient_depends(options, cores, slow_lookups):
    # More threads than lookups, so that some are left for the update.
    config = v1.ConfigProto(use_per_session_threads=True, inter_op_parallelism_threads=8)
    check("SGD", cores, linear=True, session_config=config, **options)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("options", [
    {"loop": "none"}, {"loop": "none", "linear": True}, {"loop": "queue", "pipelined": True},
    {"loop": "while"}], ids=str)
@pytest.mark.parametrize("sends_after", ["activations", "train"])
def test_gradients_are_sent_after_other_ops(sends_after, options, cores):
    check("SGD", cores, sends_after=sends_after, **options)


@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("options", [
    {"loop": "body"}, {"loop": "body", "pipelined": True}, {"loop": "nested"}, {"loop": "while"},
    {"loop": "queue", "dummies": True}, {"loop": "none"}], ids=str)
def test_tables_are_created_after_the_loops(cores, options):
    program = check("Adagrad", cores, tables_last=True, **options)
    [words] = program.variables.embedding_variables_by_table["words"]
    assert words.op.name == "tower/words/part_0"


@pytest.mark.parametrize("cores", [2])
def test_batches_for_training_need_gradients(cores):
    program = HandDriven(new_tables(), RULES["SGD"][0], cores, BATCH)
    program.feed(new_batches(1), None)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Gradients must be sent for a batch "
                       "that was enqueued for training"):
        program.session.run(program.evaluated, {program.steps: 1})


@pytest.mark.long
def test_programs_in_the_default_graph():
    assert subprocesses.run_python("""
        import tensorflow.compat.v1 as tf
        import tpu_estimator_embedding
        tpu_estimator_embedding.install()
        from tensorflow.python.tpu import tpu_embedding, training_loop
        tf.disable_eager_execution()
        engine = tpu_embedding.TPUEmbedding(
            {"words": tpu_embedding.TableConfig(10, 1, tf.ones_initializer(), "sum")},
            {"title": tpu_embedding.FeatureConfig("words")}, 4, tpu_embedding.TRAINING,
            optimization_parameters=tpu_embedding.StochasticGradientDescentParameters(1.0),
            device_config=tpu_embedding.DeviceConfig(1, 2, "/job:localhost"))
        tables = engine.create_variables_and_ops()
        ids = tpu_embedding.EnqueueData(tf.constant([3, 3]), tf.constant([[0, 0], [1, 0]]))
        enqueue = engine.generate_enqueue_ops([{"title": ids}, {"title": ids}])
        def step():
            activations = engine.get_activations()["title"]
            send = engine.generate_send_gradients_op({"title": tf.ones_like(activations)})
            return send
        train = tf.tpu.shard(lambda: training_loop.repeat(1, step), num_shards=2)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run([train, enqueue])
            print(session.run(tables.embedding_variables_by_table["words"])[0][3])
    """).stdout.strip() == "[-3.]"


def test_replicas_must_be_as_many_as_cores():
    program = HandDriven(new_tables(), RULES["SGD"][0], 2, BATCH)
    with program.graph.as_default(), pytest.raises(
            ValueError, match="`num_shards` must be the number of cores of the TPUEmbedding, 2"):
        v1.tpu.shard(lambda: program.engine.get_activations()["shop"], num_shards=4)


def test_tables_cannot_be_used_in_a_condition_of_several_replicas():
    program = HandDriven(new_tables(), RULES["SGD"][0], 2, BATCH)
    with program.graph.as_default(), pytest.raises(
            RuntimeError, match="get_activations must be called directly in a computation of 2 "):
        v1.tpu.shard(lambda: tf.cond(
            program.steps > 1, lambda: program.engine.get_activations()["shop"],
            lambda: tf.zeros([4, 2])), num_shards=2)


def in_written_order():
    """Returns the configuration of a session that does not reorder sums."""
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def trained_by_estimator(rule, cores, pipelined, batches, model_dir):
    """Returns the variables of the same model after it was trained through TPUEstimator."""
    feature_column = tf.feature_column
    words = v1.tpu.experimental.shared_embedding_columns(
        [feature_column.categorical_column_with_identity(name, 13) for name in ("text", "title")],
        3, "sum", v1.constant_initializer(new_tables()["words"]),
        shared_embedding_collection_name="words")
    shop = v1.tpu.experimental.embedding_column(
        feature_column.categorical_column_with_identity("shop", 7), 2, "sum",
        v1.constant_initializer(new_tables()["shops"]))

    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices({
            key: np.concatenate([batch[key] for batch in batches]) for key in ("x", "y")} | {
            name: np.concatenate([batch["ids"][name] for batch in batches]) for name in FEATURES})
        places = [[row, 0] for row in range(params["batch_size"])]

        def to_features(batch):
            ids = {name: tf.SparseTensor(places, batch[name], [len(places), 1])
                   for name in FEATURES}
            return {"x": batch["x"], **ids}, batch["y"]

        return dataset.batch(params["batch_size"], drop_remainder=True).map(to_features)

    def model_fn(features, labels, mode, params):
        prediction = tf.add_n([
            tf.reduce_sum(tf.compat.v1.keras.layers.DenseFeatures([column])(features), 1)
            for column in (shop, words[0], words[1])])
        weights = v1.get_variable("dense", initializer=DENSE, use_resource=True)
        prediction += tf.linalg.matvec(features["x"], weights)
        loss = tf.reduce_mean(tf.square(prediction - labels))
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(RATE))
        return v1.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step()))

    estimator = v1.estimator.tpu.TPUEstimator(
        model_fn, model_dir, v1.estimator.tpu.RunConfig(
            session_config=in_written_order(), tpu_config=v1.estimator.tpu.TPUConfig(
                iterations_per_loop=STEPS, num_shards=cores)), train_batch_size=BATCH,
        embedding_config_spec=v1.estimator.tpu.experimental.EmbeddingConfigSpec(
            [shop, *words], RULES[rule][0], pipeline_execution_with_tensor_core=pipelined))
    estimator.train(input_fn, max_steps=len(batches))
    return {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}


@pytest.mark.slow
@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("rule", ["SGD", "Adagrad"])
def test_tables_have_the_bits_of_tpu_estimator(rule, cores, pipelined, tmp_path):
    batches = new_batches()
    program = HandDriven(new_tables(), RULES[rule][0], cores, BATCH,
                         session_config=in_written_order(),
                         pipeline_execution_with_tensor_core=pipelined)
    program.train(batches)
    tables = program.tables()
    expected = trained_by_estimator(rule, cores, pipelined, batches, str(tmp_path))
    found = {name: values for name, values in expected.items() if np.ndim(values) == 2}
    for table, shape in (("words", (13, 3)), ("shops", (7, 2))):
        of_estimator = [values for values in found.values() if values.shape == shape]
        assert of_estimator[0].tobytes() == tables[table][0].tobytes()
