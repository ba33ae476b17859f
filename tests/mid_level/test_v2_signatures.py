# SPDX-License-Identifier: Apache-2.0
"""Names, order and defaults of TPUEmbeddingV2 and the layers: upstream's, ours behind them."""

import inspect

import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import _EmbeddingLayer
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import _PartialLayer
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
    PartitionedCsrFormatTensor,
)
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

V2 = {
    "__init__": "feature_config, optimizer=None, pipeline_execution_with_tensor_core=False, "
                "sparse_core_embedding_config=None",
    "__call__": "features, weights=None",
    "apply_gradients": "gradients, preserved_outputs",
    "build": "",
    "compute_sparse_core_stats": "features, feature_config, num_tpu_chips, num_sc_per_chip=4, "
                                 "optimizer=None, sparse_core_embedding_config=None",
    "dequeue": "partitioned_tensors",
    "embedding_lookup": "features, weights=None",
    "enqueue": "features, weights=None, device=None",
    "preprocess_features":
        "num_replicas_in_sync, max_ids_per_chip_per_sample, max_minibatches_per_sc, "
        "num_sc_per_chip, num_sc_shards, stacked_table_to_tables, "
        "table_to_stacked_table_offset, table_to_sample_count, feature_to_sample_offset, "
        "flat_features, flat_inputs, flat_weights=None",
}
LAYERS = {
    _EmbeddingLayer: "feature_config, optimizer, pipeline_execution_with_tensor_core=False, "
                     "batch_size=None, embedding_feature=None, sparse_core_embedding_config=None",
    _PartialLayer: "feature_config, optimizer, pipeline_execution_with_tensor_core=False, "
                   "batch_size=None, size_threshold=10000",
}


def positional(function):
    """Returns names and defaults of the arguments that may be given by position."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(
        parameter.name if parameter.default is inspect.Parameter.empty
        else f"{parameter.name}={parameter.default!r}" for parameter in parameters
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and parameter.name not in ("self", "cls"))


@pytest.mark.parametrize("method", V2)
def test_methods_are_called_as_upstreams(method):
    assert positional(getattr(TPUEmbeddingV2, method)) == V2[method]


@pytest.mark.parametrize("method", sorted({*V2} - {"preprocess_features"}))  # private by 2.21
@pytest.mark.skipif(not hasattr(tf.tpu.experimental.embedding, "TPUEmbeddingV2"),
                    reason="TensorFlow 2.15 has no TPUEmbeddingV2")
def test_methods_are_called_as_tensorflows_installed(method):
    theirs = tf.tpu.experimental.embedding.TPUEmbeddingV2
    assert positional(getattr(theirs, method)) == V2[method]


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_are_called_as_upstreams(layer):
    assert positional(layer.__init__) == LAYERS[layer]


def test_partitioned_ids_have_upstreams_fields():
    assert positional(PartitionedCsrFormatTensor) == (
        "row_pointers, sorted_sample_ids, sorted_token_ids, sorted_gains, sample_count, "
        "num_minibatches_per_physical_sparse_core")
