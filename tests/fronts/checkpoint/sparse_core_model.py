# SPDX-License-Identifier: Apache-2.0
"""Models of Keras RS on JAX with tables on SparseCores, for a separate process.

    python sparse_core_model.py KIND VERB DIRECTORY DEVICES CORES OPTIMIZER

KIND is `real`, the layer itself on CPUs that are declared to have SparseCores, for which
jax_tpu_embedding must be installed; or `imitated`, arrays with the names and shapes of the layer's.
VERB is `save`, which saves an untrained model as `DIRECTORY/template`, and its arrays by path in
`template.npz`; or `restore`, which restores `DIRECTORY/done`, writes the arrays to `done.npz`, and,
with the real layer, tables and slots by id as jax_tpu_embedding finds them to `by_id.npz`, and
the rows that it looks up to `looked_up.npz`. The real layer writes `stacks.json`, too.
"""

import json
import os
import sys

KIND, VERB, DIRECTORY, DEVICES, CORES, OPTIMIZER = sys.argv[1:]
TOTAL = int(DEVICES) * int(CORES)
os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402

# Stacks of the layer, in its order: that of the features' names.
STACKS = {"tags_words_z": {"tags": (20, 3), "words": (130, 6), "z": (65, 8)},
          "big": {"big": (300, 20)}}
SLOTS = {"SGD": [], "Adagrad": ["accumulator"], "Adam": ["momentum", "velocity"],
         "FTRL": ["accumulator", "linear"]}
STEPS = {"iteration": np.int32(0), "learning_rate": np.float32(0.1)}


def arrays(tree, path=""):
    """Returns path -> array of all leaves."""
    if not isinstance(tree, dict):
        return {path: np.asarray(tree)}
    return {key: value for name, part in tree.items()
            for key, value in arrays(part, f"{path}/{name}" if path else name).items()}


