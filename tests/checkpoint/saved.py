# SPDX-License-Identifier: Apache-2.0
"""Checkpoints written by TensorFlow, as Estimator programs write them, and read by it."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.oracle import cut

v1 = tf.compat.v1

# Optimizer -> what follows the table's name in a TPU's checkpoint, as api documents list it.
SUFFIXES = {
    "SGD": [], "Adagrad": ["Adagrad"], "ProximalAdagrad": ["ProximalAdagrad"],
    "AdagradMomentum": ["AdagradMomentum/Accumulator", "AdagradMomentum/Momentum"],
    "Adam": ["Adam/m", "Adam/v"], "FTRL": ["Ftrl", "Ftrl_1"],
    "ProximalYogi": ["ProximalYogi", "ProximalYogi_1"], "Momentum": ["Momentum"],
    "RMSProp": ["RMSProp/ms", "RMSProp/mom"], "FrequencyEstimator": ["FrequencyEstimator"]}


@dataclasses.dataclass(frozen=True)
class Saved:
    """A program's variables: those of tables by id, and all others."""

    tables: dict
    others: dict

    @property
    def all(self):
        return {**self.tables, **self.others}


def variables(optimizer="Adagrad", rows=13, dim=4, table="words", seed=0):
    """Returns a table with slots and another with other sizes, and a dense model."""
    random = np.random.default_rng(seed)

    def values(*shape):
        return random.normal(size=shape).astype(np.float32)

    tables = {f"{name}{suffix}": values(*shape)
              for name, shape in ((table, (rows, dim)), ("tags", (2, 3)))
              for suffix in ["", *(f"/{suffix}" for suffix in SUFFIXES[optimizer])]}
    return Saved(tables, {
        "dense/kernel": values(dim, 2), "dense/kernel/Adagrad": values(dim, 2),
        "dense/bias": values(2), "beta1_power": np.float32(0.81),
        "global_step": np.int64(1234)})


def save_v1(prefix, saved, num_hosts=1, strategy="div"):
    """Saves with tf.compat.v1.train.Saver from partitioned variables; returns the prefix."""
    with tf.Graph().as_default(), v1.Session() as session:
        for name, values in saved.all.items():
            is_table = name in saved.tables
            parts = cut(values, num_hosts, strategy) if is_table else [values]
            parts = [part for part in parts if not is_table or len(part)]
            variable = v1.get_variable(
                name, np.shape(values), np.asarray(values).dtype, use_resource=True,
                initializer=v1.zeros_initializer(), partitioner=v1.fixed_size_partitioner(
                    len(parts)) if is_table else None)
            for one, part in zip(variable if is_table else [variable], parts, strict=True):
                session.run([one.initializer])
                one.load(part, session)
        return v1.train.Saver().save(session, str(prefix), write_meta_graph=False)


def restore_v1(prefix, saved, num_hosts=1, strategy="div"):
    """Restores with tf.compat.v1.train.Saver into parts; returns name -> values by id."""
    found = {}
    with tf.Graph().as_default(), v1.Session() as session:
        for name, values in saved.all.items():
            partitioner = v1.fixed_size_partitioner(min(len(values), num_hosts)) if (
                name in saved.tables) else None
            found[name] = v1.get_variable(name, np.shape(values), np.asarray(values).dtype,
                                          use_resource=True, partitioner=partitioner)
        v1.train.Saver().restore(session, str(prefix))
        result = {}
        for name, variable in found.items():
            if name not in saved.tables:
                result[name] = session.run(variable)
                continue
            rows = np.concatenate(session.run(list(variable)))
            result[name] = np.empty_like(rows)
            ids = np.arange(len(rows))
            result[name][np.concatenate(cut(ids, num_hosts, strategy))] = rows
        return result


def assert_same(found, expected):
    """Asserts that both have the same names and the same bits."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name, strict=True)


def values_of(prefix):
    """Returns key -> values, read by TensorFlow."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
