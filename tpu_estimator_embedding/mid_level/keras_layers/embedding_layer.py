# SPDX-License-Identifier: Apache-2.0
"""A Keras layer of embedding tables with their own optimizers.

>>> import tf_keras
>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
>>> words = TableConfig(10, 2, tf.compat.v1.ones_initializer(), combiner="sum")
>>> layer = embedding_layer_class(tf_keras)({"title": FeatureConfig(words)}, "sgd")
>>> with tf.GradientTape() as tape:
...     loss = tf.reduce_sum(layer({"title": tf.ragged.constant([[3, 4], [3]])})["title"])
>>> variables = layer.trainable_variables
>>> optimizer = tf_keras.optimizers.SGD()
>>> _ = optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))  # and the tables
>>> print(layer.embedding_tables[words][2:5, 0].numpy().round(2))
[1.   0.98 0.99]
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import tensorflow as tf
from tensorflow.python.trackable.base import Trackable

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.mid_level.config import optimizers
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.mid_level.config.structure import named_features, own_configs
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.layer_config import (
    arguments_from_dict,
    features_to_dict,
    optimizer_to_dict,
)
from tpu_estimator_embedding.mid_level.keras_layers.layer_input import with_batch
from tpu_estimator_embedding.mid_level.keras_layers.layer_tables import LayerTables
from tpu_estimator_embedding.mid_level.keras_layers.legacy_optimizers import (
    LayerOptimizer,
    from_keras,
    is_keras_optimizer,
)
from tpu_estimator_embedding.mid_level.keras_layers.model_keras import check_keras_of_model
from tpu_estimator_embedding.mid_level.keras_layers.optimizer_steps import mark, patch_optimizers
from tpu_estimator_embedding.mid_level.serving.serving_lookup import serving_embedding_lookup
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers, TableMultipliers
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.optimizers.setting_checks import check_flag
from tpu_estimator_embedding.types import Structure, Tensor

if TYPE_CHECKING:
    import keras  # type: ignore[import-untyped]
    _Layer: Any
else:
    _Layer = object  # embedding_layer_class adds Keras' Layer as a base

_BY_NAME = {"sgd": optimizers.SGD, "adagrad": optimizers.Adagrad, "adam": optimizers.Adam,
            "ftrl": optimizers.FTRL}


_NAMES_OF_CARRIER = ("_trap", "tpu_embedding_trap")  # in checkpoints; Keras 2 tracks it twice
_TRAINED_CARRIER = "_trained_trap"


@dataclasses.dataclass(frozen=True)
class LayerSettings:
    """The arguments of a layer. Keras would wrap a plain dictionary."""

    feature_config: Structure
    optimizer: LayerOptimizer
    pipelined: bool
    batch_size: int | None
    multipliers: TableMultipliers


class _EmbeddingLayer(_Layer):
    """Embedding tables that are trained by their own optimizers when the layer is trained.

    The layer has one trainable variable, of zeros, which does not affect the model. Whenever an
    optimizer of the program applies a gradient of it, in `fit` or in a loop with a tape, the tables
    are updated once, by their own optimizers. What linear operations do to that gradient before,
    such as sums over batches or the division by a loss scale, they do to the gradients of the
    tables; what the program's optimizer itself does, such as clipping, it does to other variables
    only. A layer that is not `trainable`, or is in a SavedModel of a model, only looks up.

    All formats save tables and slots. They are among the layer's `weights`.

    Args:
        feature_config: a nested structure of FeatureConfigs.
        optimizer: an optimizer of this package or of tf.tpu.experimental.embedding, a legacy
            Keras optimizer, or "sgd", "adagrad", "adam" or "ftrl"; None if tables are not
            trained.
        pipeline_execution_with_tensor_core: whether activations lack the update of the previous
            batch.
        batch_size: samples of all replicas, if all batches have the same size; None allows any
            size.
        embedding_feature: must be None, because there is no TPU hardware to select.
        sparse_core_embedding_config: must be None, because the layer does not stack tables.
        table_multipliers: table -> gradient multiplier, see `TableMultipliers.of`. The step of
            a schedule is the number of updates of the tables, which checkpoints contain.
        **kwargs: arguments of Keras' Layer.

    Raises:
        ValueError: if a config or optimizer is invalid, or embedding_feature or
            sparse_core_embedding_config is given.
    """

    def __init__(self, feature_config: Structure, optimizer: LayerOptimizer,
                 pipeline_execution_with_tensor_core: bool = False, batch_size: int | None = None,
                 embedding_feature: None = None, sparse_core_embedding_config: None = None, *,
                 table_multipliers: Multipliers = None, **kwargs: Any):
        super().__init__(**kwargs)
        for argument, value in (("embedding_feature", embedding_feature),
                                ("sparse_core_embedding_config", sparse_core_embedding_config)):
            checks.check(value is None, argument, "None", value,
                         "TPUEmbeddingV2 lays tables out for SparseCores.")
        check_flag("pipeline_execution_with_tensor_core", pipeline_execution_with_tensor_core)
        self.supports_jit = False  # XLA cannot compile the update of rows
        self._settings = LayerSettings(own_configs(feature_config), optimizer,
                                       bool(pipeline_execution_with_tensor_core), batch_size,
                                       TableMultipliers.of(table_multipliers))
        self._tables = LayerTables(feature_config, _to_optimizer(optimizer),
                                   pipelined=self._settings.pipelined, batch_size=batch_size,
                                   table_multipliers=self._settings.multipliers)
        self._trap = self.add_weight(  # the carrier of the tables' gradients
            name="tpu_embedding_trap", shape=(self._tables.carrier_size,), dtype="float32",
            initializer="zeros", trainable=True,
            **{"experimental_autocast" if self._is_keras_2 else "autocast": False})
        mark(self._trap, self._tables)
        # Keras saves the variables in `weights` to HDF5, and callbacks copy them.
        if self._is_keras_2:
            self._non_trainable_weights.extend(self._tables.variables.values())
        else:
            for name, variable in self._tables.variables.items():
                variable.path = f"{self.name}/{name.replace('/', ':')}"  # its name in HDF5

    @property
    def embedding_tables(self) -> dict[TableConfig, tf.Variable]:
        """The variable of each table, `[vocabulary_size, dim]`, by its TableConfig."""
        self._tables.complete()
        return {config: self._tables.variables[name]
                for name, config in self._tables.tables.items()}

    @property
    def variables(self) -> "list[tf.Variable | keras.Variable]":
        """All variables; in Keras 3 including tables and slots, which exports need."""
        if self._is_keras_2:
            return super().variables
        return [*super().variables, *self._tables.variables.values()]

    @property
    def weights(self) -> "list[tf.Variable | keras.Variable]":
        """The same as `variables`; `get_weights` and `set_weights` copy them."""
        if self._is_keras_2:
            return super().weights
        return [*super().weights, *self._tables.variables.values()]

    def update_embedding_table(self, table: TableConfig,
                               embedding_table: Tensor | tf.Variable | np.ndarray) -> None:
        """Sets the values of a table; its slots stay unchanged.

        Args:
            table: a TableConfig of the layer.
            embedding_table: a variable, tensor or array `[vocabulary_size, dim]`.

        Raises:
            ValueError: if the layer does not have the table, or the shape differs.
        """
        tables = self.embedding_tables
        checks.check(table in tables, "table", "a TableConfig of the layer", table)
        tables[table].assign(embedding_table)

    def record_measures(self) -> dict[str, MeasureRecorder]:
        """Enables measuring of updates; EmbeddingStatisticsCallback says which ones."""
        return self._tables.record_measures()

    @not_converted
    def apply_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Updates the tables, in a program whose optimizer does not train this layer.

        Args:
            gradients: those of `trainable_variables`.

        Raises:
            ValueError: if there is another number of gradients, none was computed, or it has
                another shape.
            RuntimeError: if they were applied before.
        """
        checks.check(isinstance(gradients, Sequence) and len(gradients) == 1
                     and gradients[0] is not None, "gradients",
                     "a list of one gradient, that of the layer's trainable variable", gradients)
        gradient = tf.convert_to_tensor(gradients[0])
        shape = self._trap.shape
        checks.check(gradient.shape.is_compatible_with(shape), "gradients", "a gradient of shape "
                     f"{tuple(shape)}, that of the layer's trainable variable", gradient.shape)
        self._tables.apply_gradients(gradient)

    def build(self, input_shape: object = None) -> None:
        """Does nothing, because the tables do not depend on the inputs."""
        self.built = True

    def call(self, features: Structure, weights: Structure = None,
             serving_config: Structure = None, training: bool | None = None) -> Structure:
        """Looks features up.

        Args:
            features: Tensors, SparseTensors or RaggedTensors of ids, in the structure of
                the FeatureConfigs.
            weights: floats in that structure, of the same tensor types as the ids, or None.
            serving_config: another structure of FeatureConfigs with the same TableConfigs, for a
                lookup without training; None means the layer's structure.
            training: False if no gradients will be computed; Keras passes it.

        Returns:
            float32 activations in that structure: `[batch, dim]` or
            `[batch, max_sequence_length, dim]`; for a dense input its shape, without a last
            dimension of 1, followed by dim. If all features are scalar ids, `[dim]`.

        Raises:
            ValueError, TypeError: if a structure or an input is invalid.
            tf.errors.InvalidArgumentError: if an id is not in the vocabulary.
        """
        if serving_config is not None:
            return self._serve(features, weights, serving_config)
        return self._lookup(features, weights, training)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments as plain values, with the initializers of TensorFlow and Keras."""
        arguments = self._arguments()
        return {**arguments, "feature_config": features_to_dict(arguments["feature_config"]),
                "optimizer": optimizer_to_dict(arguments["optimizer"]),
                "table_multipliers": self._settings.multipliers.texts}

    def _arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        settings = self._settings
        return {**super().get_config(), "feature_config": settings.feature_config,
                "optimizer": settings.optimizer,
                "pipeline_execution_with_tensor_core": settings.pipelined,
                "batch_size": settings.batch_size, "table_multipliers": settings.multipliers}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Returns a layer with its own tables and slots, and the same configs; eager.

        The copy has all updates, and no gradients wait in it.

        Raises:
            TypeError: if a subclass has a constructor, which may make more than is copied.
        """
        if type(self).__init__ is not _EmbeddingLayer.__init__:
            raise TypeError(f"copy.deepcopy cannot copy {type(self).__name__}, which has its own "
                            "constructor. Override its method `__deepcopy__`.")
        with self._tables.strategy.scope():
            copied = type(self)(**self._arguments())
        memo[id(self)] = copied
        if not self._is_keras_2:
            memo[id(self._tracker)] = copied._tracker  # of its lists and dictionaries
        self._tables.complete()
        for name, variable in self._tables.variables.items():
            copied._tables.variables[name].assign(variable)
        copied._tables.tables.update({name: memo.get(id(config), config)
                                      for name, config in self._tables.tables.items()})
        copied.built = self.built
        for name, value in vars(self).items():
            if name not in vars(copied):  # set by the program
                setattr(copied, name, copy.deepcopy(value, memo))
        return copied

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns a layer with the arguments that `get_config` returned."""
        cls._patch_optimizers()  # which load slots, too
        return cls(**arguments_from_dict(config))

    @not_converted  # Keras converts `call` and the functions it calls
    def _lookup(self, features: Structure, weights: Structure,
                training: bool | None) -> Structure:
        check_keras_of_model(self, features)
        self._patch_optimizers()  # again, if `uninstall` has undone it
        features, is_single = with_batch(features)
        activations = self._tables.lookup(
            features, weights, tf.convert_to_tensor(self._trap), training,
            is_trainable=bool(self.trainable), checks="float16" in (
                self.compute_dtype, self._global_policy().compute_dtype))
        return (tf.nest.map_structure(lambda rows: rows[0], activations) if is_single
                else activations)

    @not_converted
    def _serve(self, features: Structure, weights: Structure,
               serving_config: Structure) -> Structure:
        tables = self.embedding_tables
        for path, feature in named_features(serving_config).items():
            checks.check(feature.table in tables, f"table of feature {path!r}",
                         "a TableConfig of the layer", feature.table)
        return serving_embedding_lookup(features, weights, tables, serving_config)

    # Checkpoints have one zero for the carrier, whose size may change. Optimizers of Keras 3 track
    # what they train, so after a training their checkpoints contain the carrier itself, too. A
    # layer that is restored before it trains finds it by the second name.

    def _trackable_children(self, save_type: str = "checkpoint",
                            **options: Any) -> dict[str, Trackable]:
        children: dict[str, Trackable] = super()._trackable_children(save_type, **options)
        if save_type != "checkpoint":
            return children
        trained = {_TRAINED_CARRIER: self._trap} if (
            not self._is_keras_2 and self._tables.has_trained) else {}
        return {**{name: self._tables.saved_carrier if name in _NAMES_OF_CARRIER else child
                   for name, child in children.items()}, **trained}

    def _lookup_dependency(self, name: str, *args: Any, **options: Any) -> Trackable | None:
        if name == _TRAINED_CARRIER and not self._is_keras_2:
            carrier: Trackable = self._trap
            return carrier
        child: Trackable | None = super()._lookup_dependency(name, *args, **options)
        return child if child is None or name not in _NAMES_OF_CARRIER else (
            self._tables.saved_carrier)

    @property
    def _is_keras_2(self) -> bool:
        return hasattr(self, "_non_trainable_weights")

    def save_own_variables(self, store: MutableMapping[str, np.ndarray]) -> None:
        """Saves tables and slots."""
        self._tables.complete()
        for name, variable in self._tables.variables.items():
            store[name.replace("/", ":")] = variable.numpy()

    def load_own_variables(self, store: Mapping[str, np.ndarray]) -> None:
        """Loads tables and slots."""
        for name, variable in self._tables.variables.items():
            variable.assign(store[name.replace("/", ":")])


def embedding_layer_class(keras: ModuleType) -> type:
    """Returns the layer class for a Keras: `keras`, `tf_keras` or `tf.keras`."""
    patch_optimizers(keras.layers.Layer)
    return _layer_class(keras.layers.Layer, keras.utils.register_keras_serializable,
                        keras.mixed_precision.global_policy)


@functools.cache
def _layer_class(base: type, register: Callable[[str], Callable[[type], type]],
                 global_policy: Callable[[], Any]) -> type:
    return register("tpu_estimator_embedding")(
        type("TPUEmbeddingLayer", (_EmbeddingLayer, base),
             {"__doc__": _EmbeddingLayer.__doc__, "__module__": __name__,
              "_global_policy": staticmethod(global_policy),
              "_patch_optimizers": staticmethod(functools.partial(patch_optimizers, base))}))


def _to_optimizer(optimizer: LayerOptimizer) -> TableOptimizer | None:
    if is_keras_optimizer(optimizer):
        return from_keras(optimizer)
    if not isinstance(optimizer, str):
        return optimizer
    checks.check_one_of("optimizer", _BY_NAME, optimizer)
    return _BY_NAME[optimizer]()
