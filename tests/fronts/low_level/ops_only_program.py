# SPDX-License-Identifier: Apache-2.0
"""A program without a TPUEmbedding: a configuration message, written by hand, and ops."""

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2
from tensorflow.python.tpu.ops import tpu_ops

from tests.spec import oracle
from tests.spec.oracle_optimizers import DEFAULTS

v1 = tf.compat.v1
Config = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration
OPTIONS = v1.RunOptions(timeout_in_ms=20_000)

# In no alphabetical order, which is the order of a message.
FEATURES = [oracle.Feature("history", "words", 3), oracle.Feature("shop", "shops"),
            oracle.Feature("clicked", "words")]
TABLES = ["words", "shops"]
VOCABULARIES = {"words": 11, "shops": 7}
COMBINERS = {"words": "mean", "shops": "sum"}

NAMES = {  # of the ops and of the fields of the message
    "SGD": "stochastic_gradient_descent", "Adagrad": "adagrad", "Adam": "adam", "FTRL": "ftrl",
    "ProximalAdagrad": "proximal_adagrad", "AdagradMomentum": "adagrad_momentum",
    "Momentum": "momentum", "RMSProp": "rms_prop", "ProximalYogi": "proximal_yogi",
    "FrequencyEstimator": "frequency_estimator"}
FIELDS = {"l1_regularization_strength": "l1", "l2_regularization_strength": "l2",
          "learning_rate_power": "lr_power", "sum_inside_sqrt": "use_sum_inside_sqrt",
          "multiply_linear_by_learning_rate": "multiply_linear_by_lr"}


def fill(message, optimizer, tag):
    """Writes an optimizer of the oracle; a tag makes its learning rate dynamic."""
    if tag is None:
        message.learning_rate.constant = optimizer.learning_rate
    else:
        message.learning_rate.dynamic.tag = tag
    own = getattr(message, NAMES[optimizer.kind])
    own.SetInParent()
    for name, value in {**DEFAULTS[optimizer.kind], **optimizer.hyperparameters}.items():
        if name == "lazy_adam":
            own.use_non_lazy_adam = not value
        elif not name.startswith("initial_"):
            setattr(own, FIELDS.get(name, name), value)
    for limits, pair in ((message.gradient_clipping_limits, optimizer.gradient_limits),
                         (message.clipping_limits, optimizer.weight_limits)):
        for bound, value in zip((limits.lower, limits.upper), pair, strict=True):
            if value is not None:
                bound.value = value
    message.weight_decay_factor = optimizer.decay
    message.multiply_weight_decay_factor_by_learning_rate = (
        optimizer.multiply_decay_by_learning_rate)
    if not optimizer.accumulate:
        message.gradient_accumulation_status = 2


def config(tables, share, *, cores=1, hosts=1, strategy="div", tags=None, pipelined=False,
           features=FEATURES):
    """The message of tables of the oracle, with a share of the batch for each core."""
    proto = Config(mode=Config.TRAINING, batch_size_per_tensor_core=share, num_hosts=hosts,
                   num_tensor_cores=cores, pipeline_execution_with_tensor_core=pipelined,
                   sharding_strategy=Config.MOD if strategy == "mod" else Config.DIV_DEFAULT)
    for table in tables:
        rows, columns = table.values.shape
        descriptor = proto.table_descriptor.add(
            name=table.name, vocabulary_size=rows, dimension=columns)
        fill(descriptor.optimization_parameters, table.optimizer, (tags or {}).get(table.name))
    for feature in features:
        proto.feature_descriptor.add(
            table_id=TABLES.index(feature.table), name=feature.name,
            input_shape=[share, feature.length] if feature.length else [share])
    return proto


def random_tables(rng, optimizer, dimensions=(4, 3)):
    """Tables whose slots differ from row to row, as in a checkpoint."""
    tables = []
    for name, dimension in zip(TABLES, dimensions, strict=True):
        values = rng.uniform(-1, 1, [VOCABULARIES[name], dimension]).astype(np.float32)
        table = oracle.Table(name, values, COMBINERS[name], optimizer[name] if isinstance(
            optimizer, dict) else optimizer)
        for slot, initial in table.slots.items():
            table.slots[slot] = initial + rng.uniform(0, 0.25, initial.shape).astype(np.float32)
        tables.append(table)
    return tables


