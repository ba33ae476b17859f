# SPDX-License-Identifier: Apache-2.0
"""Checkpoints written by TensorFlow, as Estimator programs write them, and read by it."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.spec.oracle import cut
from tests.spec.oracle_optimizers import SUFFIXES

v1 = tf.compat.v1


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
            if name in saved.tables:
                values = np.concatenate(cut(values, num_hosts, strategy))
            get_variable(name, values, saved, num_hosts)
        session.run(v1.global_variables_initializer())
        return v1.train.Saver().save(session, str(prefix), write_meta_graph=False)


def restore_v1(prefix, saved, num_hosts=1, strategy="div"):
    """Reads with TensorFlow's reader, which knows no layouts; returns name -> values by id."""
    reader = tf.train.load_checkpoint(str(prefix))
    found = {name: reader.get_tensor(name) for name in saved.all}
    return {name: by_id(values, num_hosts, strategy) if name in saved.tables else values
            for name, values in found.items()}


def get_variable(name, values, saved, num_hosts):
    def initializer(shape, dtype=None, partition_info=None):
        start = partition_info.var_offset[0] if partition_info else 0
        return tf.constant(values[start:start + shape[0]] if shape else values)

    return v1.get_variable(
        name, np.shape(values), tf.as_dtype(np.asarray(values).dtype), use_resource=True,
        initializer=initializer, partitioner=v1.fixed_size_partitioner(
            min(len(values), num_hosts)) if name in saved.tables else None)


def by_id(rows, num_hosts, strategy):
    result = np.empty_like(rows)
    result[np.concatenate(cut(np.arange(len(rows)), num_hosts, strategy))] = rows
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
