# SPDX-License-Identifier: Apache-2.0
"""A Keras layer with small tables in Keras Embedding layers and large tables in the engine.

>>> import tf_keras
>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
>>> layer = partial_layer_class(tf_keras)(
...     {"country": FeatureConfig(TableConfig(200, 4)), "user": FeatureConfig(
...         TableConfig(20_000, 8))}, optimizer="adagrad")
>>> list(layer.keras_embedding_layers), type(layer.tpu_embedding).__name__
(['country'], 'TPUEmbeddingLayer')
>>> activations = layer({"country": tf.constant([1, 2]), "user": tf.constant([3, 4])})
>>> activations["country"].shape, activations["user"].shape
(TensorShape([2, 4]), TensorShape([2, 8]))
"""

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import tensorflow as tf

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.structure import (
    Ids,
    check_structure,
    named_features,
    named_tables,
    own_configs,
)
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import (
    _EmbeddingLayer,
    embedding_layer_class,
)
from tpu_estimator_embedding.mid_level.keras_layers.layer_config import (
    arguments_from_dict,
    features_to_dict,
    optimizer_to_dict,
)
from tpu_estimator_embedding.mid_level.keras_layers.layer_input import with_integer_ids
from tpu_estimator_embedding.mid_level.keras_layers.legacy_optimizers import LayerOptimizer
from tpu_estimator_embedding.mid_level.keras_layers.model_keras import check_keras_of_model
from tpu_estimator_embedding.mid_level.serving.serving_lookup import serving_embedding_lookup
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers, TableMultipliers
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.optimizers.setting_checks import check_flag
from tpu_estimator_embedding.plan.embedding_plan import initializer_object
from tpu_estimator_embedding.types import Tensor

if TYPE_CHECKING:
    import keras  # type: ignore[import-untyped]
    _Layer: Any
else:
    _Layer = object  # embedding_layer_class adds Keras' Layer as a base


@dataclasses.dataclass(frozen=True)
class PartialLayerSettings:
    """The arguments of a layer. Keras would wrap a plain dictionary."""

    feature_config: dict[str, FeatureConfig]
    optimizer: LayerOptimizer
    pipelined: bool
    batch_size: int | None
    size_threshold: int | None
    combine_small_tables: bool
    multipliers: TableMultipliers


