# SPDX-License-Identifier: Apache-2.0
"""Samples of the linear model as serving requests: `tf.train.Example`s."""

import tensorflow as tf

from tests.fronts.estimator import linear


def example_of(**features):
    """Makes an Example; ints, floats and strings as lists, absent where empty."""
    made = {}
    for name, values in features.items():
        if values and isinstance(values[0], str):
            made[name] = tf.train.Feature(bytes_list=tf.train.BytesList(
                value=[value.encode() for value in values]))
        elif values and isinstance(values[0], float):
            made[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        elif values:
            made[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=made))


def linear_examples(data):
    """The samples of linear data as Examples; a sequence keeps its ids without holes."""
    examples = []
    for batch, xs in zip(data.batches, data.xs, strict=True):
        for sample, x in enumerate(xs):
            features = {"x": [float(value) for value in x]}
            for name, samples in batch.items():
                features[name] = [entry.id for entry in samples[sample]]
                if weights := linear.FEATURES[name].weights:
                    features[weights] = [float(entry.weight) for entry in samples[sample]]
            examples.append(example_of(**features))
    return examples
