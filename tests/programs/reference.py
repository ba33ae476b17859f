# SPDX-License-Identifier: Apache-2.0
"""What a program must compute: its model_fn in a stock graph, beside the tests' oracle.

The oracle holds the tables. For every batch it looks up, the graph computes the loss, the
gradients of the activations and the update of the model's own variables, and the oracle
updates the tables. Pipelined, it looks up one update later. Nothing of the package takes part,
but for the sum over replicas, which is the identity for one replica, and columns, which
return their activation. Columns for a TensorCore are TensorFlow's own: they look up the first
ids of every sample in a variable of the graph.

To finish, it evaluates and predicts likewise, from the last values; it evaluates with averages in
the place of variables where the program restores them so.
"""

import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.tpu import tpu_function

from tests.programs.comparison import Outcome
from tests.programs.draft import STEPS
from tests.programs.ways import load_program, quiet, whole_name
from tests.spec import oracle
from tests.spec.oracle_optimizers import suffixes
from tpu_estimator_embedding.compat.stubs import tpu_ops

v1 = tf.compat.v1
SWAP = "variables_to_restore()"  # of moving averages, for evaluation
MASK = "__TENSOR_CORE_MASK"  # what TensorFlow's columns for a TensorCore read, too
DUMMY = "tpu_embedding_dummy_table_variable"
KINDS = {"StochasticGradientDescent": "SGD", "Ftrl": "FTRL"}
LIMITS = ("clip_gradient_min", "clip_gradient_max", "clip_weight_min", "clip_weight_max")


class Embeddings:
    """The tables of a program as the oracle has them.

    Args:
        spec: the program's EmbeddingConfigSpec.
        first: name -> value of every variable before the first step.
    """

    def __init__(self, spec: Any, first: Mapping[str, Any]) -> None:
        tables, self.features, self.weights, self.names = [], [], {}, {}
        for feature, table, length, weights, config in _features_of(spec):
            self.features.append(oracle.Feature(feature, table, length))
            self.weights[feature] = weights
            if table not in self.names:
                self.names[table] = _variable_of(table, first)
                optimizer = to_optimizer(spec, config)
                tables.append(_with_slots(table, self.names[table], config, optimizer, first))
        self.widths = {column.get_feature_key_name(): column._tensor_core_shape[1]
                       for column in spec.tensor_core_feature_columns or ()}
        self.multiplier = spec.experimental_gradient_multiplier_fn
        self.oracle = oracle.Oracle(tables, self.features,
                                    _of_step(self.multiplier) if self.multiplier else None)

    def batch(self, features: Mapping[str, Any]) -> oracle.Batch:
        """Returns the ids of a batch as the oracle takes them."""
        return {feature.name: _samples(features[feature.name],
                                       features.get(self.weights[feature.name]))
                for feature in self.features}

    def state(self) -> dict[str, np.ndarray]:
        """Returns name of variable -> value."""
        values = {}
        for name, table in self.oracle.tables.items():
            values[self.names[name]] = table.values.copy()
            for slot, array in table.slots.items():
                suffix = suffixes(table.optimizer.kind)[slot]
                values[f"{self.names[name]}/{suffix}"] = array.copy()
        return values


def _features_of(spec: Any) -> list[tuple[str, str, int, str | None, Any]]:
    """Returns feature, table, length, key of weights and what configures the table."""
    if spec.feature_columns is None:
        return [(name, config.table_id, config.max_sequence_length, config.weight_key,
                 spec.table_to_config_dict[config.table_id])
                for name, config in spec.feature_to_config_dict.items()]
    found = []
    for column in spec.feature_columns:
        shared = column.get_embedding_var_name()
        table = shared if shared.endswith("_shared_embedding") else column.name
        found.append((column.get_feature_key_name(), table,
                      column.get_max_sequence_length() if column.is_sequence_column() else 0,
                      column.get_weight_key_name(), _ColumnConfig(column)))
    return found


class _ColumnConfig:
    def __init__(self, column: Any) -> None:
        self.combiner = column.get_combiner()
        self.learning_rate_fn = column.get_learning_rate_fn()
        self.learning_rate = self.optimization_parameters = None


