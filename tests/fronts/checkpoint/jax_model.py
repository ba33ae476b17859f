# SPDX-License-Identifier: Apache-2.0
"""A program of Keras RS on JAX, for a separate process.

    python jax_model.py save DIRECTORY      saves untrained models, one for each optimizer
    python jax_model.py restore DIRECTORY   restores `done/OPTIMIZER`, writes its variables to
                                            `OPTIMIZER.npz`, and saves it again in `again/`
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import keras  # noqa: E402
import keras_rs  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from keras_rs.src.layers.embedding.jax.checkpoint_utils import (  # noqa: E402
    JaxKeras3CheckpointManager,
)

SIZES = {"words": (13, 4), "tags": (2, 3)}
OPTIMIZERS = {"SGD": keras.optimizers.SGD, "Adagrad": keras.optimizers.Adagrad,
              "Adam": keras.optimizers.Adam, "FTRL": keras.optimizers.Ftrl}


def new_model(optimizer):
    keras.backend.clear_session()  # so that layers are called as in a separate program
    tables = {name: keras_rs.layers.TableConfig(name, rows, dim, combiner="sum")
              for name, (rows, dim) in SIZES.items()}
    inputs = {name: keras.Input((1,), batch_size=2, dtype="int32", name=name) for name in SIZES}
    rows = keras_rs.layers.DistributedEmbedding({
        name: keras_rs.layers.FeatureConfig(name, table, (2, 1), (2, table.embedding_dim))
        for name, table in tables.items()})(inputs)
    model = keras.Model(inputs, [keras.layers.Dense(2, name="dense")(rows["words"]), rows["tags"]])
    model.compile(OPTIMIZERS[optimizer](0.1), loss=["mse", "mse"])
    model.optimizer.build(model.trainable_variables)
    return model


def save(directory):
    for optimizer in OPTIMIZERS:
        model = new_model(optimizer)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(f"{directory}/{optimizer}", model.get_state_tree())
        if optimizer == "FTRL" and hasattr(keras.callbacks, "OrbaxCheckpoint"):
            inputs = {name: np.zeros((2, 1), np.int32) for name in SIZES}
            model.fit(inputs, [np.zeros((2, 2)), np.zeros((2, 3))], batch_size=2, verbose=0,
                      callbacks=[keras.callbacks.OrbaxCheckpoint(
                          f"{directory}/callback", monitor="loss", save_freq="epoch")])
            np.savez(f"{directory}/callback.npz", **{
                variable.path: np.asarray(variable) for variable in model.variables})
        if optimizer == "Adam":
            JaxKeras3CheckpointManager(model, f"{directory}/steps-{optimizer}", 3).save_state(7)


def restore(directory):
    for optimizer in sorted(os.listdir(f"{directory}/done")):
        model = new_model(optimizer)
        place = f"{directory}/done/{optimizer}"
        if os.path.exists(f"{place}/_METADATA"):
            state = ocp.StandardCheckpointer().restore(place, model.get_state_tree())
            model.set_state_tree(state)
        else:
            JaxKeras3CheckpointManager(model, place, 3).restore_state()
        np.savez(f"{directory}/{optimizer}.npz", **{variable.path: np.asarray(variable) for variable
                 in (*model.variables, *model.optimizer.variables)})
        JaxKeras3CheckpointManager(model, f"{directory}/again/{optimizer}", 3).save_state(9)
    model.fit({name: np.zeros((2, 1), np.int32) for name in SIZES},  # it goes on
              [np.zeros((2, 2)), np.zeros((2, 3))], batch_size=2, verbose=0)


{"save": save, "restore": restore}[sys.argv[1]](sys.argv[2])
