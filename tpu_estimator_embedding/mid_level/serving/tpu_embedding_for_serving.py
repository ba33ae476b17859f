# SPDX-License-Identifier: Apache-2.0
"""TPUEmbeddingForServing: trained tables, looked up by TensorFlow's own ops.

>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> words = TableConfig(1000, 2, tf.ones_initializer(), name="words")
>>> embedding = TPUEmbeddingForServing({"title": FeatureConfig(words)}, optimizer=None)
>>> embedding({"title": tf.constant([3, 4])})["title"].numpy().tolist()
[[1.0, 1.0], [1.0, 1.0]]
"""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.structure import named_tables
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.config.to_plan import slot_functions, to_plan
from tpu_estimator_embedding.mid_level.serving.serving_lookup import serving_embedding_lookup
from tpu_estimator_embedding.mid_level.serving.stacked_restore import StackedRestore
from tpu_estimator_embedding.mid_level.sparse_core.stack_checkpoint import LAYOUTS


class TPUEmbeddingForServing(tf.__internal__.tracking.Trackable):
    """Tables to restore from the checkpoint of a TPUEmbedding or TPUEmbeddingV2, and to serve.

    They are trainable variables of the strategy under which they are made, which an
    optimizer of the program's own may train.

    Args:
        feature_config: a nested structure of FeatureConfigs.
        optimizer: whose slots to create and restore; None creates none.
        experimental_sparsecore_restore_info: None.

    Raises:
        ValueError: if a config or optimizer is of the wrong class, two tables have one
            name, or experimental_sparsecore_restore_info is given.

    Source: document of `tf.tpu.experimental.embedding.TPUEmbeddingForServing`.
    """

    def __init__(self, feature_config: Any, optimizer: Any,
                 experimental_sparsecore_restore_info: Any = None) -> None:
        checks.check(experimental_sparsecore_restore_info is None,
                     "experimental_sparsecore_restore_info", "None",
                     experimental_sparsecore_restore_info,
                     "Restore into TPUEmbeddingV2, which knows the layout of its tables.")
        self._feature_config = feature_config
        self._tables = named_tables(feature_config)
        self._plan = to_plan(feature_config, optimizer)
        self._slot_functions = slot_functions(self._tables, optimizer)
        self._variables: dict[str, dict[str, tf.Variable]] = {}
        self._stacked = StackedRestore()

    @property
    def embedding_tables(self) -> dict[TableConfig, tf.Variable]:
        """The variable of each table, `[vocabulary_size, dim]`, by its TableConfig."""
        return {config: self.variables[name]["parameters"]
                for name, config in self._tables.items()}

    @property
    def variables(self) -> dict[str, dict[str, tf.Variable]]:
        """Table name -> its variables: `parameters`, and those of its slots."""
        self.build()
        return self._variables

    def build(self) -> None:
        """Creates tables and slots, once."""
        if self._variables:
            return
        with tf.init_scope():
            self._variables = {table.name: self._create(table) for table in self._plan.tables}
        self._stacked.add_tables(self._variables)
        self._restore_stacks()
        for name, variables in self._variables.items():
            for slot, variable in variables.items():
                self._track_trackable(
                    variable, name if slot == "parameters" else f"{name}/{slot}")

    def embedding_lookup(self, features: Any, weights: Any = None) -> Any:
        """Looks features up; arguments, results and errors as `serving_embedding_lookup`."""
        return serving_embedding_lookup(features, weights, self.embedding_tables,
                                        self._feature_config)

    __call__ = embedding_lookup

    def _restore_stacks(self) -> None:
        """Restores what a checkpoint of a TPUEmbeddingV2 has waited to restore."""
        self._maybe_initialize_trackable()
        waiting = list(self._deferred_dependencies)
        if LAYOUTS not in waiting:
            return
        for name in [LAYOUTS, *waiting]:
            if child := self._stacked.child(name):
                self._handle_deferred_dependencies(name, child)

    def _trackable_children(self, *args: Any, **kwargs: Any) -> Any:
        self._stacked.begin()  # a restore asks for the children first
        return super()._trackable_children(*args, **kwargs)

    def _lookup_dependency(self, name: str, *args: Any) -> Any:
        # A restore passes the children, too. Before build() what it finds has to wait.
        is_restore = bool(args) and bool(self._variables)
        child = self._stacked.child(name) if is_restore else None
        return child or super()._lookup_dependency(name, *args)

    def _create(self, table: Any) -> dict[str, tf.Variable]:
        shape = [table.vocabulary_size, table.dimension]
        parameters = tf.Variable(table.initializer(shape, tf.float32), name=table.name)
        initializers = {slot: tf.constant_initializer(value)
                        for slot, value in table.slot_initial_values.items()}
        if table.name in self._slot_functions:
            slots = self._slot_functions[table.name](parameters, list(initializers),
                                                     list(initializers.values()))
        else:
            slots = {slot: tf.Variable(initializer(shape), trainable=False,
                                       name=f"{table.name}/{slot}")
                     for slot, initializer in initializers.items()}
        return {**slots, "parameters": parameters}
