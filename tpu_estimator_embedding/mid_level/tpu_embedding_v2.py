# SPDX-License-Identifier: Apache-2.0
"""TPUEmbeddingV2: the class for TPUs with SparseCores.

Variables have the layout of a TPU: tables with the same width and optimizer are concatenated along
axis 0 in a stack, and rows are sharded over SparseCores. The host sorts ids by core into arrays of
fixed size; the engine looks up and updates the rows of the stacks.

>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> from tpu_estimator_embedding.mid_level.config.optimizers import SGD
>>> from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
>>> words = TableConfig(10, 2, initializer=tf.compat.v1.ones_initializer(), name="words")
>>> embedding = TPUEmbeddingV2({"title": FeatureConfig(words, output_shape=[4])}, SGD(0.5))
>>> activations, preserved = embedding({"title": tf.constant([3, 4, 3, 0])})
>>> activations["title"].numpy().tolist()
[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
>>> embedding.apply_gradients(activations, preserved)
>>> embedding.embedding_tables[words][:5, 0].numpy().tolist()
[0.5, 1.0, 1.0, 0.0, 0.5]
"""

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.exportable_functions import ExportableFunctions
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.mid_level.config.sparse_core_embedding_config import (
    SparseCoreEmbeddingConfig,
)
from tpu_estimator_embedding.mid_level.config.structure import (
    Ids,
    check_structure,
    named_tables,
    named_values,
    own_configs,
)
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.execution.deep_copies import deep_copy
from tpu_estimator_embedding.mid_level.execution.replica_activations import gradient_or_zeros
from tpu_estimator_embedding.mid_level.execution.replica_calls import ReplicaCalls
from tpu_estimator_embedding.mid_level.execution.servers import check_no_cluster
from tpu_estimator_embedding.mid_level.sparse_core import preprocessing, stack_engine
from tpu_estimator_embedding.mid_level.sparse_core.preprocessing import Partitioned
from tpu_estimator_embedding.mid_level.sparse_core.stack_engine import Partitions, StackEngine
from tpu_estimator_embedding.mid_level.sparse_core.stacked_tables import StackedTables
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import given_stacks, to_stacks
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.optimizers.setting_checks import check_flag
from tpu_estimator_embedding.plan.table_stacking import SparseCores
from tpu_estimator_embedding.types import Structure, Tensor


