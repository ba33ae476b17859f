# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches for which this machine stands in for a TPU system."""

from tpu_estimator_embedding.compat.patch import Patch
from tpu_estimator_embedding.compat.patch_table import OURS

_STAND_INS = f"{OURS}.compat.stand_ins"
_V1_TPU_APIS = ("tensorflow._api.v2.compat.v1.tpu", "tensorflow.compat.v1.tpu")


def _stand_in(module: str, name: str, source: str, reason: str) -> Patch:
    return Patch(module, name, f"{_STAND_INS}.{source}", reason, replaces=True)


def _computation(module: str, name: str, source: str) -> Patch:
    return Patch(module, name, f"{OURS}.estimator.replicas.{source}",
                 "builds a graph that cannot run without a TPU; this machine computes it",
                 replaces=True)


TPU_SYSTEM = (
    *(_stand_in("tensorflow.python.distribute.cluster_resolver.tpu_cluster_resolver:"
                "TPUClusterResolver", name, f"tpu_resolver:{function}",
                "tries the network for minutes; this machine stands in if no TPU answers")
      for name, function in (("__init__", "initialize"),
                             ("num_accelerators", "num_accelerators"),
                             ("get_tpu_system_metadata", "get_tpu_system_metadata"),
                             ("cluster_spec", "cluster_spec"))),
    Patch("tensorflow_estimator.python.estimator.tpu.tpu_config:RunConfig", "__init__",
          f"{OURS}.runtime.run_config:initialize",
          "a session waits for a master that does not answer", replaces=True),
    _stand_in("tensorflow.python.client.session:BaseSession", "__init__",
              "tpu_setup:initialize_session", "a session waits for a master that does not answer"),
    *(_stand_in(module, name, f"tpu_setup:{name}", "fails without a TPU")
      for module, names in (
          ("tensorflow.python.tpu.tpu_strategy_util",
           ("initialize_tpu_system_impl", "shutdown_tpu_system_impl")),
          ("tensorflow.python.tpu.ops.tpu_ops",
           ("configure_distributed_tpu", "configure_tpu_embedding",
            "shutdown_distributed_tpu")),
          ("tensorflow.python.tpu.tpu", ("_tpu_system_device_name",)))
      for name in names),
    *(_stand_in(module, name, "tpu_setup:connect_to_remote_host",
                "waits for a host that does not answer")
      for module, name in (
          ("tensorflow.python.eager.remote", "connect_to_remote_host"),
          *((f"tensorflow._api.v2{version}.config", "experimental_connect_to_host")
            for version in ("", ".compat.v1", ".compat.v2")))),
    *(_stand_in(module, "core", "tpu_setup:core", "names a device that only a TPU has")
      for module in ("tensorflow.python.tpu.tpu_name_util", "tensorflow.python.tpu.tpu",
                     *_V1_TPU_APIS)),
    *(_computation(module, name, f"tpu_computations:{name}")
      for name in ("rewrite", "replicate", "split_compile_and_replicate")
      for module in ("tensorflow.python.tpu.tpu",
                     *(() if name.startswith("split_") else _V1_TPU_APIS))),
    *(_computation(module, name, f"tpu_shard:{name}")
      for name in ("shard", "batch_parallel", "split_compile_and_shard")
      for module in ("tensorflow.python.tpu.tpu",
                     *(() if name.startswith("split_") else _V1_TPU_APIS))),
    *(_computation("tensorflow.python.tpu.training_loop", name, f"training_loop:{name}")
      for name in ("repeat", "while_loop")),
    *(_computation(module, name, f"tpu_inference:{name}")
      for name in ("call_computation", "inference_on_tpu")
      for module in ("tensorflow_estimator.python.estimator.tpu.tpu_estimator",
                     "tensorflow.python.tpu.tpu_estimator")),
    *(_stand_in("tensorflow.python.tpu.ops.tpu_ops", name, f"tpu_feeds:{name}",
                "has no kernel without a TPU; raises an error that says so")
      for name in ("infeed_dequeue", "infeed_dequeue_tuple", "infeed_enqueue",
                   "infeed_enqueue_tuple", "outfeed_dequeue", "outfeed_dequeue_tuple",
                   "outfeed_enqueue", "outfeed_enqueue_tuple")))