def to_optimizer(spec: Any, config: Any) -> oracle.Optimizer:
    """Returns what the `*Parameters` of a table say."""
    parameters = config.optimization_parameters or spec.optimization_parameters
    words = type(parameters).__name__.removesuffix("Parameters")
    kind = KINDS.get(words, words)
    known = {"learning_rate", "use_gradient_accumulation", "weight_decay_factor",
             "multiply_weight_decay_factor_by_learning_rate", *LIMITS}
    given = {name.removeprefix("_"): value for name, value in vars(parameters).items()}
    limits = [given.get(name) for name in LIMITS]
    if spec.clipping_limit is not None and limits[:2] == [None, None]:
        limits[:2] = [-spec.clipping_limit, spec.clipping_limit]
    rate = config.learning_rate or given["learning_rate"]
    if config.learning_rate_fn:
        rate = _of_step(config.learning_rate_fn)
    return oracle.Optimizer(
        kind, rate, {name: value for name, value in given.items() if name not in known},
        gradient_limits=tuple(limits[:2]), weight_limits=tuple(limits[2:]),
        decay=given.get("weight_decay_factor") or 0.0, multiply_decay_by_learning_rate=bool(
            given.get("multiply_weight_decay_factor_by_learning_rate")))


def _of_step(function: Any) -> Any:
    values = [float(function(tf.constant(step, tf.int64))) for step in range(STEPS)]
    return lambda step: values[step]


def _variable_of(table: str, first: Mapping[str, Any]) -> str:
    """Returns the name of a table's variable: that of its column is in the model's scope."""
    if table in first:
        return table
    [name] = [name for name in first if name.endswith((f"/{table}/embedding_weights", f"/{table}"))]
    return name


def _with_slots(table: str, name: str, config: Any, optimizer: oracle.Optimizer,
                first: Mapping[str, Any]) -> oracle.Table:
    made = oracle.Table(table, first[name], config.combiner, optimizer)
    for slot in made.slots:
        stored = np.asarray(first[f"{name}/{suffixes(optimizer.kind)[slot]}"], np.float64)
        np.testing.assert_allclose(stored, made.slots[slot], rtol=1e-6, err_msg=f"{name} {slot}")
    return made


def _samples(ids: Any, weights: Any) -> list[list[oracle.Entry]]:
    if isinstance(ids, tf.compat.v1.ragged.RaggedTensorValue):
        return [[oracle.Entry(int(id), position=position) for position, id in enumerate(row)]
                for row in ids.to_list()]
    if isinstance(ids, np.ndarray) and ids.ndim == 2:  # combined, without zeros
        return [[oracle.Entry(int(id)) for id in row if id] for row in ids]
    if isinstance(ids, np.ndarray):
        return [[oracle.Entry(int(id))] for id in ids.reshape([-1])]
    samples: list[list[oracle.Entry]] = [[] for _ in range(int(ids.dense_shape[0]))]
    factors = weights.values if weights is not None else np.ones(len(ids.values))
    for (sample, position), id, weight in zip(ids.indices, ids.values, factors, strict=True):
        samples[sample].append(oracle.Entry(int(id), float(weight), int(position)))
    return samples