class OpsOnly:
    """Loads, trains and retrieves in three graphs and sessions.

    Args:
        proto: the configuration.
        tables: of the oracle, to load.
        rates: function of the step, for the learning rates of all tags.
    """

    def __init__(self, proto, tables, rates=None):
        self.proto, self.rates = proto, rates
        self.kinds = {table.name: NAMES[table.optimizer.kind] for table in tables}
        self.slots = {table.name: list(table.slots) for table in tables}
        self.strategy = "mod" if proto.sharding_strategy == Config.MOD else "div"
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system(embedding_config=proto))
        self.load(tables)
        self.graph = tf.Graph()
        with self.graph.as_default():
            self._build()
            self.session = v1.Session()

    def load(self, tables):
        with tf.Graph().as_default(), v1.Session() as session:
            hosts = self.proto.num_hosts
            for table in tables:
                op = getattr(tpu_ops, f"load_tpu_embedding_{self.kinds[table.name]}_parameters")
                parts = [oracle.cut(values, hosts, self.strategy)
                         for values in (table.values, *table.slots.values())]
                for shard, values in enumerate(zip(*parts, strict=True)):
                    session.run(op(*(value.astype(np.float32) for value in values),
                                   num_shards=hosts, shard_id=shard, table_name=table.name))

    def retrieve(self):
        """Returns table name -> "parameters" or slot name -> its parts."""
        found = {}
        with tf.Graph().as_default(), v1.Session() as session:
            for number, (table, kind) in enumerate(self.kinds.items()):
                op = getattr(tpu_ops, f"retrieve_tpu_embedding_{kind}_parameters")
                shards = [op(num_shards=self.proto.num_hosts, shard_id=shard, table_id=number)
                          for shard in range(self.proto.num_hosts)]
                parts = [tf.nest.flatten(session.run(shard)) for shard in shards]
                found[table] = dict(zip(["parameters", *self.slots[table]],
                                        zip(*parts, strict=True), strict=True))
        return found

    def _build(self):
        proto, config = self.proto, self.proto.SerializeToString()
        cores = proto.num_tensor_cores
        per_host = cores // proto.num_hosts
        self.inputs, self.enqueue, self.sends = [], [], []
        self.activations = []
        self.step = v1.placeholder(tf.int64, [])
        for core in range(cores):
            inputs = [(v1.placeholder(tf.int64, [None, 2]), v1.placeholder(tf.int64, [None]),
                       v1.placeholder(tf.float32, [None])) for _ in FEATURES]
            self.inputs.append(inputs)
            with tf.device(f"/job:worker/task:{core // per_host}/device:CPU:0"):
                self.enqueue.append(tpu_ops.enqueue_tpu_embedding_sparse_tensor_batch(
                    *zip(*inputs, strict=True), device_ordinal=core % per_host,
                    table_ids=[TABLES.index(feature.table) for feature in FEATURES],
                    max_sequence_lengths=[feature.length for feature in FEATURES],
                    combiners=[COMBINERS[table] for table in TABLES]))
            by_feature = bool(proto.feature_descriptor)
            received = tpu_ops.recv_tpu_embedding_activations(
                num_outputs=len(FEATURES if by_feature else TABLES), config=config)
            self.activations.append(received)
            self.sends.append(tpu_ops.send_tpu_embedding_gradients(
                [gradient_of(value) for value in received], config,
                learning_rates=self.rates and self.rates(tf.cast(self.step, tf.float32))))

    def train(self, batch, step):
        """Returns the activations of each core, in their order."""
        self.enqueue_batch(batch)
        return self.session.run([self.activations, self.sends], {self.step: step}, OPTIONS)[0]

    def enqueue_batch(self, batch):
        share = self.proto.batch_size_per_tensor_core
        feeds = {}
        for core, inputs in enumerate(self.inputs):
            for feature, tensors in zip(FEATURES, inputs, strict=True):
                samples = batch[feature.name][core * share:(core + 1) * share]
                entries = [(sample, entry) for sample, of_sample in enumerate(samples)
                           for entry in of_sample]
                feeds[tensors[0]] = np.array([[sample, entry.position if feature.length else 0]
                                              for sample, entry in entries]).reshape([-1, 2])
                feeds[tensors[1]] = [entry.id for _, entry in entries]
                feeds[tensors[2]] = [entry.weight for _, entry in entries]
        self.session.run(self.enqueue, feeds, OPTIONS)


def gradient_of(activation):
    """The gradient that programs and the oracle send for an activation."""
    return activation * 0.5 + 0.25
