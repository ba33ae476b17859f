# SPDX-License-Identifier: Apache-2.0
"""Random training loops around Keras layers, compared with NumPy.

A program has layers of one table each, dense kernels, some of the layers frozen, and a step: tapes
whose losses are made of lookups, gradients that are asked for, and what happens to them: given to
an optimizer in any order, scaled, summed over two steps, or dropped.

    python -m tests.fronts.mid_level.keras_layers.step_programs --count 500 --seed 1
"""

import argparse
import dataclasses
import importlib

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.mid_level.config import optimizers
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class

ROWS, DIM, STEPS = 6, 2, 4
# Beside TensorFlow 2.15 both are Keras 2.15.
KERASES = ["keras"] if tf.__version__.startswith("2.15") else ["keras", "tf_keras"]
FORMS = {"dense": lambda ids: ids,
         "ragged": lambda ids: tf.RaggedTensor.from_tensor(ids[:, tf.newaxis]),
         "sparse": lambda ids: tf.sparse.from_dense(ids[:, tf.newaxis] + 1).with_values(ids)}


@dataclasses.dataclass(frozen=True)
class Lookup:
    layer: int
    kernel: int | None
    factor: float
    batch: int
    form: str


@dataclasses.dataclass(frozen=True)
class Ask:
    """Gradients of a tape's loss, and what becomes of them; `sums` adds up those of two steps."""

    tape: int
    layers: tuple[int, ...]
    kernels: tuple[int, ...]
    fate: str
    factor: float


class Program:
    def __init__(self, seed):
        rng = self.rng = np.random.default_rng(seed)
        self.keras = importlib.import_module(KERASES[seed % len(KERASES)])
        self.is_function = bool(rng.integers(2))
        self.num_layers = int(rng.integers(1, 3))
        self.adagrad = [bool(rng.integers(2)) for _ in range(self.num_layers)]
        self.frozen = [rng.random() < 0.2 for _ in range(self.num_layers)]
        self.scale = float(rng.choice([1.0, 2.0**15, 0.5]))
        self.kernels = rng.uniform(0.5, 1.5, 2).astype(np.float32)
        self.tables = [rng.uniform(-1, 1, [ROWS, DIM]).astype(np.float32)
                       for _ in range(self.num_layers)]
        self.tapes = [[Lookup(int(rng.integers(self.num_layers)), [None, 0, 1][rng.integers(3)],
                              float(rng.integers(1, 4)), int(rng.integers(1, 4)),
                              str(rng.choice(["dense", "ragged", "sparse"])))
                       for _ in range(rng.integers(1, 3))] for _ in range(rng.integers(1, 3))]
        self.asks = [self._ask(tape) for tape in range(len(self.tapes))
                     for _ in range(rng.integers(1, 3))]
        self.order = rng.permutation(len(self.asks))
        self.optimizer = str(rng.choice(["SGD", "Adam"]))

    def _ask(self, tape):
        rng, lookups = self.rng, self.tapes[tape]
        layers = sorted({of.layer for of in lookups if not self.frozen[of.layer]
                         and rng.random() < 0.7})
        kernels = sorted({of.kernel for of in lookups if of.kernel is not None
                          and rng.random() < 0.7})
        return Ask(tape, tuple(layers), tuple(kernels),
                   str(rng.choice(["apply", "apply", "sums", "drop"])),
                   float(rng.choice([1.0, 0.5, -2.0])))

    def batches(self):
        """Returns ids and gradients of the activations, of every lookup of a step."""
        return [[(self.rng.integers(0, ROWS, of.batch),
                  self.rng.uniform(-1, 1, [of.batch, DIM]).astype(np.float32))
                 for of in lookups] for lookups in self.tapes]