class TPUEmbeddingV2(StackedTables):
    """Embedding tables in the layout of SparseCores, looked up and trained on any device.

    The class works under any strategy of tf.distribute in one process: gradients of all replicas
    are summed into one update. Every feature needs an `output_shape`, the shape of its samples on
    one replica; its max_sequence_length is ignored.

    Differences from TensorFlow's class: it needs no TPU; limits of gradients and weights, and
    lazy_adam, are applied, while TensorFlow ignores them; use_gradient_accumulation=False is
    ignored, as in TensorFlow, with a warning; gradients of a wrong shape are refused, as it
    documents; the mappings also accept TableConfigs as keys; only explicit limits in
    SparseCoreEmbeddingConfig apply, not the defaults of 256 ids; padding is 0. As in TensorFlow,
    weight decay is refused.

    A checkpoint can be restored into any layout; tables are matched by name. If the stacks differ,
    assert_nontrivial_match succeeds on the status of tf.train.Checkpoint, but assert_consumed and
    assert_existing_objects_matched fail, because they compare stacks, not tables.

    Args:
        feature_config: a nested structure of FeatureConfigs.
        optimizer: the optimizer of the tables that do not set their own; None if tables are not
            trained.
        pipeline_execution_with_tensor_core: whether activations lack the update of the previous
            batch. That update is delayed until the next one, or until tables are read or saved.
            While summaries are recorded, and inside TensorFlow's `SequentialEmbeddingContext`,
            activations include all updates.
        sparse_core_embedding_config: stacking of tables, and limits on the number of ids.
        num_chips: number of chips that tables are sharded over.
        num_sc_per_chip: number of SparseCores per chip; times `num_chips` a power of two.
        table_multipliers: table -> gradient multiplier, see `TableMultipliers.of`. The step of
            a schedule is the number of updates of the tables, which checkpoints contain.
            Tables with different multipliers do not share a stack.

    Raises:
        ValueError: if `to_plan` refuses a config or an optimizer, an output_shape is not fully
            defined, or the SparseCores of a chip cannot share the samples equally.
        RuntimeError: if the strategy has replicas or servers in other processes.
        NotImplementedError: if an optimizer has weight decay or a slot_variable_creation_fn.
    """

    def __init__(self, feature_config: Structure, optimizer: TableOptimizer | None = None,
                 pipeline_execution_with_tensor_core: bool = False,
                 sparse_core_embedding_config: SparseCoreEmbeddingConfig | None = None, *,
                 num_chips: int = 1, num_sc_per_chip: int = 4,
                 table_multipliers: Multipliers = None):
        check_flag("pipeline_execution_with_tensor_core", pipeline_execution_with_tensor_core)
        config = SparseCoreEmbeddingConfig()
        if sparse_core_embedding_config is not None:  # of this package or of TensorFlow
            config = copy.deepcopy(sparse_core_embedding_config)
            checks.check(hasattr(config, "disable_table_stacking"), "sparse_core_embedding_config",
                         "a SparseCoreEmbeddingConfig or None", config)
        super().__init__(named_tables(feature_config), to_stacks(
            feature_config, optimizer, SparseCores(num_chips, num_sc_per_chip),
            stacking=not config.disable_table_stacking, table_multipliers=table_multipliers))
        preprocessing.check_limits(config, self._stacks)
        # The program may change its own configs, which TensorFlow's functions read here.
        self._feature_config = feature_config
        self._own_config, self._config = own_configs(feature_config), config
        self._pipelined, self._replicas = pipeline_execution_with_tensor_core, ReplicaCalls()
        check_no_cluster(self._replicas.strategy, "TPUEmbeddingV2")
        self._formats = preprocessing.csr_formats(
            self._stacks, config.max_ids_per_chip_per_sample,
            allow_id_dropping=config.allow_id_dropping)
        self._functions = ExportableFunctions()
        self._engine: StackEngine | None = None

    @not_converted
    def build(self) -> None:
        """Creates tables and slots; does nothing if they exist. Lookups call it."""
        self._built_engine()

    @not_converted
    def enqueue(self, features: Structure, weights: Structure = None,
                device: str | None = None) -> Partitioned:
        """Sorts the ids of all features for the SparseCores.

        Args:
            features: integer Tensors, SparseTensors or RaggedTensors in the structure of
                feature_config.
            weights: None, or floats in that structure, of the same tensor types as the ids;
                leaves may be None.
            device: a TPU, a worker device of the strategy, or None; ids are always sorted on the
                host.

        Returns:
            Stack name -> (PartitionedCsrFormatTensor, number of row pointers in use, number of
            elements for ids in use).

        Raises:
            ValueError: if an input has the wrong type or shape, or the device is unknown.
            TypeError, ValueError: if a structure differs from feature_config.
            tf.errors.InvalidArgumentError: if an id is not in the vocabulary, or the ids exceed
                the arrays.
        """
        preprocessing.check_device(device, self._replicas.devices)
        ids = preprocessing.sorted_ids(
            self._stacks, self._formats, self._by_path("features", features),
            self._weights(weights))
        return preprocessing.to_partitioned(ids, self._formats,
                                            *preprocessing.limits(self._config))

    @not_converted
    def dequeue(self, partitioned_tensors: Partitioned) -> tuple[Structure, Partitions]:
        """Looks up the ids that `enqueue` returned.

        Returns:
            Activations `output_shape + [dim]` float32 in the structure of feature_config,
            and stack name -> PartitionedCsrFormatTensor, for `apply_gradients`.

        Raises:
            ValueError: if a stack is missing, or its value is not a result of `enqueue`.
        """
        first = {name: value[0] if isinstance(value, Sequence) else value
                 for name, value in dict(partitioned_tensors).items()}
        return self._in_structure(*self._built_engine().lookup(
            stack_engine.check_partitions("partitioned_tensors", first, self._stacks)))

    @not_converted
    def embedding_lookup(self, features: Structure,
                         weights: Structure = None) -> tuple[Structure, Partitions]:
        """Looks up features: `enqueue`, then `dequeue`."""
        if self._config.allow_id_dropping:  # the arrays decide which ids are looked up
            return self.dequeue(self.enqueue(features, weights))
        datas = preprocessing.to_enqueue_datas(
            self._stacks, self._by_path("features", features), self._weights(weights))
        return self._in_structure(*self._built_engine().lookup_features(
            datas, functools.partial(preprocessing.partition_checked, self._stacks,
                                     self._formats, self._config)))

    @not_converted
    def __call__(self, features: Structure,
                 weights: Structure = None) -> tuple[Structure, Partitions]:
        """Looks up features: `embedding_lookup`."""
        return self.embedding_lookup(features, weights)

    @not_converted
    def apply_gradients(self, gradients: Structure, preserved_outputs: Partitions) -> None:
        """Updates every row that was looked up, once, with the sum of its gradients.

        Args:
            gradients: gradients of the activations, in the structure of feature_config. None
                means zeros, with a warning; zeros still update the rows.
            preserved_outputs: the second result of the lookup.

        Raises:
            RuntimeError: if the tables were not built, or a table has no optimizer.
            ValueError: if a gradient is not a Tensor, or differs in shape from its activation.
            TypeError, ValueError: if the structure differs from feature_config.
        """
        if self._engine is None:
            raise RuntimeError(
                "apply_gradients called on unbuilt TPUEmbeddingV2 object. Please either call the "
                "embedding lookup method first or manually call the build method.")
        preserved = stack_engine.check_partitions("preserved_outputs", preserved_outputs,
                                                  self._stacks)
        engine, shapes = self._engine, self._stacks.activation_shapes
        mine = (preserved, {path: gradient_or_zeros(path, gradient, shapes[path])
                            for path, gradient in self._by_path("gradients", gradients).items()})
        self._replicas.together(
            "apply_gradients", lambda shares: engine.apply_gradients(
                [tf.nest.pack_sequence_as(mine, share, expand_composites=True)
                 for share in shares]), tf.nest.flatten(mine, expand_composites=True))

    @staticmethod
    @not_converted
    def preprocess_features(
            num_replicas_in_sync: int, max_ids_per_chip_per_sample: int,
            max_minibatches_per_sc: int, num_sc_per_chip: int, num_sc_shards: int,
            stacked_table_to_tables: Mapping[str, Sequence[TableConfig]],
            table_to_stacked_table_offset: Mapping[str, tuple[str, int, int]],
            table_to_sample_count: Mapping[str, int],
            feature_to_sample_offset: Mapping[str, int],
            flat_features: Sequence[tuple[str, FeatureConfig]], flat_inputs: Sequence[Ids],
            flat_weights: Sequence[Ids | None] | None = None) -> Partitioned:
        """Sorts the ids of features for tables of a given layout.

        Args:
            num_replicas_in_sync, num_sc_per_chip, num_sc_shards: number of chips, of SparseCores
                per chip, and of all SparseCores.
            max_ids_per_chip_per_sample, max_minibatches_per_sc: capacity for ids and for row
                pointers.
            stacked_table_to_tables: stack name -> TableConfigs, which must have names.
            table_to_stacked_table_offset: table name -> (stack name, first row of the table in
                the stack, core that holds row 0 of the table).
            table_to_sample_count: stack name -> samples per chip.
            feature_to_sample_offset: path -> index of the feature's first sample in the stack.
            flat_features: (path, FeatureConfig) pairs.
            flat_inputs, flat_weights: inputs, and weights or None, of these features.

        Returns:
            The result of `enqueue`.

        Raises:
            ValueError: if the counts contradict each other.
        """
        checks.check(num_sc_shards == num_replicas_in_sync * num_sc_per_chip, "num_sc_shards",
                     "num_replicas_in_sync * num_sc_per_chip", num_sc_shards)
        stacks = given_stacks(
            SparseCores(num_replicas_in_sync, num_sc_per_chip), stacked_table_to_tables,
            table_to_stacked_table_offset, table_to_sample_count, feature_to_sample_offset,
            flat_features)
        paths = [path for path, _ in flat_features]
        return preprocessing.partition_given(
            stacks, dict(zip(paths, flat_inputs, strict=True)),
            dict(zip(paths, flat_weights or [None] * len(paths), strict=True)),
            max_ids_per_chip_per_sample, max_minibatches_per_sc)

    @classmethod
    @not_converted
    def compute_sparse_core_stats(
            cls, features: Structure, feature_config: Structure, num_tpu_chips: int,
            num_sc_per_chip: int = 4, optimizer: TableOptimizer | None = None,
            sparse_core_embedding_config: SparseCoreEmbeddingConfig | None = None,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Returns the limits that a batch needs, for `max_(unique_)ids_per_table`.

        Args:
            features: the batch, see `enqueue`.
            feature_config, optimizer, sparse_core_embedding_config: see the constructor.
            num_tpu_chips: number of chips that tables are sharded over.
            num_sc_per_chip: number of SparseCores per chip.

        Returns:
            Stack name -> maximum ids that a SparseCore sends to a partition, and stack name ->
            maximum distinct ids: scalar int32.
        """
        embedding = cls(feature_config, optimizer, False, sparse_core_embedding_config,
                        num_chips=num_tpu_chips, num_sc_per_chip=num_sc_per_chip)
        return preprocessing.most_ids(embedding._stacks, embedding._formats,
                                      embedding._by_path("features", features))

    @not_converted
    def record_measures(self) -> dict[str, MeasureRecorder]:
        """Enables measuring of updates; EmbeddingStatisticsCallback says which ones."""
        return self._built_engine().record_measures()

    def __deepcopy__(self, memo: dict[int, Any]) -> "TPUEmbeddingV2":
        """Returns an object with its own tables and slots, all updates, and the same configs."""
        self._read()
        variables = [part for slots in self._variables.values() for value in slots.values()
                     for part in value.variables]
        return deep_copy(
            self, memo, variables,
            shared=(self._stacks, self._formats, self._config, self._own_config, self._replicas,
                    *(value.stack for slots in self._variables.values()
                      for value in slots.values()), *self._tables.values()),
            replaced=((self._deferred_dependencies, {}), (self._engine, None),
                      (self._functions, ExportableFunctions())))

    def _built_engine(self) -> StackEngine:
        if self._engine is None:
            super().build()
            self._engine = StackEngine(
                self._stacks, self._formats, self._variables, self._functions,
                pipelined=bool(self._pipelined), num_replicas=self._replicas.count,
                update_count=self._update_count)
        return self._engine

    def _in_structure(self, activations: Mapping[str, Tensor],
                      preserved: Partitions) -> tuple[Structure, Partitions]:
        return tf.nest.pack_sequence_as(
            self._own_config, [activations[path] for path in self._stacks.features]), preserved

    def _weights(self, weights: Structure) -> dict[str, Ids | None]:
        return (dict.fromkeys(self._stacks.features) if weights is None
                else self._by_path("weights", weights))

    def _complete(self) -> None:
        if self._engine is not None:
            self._engine.complete()

    def _forget(self) -> None:
        if self._engine is not None:
            self._engine.forget()

    def _children_of_export(self) -> dict[str, tf.Variable]:
        recorders = self._engine.recorders if self._engine is not None else {}
        return {f"{stack}/{name}": variable for stack, recorder in recorders.items()
                for name, variable in recorder.children.items()}

    def _export_to_saved_model_graph(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        self._functions.replace_in(tf.compat.v1.get_default_graph())
        return super()._export_to_saved_model_graph(*args, **kwargs)

    def _by_path(self, argument: str, structure: Structure) -> dict[str, Any]:
        check_structure(argument, self._own_config, structure)
        return dict(named_values(structure))
