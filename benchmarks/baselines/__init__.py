# SPDX-License-Identifier: Apache-2.0
"""The baselines, one module each, this package's own among them.

Modules are only imported in workers.

Each module has a class `Baseline` with

* `__init__(workload, batches, options)`, which creates tables and all other state;
* `run(first, count)`, which runs `count` steps, starting with batch `first % len(batches)`, and
  returns their duration in seconds;
* `tables()`, which returns the tables as arrays, if it has tables.
"""

import dataclasses
import importlib.util

from benchmarks.workloads import SMALL, Workload


@dataclasses.dataclass(frozen=True)
class Entry:
    """One baseline.

    Attributes:
        name: name in tables and files.
        module: name of its module in this package.
        title: description for figures and the report.
        needs: modules that must be installed.
        environment: environment variables of its process.
        options: its additional keyword arguments.
        settling_steps: untimed steps at the start of a turn, whose input was prepared during the
            turns of other baselines.
        workloads: names of its workloads; empty means all.
        moves_tables: whether its first steps move tables to huge pages; they are not timed.
        memory: required memory, as a multiple of the bytes of tables and slots.
    """

    name: str
    module: str
    title: str
    needs: tuple[str, ...] = ("tensorflow",)
    environment: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, object], ...] = ()
    settling_steps: int = 1
    workloads: tuple[str, ...] = ()
    moves_tables: bool = False
    memory: float = 1.1

    def runs(self, workload: Workload) -> bool:
        """Whether it is measured on a workload; small steps are for those that name them."""
        return workload.name in self.workloads if self.workloads else workload not in SMALL

    @property
    def missing(self) -> list[str]:
        """The required modules that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


_KERNELS = "TPU_ESTIMATOR_EMBEDDING_KERNELS"
_SIMD = "TPU_ESTIMATOR_EMBEDDING_SIMD"
_NATIVE = ((_KERNELS, "native"),)
_FILES = ("W", "tiny")
_SMALL = tuple(workload.name for workload in SMALL)
_END_TO_END = (*_FILES, *_SMALL)
_RECORDS = (("from_records", True),)

_FRONT_DOORS = ("W", "W2", "tiny")
_TF2 = {"needs": ("tensorflow", "tf_keras"), "workloads": _FRONT_DOORS, "moves_tables": True,
        "environment": (*_NATIVE, ("TF_USE_LEGACY_KERAS", "1"))}

ENGINE = (
    Entry("native", "engine", "this package, native kernels", environment=_NATIVE,
          moves_tables=True),
    Entry("native_function", "engine_function", "this package, native kernels, tf.function",
          environment=_NATIVE, workloads=_FRONT_DOORS, moves_tables=True),
    Entry("native_statistics", "measured_engine",
          "this package, native kernels, statistics every 100 steps", environment=_NATIVE,
          moves_tables=True),
    Entry("tf_ops", "engine", "this package, TF ops", environment=((_KERNELS, "tf"),)),
    Entry("low_level", "low_level", "this package, TPUEmbedding of v1 by hand",
          environment=_NATIVE, workloads=_FRONT_DOORS, moves_tables=True),
    Entry("tpu_embedding", "tf2_classes", "this package, TPUEmbedding",
          options=(("kind", "tpu_embedding"),), **_TF2),
    Entry("tpu_embedding_v2", "tf2_classes", "this package, TPUEmbeddingV2",
          options=(("kind", "tpu_embedding_v2"),), **_TF2),
    Entry("layer_fit", "tf2_classes", "this package, TPUEmbeddingLayer in model.fit",
          options=(("kind", "layer"),), **_TF2),
    Entry("stock_graph", "stock_graph", "stock v1 graph: input_layer, AdagradOptimizer",
          memory=2.0),  # it copies tables in every step
    Entry("keras", "keras_function", "tf.function, Keras Adagrad",
          needs=("tensorflow", "tf_keras"), environment=(("TF_USE_LEGACY_KERAS", "1"),)),
    Entry("torch", "torch_bags", "torch.nn.EmbeddingBag, sparse Adagrad", needs=("torch",)),
    Entry("fbgemm", "fbgemm_bags", "FBGEMM CPU, exact Adagrad", needs=("torch", "fbgemm_gpu")),
    Entry("bound", "memory_bound", "random rows of this memory", needs=()),
    Entry("bound_l1", "memory_bound", "random rows, fetched into the first cache", needs=(),
          options=(("is_first_level", True),)),
    Entry("bound_ids", "presorted_step", "lookup and Adagrad alone, ids sorted before", needs=()),
)
END_TO_END = (
    Entry("estimator", "estimator", "TPUEstimator.train, this package, from memory",
          environment=_NATIVE, workloads=_END_TO_END, settling_steps=3),
    Entry("stock_estimator", "estimator", "stock TPUEstimator(use_tpu=False), from memory",
          options=(("is_stock", True),), workloads=_END_TO_END, settling_steps=3),
    Entry("estimator_loop", "estimator", "TPUEstimator.train, this package, 2 steps per run",
          environment=_NATIVE, options=(("iterations_per_loop", 2),), workloads=_SMALL,
          settling_steps=3),
    Entry("estimator_long_loop", "estimator",
          "TPUEstimator.train, this package, 100 steps per run", environment=_NATIVE,
          options=(("iterations_per_loop", 100),), workloads=_SMALL, settling_steps=3),
    Entry("estimator_records", "estimator", "TPUEstimator.train, this package, from files",
          environment=_NATIVE, options=_RECORDS, workloads=_FILES, settling_steps=6),
    Entry("stock_estimator_records", "estimator",
          "stock TPUEstimator(use_tpu=False), from files",
          options=(("is_stock", True), *_RECORDS), workloads=_FILES, settling_steps=6),
    Entry("parsing", "parsing", "reading and parsing the files, this package",
          environment=_NATIVE, workloads=_FILES, settling_steps=6),
    Entry("stock_parsing", "parsing", "reading and parsing the files, stock TensorFlow",
          options=(("is_stock", True),), workloads=_FILES, settling_steps=6),
)
# By instruction set, as processors without AVX-512 have it; measured on request.
SIMD = {name: Entry(f"native_{name}", "engine", f"this package, native kernels, {title}",
                    environment=(*_NATIVE, (_SIMD, name)), moves_tables=True)
        for name, title in (("avx2", "AVX2"), ("baseline", "SSE"))}
# One of each kind: the front doors and variants are left out.
QUICK = tuple(entry for entry in ENGINE if not entry.workloads
              and entry.name not in ("native_statistics", "bound_l1"))
ALL = {entry.name: entry for entry in (*ENGINE, *SIMD.values(), *END_TO_END)}