def run(program, steps):
    """Returns the tables after training with the layers."""
    def layer_of(index):
        optimizer = (optimizers.Adagrad(0.5, initial_accumulator_value=0.25)
                     if program.adagrad[index] else optimizers.SGD(0.5))
        layer = embedding_layer_class(program.keras)({"f": FeatureConfig(TableConfig(
            ROWS, DIM, tf.compat.v1.constant_initializer(program.tables[index]),
            combiner="sum", name=f"t{index}"))}, optimizer)
        layer.trainable = not program.frozen[index]
        return layer

    layers = [layer_of(index) for index in range(program.num_layers)]
    kernels = [tf.Variable(value) for value in program.kernels]
    # Of their own, because the gradients of the kernels are not compared through them.
    users = [getattr(program.keras.optimizers, program.optimizer)(0.5) for _ in program.asks]

    def loss_of(lookups, batches):
        loss = tf.constant(0.0)
        for of, (ids, upstream) in zip(lookups, batches, strict=True):
            value = of.factor * tf.reduce_sum(
                layers[of.layer]({"f": FORMS[of.form](ids)})["f"] * upstream)
            loss += value if of.kernel is None else value * kernels[of.kernel]
        return loss * program.scale

    def step(batches):
        tapes = [tf.GradientTape(persistent=True) for _ in program.tapes]
        losses = []
        for tape, lookups, given in zip(tapes, program.tapes, batches, strict=True):
            with tape:
                losses.append(loss_of(lookups, given))
        found = []
        for ask in program.asks:
            variables = ([layers[index].trainable_variables[0] for index in ask.layers],
                         [kernels[index] for index in ask.kernels])
            of_layers, of_kernels = tapes[ask.tape].gradient(losses[ask.tape], variables)
            found.append(([ask.factor / program.scale * gradient for gradient in of_layers],
                          [gradient / program.scale for gradient in of_kernels]))
        for index in program.order:
            if program.asks[index].fate == "apply" and program.asks[index].layers:
                apply(index, found[index][0])
        return found

    def apply(index, gradients):
        variables = [layers[layer].trainable_variables[0]
                     for layer in program.asks[index].layers]
        users[index].apply_gradients(zip(gradients, variables, strict=True))

    wrapped = tf.function(step) if program.is_function else step
    sums, of_kernels = {}, []
    for number, batches in enumerate(steps):
        found = wrapped(tf.nest.map_structure(tf.constant, batches))
        of_kernels.append([[value.numpy() for value in gradients] for _, gradients in found])
        for index, (ask, (gradients, _)) in enumerate(zip(program.asks, found, strict=True)):
            if ask.fate == "sums" and ask.layers:
                before = sums.get(index, [0.0] * len(gradients))
                sums[index] = [a + b for a, b in zip(before, gradients, strict=True)]
                if number % 2:
                    apply(index, sums.pop(index))
    return [next(iter(layer.embedding_tables.values())).numpy() for layer in layers], of_kernels


def reference(program, steps):
    """Returns the same in NumPy."""
    tables = [table.astype(np.float64) for table in program.tables]
    slots = [np.full([ROWS, DIM], 0.25) for _ in tables]
    sums, all_of_kernels = {}, []

    def update(layer, gradient, touched):
        if not program.adagrad[layer]:
            tables[layer] -= 0.5 * gradient
            return
        rows = sorted(touched)
        slots[layer][rows] += gradient[rows]**2
        tables[layer][rows] -= 0.5 * gradient[rows] / np.sqrt(slots[layer][rows])

    for number, batches in enumerate(steps):
        found, of_kernels = [], []
        for ask in program.asks:
            gradients = {layer: (np.zeros([ROWS, DIM]), set()) for layer in ask.layers}
            kernels = dict.fromkeys(ask.kernels, 0.0)
            for of, (ids, upstream) in zip(program.tapes[ask.tape], batches[ask.tape],
                                           strict=True):
                kernel = 1.0 if of.kernel is None else float(program.kernels[of.kernel])
                if of.layer in gradients:
                    np.add.at(gradients[of.layer][0], ids,
                              ask.factor * of.factor * kernel * upstream)
                    gradients[of.layer][1].update(ids.tolist())
                if of.kernel in kernels:
                    kernels[of.kernel] += of.factor * np.sum(tables[of.layer][ids] * upstream)
            found.append(gradients)
            of_kernels.append(list(kernels.values()))
        for index in program.order:
            if program.asks[index].fate == "apply":
                for layer, (gradient, touched) in found[index].items():
                    update(layer, gradient, touched)
        for index, ask in enumerate(program.asks):
            if ask.fate != "sums":
                continue
            before = sums.get(index, {layer: (0.0, set()) for layer in ask.layers})
            sums[index] = {layer: (before[layer][0] + gradient, before[layer][1] | touched)
                           for layer, (gradient, touched) in found[index].items()}
            if number % 2:
                for layer, (gradient, touched) in sums.pop(index).items():
                    update(layer, gradient, touched)
        all_of_kernels.append(of_kernels)
    return tables, all_of_kernels


def check(seed):
    """Raises AssertionError if a program learns something else than NumPy."""
    program = Program(seed)
    steps = [program.batches() for _ in range(STEPS)]
    found, of_kernels = run(program, steps)
    expected, expected_of_kernels = reference(program, steps)
    for table, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(table, values, rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}")
    for step, values in zip(of_kernels, expected_of_kernels, strict=True):
        for one, other in zip(step, values, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    args = parser.parse_args()
    faults = []
    for seed in range(args.seed, args.seed + args.count):
        try:
            check(seed)
        except Exception as error:  # every program runs
            faults.append(seed)
            print(seed, type(error).__name__, str(error)[:500], flush=True)
    print(f"{args.count - len(faults)} of {args.count} programs agree", flush=True)
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main())
