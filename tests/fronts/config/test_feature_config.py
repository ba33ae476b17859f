# SPDX-License-Identifier: Apache-2.0
import pytest
import tensorflow as tf

from tpu_estimator_embedding.config.feature_config import FeatureConfig, is_feature_config


@pytest.mark.parametrize("length", [-1, 2.0, "3", None])
def test_length_that_is_no_int_of_at_least_0_raises(length):
    with pytest.raises(ValueError, match="`max_sequence_length` must be an int of at least 0, "
                                         f"got {length!r}"):
        FeatureConfig("words", length)


def test_feature_config_is_a_tuple():
    table, length, weight_key = FeatureConfig("words", 20, "weights")
    assert (table, length, weight_key) == ("words", 20, "weights")
    assert FeatureConfig("words")._replace(weight_key="w").weight_key == "w"


def test_is_feature_config_tells_the_words_of_tf2_apart():
    table = tf.tpu.experimental.embedding.TableConfig(10, 4)
    assert is_feature_config(FeatureConfig("words"))
    assert not is_feature_config(tf.tpu.experimental.embedding.FeatureConfig(table))
    assert not is_feature_config("words")
