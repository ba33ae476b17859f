# SPDX-License-Identifier: Apache-2.0
"""The table of the Estimator-era API: each public name and its counterpart per stage.

The rewriter and the page of names in the migration guide both use it. Names are written as in
`tf.compat.v1`, without the prefix "tf.compat.v1".
"""

import dataclasses
from collections.abc import Iterator

from tpu_estimator_embedding.migration.stages import STAGES
from tpu_estimator_embedding.optimizers.registry import rules
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule

_HEADS = {"imports": "Imports", "tf2": "TF2", "layers": "Layers", "keras3": "Keras 3"}


@dataclasses.dataclass(frozen=True)
class LegacyName:
    """A public name and its replacements.

    Attributes:
        name: dotted, below `tf.compat.v1`; "tpu_embedding." stands for
            "tensorflow.python.tpu.tpu_embedding.".
        imports: the name below `tpu_estimator_embedding` at stage 1.
        tf2: what to write in a TF2 training loop.
        layers: what to write in a Keras model of tf_keras.
        keras3: what to write in a Keras 3 model.
    """

    name: str
    imports: str
    tf2: str
    layers: str
    keras3: str

    def counterpart(self, stage: str) -> str:
        """Returns the replacement of the name at one of STAGES."""
        return str(getattr(self, stage))


_LOOP = "a training loop"
_FIT = "Model.compile and Model.fit"
_NONE = "not needed"


def _row(name: str, imports: str, tf2: str, layers: str = "", keras3: str = "") -> LegacyName:
    return LegacyName(name, imports, tf2, layers or tf2, keras3 or layers or tf2)


def _rows(prefix: str, home: str, names: str, *counterparts: str) -> tuple[LegacyName, ...]:
    return tuple(_row(f"{prefix}{name}", f"{home}{name}", *counterparts)
                 for name in names.split())


def _optimizer(rule: type[UpdateRule]) -> LegacyName:
    name, is_in_tf2 = rule.record.parameters, rule.record.v2_attributes is not None
    prefix = "tpu.experimental." if name in EXPORTED_PARAMETERS else "tpu_embedding."
    tf2 = f"mid_level.{rule.__name__}" if is_in_tf2 else "none in tf.tpu.experimental.embedding"
    return _row(f"{prefix}{name}", name, tf2, tf2, _IN_KERAS_3.get(rule.__name__, "none"))


EXPORTED_PARAMETERS = ("AdagradParameters", "AdamParameters", "FtrlParameters",
                       "StochasticGradientDescentParameters")

