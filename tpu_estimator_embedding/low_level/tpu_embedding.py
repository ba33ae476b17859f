# SPDX-License-Identifier: Apache-2.0
"""The embedding engine for programs without an Estimator.

>>> import tensorflow as tf
>>> from tpu_estimator_embedding.config.feature_config import FeatureConfig
>>> from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
>>> from tpu_estimator_embedding.config.table_config import TableConfig
>>> from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
>>> from tpu_estimator_embedding.low_level import tpu_embedding_gradient
>>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
...     engine = TPUEmbedding(
...         {"words": TableConfig(10, 2, tf.ones_initializer(), "sum")},
...         {"title": FeatureConfig("words")}, batch_size=2, mode=TRAINING, master="",
...         optimization_parameters=AdagradParameters(0.5))
...     ids = tf.sparse.from_dense([[3, 4], [3, 0]])
...     enqueue = engine.generate_enqueue_ops([{"title": EnqueueData.from_sparse_tensor(ids)}])
...     activations = engine.get_activations()
...     loss = tf.reduce_sum(tf.square(activations["title"])) / 2
...     send = engine.generate_send_gradients_op(
...         tpu_embedding_gradient.get_gradients_through_compute_gradients(
...             tf.compat.v1.train.GradientDescentOptimizer(0.1), loss, activations))
...     variables_and_ops = engine.create_variables_and_ops()
...     _ = session.run(tf.compat.v1.global_variables_initializer())
...     _ = session.run(variables_and_ops.load_ops())
...     for _ in range(2):
...         print(session.run([loss, send, enqueue])[0])
...     _ = session.run(variables_and_ops.retrieve_ops())
...     session.run(variables_and_ops.embedding_variables_by_table["words"])[0][3].round(3)
5.0
1.270...
array([0.279, 0.279], dtype=float32)
"""

import collections
import itertools
import weakref
from collections.abc import Mapping, Sequence

import tensorflow as tf
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.channels import channel, waits
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import _OptimizationParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.config.to_plan import warn_of_profile_data
from tpu_estimator_embedding.engine.enqueue_data import AnyEnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.step import EnqueueDatas
from tpu_estimator_embedding.engine.variables import create_variables
from tpu_estimator_embedding.low_level.core_queue import Share, core_ids
from tpu_estimator_embedding.low_level.cores import DeviceConfig, find_cores
from tpu_estimator_embedding.low_level.engine_configuration import (
    TRAINING,
    BatchMode,
    EngineConfiguration,
    batch_mode,
)
from tpu_estimator_embedding.low_level.enqueue_list import checked_enqueue_list
from tpu_estimator_embedding.low_level.graph_ops import GraphOps
from tpu_estimator_embedding.low_level.sent_gradients import (
    checked_gradients,
    checked_step,
)
from tpu_estimator_embedding.low_level.variables_and_ops import (
    VariablesAndOps,
    name_variables,
    slot_variables,
)
from tpu_estimator_embedding.ops.outermost_graph import of_graph, outermost_graph
from tpu_estimator_embedding.types import Tensor

# Global, because a TPU system has one configuration, and its ops name none.
_made: "weakref.WeakSet[TPUEmbedding]" = weakref.WeakSet()
_configured: list["TPUEmbedding"] = []
_numbers = itertools.count(1)  # of the engines of this process, in the names of their channels


