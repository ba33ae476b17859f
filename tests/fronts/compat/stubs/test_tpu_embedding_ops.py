# SPDX-License-Identifier: Apache-2.0
"""Programs that enqueue, receive and send by the ops of a TPU, beside NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

import tpu_estimator_embedding
from tpu_estimator_embedding import settings, tf_tpu
from tpu_estimator_embedding.compat.modules import tpu_embedding as te
from tpu_estimator_embedding.compat.stubs import tpu_system
from tpu_estimator_embedding.low_level import tpu_embedding as low_level
from tpu_estimator_embedding.ops.assertion import sentence_of

tpu_estimator_embedding.install()

v1 = tf.compat.v1

BATCH = 3  # samples of a core
RATE = 0.5
SHAPES = {"users": (10, 2), "words": (12, 3)}
# Rows of a sample: table -> feature -> its rows. A history has two positions.
ROWS = {"users": {"author": [0]}, "words": {"body": [0], "history": [1, 2], "title": [3]}}
FEATURES = [feature for table in ROWS.values() for feature in table]


@pytest.fixture(autouse=True)
def a_machine_without_a_tpu(monkeypatch):
    monkeypatch.setattr(tpu_system, "_answered", set())
    monkeypatch.delenv(settings.HOSTS.variable, raising=False)
    monkeypatch.setenv(settings.CORES.variable, "1")  # ops on the hosts of a TPU run here


def make_engine(cores=1, hosts=1, mode=te.TRAINING, combiner="sum", **options):
    tables = {name: te.TableConfig(*shape, combiner=combiner) for name, shape in SHAPES.items()}
    features = {feature: te.FeatureConfig(table, max_sequence_length=2 * (feature == "history"))
                for table, of_table in ROWS.items() for feature in of_table}
    optimizer = te.StochasticGradientDescentParameters(RATE) if mode == te.TRAINING else None
    return te.TPUEmbedding(tables, features, BATCH * cores, mode, optimization_parameters=optimizer,
                           device_config=te.DeviceConfig(hosts, cores, "/job:worker"), **options)


def num_rows(table):
    return sum(map(len, ROWS[table].values()))


def random_batch(rng, one_id):
    """For each table, the (row, id, weight) of one core, sorted by row."""
    batch = {}
    for table, (vocabulary, _) in SHAPES.items():
        batch[table] = []
        for row in range(BATCH * num_rows(table)):
            is_position = table == "words" and row % num_rows(table) in ROWS["words"]["history"]
            for _ in range(1 if one_id or is_position else rng.integers(0, 4)):
                weight = 1.0 if one_id or is_position else float(rng.integers(1, 4))
                batch[table].append((row, int(rng.integers(vocabulary)), weight))
    return batch


def entries(batch, feature):
    """The samples, positions, ids and weights of a feature."""
    table = next(table for table in ROWS if feature in ROWS[table])
    found = [(row // num_rows(table), ROWS[table][feature].index(row % num_rows(table)), id, weight)
             for row, id, weight in batch[table] if row % num_rows(table) in ROWS[table][feature]]
    return [np.array(part) for part in zip(*found, strict=True)] if found else [
        np.zeros(0, np.int64)] * 3 + [np.zeros(0, np.float32)]


def indices(batch, feature):
    samples, positions, *_ = entries(batch, feature)
    return np.stack([samples, positions], 1)


def splits(batch, feature):
    samples, *_ = entries(batch, feature)
    return np.searchsorted(samples, range(BATCH + 1))


def by_feature(batch, features, places):
    return ([places(batch, feature) for feature in features],
            [entries(batch, feature)[2] for feature in features],
            [entries(batch, feature)[3].astype(np.float32) for feature in features])


def integer(batch, **options):
    return tpu_ops.enqueue_tpu_embedding_integer_batch(
        [tf.constant([id for _, id, _ in batch[table]]) for table in ROWS], **options)


def sparse(batch, **options):
    columns = [[np.array([entry[part] for entry in batch[table]]) for table in ROWS]
               for part in range(3)]
    return tpu_ops.enqueue_tpu_embedding_sparse_batch(*columns, **options)


def sparse_tensor(batch, **options):
    features = ["body", "author", "history", "title"]  # tables in any order
    return tpu_ops.enqueue_tpu_embedding_sparse_tensor_batch(
        *by_feature(batch, features, indices), table_ids=[1, 0, 1, 1],
        max_sequence_lengths=[0, 0, 2, 0], **options)


def ragged(batch, **options):
    return tpu_ops.enqueue_tpu_embedding_ragged_tensor_batch(
        *by_feature(batch, FEATURES, splits), table_ids=[0, 1, 1, 1],
        max_sequence_lengths=[0, 0, 2, 0], combiners=["sum", "sum"], **options)


def arbitrary(batch, **options):
    def places(batch, feature):
        if feature == "body":
            return splits(batch, feature)
        third_column = feature == "history"  # as TensorFlow pads the indices of sequences
        return np.pad(indices(batch, feature), [[0, 0], [0, int(third_column)]])

    return tpu_ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
        *by_feature(batch, FEATURES, places), **options)


def dense(batch, **options):
    """One id in every row, said by empty places and weights whose size no shape tells."""
    def empty(dtype):
        return v1.placeholder_with_default(tf.zeros([0], dtype), [None])

    features = ["author", "body", "title"]
    places = [empty(tf.int64)] * 2 + [np.zeros([0], np.int64)]
    places.insert(2, splits(batch, "history"))
    features.insert(2, "history")
    return tpu_ops.enqueue_tpu_embedding_ragged_tensor_batch(
        places, [tf.constant(entries(batch, feature)[2]) for feature in features],
        [empty(tf.float32)] * 3 + [np.zeros([0], np.float32)], table_ids=[0, 1, 1, 1],
        max_sequence_lengths=[0, 0, 2, 0], **options)


FORMS = {integer: True, sparse: False, sparse_tensor: False, ragged: False, arbitrary: False,
         dense: True}  # whether every row has exactly one id


class Oracle:
    def __init__(self, rng):
        self.tables = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}

    def activations(self, batch):
        found = {table: np.zeros([BATCH * num_rows(table), SHAPES[table][1]]) for table in ROWS}
        for table, of_table in batch.items():
            for row, id, weight in of_table:
                found[table][row] += weight * self.tables[table][id]
        return list(found.values())

    def update(self, batches, gradients):
        for batch, of_core in zip(batches, gradients, strict=True):
            for table, gradient in zip(batch, of_core, strict=True):
                for row, id, weight in batch[table]:
                    self.tables[table][id] -= RATE * weight * gradient[row]


class Program:
    """A graph for one batch: enqueues for every core, receives and sends gradients."""

    def __init__(self, rng, engine, enqueue, tables, batches, mode_override=None):
        self.graph, self.oracle_gradients = tf.Graph(), []
        with self.graph.as_default():
            self.variables = engine.create_variables_and_ops().embedding_variables_by_table
            self.enqueues, self.sends, self.activations = [], [], []
            config = engine.config_proto
            config = type(config).FromString(config.SerializeToString())
            config.ClearField("feature_descriptor")  # as TensorFlow 1.15 configures a TPU
            config = config.SerializeToString()
            per_host = engine.num_cores_per_host
            for core, batch in enumerate(batches):
                with tf.device(f"/job:worker/task:{core // per_host}/device:CPU:0"):
                    self.enqueues.append(enqueue(batch, device_ordinal=core % per_host,
                                                 mode_override=mode_override))
            for _ in batches:
                received = tpu_ops.recv_tpu_embedding_activations(num_outputs=2, config=config)
                self.activations.append(received)
                gradients = [rng.normal(size=tensor.shape.as_list()) for tensor in received]
                self.oracle_gradients.append(gradients)
                if mode_override != "inference":
                    self.sends.append(tpu_ops.send_tpu_embedding_gradients(
                        [tf.cast(gradient, tf.float32) + 0 * tensor
                         for gradient, tensor in zip(gradients, received, strict=True)], config))
            self.session = v1.Session()
            for name, parts in self.variables.items():
                ends = np.cumsum([part.shape[0] for part in parts])
                for part, rows in zip(parts, np.split(tables[name], ends[:-1]), strict=True):
                    self.session.run(part.initializer, {part.initializer.inputs[1]: rows})

    def run(self):
        options = v1.RunOptions(timeout_in_ms=20_000)
        with self.graph.as_default():
            self.session.run(self.enqueues, options=options)
            found, _ = self.session.run([self.activations, self.sends], options=options)
            tables = {name: np.concatenate(self.session.run(list(parts)))
                      for name, parts in self.variables.items()}
        return found, tables


@pytest.mark.parametrize("cores, hosts", [(1, 1), (2, 1), (4, 2)])
@pytest.mark.parametrize("enqueue", FORMS, ids=lambda form: form.__name__)
def test_batch_of_every_form_trains_the_tables(enqueue, cores, hosts):
    rng = np.random.default_rng(cores)
    oracle = Oracle(rng)
    batches = [random_batch(rng, FORMS[enqueue]) for _ in range(cores)]
    program = Program(rng, make_engine(cores, hosts), enqueue, oracle.tables, batches)
    found, tables = program.run()
    for core, batch in zip(found, batches, strict=True):
        for activations, expected in zip(core, oracle.activations(batch), strict=True):
            np.testing.assert_allclose(activations, expected, rtol=1e-5, atol=1e-5)
    oracle.update(batches, program.oracle_gradients)
    for name, expected in oracle.tables.items():
        np.testing.assert_allclose(tables[name], expected, rtol=1e-5, atol=1e-5)


def run_for_inference(enqueue):
    rng = np.random.default_rng(7)
    oracle = Oracle(rng)
    batch = random_batch(rng, True)
    program = Program(rng, make_engine(), enqueue, oracle.tables, [batch],
                      mode_override="inference")
    for _ in range(2):  # no gradients are due
        found, tables = program.run()
    np.testing.assert_allclose(found[0][1], oracle.activations(batch)[1], rtol=1e-5)
    np.testing.assert_allclose(tables["words"], oracle.tables["words"], rtol=1e-6)


def test_batch_for_inference_changes_nothing():
    run_for_inference(integer)


@pytest.mark.parametrize("tensor", [
    tf.constant, lambda mode: v1.placeholder_with_default(mode, [])], ids=["known", "placeholder"])
def test_mode_may_be_a_tensor(tensor):
    run_for_inference(lambda batch, mode_override, **options: integer(
        batch, mode_override=tensor(mode_override), **options))


def test_mode_that_is_known_when_the_op_runs_is_that_of_each_batch():
    rng = np.random.default_rng(3)
    oracle = Oracle(rng)
    batch = random_batch(rng, True)
    mode = []

    def enqueue(batch, mode_override, **options):
        mode.append(v1.placeholder(tf.string, []))
        return integer(batch, mode_override=mode[0], **options)

    program = Program(rng, make_engine(), enqueue, oracle.tables, [batch])
    session, options = program.session, v1.RunOptions(timeout_in_ms=20_000)
    for name in ("train", "inference", "unspecified", "inference", "training"):
        session.run(program.enqueues, {mode[0]: name}, options=options)
        is_training = name != "inference"
        found, _ = session.run([program.activations, program.sends if is_training else []],
                               options=options)
        np.testing.assert_allclose(found[0][0], oracle.activations(batch)[0], rtol=1e-4, atol=1e-5)
        if is_training:
            oracle.update([batch], program.oracle_gradients)
    with pytest.raises(tf.errors.InvalidArgumentError) as refused:
        session.run(program.enqueues, {mode[0]: "eval"}, options=options)
    assert sentence_of(str(refused.value)).startswith(
        "`mode_override` must be one of 'unspecified', 'inference', 'train', 'training', ")


def test_config_of_tensorflow_2_has_a_tensor_for_each_feature():
    engine = make_engine()
    with tf.Graph().as_default():
        engine.create_variables_and_ops()
        config = engine.config_proto.SerializeToString()
        received = tpu_ops.recv_tpu_embedding_activations(num_outputs=4, config=config)
        assert [tensor.shape.as_list() for tensor in received] == [
            [BATCH, 2], [BATCH, 3], [BATCH, 2, 3], [BATCH, 3]]
        assert tpu_ops.send_tpu_embedding_gradients(received, config) is not None
        by_table = tpu_ops.recv_tpu_embedding_activations(num_outputs=2, config=config)
        assert [tensor.shape.as_list() for tensor in by_table] == [[3, 2], [12, 3]]


def ordinals_of_ops():
    """The number of cores of the engine that ops without one use."""
    with tf.Graph().as_default(), pytest.raises(ValueError) as refused:
        integer(random_batch(np.random.default_rng(1), True), device_ordinal=99)
    return str(refused.value).partition("), the cores")[0].rpartition(" ")[2]


@pytest.mark.parametrize("initialize", [v1.tpu.initialize_system, tf_tpu.initialize_system])
def test_engine_is_the_last_one_made_or_configured(initialize):
    first, last = make_engine(cores=4), make_engine()
    assert ordinals_of_ops() == "1"
    with tf.Graph().as_default():
        initialize(embedding_config=first.config_proto)
    assert ordinals_of_ops() == "4"
    with tf.Graph().as_default():
        initialize()
        assert ordinals_of_ops() == "4"
        initialize(embedding_config=last.config_proto)
    assert ordinals_of_ops() == "1"


def test_ops_need_an_engine(monkeypatch):
    monkeypatch.setattr(low_level, "_configured", [])
    with pytest.raises(RuntimeError, match="`tpu_ops.recv_tpu_embedding_activations` must be called"
                                           " after a TPUEmbedding was created, got none"):
        tpu_ops.recv_tpu_embedding_activations(num_outputs=2, config=b"")


def test_number_of_ids_that_no_shape_tells_is_checked():
    engine = make_engine()
    with tf.Graph().as_default(), v1.Session() as session:
        engine.create_variables_and_ops()
        ids = v1.placeholder(tf.int32, [None])
        enqueue = tpu_ops.enqueue_tpu_embedding_integer_batch([tf.zeros([3], tf.int32), ids], 0)
        with pytest.raises(tf.errors.InvalidArgumentError) as refused:
            session.run(enqueue, {ids: range(9)})
        assert sentence_of(str(refused.value)) == (
            "Ids of table 'words' must be 12, 4 for each of 3 samples, got 9.")


def test_ops_of_a_tpu_that_answers_are_tensorflows(monkeypatch):
    monkeypatch.setattr(tpu_system, "_answered", {"grpc://somewhere:8470"})
    with tf.Graph().as_default():
        op = tpu_ops.enqueue_tpu_embedding_integer_batch([[0], [1]], 0)
    assert op.type == "EnqueueTPUEmbeddingIntegerBatch"


THREE = [[0, 1, 2]]


@pytest.mark.parametrize("call, sentence", [
    (lambda config: tpu_ops.enqueue_tpu_embedding_integer_batch(THREE, 0),
     r"`batch` must be a list of 2, one for each table of \['users', 'words'\], got \[\[0, 1, 2"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_integer_batch([[0] * 3, [1] * 9], 0),
     "Ids of table 'words' must be 12, 4 for each of 3 samples, got 9"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_integer_batch([[0.5] * 3, [1] * 12], 0),
     "Ids of feature 'author' must be integers, got 'float32'"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_sparse_batch(THREE * 2, THREE, THREE * 2, 0),
     "`embedding_indices` must be a list of 2, one for each table"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_sparse_batch(
        THREE * 2, THREE * 2, THREE * 2, 0, combiners=["sum", "mean"]),
     r"`combiners` must be equal to .*, \['sum', 'sum'\], got \['sum', 'mean'\]"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_sparse_tensor_batch(
        THREE * 4, THREE * 4, THREE * 4, [0, 0, 1, 1], 0),
     r"`table_ids` must be the table of each feature, \[0, 1, 1, 1\] in any order, got \[0, 0"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_ragged_tensor_batch(
        THREE * 4, THREE * 4, THREE * 4, [0, 1, 1, 1], 0),
     r"`max_sequence_lengths` must be equal to .*, \[0, 0, 2, 0\], got \[0, 0, 0, 0"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_ragged_tensor_batch(
        THREE * 4, THREE * 4, THREE * 4, [0, 1, 1, 1], 0, [0, 0, 2, 0], [1, 2, 1, 1]),
     r"`num_features` must be 1 for every entry, got \[1, 2, 1, 1\]\. Enqueue an entry"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
        [[[[0]]]] * 4, THREE * 4, THREE * 4, 0),
     "`sample_indices_or_row_splits` must be tensors of rank 1 or 2"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_integer_batch([[0] * 3, [1] * 12], -1),
     r"`device_ordinal` must be in \[0, 1\), the cores of a host, got -1"),
    (lambda config: tpu_ops.enqueue_tpu_embedding_integer_batch([[0] * 3, [1] * 12], 0, "eval"),
     "`mode_override` must be one of 'unspecified', 'inference', 'train'"),
    (lambda config: tpu_ops.recv_tpu_embedding_activations(3, config),
     "`num_outputs` must be 2, one for each table, or 4, one for each feature, got 3"),
    (lambda config: tpu_ops.recv_tpu_embedding_activations(2, b"no proto"),
     "`config` must be a serialized TPUEmbeddingConfiguration, got b'no proto'"),
    (lambda config: tpu_ops.recv_tpu_embedding_activations(2, b""),
     r"`config` must be the configuration of the TPU, with the tables \[\('users'"),
    (lambda config: tpu_ops.send_tpu_embedding_gradients([tf.zeros([3, 2])] * 2, config),
     r"`inputs\[1\]` must be of shape \[12, 3\]"),
    (lambda config: tpu_ops.send_tpu_embedding_gradients([0], config, learning_rates=[0.1]),
     r"`learning_rates` must be a list of 0, one for each dynamic learning rate, got \[0\.1\]"),
])
def test_wrong_argument_is_named(call, sentence):
    engine = make_engine()
    with tf.Graph().as_default():
        engine.create_variables_and_ops()
        with pytest.raises(ValueError, match=sentence):
            call(engine.config_proto.SerializeToString())


def test_tables_that_average_need_combiners():
    make_engine(combiner="mean")
    batch = random_batch(np.random.default_rng(2), True)
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match=(
                r"`combiners` must be equal to .* tables, \['mean', 'mean'\], got None\. "
                r"Without combiners, the ops sum\.")):
            sparse_tensor(batch, device_ordinal=0)
        assert sparse_tensor(batch, device_ordinal=0, combiners=["mean", "mean"]) is not None
        assert integer(batch, device_ordinal=0) is not None  # one id is its own average
