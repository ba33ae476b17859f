# SPDX-License-Identifier: Apache-2.0
"""The engine, run as a session, as a `tf.function` and eagerly, on what the oracle is run on.

Everything here translates: the oracle's tables to a plan, its samples to the three kinds of
enqueued data, and arrays to variables and back. Nothing here computes.
"""

import numpy as np
import tensorflow as tf

from tests.spec import oracle
from tpu_estimator_embedding.config.optimization_parameters import PARAMETERS
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.stacked_activations import split_activations
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.optimizers.registry import rule_named, rules
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

RULE_CLASSES = {rule.__name__: rule for rule in rules()}  # every optimizer the package has


def to_row_optimizer(optimizer: oracle.Optimizer) -> RowOptimizer:
    return RowOptimizer(
        RULE_CLASSES[optimizer.kind](**optimizer.hyperparameters), optimizer.learning_rate,
        use_gradient_accumulation=optimizer.accumulate,
        gradient_limits=optimizer.gradient_limits, weight_limits=optimizer.weight_limits,
        weight_decay_factor=optimizer.decay,
        multiply_weight_decay_by_learning_rate=optimizer.multiply_decay_by_learning_rate)


def to_parameters(optimizer):
    """Returns the `*Parameters` that say what an `oracle.Optimizer` says."""
    parameters = PARAMETERS[rule_named(optimizer.kind).record.parameters]
    given, rate = dict(optimizer.hyperparameters), optimizer.learning_rate
    if optimizer.kind == "FrequencyEstimator":  # which has no other settings
        return parameters(**given, weight_exponent=1.0)
    given["learning_rate"] = 123.0 if callable(rate) else rate
    (low, high), (least, most) = optimizer.gradient_limits, optimizer.weight_limits
    limits = {"clip_gradient_min": low, "clip_gradient_max": high,
              "clip_weight_min": least, "clip_weight_max": most}
    if optimizer.decay:
        limits["weight_decay_factor"] = optimizer.decay
        limits["multiply_weight_decay_factor_by_learning_rate"] = (
            optimizer.multiply_decay_by_learning_rate)
    return parameters(use_gradient_accumulation=optimizer.accumulate, **given,
                      **{name: value for name, value in limits.items() if value is not None})


def to_plan(tables, features, **options) -> EmbeddingPlan:
    """Lowers the oracle's tables and features; the initializers give zeros."""
    return EmbeddingPlan.build(
        [TablePlan(table.name, *table.values.shape, tf.compat.v1.zeros_initializer(),
                   table.combiner, to_row_optimizer(table.optimizer)) for table in tables],
        [FeaturePlan(feature.name, feature.table, feature.length) for feature in features],
        **options)


def encode(samples, kind, *, ids_dtype=np.int64, weighted=False):
    """Returns samples as the arrays `(ids, places, weights)` of one kind of enqueued data.

    Args:
        samples: a list of lists of `oracle.Entry`.
        kind: "sparse" (`[n, 2]` sample indices), "flat sparse" (`[n]`), "dense" (no places)
            or "ragged" (row splits).
    """
    entries = [(sample, entry) for sample, entries in enumerate(samples) for entry in entries]
    ids = np.array([entry.id for _, entry in entries], ids_dtype)
    weights = np.array([entry.weight for _, entry in entries], np.float32) if weighted else None
    if kind == "dense":
        return ids, None, weights
    if kind == "ragged":
        return ids, np.cumsum([0, *map(len, samples)]).astype(np.int64), weights
    if kind == "flat sparse":
        return ids, np.array([sample for sample, _ in entries], np.int64), weights
    places = [(sample, entry.position) for sample, entry in entries]
    return ids, np.array(places, np.int64).reshape([-1, 2]), weights


