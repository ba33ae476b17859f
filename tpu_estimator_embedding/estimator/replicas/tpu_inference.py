# SPDX-License-Identifier: Apache-2.0
"""`inference_on_tpu`, which model_fns use for serving, without a TPU.

`tpu_estimator.model_fn_inference_on_tpu` is built on `call_computation`. Calls of several clients
are not batched: the outputs are the same, and a server can batch whole requests.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.replicas import tpu_computations
from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.patches.patch import Patch
from tpu_estimator_embedding.types import EstimatorSpec, RunConfig, Structure, Tensor

_upstream_call_computation = upstream.tpu_estimator.call_computation
_upstream_inference_on_tpu = upstream.tpu_estimator.inference_on_tpu

# The functions that tensorflow_estimator's function calls; patched while it runs.
_CALLED = (
    Patch(upstream.tpu_estimator.__name__, "call_computation", f"{__name__}:call_computation",
          "builds a graph that no session takes without a TPU", replaces=True),
    *(Patch(module, "rewrite", f"{tpu_computations.__name__}:rewrite",
            "builds a graph that no session takes without a TPU", replaces=True)
      for module in ("tensorflow._api.v2.compat.v1.tpu", "tensorflow.compat.v1.tpu")))


def call_computation(computation_inputs: Structure,
                     computation: Callable[[Structure], list[Tensor]],
                     batch_config: object = None) -> list[Tensor]:
    """Returns the result of the computation.

    Args:
        computation_inputs: a tensor or a nest of tensors.
        computation: from these inputs to a list of tensors.
        batch_config: is ignored, with a line in the log.
    """
    if tpu_computations.is_for_a_tpu():
        return _upstream_call_computation(computation_inputs, computation, batch_config)
    if batch_config:
        _say_that_nothing_is_batched()
    return computation(computation_inputs)


def inference_on_tpu(computation: Callable[..., Structure], inputs_to_tpu: Sequence[Tensor],
                     num_batch_threads: int, max_batch_size: int, batch_timeout_micros: int,
                     allowed_batch_sizes: Sequence[int] | None = None,
                     max_enqueued_batches: int = 100) -> Structure:
    """Returns the result of the computation, in the form of `tpu.rewrite`.

    Args:
        computation: from the inputs to tensors.
        inputs_to_tpu: the inputs.
        num_batch_threads: is ignored, as are the arguments after it, with a line in the log if
            `max_batch_size` is given.
        max_batch_size: with None or 0 a TPU does not batch either.
        batch_timeout_micros: see `num_batch_threads`.
        allowed_batch_sizes: see `num_batch_threads`.
        max_enqueued_batches: see `num_batch_threads`.
    """
    if tpu_computations.is_for_a_tpu():
        return _upstream_inference_on_tpu(
            computation, inputs_to_tpu, num_batch_threads, max_batch_size, batch_timeout_micros,
            allowed_batch_sizes, max_enqueued_batches)

    if max_batch_size:
        _say_that_nothing_is_batched()
    return tpu_computations.rewrite(computation, list(inputs_to_tpu))


def model_fn_inference_on_tpu(model_fn: Callable[..., EstimatorSpec], features: Structure,
                              labels: Structure = None, config: RunConfig | None = None,
                              params: Structure = None,
                              batch_config: object = None) -> EstimatorSpec:
    """Returns the EstimatorSpec of a model_fn, whose outputs this machine computes.

    Arguments are those of `tensorflow_estimator`'s function of this name, which it calls. It needs
    no `install()`.
    """
    with patch.applied(_CALLED):
        return upstream.tpu_estimator.model_fn_inference_on_tpu(
            model_fn, features, labels, config, params, batch_config)


def _say_that_nothing_is_batched() -> None:
    tf.compat.v1.logging.info(
        "tpu_estimator_embedding: inference on a TPU is computed here for each call as it comes; "
        "TensorFlow Serving batches requests with --enable_batching.")
