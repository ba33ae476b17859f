# SPDX-License-Identifier: Apache-2.0
"""The tables of a TPUEmbedding, as programs read, save and restore them."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.config.to_plan import slot_functions
from tpu_estimator_embedding.mid_level.step import table_variables
from tpu_estimator_embedding.mid_level.step.servers import servers_of
from tpu_estimator_embedding.mid_level.step.sharded_table import ShardedTable
from tpu_estimator_embedding.mid_level.step.update_count import UpdateCount
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


class TrackedTables(tf.__internal__.tracking.Trackable):
    """Tables and slots; delayed updates are applied before tables are read or saved."""

    def __init__(self, plan: EmbeddingPlan, tables: Mapping[str, TableConfig], optimizer: Any,
                 strategy: tf.distribute.Strategy | None):
        """Stores the configuration; does not create variables.

        Args:
            plan: the tables.
            tables: table name -> its TableConfig.
            optimizer: the optimizer of the tables that do not set their own, or None.
            strategy: the strategy under which the tables are used; None for the default one.
        """
        self._tables, self._strategy = dict(tables), strategy
        self._plan = plan
        self._update_count = UpdateCount(plan, *servers_of(strategy)[:1])
        self._slot_functions = slot_functions(self._tables, optimizer)
        self._variables: dict[str, TableVariables] | None = None
        self._saved: dict[str, tf.Variable | ShardedTable] = {}
        for child, variable in self._update_count.children.items():
            self._track_trackable(variable, child)

    @property
    @tf.autograph.experimental.do_not_convert
    def embedding_tables(self) -> dict[TableConfig, tf.Variable | ShardedTable]:
        """The variable of each table, `[vocabulary_size, dim]`, by its TableConfig.

        On several parameter servers it is a `tf.distribute` ShardedVariable of their parts.
        """
        self._build_tables()
        self._complete_eagerly()
        return {config: self._saved[name] for name, config in self._tables.items()}

    def _complete(self) -> None:
        """Applies delayed updates, before tables are read."""

    def _forget(self) -> None:
        """Drops delayed updates, before tables are restored."""

    def _build_tables(self) -> dict[str, TableVariables]:
        """Returns the variables by table name; creates them if they do not exist."""
        if self._variables is None:
            self._variables = table_variables.create_tables(
                self._plan, self._slot_functions, self._strategy)
            self._saved = table_variables.children(self._variables)
            for name, variable in self._saved.items():
                self._track_trackable(variable, name)
        return self._variables

    def _complete_eagerly(self) -> None:
        with tf.init_scope():
            self._complete()

    # TensorFlow reads the children whenever it saves a checkpoint. Asynchronous checkpoints trace
    # a function that copies them.

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> Any:
        self._complete_eagerly()
        return super()._trackable_children(save_type, **options)

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        self._complete()

    # TensorFlow's saver calls these two methods of every `tpu_embedding_v2.TPUEmbedding`, which is
    # this class after install(). There is no TPU to copy tables from or to.

    def _retrieve_variables(self) -> None:
        self._complete_eagerly()

    def _load_variables(self) -> None:
        """Does nothing, because tables are trained in the restored variables."""

    def _lookup_dependency(self, *args: Any, **kwargs: Any) -> Any:
        self._forget()
        return super()._lookup_dependency(*args, **kwargs)