class Runner:
    """An engine that trains on arrays, one step after another.

    Args:
        plan: what to build.
        kinds: feature name -> kind of its enqueued data.
        num_replicas: replicas that each batch is shared out to.
        on_servers: whether rows are exchanged as with tables in other tasks.
    """

    def __init__(self, plan, kinds, num_replicas=1, *, on_servers=False):
        self.plan, self.kinds, self.num_replicas = plan, kinds, num_replicas
        self.on_servers = on_servers
        self.engine = self._create()

    def train(self, arrays, gradients, batch_size, step):
        """Runs one step.

        Args:
            arrays: feature name -> `(ids, places, weights)`; a list of it if there are
                several replicas.
            gradients: feature name -> gradient of its activations in the whole batch.

        Returns:
            Feature name -> activations of the whole batch.
        """
        share = batch_size // self.num_replicas
        inputs = {"step": np.int64(step), "batch_size": np.int64(share)}
        for replica, of_replica in enumerate([arrays] if self.num_replicas == 1 else arrays):
            for name, triple in of_replica.items():
                for part, array in zip(("ids", "places", "weights"), triple, strict=True):
                    if array is not None:
                        inputs[f"{part} {name} {replica}"] = array
            for name, gradient in gradients.items():
                part = gradient[replica * share:(replica + 1) * share]
                inputs[f"gradient {name} {replica}"] = np.asarray(part, np.float32)
        return self._run(inputs)

    def variables(self):
        """Returns (table, slot) -> parts; the slot of the table itself is None."""
        result = {}
        for name, table in self.engine.variables.items():
            result[name, None] = table.parts
            result.update({(name, slot): parts for slot, parts in table.slots.items()})
        return result

    def _step(self, inputs):
        """Builds or runs the lookup and the update of one step."""
        replicas = range(self.num_replicas)
        batch_size = inputs["batch_size"]
        ids = prepare_replicas(self.plan, [(self._datas(inputs, replica), batch_size)
                                           for replica in replicas], training=True,
                               on_servers=self.on_servers)
        stacked = self.engine.lookup(ids)
        counts = ids.rows_of_replicas(self.plan)
        shares = {name: tf.split(values, counts[name], num=self.num_replicas)
                  for name, values in stacked.items()}
        by_replica = [split_activations(
            self.plan, {name: share[replica] for name, share in shares.items()}, batch_size)
            for replica in replicas]
        activations = {name: tf.concat([of_replica[name] for of_replica in by_replica], 0)
                       for name in self.kinds}
        # These gradients are given, not computed from the activations: without the
        # dependency a session could update the tables before it looks them up.
        with tf.control_dependencies(list(stacked.values())):
            updated = self.engine.apply_gradients(ids, self._stack(inputs), inputs["step"])
        return activations, updated

    def _datas(self, inputs, replica):
        datas = {}
        for name, kind in self.kinds.items():
            triple = [inputs.get(f"{part} {name} {replica}")
                      for part in ("ids", "places", "weights")]
            datas[name] = (RaggedEnqueueData if kind == "ragged" else EnqueueData)(*triple)
        return datas

    def _stack(self, inputs):
        return {table.name: tf.concat(
            [tf.reshape(inputs[f"gradient {feature.name} {replica}"], [-1, table.dimension])
             for replica in range(self.num_replicas)
             for feature in self.plan.features_of(table.name)], 0) for table in self.plan.tables}


class EagerRunner(Runner):
    """Runs op by op."""

    def _create(self):
        return PartitionedEmbedding(
            self.plan, create_variables(self.plan, default_names(self.plan)))

    def _run(self, inputs):
        activations, _ = self._step({name: tf.constant(array) for name, array in inputs.items()})
        return {name: activation.numpy() for name, activation in activations.items()}

    def read(self):
        return {key: [part.numpy() for part in parts] for key, parts in self.variables().items()}

    def write(self, values):
        for key, parts in self.variables().items():
            for part, value in zip(parts, values[key], strict=True):
                part.assign(value)


class FunctionRunner(EagerRunner):
    """Traces one `tf.function` for shapes that are not known."""

    _function = None

    def _run(self, inputs):
        if self._function is None:
            specs = {name: tf.TensorSpec(free_shape(array), array.dtype)
                     for name, array in inputs.items()}
            self._function = tf.function(lambda inputs: self._step(inputs)[0],
                                         input_signature=[specs])
        activations = self._function({name: tf.constant(array)
                                      for name, array in inputs.items()})
        return {name: activation.numpy() for name, activation in activations.items()}


class GraphRunner(Runner):
    """Builds one graph of placeholders and runs it in a session."""

    _fetches = None

    def _create(self):
        self.graph = tf.Graph()
        with self.graph.as_default():
            engine = PartitionedEmbedding(
                self.plan, create_variables(self.plan, default_names(self.plan)))
            self.session = tf.compat.v1.Session(graph=self.graph)
            self.session.run(tf.compat.v1.global_variables_initializer())
        return engine

    def _run(self, inputs):
        if self._fetches is None:
            with self.graph.as_default():
                self._placeholders = {
                    name: tf.compat.v1.placeholder(array.dtype, free_shape(array))
                    for name, array in inputs.items()}
                self._fetches = self._step(self._placeholders)
        feeds = {self._placeholders[name]: array for name, array in inputs.items()}
        return self.session.run(self._fetches, feeds)[0]

    def read(self):
        return self.session.run(self.variables())

    def write(self, values):
        with self.graph.as_default():
            for key, parts in self.variables().items():
                for part, value in zip(parts, values[key], strict=True):
                    self.session.run(part.assign(value, read_value=False))


RUNNERS = {"session": GraphRunner, "function": FunctionRunner, "eager": EagerRunner}


def free_shape(array):
    """The shape of an array with every size open but those of coordinates and rows."""
    return [None, *array.shape[1:]] if array.ndim else []


def state_of(tables, num_hosts, strategy):
    """Returns the oracle's tables and slots, cut for hosts, as `Runner.write` takes them."""
    state = {}
    for table in tables:
        for slot, values in {None: table.values, **table.slots}.items():
            state[table.name, slot] = [part.astype(np.float32) for part in
                                       oracle.cut(values, num_hosts, strategy)]
    return state


def assert_same_state(actual, expected, rtol, atol):
    """Compares tables and slots part by part."""
    assert actual.keys() == expected.keys()
    for key, parts in expected.items():
        assert len(actual[key]) == len(parts)
        for host, (part, wanted) in enumerate(zip(actual[key], parts, strict=True)):
            np.testing.assert_allclose(part, wanted, rtol, atol, err_msg=f"{key} host {host}")