class _Model:
    """The program's model in a stock graph, fed with activations."""

    def __init__(self, module: types.ModuleType, embeddings: Embeddings,
                 mode: str = "train") -> None:
        self.gradients: dict[str, Any] = {}
        v1.train.create_global_step()
        dataset = module.input_fn({"batch_size": module.BATCH})
        is_dataset = isinstance(dataset, (tf.data.Dataset, v1.data.Dataset))
        self.batch = v1.data.make_one_shot_iterator(dataset).get_next() if is_dataset else dataset
        fed = tf.nest.map_structure(lambda tensor: v1.placeholder(tensor.dtype, tensor.shape),
                                    self.batch, expand_composites=True)
        self.fed = tf.nest.flatten(fed, expand_composites=True)  # the model may change containers
        features, labels = fed if isinstance(fed, tuple) else (fed, None)
        self.activations = {}
        features = dict(features)
        for feature in embeddings.features:
            ids = features.pop(feature.name)
            features.pop(embeddings.weights[feature.name], None)
            dimension = embeddings.oracle.tables[feature.table].values.shape[1]
            shape = [None, feature.length, dimension] if feature.length else [None, dimension]
            self.activations[feature.name] = v1.placeholder(tf.float32, shape)
            features[feature.name] = self._tapped(feature.name)
            if feature.length:
                features[f"{feature.name}_seq_length_"] = _lengths(ids, feature.length)
        for name, width in embeddings.widths.items():
            features[name], features[name + MASK] = _padded(features[name], width)
        context = types.SimpleNamespace(num_replicas=1)
        params = {"batch_size": module.BATCH, "use_tpu": True, "context": context}
        arguments = {"labels": labels} if labels is not None else {}
        with tpu_function.tpu_shard_context(1), tpu_ops.stubs_installed():
            self.spec = module.model_fn(features=features, mode=mode, params=params, **arguments)

    def feed(self, batch: Any, activations: Mapping[str, Any]) -> dict[Any, Any]:
        """Returns placeholder -> value."""
        return {**dict(zip(self.fed, _flat(batch), strict=True)),
                **{self.activations[name]: value for name, value in activations.items()}}

    def _tapped(self, name: str) -> tf.Tensor:
        """Returns an activation whose gradient is noted when the model computes it."""
        dummy = v1.get_variable(f"{DUMMY}_{name}", [1], initializer=v1.zeros_initializer())

        @tf.custom_gradient
        def tap(activation: tf.Tensor, dummy: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> Any:
                assert name not in self.gradients, "a second gradient"
                self.gradients[name] = upstream
                return tf.zeros_like(activation), tf.zeros_like(dummy)
            return tf.identity(activation), gradient

        return tap(self.activations[name], dummy.read_value())

    def variables(self) -> dict[str, list[Any]]:
        """Returns name -> parts, of all variables that are no dummies."""
        found: dict[str, list[Any]] = {}
        for variable in v1.global_variables():
            if DUMMY not in variable.op.name:
                found.setdefault(whole_name(variable), []).append(variable)
        return found


def _lengths(ids: Any, most: int) -> tf.Tensor:
    last = tf.math.unsorted_segment_max(ids.indices[:, 1], ids.indices[:, 0], ids.dense_shape[0])
    return tf.clip_by_value(last + 1, 0, most)


def _padded(ids: tf.SparseTensor, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `[batch, width]` ids, 0 where there is none, and 1 where there is one."""
    table = tf.pad(tf.sparse.to_dense(ids, -1), [[0, 0], [0, width]], constant_values=-1)
    table = tf.ensure_shape(table[:, :width], [None, width])
    return tf.maximum(table, 0), tf.cast(table >= 0, tf.float32)


def run_reference(source: str, first: Mapping[str, Any], *, pipelined: bool = False,
                  finish: bool = False) -> Outcome:
    """Trains the program as it must be trained, from the values `first`.

    Args:
        source: of the program.
        first: name -> value of every variable before the first step.
        pipelined: whether lookups lack the update of the step before.
        finish: whether to evaluate and predict.
    """
    module = load_program(source, "reference_program", PIPELINED=pipelined)
    with quiet():
        embeddings = Embeddings(module.new_estimator(None)._spec, first)
    outcome = Outcome({}, {})
    with tf.Graph().as_default(), quiet():
        v1.set_random_seed(1)
        model = _Model(module, embeddings)
        variables = model.variables()
        with v1.Session() as session:
            _start(session, variables, first)
            outcome.states[0] = {**session_values(session, variables), **embeddings.state()}
            _train(module, model, embeddings, session, outcome, variables, pipelined)
    if finish:
        last = outcome.states[module.STEPS]
        averages = {name: last[f"{name}/ExponentialMovingAverage"] for name in last
                    if f"{name}/ExponentialMovingAverage" in last}
        outcome.metrics = _evaluated(module, embeddings,
                                     {**last, **averages} if SWAP in source else last)
        outcome.predictions = _predicted(module, embeddings, last)
    return outcome


def _start(session: v1.Session, variables: Mapping[str, list[Any]],
           values: Mapping[str, Any]) -> None:
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer(),
                 v1.tables_initializer()])
    for name, parts in variables.items():
        _load(parts, np.asarray(values[name]), session)


def _evaluated(module: Any, embeddings: Embeddings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metrics and the mean of the batches' losses."""
    with tf.Graph().as_default(), quiet():
        v1.set_random_seed(1)
        model = _Model(module, embeddings, "eval")
        function, tensors = model.spec.eval_metrics
        metrics = function(**tensors) if isinstance(tensors, dict) else function(*tensors)
        updates = [update for _, update in metrics.values()]
        with v1.Session() as session:
            _start(session, model.variables(), values)
            losses = [loss for loss, _ in _runs(module, model, embeddings, session,
                                                [model.spec.loss, updates])]
            found = session.run({name: value for name, (value, _) in metrics.items()})
    return {**found, "loss": np.mean(losses), "global_step": module.STEPS}


def _predicted(module: Any, embeddings: Embeddings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the predictions of the samples that a program is asked for."""
    with tf.Graph().as_default(), quiet():
        v1.set_random_seed(1)
        model = _Model(module, embeddings, "infer")
        with v1.Session() as session:
            _start(session, model.variables(), values)
            found = list(_runs(module, model, embeddings, session, model.spec.predictions))
    size = module.BATCH if module.EVALUATED else None
    return {name: np.concatenate([one[name] for one in found])[:size] for name in found[0]}


def _runs(module: Any, model: _Model, embeddings: Embeddings, session: v1.Session,
          fetches: Any) -> Iterator[Any]:
    """Yields what is fetched for every batch of an evaluation."""
    for _ in range(module.EVALUATED or len(module.DATA["y"])):
        try:
            batch = session.run(model.batch)
        except tf.errors.OutOfRangeError:
            return
        features = batch[0] if isinstance(batch, tuple) else batch
        activations = embeddings.oracle.activations(embeddings.batch(features))
        yield session.run(fetches, model.feed(batch, activations))


def session_values(session: v1.Session, variables: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Returns name -> value, with parts put together."""
    return {name: np.concatenate(values) if len(values) > 1 else values[0]
            for name, values in session.run(dict(variables)).items()}


def _load(parts: list[Any], value: np.ndarray, session: v1.Session) -> None:
    start = 0
    for part in parts:
        size = part.shape[0] if len(parts) > 1 else None
        part.load(value if size is None else value[start:start + size], session)
        start += size or 0


def _train(module: Any, model: _Model, embeddings: Embeddings, session: v1.Session,
           outcome: Outcome, variables: Mapping[str, list[Any]], pipelined: bool) -> None:
    pending, dense = None, {}
    for step in range(module.STEPS):
        batch = session.run(model.batch)
        features = batch[0] if isinstance(batch, tuple) else batch
        ids = embeddings.batch(features)
        if pending and not pipelined:
            embeddings.oracle.apply(*pending)
        activations = embeddings.oracle.activations(ids)
        if pending and pipelined:
            embeddings.oracle.apply(*pending)
        if pending:
            outcome.states[step] = {**dense, **embeddings.state()}
        loss, gradients, _ = session.run([model.spec.loss, model.gradients, model.spec.train_op],
                                         model.feed(batch, activations))
        outcome.losses[step + 1] = float(loss)
        gradients = {name: gradients.get(name, np.zeros_like(value))
                     for name, value in activations.items()}
        pending = ids, gradients, step
        dense = session_values(session, variables)
    embeddings.oracle.apply(*pending)
    outcome.states[module.STEPS] = {**dense, **embeddings.state()}


def _flat(values: Any) -> list[Any]:
    """Returns arrays in the order in which `tf.nest` flattens their tensors."""
    if isinstance(values, dict):
        return [leaf for key in sorted(values) for leaf in _flat(values[key])]
    if isinstance(values, v1.SparseTensorValue):
        return [values.indices, values.values, values.dense_shape]
    if isinstance(values, v1.ragged.RaggedTensorValue):
        return [values.flat_values, *values.nested_row_splits]
    if isinstance(values, (tuple, list)):
        return [leaf for value in values for leaf in _flat(value)]
    return [values]
