# SPDX-License-Identifier: Apache-2.0
import numpy as np
import tensorflow as tf

VOCAB = 50


def make_input_fn(seed):
    def input_fn(params):
        rng = np.random.RandomState(seed)
        ids = rng.randint(1, VOCAB, size=(256, 3)).astype(np.int64)
        y = (ids[:, :1] % 2).astype(np.float32)
        dataset = tf.data.Dataset.from_tensor_slices(({"words": ids}, y))
        return dataset.repeat().batch(params["batch_size"], drop_remainder=True)
    return input_fn