class _PartialLayer(_Layer):
    """Small tables as Keras Embedding layers, larger ones in a TPUEmbeddingLayer.

    Args:
        feature_config: feature name -> FeatureConfig.
        optimizer: the optimizer of the large tables, see TPUEmbeddingLayer. The model's
            optimizer trains the small tables. If an id repeats in a batch, Keras 3 optimizers
            square and clip each of its gradients separately, not their sum.
        pipeline_execution_with_tensor_core: whether activations of the large tables lack the
            update of the previous batch.
        batch_size: samples of all replicas, if all batches have the same size; None allows any
            size.
        size_threshold: the largest vocabulary of a small table. 0 means that all tables are
            large, None that all are small.
        combine_small_tables: whether small tables accept every type of input and apply combiner
            and max_sequence_length, as large tables do. False is the behaviour of TensorFlow
            Recommenders: dense inputs only, without combining.
        table_multipliers: large table -> gradient multiplier, see `TableMultipliers.of`. The
            step of a schedule is the number of updates, which checkpoints contain.
        **kwargs: arguments of Keras' Layer.

    Raises:
        ValueError: if feature_config is not a dictionary of FeatureConfigs, size_threshold is
            negative, batch_size is not positive, or TPUEmbeddingLayer refuses an argument.
        TypeError: if size_threshold or batch_size is neither an int nor None.
    """

    def __init__(self, feature_config: dict[str, FeatureConfig], optimizer: LayerOptimizer,
                 pipeline_execution_with_tensor_core: bool = False,
                 batch_size: int | None = None, size_threshold: int | None = 10_000, *,
                 combine_small_tables: bool = True, table_multipliers: Multipliers = None,
                 **kwargs: Any):
        super().__init__(**kwargs)
        checks.check(isinstance(feature_config, dict), "feature_config",
                     "a dictionary of FeatureConfigs", type(feature_config).__name__,
                     other_api.tf2_import(feature_config))
        checks.check(not other_api.is_of_estimator_api(optimizer), "optimizer",
                     "an optimizer that TPUEmbeddingLayer accepts", optimizer,
                     other_api.tf2_import(optimizer))
        checks.check_type((int, type(None)), "size_threshold", "an int or None", size_threshold)
        checks.check((size_threshold or 0) >= 0, "size_threshold", "at least 0, or None",
                     size_threshold)
        checks.check_type((int, type(None)), "batch_size", "an int or None", batch_size)
        if batch_size is not None:
            checks.check_positive_int("batch_size", batch_size)
        check_flag("pipeline_execution_with_tensor_core", pipeline_execution_with_tensor_core)
        check_flag("combine_small_tables", combine_small_tables)
        self._settings = PartialLayerSettings(own_configs(feature_config), optimizer,
                                              bool(pipeline_execution_with_tensor_core), batch_size,
                                              size_threshold, combine_small_tables,
                                              TableMultipliers.of(table_multipliers))
        own = named_features(self._settings.feature_config)
        small = {name: feature for name, feature in own.items()
                 if size_threshold is None or feature.table.vocabulary_size <= size_threshold}
        large = {name: feature for name, feature in named_features(feature_config).items()
                 if name not in small}
        self._small_layers = self._embedding_layers(small)
        self._settings.multipliers.resolve(  # checks the keys
            named_tables(large) if large else ())
        self._tpu_embedding = self._large_class(
            large, optimizer, pipeline_execution_with_tensor_core, batch_size,
            table_multipliers=self._settings.multipliers, name="tpu_embedding") if large else None

    @property
    def tpu_embedding(self) -> "_EmbeddingLayer | None":
        """The TPUEmbeddingLayer of the large tables, or None."""
        return self._tpu_embedding

    @property
    def keras_embedding_layers(self) -> "dict[str, keras.layers.Embedding]":
        """Feature name -> Keras Embedding layer of its small table."""
        return dict(self._small_layers)

    def record_measures(self) -> dict[str, MeasureRecorder]:
        """Enables measuring of updates of large tables, for EmbeddingStatisticsCallback."""
        return self._tpu_embedding.record_measures() if self._tpu_embedding is not None else {}

    def build(self, input_shape: object = None) -> None:
        """Does nothing, because the tables do not depend on the inputs."""
        self.built = True

    def call(self, inputs: dict[str, Ids], training: bool | None = None) -> dict[str, Tensor]:
        """Looks features up.

        Args:
            inputs: feature name -> Tensor, SparseTensor or RaggedTensor of ids.
            training: False if no gradients will be computed; Keras passes it.

        Returns:
            Feature name -> float32 activations.

        Raises:
            ValueError: if the features are not those of feature_config, or an input is invalid.
            tf.errors.InvalidArgumentError: if an id is not in the vocabulary.
        """
        return self._lookup(inputs, training)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments as plain values, with the initializers of TensorFlow and Keras."""
        config, settings = super().get_config(), self._settings
        return {**config, "feature_config": features_to_dict(settings.feature_config),
                "optimizer": optimizer_to_dict(settings.optimizer),
                "pipeline_execution_with_tensor_core": settings.pipelined,
                "batch_size": settings.batch_size, "size_threshold": settings.size_threshold,
                "combine_small_tables": settings.combine_small_tables,
                "table_multipliers": settings.multipliers.texts}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns a layer with the arguments that `get_config` returned."""
        return cls(**arguments_from_dict(config))

    @not_converted  # Keras converts `call` and the functions it calls
    def _lookup(self, inputs: dict[str, Ids], training: bool | None) -> dict[str, Tensor]:
        check_keras_of_model(self, inputs)
        check_structure("inputs", self._settings.feature_config, dict(inputs))
        outputs = {name: self._lookup_small(name, inputs[name]) for name in self._small_layers}
        if self._tpu_embedding is not None:
            outputs.update(self._tpu_embedding(
                {name: value for name, value in inputs.items() if name not in outputs},
                training=training))
        return {name: outputs[name] for name in inputs}

    def _embedding_layers(self, features: dict[str, Any],
                          ) -> "dict[str, keras.layers.Embedding]":
        """Returns feature name -> Embedding layer; features of a table share its layer."""
        names = {id(table): name for name, table in named_tables(
            self._settings.feature_config).items()}
        layers = {}
        for feature in features.values():
            table = feature.table
            if id(table) not in layers:
                layer = layers[id(table)] = self._small_class(
                    table.vocabulary_size, table.dim, name=names[id(table)].replace("/", "_"))
                layer.build(None)
                # Keras can only save its own initializers.
                initializer = initializer_object(table.initializer, "initializer")
                layer.embeddings.assign(initializer([table.vocabulary_size, table.dim],
                                                    dtype=tf.float32))
                # tf.train.Checkpoint does not look into dictionaries of Keras 3.
                self._track_trackable(layer, f"small_{names[id(table)]}")
        return {name: layers[id(feature.table)] for name, feature in features.items()}

    def _lookup_small(self, name: str, value: Ids) -> Tensor:
        layer, feature = self._small_layers[name], self._settings.feature_config[name]
        combines = self._settings.combine_small_tables
        value = with_integer_ids(name, value)
        if isinstance(value, tf.SparseTensor | tf.RaggedTensor):
            checks.check(combines, f"input of feature {name!r}", "a Tensor if "
                         "combine_small_tables is False", type(value).__name__)
            if isinstance(value, tf.SparseTensor) and value.shape.rank == 1:
                value = tf.sparse.expand_dims(value, -1)
            variable = layer.embeddings
            if not isinstance(variable, tf.Variable):  # Keras 3 wraps variables
                variable = variable.value
            return serving_embedding_lookup({name: value}, None, {feature.table: variable},
                                            {name: feature})[name]
        checks.check(tf.is_tensor(value), f"input of feature {name!r}",
                     "a Tensor, SparseTensor or RaggedTensor", type(value).__name__)
        checks.check(value.dtype.is_integer, f"ids of feature {name!r}", "integers",
                     value.dtype.name)
        if combines and (value.shape.rank or 0) >= 2 and value.shape[-1] == 1:
            value = tf.squeeze(value, -1)
        return layer(value)


def partial_layer_class(keras: ModuleType) -> type:
    """Returns the layer class for a Keras: `keras`, `tf_keras` or `tf.keras`."""
    return _layer_class(keras.layers.Layer, keras.layers.Embedding, embedding_layer_class(keras),
                        keras.utils.register_keras_serializable)


@functools.cache
def _layer_class(base: type, small: type, large: type,
                 register: Callable[[str], Callable[[type], type]]) -> type:
    return register("tpu_estimator_embedding")(
        type("PartialTPUEmbedding", (_PartialLayer, base), {
            "__doc__": _PartialLayer.__doc__, "__module__": __name__,
            "_small_class": small, "_large_class": large}))