class TPUEmbedding(EngineConfiguration):
    """Embedding tables that look up enqueued ids and are trained with sent gradients.

    In every step, each core enqueues its share of the batch, receives activations and sends
    their gradients; all gradients of a step are applied in one update. Ops are created in graph
    mode and may run in one `session.run` or in several: receiving blocks until a batch was
    enqueued. The k-th call of `get_activations`, and of `generate_send_gradients_op`, belongs to
    core k modulo `num_cores`.

    With `pipeline_execution_with_tensor_core` the activations of a step lack the update of the
    previous step; run `retrieve_ops` before saving the tables.

    Args:
        table_to_config_dict: table name -> TableConfig.
        feature_to_config_dict: feature name -> FeatureConfig.
        batch_size: samples of all cores in one step.
        mode: TRAINING or INFERENCE.
        master: the session's master, such as "". This machine then acts as one core, or as the
            cores and hosts that `run --cores` and `run --hosts` choose.
        optimization_parameters: the `*Parameters` of the tables that do not set their own;
            None in INFERENCE.
        cluster_def: the cluster of `master`.
        pipeline_execution_with_tensor_core: whether to look up each batch before the update of
            the previous batch.
        partition_strategy: "div" or "mod": which host holds which row.
        profile_data_directory: where a TPU writes lookup statistics. It is not used here; a log
            message says so.
        device_config: DeviceConfig, for several cores or hosts.
        master_job_name: job of the hosts; by default the job of `master`.

    Raises:
        ValueError: if a config is of the wrong class, a value is outside its range, a table is
            unused or unknown, optimizers are missing in TRAINING or given in INFERENCE, or
            batch_size is not a multiple of the number of cores.
    """

    def __init__(self, table_to_config_dict: Mapping[str, TableConfig],
                 feature_to_config_dict: Mapping[str, FeatureConfig], batch_size: int, mode: int,
                 master: str | None = None,
                 optimization_parameters: _OptimizationParameters | None = None,
                 cluster_def: tf.train.ClusterDef | None = None,
                 pipeline_execution_with_tensor_core: bool = False, partition_strategy: str = "div",
                 profile_data_directory: str | None = None,
                 device_config: DeviceConfig | None = None, master_job_name: str | None = None):
        super().__init__(
            table_to_config_dict, feature_to_config_dict, batch_size, mode,
            optimization_parameters,
            find_cores(master, cluster_def, device_config, master_job_name),
            pipelined=pipeline_execution_with_tensor_core, partition_strategy=partition_strategy)
        warn_of_profile_data(profile_data_directory)
        name = f"TPUEmbedding {next(_numbers)}:"
        self._share = Share(self._plan, self._batch_size_per_core, self.num_cores,
                            training=mode == TRAINING, engine=name)
        if channel.are_available():
            weakref.finalize(self, waits.drop, name)
        _made.add(self)
        _configured[:] = [self]

    def create_variables_and_ops(
            self, embedding_variable_name_by_table: Mapping[str, str] | None = None,
            slot_variable_names_by_table: Mapping[str, tuple[str, ...] | None] | None = None
            ) -> VariablesAndOps:
        """Creates the variables of all tables and slots, one part per host.

        Args:
            embedding_variable_name_by_table: table name -> name of its variable; by default
                the name of the table.
            slot_variable_names_by_table: table name -> names of its slot variables, such as
                AdamSlotVariableNames; by default `{table}/Adam/m` and so on.

        Raises:
            ValueError: if either mapping lacks a table, or the names are not those of the slots
                of the table's optimizer.
        """
        graph_ops = self._ops_for("create_variables_and_ops")
        names = name_variables(self._plan, embedding_variable_name_by_table,
                               slot_variable_names_by_table)
        variables = create_variables(self._plan, names)
        engine = PartitionedEmbedding(self._plan, variables)
        graph_ops.set_engine(engine)
        return VariablesAndOps(
            {name: table.parts for name, table in variables.items()},
            {table.name: slot_variables(table, variables[table.name])
             for table in self._plan.tables},
            lambda: [graph_ops.load()], lambda: [graph_ops.retrieve(engine)])

    def generate_enqueue_ops(self, enqueue_datas_list: Sequence[Mapping[str, AnyEnqueueData]],
                             mode_override: str | None = None,
                             ragged: bool = False) -> list[tf.Operation]:
        """Returns one op per core that checks its ids and enqueues them.

        Args:
            enqueue_datas_list: for each core, or for each core of the host on whose device the
                tensors are, feature name -> EnqueueData of its `batch_size_per_core` samples.
            mode_override: "inference" for activations only, "train" or "training" for
                activations and gradients, "backward_pass_only" for gradients only; None and
                "unspecified" mean the engine's mode.
            ragged: whether ids are RaggedEnqueueData instead.

        Raises:
            ValueError: if the list is not as described, the mode is unknown, or an engine for
                INFERENCE would have to train.
            tf.errors.InvalidArgumentError: when the op runs, if an id is outside its table, a
                sample index is outside the batch, or their numbers differ. No table is changed.
        """
        mode = batch_mode(self._mode, mode_override)
        lists = checked_enqueue_list(self._plan, enqueue_datas_list, self._cores, ragged)
        return [self._enqueue_core(core, datas, mode) for core, datas in lists.items()]

    def get_activations(self) -> "collections.OrderedDict[str, Tensor]":
        """Dequeues the next batch of the next core and looks up its ids.

        Returns:
            Feature name -> `[batch_size_per_core, dimension]` float32, or
            `[batch_size_per_core, max_sequence_length, dimension]` for a sequence, sorted by
            table and name.

        Raises:
            tf.errors.InvalidArgumentError: when evaluated, if a core has not sent the gradients
                of the previous batch.
        """
        return collections.OrderedDict(self._ops_for("get_activations").receive())

    def generate_send_gradients_op(self, feature_to_gradient_dict: Mapping[str, Tensor],
                                   step: Tensor | int | None = None) -> tf.Operation:
        """Returns the op that sends the gradients of the next core's received batch.

        The tables are updated after all cores have sent their gradients.

        Args:
            feature_to_gradient_dict: feature name -> gradient of its activation, float32.
            step: scalar, the global step before it is incremented; required if a table has a
                learning_rate_fn or a FrequencyEstimator.

        Raises:
            RuntimeError: if the mode of the engine is not TRAINING.
            ValueError: if the gradient of a feature is missing or has another shape or dtype,
                or if the step is required and None.
            tf.errors.InvalidArgumentError: when the op runs, if the batch was for inference.
        """
        return self._send_gradients(feature_to_gradient_dict, step, {})

    def _enqueue_core(self, core: int, datas: EnqueueDatas, mode: BatchMode) -> tf.Operation:
        """Returns the op that checks the ids of one core and enqueues them."""
        graph_ops = self._ops_for("generate_enqueue_ops")
        with tf.device(THIS_PROCESS), tf.name_scope(f"enqueue_{core}"):
            return graph_ops.queues[core].enqueue(core_ids(self._share, datas), mode)

    def _send_gradients(self, gradients: Mapping[str, Tensor | None], step: Tensor | int | None,
                        learning_rates: Mapping[str, Tensor]) -> tf.Operation:
        """Sends gradients, with rates that replace the learning_rate_fn of some tables."""
        if self._mode != TRAINING:
            raise RuntimeError(checks.complaint(
                "mode", "TRAINING to send gradients", self._mode,
                "Create the TPUEmbedding with mode=TRAINING, or send no gradients.", sentence=
                "Only in training mode gradients need to be sent to TPU embedding."))
        step = checked_step(self._plan, step, learning_rates)
        checked = checked_gradients(self._plan, gradients, self._batch_size_per_core)
        return self._ops_for("generate_send_gradients_op").send(checked, step, learning_rates)

    def _ops_for(self, method: str) -> GraphOps:
        """Returns the ops of the current graph; in a function, those of its outermost graph."""
        with outermost_graph() as graph:
            if graph is None:
                raise RuntimeError(
                    f"`{method}` must be called in graph mode, got eager execution. Call it "
                    "under `with tf.Graph().as_default():`, or call "
                    "tf.compat.v1.disable_eager_execution() first.")
            return of_graph(graph, self._share.engine, lambda: GraphOps(self._share))


def configured() -> TPUEmbedding | None:
    """Returns the TPUEmbedding made or configured last; None if this process made none."""
    return _configured[0] if _configured else None


def choose(config_proto: TPUEmbeddingConfiguration) -> bool:
    """Configures the TPUEmbedding with this `config_proto`; returns whether there is one."""
    for engine in (*_configured, *_made):
        if engine.config_proto == config_proto:
            _configured[:] = [engine]
            return True
    return False