class Imitated:
    """Has the variables that the layer makes, with other values in every element."""

    def __init__(self):
        mesh = jax.make_mesh((int(DEVICES),), ("sparsecore",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("sparsecore"))
        random = np.random.default_rng(7)
        variables = {"iteration": np.float32(0)}
        for stack, tables in STACKS.items():
            rows = sum(-(-rows // (8 * TOTAL)) * 8 * TOTAL for rows, _ in tables.values())
            width = max(-(-dim // 8) * 8 for _, dim in tables.values())
            for ending in ["", *(f":slot:{slot}" for slot in SLOTS[OPTIMIZER])]:
                values = random.normal(size=(rows, width)).astype(np.float32)
                variables[f"var:{stack}:table{ending}"] = jax.device_put(values, sharding)
        small = {"embeddings": np.ones((5, 3), np.float32)}
        self.state = jax.tree.map(jnp.asarray, {"trainable_variables": {
            "distributed_embedding": {**variables, "small": small},
            "dense": {"kernel": np.ones((6, 2), np.float32), "bias": np.ones(2, np.float32)}},
            "non_trainable_variables": {}, "optimizer_variables": {"sgd": STEPS},
            "metrics_variables": {"loss": {"total": np.float32(0), "count": np.float32(0)}}})

    def get_state_tree(self):
        return self.state

    def set_state_tree(self, state):
        self.state = state


def real():
    import keras
    import keras_rs
    from jax_tpu_embedding.sparsecore.utils import utils
    utils.NUM_SC_PER_DEVICE_MAP[jax.devices()[0].device_kind] = int(CORES)
    keras_rs.layers.DistributedEmbedding._has_sparsecore = lambda self: True
    optimizer = {"SGD": keras.optimizers.SGD, "Adagrad": keras.optimizers.Adagrad,
                 "Adam": keras.optimizers.Adam, "FTRL": keras.optimizers.Ftrl}[OPTIMIZER](0.1)
    tables = [keras_rs.layers.TableConfig(
        name, rows, dim, combiner="sum", placement="sparsecore", optimizer=optimizer)
        for stack in STACKS.values() for name, (rows, dim) in stack.items()]
    tables.append(keras_rs.layers.TableConfig("small", 5, 3, combiner="sum",
                                              placement="default_device"))
    features = {table.name: keras_rs.layers.FeatureConfig(
        table.name, table, (16, 1), (16, table.embedding_dim)) for table in reversed(tables)}
    layer = keras_rs.layers.DistributedEmbedding(features, table_stacking="auto",
                                                 name="distributed_embedding")
    inputs = {name: keras.Input((1,), batch_size=16, dtype="int32", name=name)
              for name in features}
    prepared = layer.preprocess(inputs)
    rows = layer(prepared)
    model = keras.Model(prepared, [keras.layers.Dense(2, name="dense")(rows["words"]),
                                   *(rows[name] for name in features if name != "words")])
    model.compile(keras.optimizers.SGD(0.1, name="sgd"), loss="mse")
    model.optimizer.build(model.trainable_variables)
    return model, layer


def write_stacks(layer, path):  # docs/checkpoints_keras_rs.rst shows it
    from jax_tpu_embedding.sparsecore.lib.nn import embedding, table_stacking

    specs = embedding.get_table_specs(layer._config.feature_specs)
    stacks = {stack: {table.name: [table.vocabulary_size, table.embedding_dim] for table in sorted(
                  tables, key=lambda table: table.setting_in_stack.row_offset_in_shard)}
              for stack, tables in table_stacking.get_table_stacks(specs).items()}
    with open(path, "w") as file:
        json.dump(stacks, file)


def by_id(layer):
    """Returns the tables and slots as jax_tpu_embedding reads them."""
    from jax_tpu_embedding.sparsecore.lib.nn import embedding, table_stacking
    specs = embedding.get_table_specs(layer._config.feature_specs)
    found = {name: np.asarray(rows) for name, rows in layer.get_embedding_tables().items()}
    for number, slot in enumerate(SLOTS[OPTIMIZER]):
        stacks = {stack: np.asarray(variables.slot[number].value)
                  for stack, variables in layer._table_and_slot_variables.items()}
        unstacked = table_stacking.unshard_and_unstack_tables(specs, stacks, TOTAL)
        found.update({f"{name}/{slot}": np.asarray(rows) for name, rows in unstacked.items()})
    return found


def looked_up(layer):
    """Returns `TABLE` -> the row of the stack that a lookup of each id reads.

    The input of a stack has a list for each SparseCore that looks up and each that has the rows,
    with rows of its share. Weights tell which id of the table an entry is of.
    """
    from keras_rs.src.layers.embedding.jax import embedding_utils
    specs, found = layer._config.feature_specs, {}
    for stack, tables in STACKS.items():
        share = layer._table_and_slot_variables[stack].table.shape[0] // TOTAL
        for table, (rows, _) in tables.items():
            found[table] = np.full(rows, -1)
            for start in range(0, rows, 16):
                ids = np.arange(start, start + 16)[:, None] % rows
                weights = {name: np.zeros((16, 1), np.float32) for name in specs}
                samples = embedding_utils.create_feature_samples(
                    specs, dict.fromkeys(specs, np.zeros((16, 1), np.int32)) | {table: ids},
                    weights | {table: ids.astype(np.float32) + 1})
                prepared, _ = embedding_utils.stack_and_shard_samples(
                    specs, samples, int(DEVICES), int(DEVICES), int(CORES))
                read_lists(prepared[stack], share, found[table])
    return found


def read_lists(prepared, share, found):
    values, rows, ends = (np.asarray(part).reshape(TOTAL, -1) for part in (
        prepared.values, prepared.col_ids, prepared.shard_ends))
    for reader in range(TOTAL):
        start = 0
        for owner in range(TOTAL):
            for place in range(start, ends[reader, owner]):
                if values[reader, place] >= 1:
                    found[int(values[reader, place]) - 1] = (
                        owner * share + rows[reader, place])
            start = -(-ends[reader, owner] // 8) * 8


model, layer = real() if KIND == "real" else (Imitated(), None)
with ocp.StandardCheckpointer() as checkpointer:
    if VERB == "save":
        checkpointer.save(f"{DIRECTORY}/template", model.get_state_tree())
        np.savez(f"{DIRECTORY}/template.npz", **arrays(model.get_state_tree()))
    else:
        model.set_state_tree(checkpointer.restore(f"{DIRECTORY}/done", model.get_state_tree()))
        np.savez(f"{DIRECTORY}/done.npz", **arrays(model.get_state_tree()))
        if layer is not None:
            np.savez(f"{DIRECTORY}/by_id.npz", **by_id(layer))
            np.savez(f"{DIRECTORY}/looked_up.npz", **looked_up(layer))
if layer is not None:
    write_stacks(layer, f"{DIRECTORY}/stacks.json")