_TPU = (
    _row("estimator.tpu.TPUEstimator", "TPUEstimator",
         "a training loop around mid_level.TPUEmbedding",
         "a tf_keras model with mid_level.TPUEmbeddingLayer; Model.compile and Model.fit",
         "a Keras 3 model with keras_rs.layers.DistributedEmbedding; compile and fit"),
    _row("estimator.tpu.TPUEstimatorSpec", "TPUEstimatorSpec",
         "the return values of the training, evaluation and prediction steps",
         "the model's outputs; loss, metrics and optimizer are given to Model.compile"),
    _row("estimator.tpu.TPUConfig", "TPUConfig",
         "arguments of the loop; iterations_per_loop is the steps of one tf.function",
         "Model.compile(steps_per_execution=...)"),
    _row("estimator.tpu.RunConfig", "RunConfig",
         "tf.train.CheckpointManager for saves, tf.random.set_seed for the seed",
         "callbacks: ModelCheckpoint, TensorBoard; tf.random.set_seed"),
    _row("estimator.tpu.InputPipelineConfig", "InputPipelineConfig",
         "strategy.distribute_datasets_from_function", "Model.fit(dataset)"),
    _row("estimator.tpu.TPUContext", "tf_tpu.TPUContext",
         "tf.distribute.InputContext", "tf.distribute.InputContext"),
    _row("estimator.tpu.experimental.EmbeddingConfigSpec", "EmbeddingConfigSpec",
         "mid_level.FeatureConfig and mid_level.TableConfig",
         "mid_level.FeatureConfig and mid_level.TableConfig",
         "keras_rs.layers.FeatureConfig and keras_rs.layers.TableConfig"),
    _row("tpu.CrossShardOptimizer", "CrossShardOptimizer",
         "the wrapped optimizer itself; with several replicas, a sum of gradients",
         "the optimizer given to Model.compile"),
    _row("tpu.experimental.embedding_column", "embedding_column",
         "mid_level.FeatureConfig(mid_level.TableConfig(...))",
         "mid_level.FeatureConfig(mid_level.TableConfig(...))",
         "keras_rs.layers.FeatureConfig(name, keras_rs.layers.TableConfig(...), ...)"),
    _row("tpu.experimental.shared_embedding_columns", "shared_embedding_columns",
         "one mid_level.TableConfig in several mid_level.FeatureConfig",
         "one mid_level.TableConfig in several mid_level.FeatureConfig",
         "one keras_rs.layers.TableConfig in several keras_rs.layers.FeatureConfig"),
    _row("tpu.experimental.initialize_tpu_system", "tf_tpu.experimental.initialize_tpu_system",
         "the same name"),
    _row("tpu.experimental.shutdown_tpu_system", "tf_tpu.experimental.shutdown_tpu_system",
         "the same name"),
    *_rows("tpu.experimental.", "tf_tpu.experimental.",
           "DeviceAssignment DeviceOrderMode HardwareFeature TPUSystemMetadata Topology",
           "the same name in tf.tpu.experimental"),
    *_rows("tpu.", "tf_tpu.",
           "PaddingSpec XLAOptions batch_parallel core initialize_system outside_compilation "
           "replicate rewrite shard shutdown_system", "strategy.run in a tf.function"),
    _row("tpu.bfloat16_scope", "tf_tpu.bfloat16_scope",
         "tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')"),
    _row("tpu.cross_replica_sum", "tf_tpu.cross_replica_sum",
         "tf.distribute.get_replica_context().all_reduce"),
    _row("distribute.cluster_resolver.TPUClusterResolver", "TPUClusterResolver",
         "the same name; None off a TPU"),
    _row("distribute.TPUStrategy", "tf_tpu.TPUStrategy", "the same name"),
    _row("distribute.experimental.TPUStrategy", "tf_tpu.experimental.TPUStrategy",
         "tf.distribute.TPUStrategy"),
    _row("config.experimental_connect_to_host", "tf_tpu.experimental_connect_to_host",
         "tf.config.experimental_connect_to_cluster"),
)

_IN_KERAS_3 = {
    "Adagrad": "keras.optimizers.Adagrad(epsilon=0), gradients of repeated ids summed",
    "Adam": "keras_training.TableAdam, which migrate writes",
    "FTRL": "keras_training.TableFtrl, which migrate writes",
    "SGD": "keras.optimizers.SGD",
}

_OPTIMIZERS = tuple(map(_optimizer, rules()))

_V1_ENGINE = (
    _row("tpu_embedding.TableConfig", "TableConfig", "mid_level.TableConfig",
         "mid_level.TableConfig", "keras_rs.layers.TableConfig"),
    _row("tpu_embedding.FeatureConfig", "FeatureConfig", "mid_level.FeatureConfig",
         "mid_level.FeatureConfig", "keras_rs.layers.FeatureConfig"),
    _row("tpu_embedding.TPUEmbedding", "tf_tpu.tpu_embedding.TPUEmbedding",
         "mid_level.TPUEmbedding", "mid_level.TPUEmbeddingLayer",
         "keras_rs.layers.DistributedEmbedding"),
    *_rows("tpu_embedding.", "tf_tpu.tpu_embedding.",
           "DeviceConfig EnqueueData INFERENCE RaggedEnqueueData TRAINING VariablesAndOps "
           "get_enqueue_datas_list_from_ragged_tensors_list "
           "get_enqueue_datas_list_from_sparse_tensors_list", _NONE),
)

_ESTIMATOR = (
    _row("estimator.ModeKeys", "tf_estimator.ModeKeys", "a function for each mode"),
    _row("estimator.Estimator", "tf_estimator.Estimator", _LOOP, "a tf_keras model",
         "a Keras 3 model"),
    _row("estimator.EstimatorSpec", "tf_estimator.EstimatorSpec", "return values of the steps"),
    _row("estimator.RunConfig", "tf_estimator.RunConfig", "tf.train.CheckpointManager",
         "callbacks"),
    _row("estimator.TrainSpec", "tf_estimator.TrainSpec", "trainer.TrainSpec", "",
         "arguments of Model.fit"),
    _row("estimator.EvalSpec", "tf_estimator.EvalSpec", "trainer.EvalSpec", "",
         "Model.fit(validation_data=...)"),
    _row("estimator.train_and_evaluate", "tf_estimator.train_and_evaluate",
         "trainer.train_and_evaluate", "", "Model.fit(validation_data=...)"),
    _row("estimator.WarmStartSettings", "tf_estimator.WarmStartSettings",
         "tf.train.Checkpoint.restore", "Model.load_weights"),
    _row("estimator.VocabInfo", "tf_estimator.VocabInfo",
         "`tpu-estimator-embedding checkpoint convert --resize`"),
    *_rows("estimator.", "tf_estimator.", "BestExporter Exporter FinalExporter LatestExporter",
           "tf.saved_model.save", "tf.saved_model.save", "Model.export"),
    *_rows("estimator.", "tf_estimator.",
           "CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook "
           "GlobalStepWaiterHook LoggingTensorHook NanTensorHook ProfilerHook SessionRunArgs "
           "SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook "
           "SummarySaverHook NanLossDuringTrainingError SecondOrStepTimer",
           "code in the loop", "tf.keras.callbacks.Callback", "keras.callbacks.Callback"),
    *_rows("estimator.", "tf_estimator.",
           "BinaryClassHead Head LogisticRegressionHead MultiClassHead MultiHead "
           "MultiLabelHead PoissonRegressionHead RegressionHead add_metrics",
           "a loss and metrics of tf.keras", "a loss and metrics of tf.keras",
           "a loss and metrics of keras"),
    *_rows("estimator.", "tf_estimator.",
           "BaselineClassifier BaselineEstimator BaselineRegressor DNNClassifier DNNEstimator "
           "DNNLinearCombinedClassifier DNNLinearCombinedEstimator DNNLinearCombinedRegressor "
           "DNNRegressor LinearClassifier LinearEstimator LinearRegressor", "a tf_keras model",
           "a tf_keras model", "a Keras 3 model"),
    *_rows("estimator.", "tf_estimator.",
           "classifier_parse_example_spec regressor_parse_example_spec",
           "tf.io.parse_example"),
    *_rows("estimator.export.", "tf_estimator.export.",
           "ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput "
           "ServingInputReceiver TensorServingInputReceiver "
           "build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn",
           "a tf.function with an input_signature, given to tf.saved_model.save",
           "a tf.function with an input_signature, given to tf.saved_model.save",
           "keras.export.ExportArchive"),
    *_rows("estimator.experimental.", "tf_estimator.experimental.",
           "InMemoryEvaluatorHook KMeans LinearSDCA RNNClassifier RNNEstimator "
           "build_raw_supervised_input_receiver_fn call_logit_fn dnn_logit_fn_builder "
           "linear_logit_fn_builder make_early_stopping_hook "
           "make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook "
           "stop_if_no_decrease_hook stop_if_no_increase_hook", "code in the loop",
           "tf.keras.callbacks.EarlyStopping", "keras.callbacks.EarlyStopping"),
    *_rows("estimator.inputs.", "tf_estimator.inputs.", "numpy_input_fn pandas_input_fn",
           "tf.data.Dataset.from_tensor_slices"),
)

NAMES = {row.name: row for row in (*_TPU, *_OPTIMIZERS, *_V1_ENGINE, *_ESTIMATOR)}

# Whose classes TensorFlow 2's own `tf.estimator` has replaced by others.
V2_DIFFERS = frozenset((
    "BaselineClassifier", "BaselineEstimator", "BaselineRegressor", "DNNClassifier",
    "DNNEstimator", "DNNLinearCombinedClassifier", "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor", "DNNRegressor", "Estimator", "LinearClassifier",
    "LinearEstimator", "LinearRegressor", "classifier_parse_example_spec",
    "regressor_parse_example_spec"))

# Names at the top of this package that a rewritten program imports directly.
TOP_LEVEL = frozenset(row.imports for row in NAMES.values() if "." not in row.imports)


def page_lines() -> Iterator[str]:
    """Yields a list-table with a row for each name and a column for each stage."""
    yield from (".. list-table::", "   :header-rows: 1", "")
    yield from _page_row(["Legacy name", *(_HEADS[stage] for stage in STAGES)])
    for name, row in sorted(NAMES.items()):
        texts = [row.counterpart(stage).replace("`", "") for stage in STAGES[1:]]
        yield from _page_row([f"``{name}``", f"``{row.imports}``", *map(_escaped, texts)])


def _page_row(cells: list[str]) -> Iterator[str]:
    for index, cell in enumerate(cells):
        yield f"   {'  ' if index else '* '}- {cell}"


def _escaped(text: str) -> str:
    for character in "\\*_|":
        text = text.replace(character, f"\\{character}")
    return text
