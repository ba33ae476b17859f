# SPDX-License-Identifier: Apache-2.0
"""The graphs of an exported model: one for `serve`, and one under the tags of a TPU."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator.upstream import model_fn

# A mode for Estimator's own methods; the model_fn gets PREDICT.
EXPORT_FOR_TPU = "export for a TPU"

_TPU_TAGS = [tf.saved_model.SERVING, tf.saved_model.TPU]


def add(add_for_mode: Callable[..., None], input_receiver_fns: Mapping[str, Any], mode: str, *,
        for_cpu: bool, for_tpu: bool, save_variables: bool, export_tags: Any,
        check_variables: bool) -> None:
    """Adds the graph of a mode, and in PREDICT one that clients load by the tags of a TPU.

    Args:
        add_for_mode: adds one; takes input_receiver_fns, and by keyword the arguments of
            `Estimator._add_meta_graph_for_mode`.
        input_receiver_fns: mode -> function that receives the inputs.
        mode: TRAIN, EVAL or PREDICT.
        for_cpu: `export_to_cpu` of the TPUEstimator.
        for_tpu: `export_to_tpu` of the TPUEstimator.
        save_variables: whether the first graph saves the variables.
        export_tags: tags of the first graph; None for those of the mode.
        check_variables: whether the first graph has to have variables.

    Raises:
        ValueError: if both exports are disabled.
    """
    if not for_cpu and not for_tpu:
        raise ValueError("One of export_to_cpu and export_to_tpu must be true. Leave "
                         "`export_to_cpu` out of the TPUEstimator's arguments.")
    has_tpu_tags = for_tpu and mode == model_fn.ModeKeys.PREDICT
    if for_cpu or not has_tpu_tags:
        add_for_mode(input_receiver_fns, mode=mode, save_variables=save_variables,
                     export_tags=export_tags, check_variables=check_variables)
        save_variables = check_variables = False  # the builder holds them
    if has_tpu_tags:
        tf.compat.v1.logging.info(
            "tpu_estimator_embedding: export_to_tpu=True: clients that load the tags %s get "
            "the graph for CPU and GPU under them%s", _TPU_TAGS, "; tf.saved_model.load needs "
            "tags=['serve'] or these where a model has both." if for_cpu else ".")
        add_for_mode({EXPORT_FOR_TPU: input_receiver_fns[mode]}, mode=EXPORT_FOR_TPU,
                     save_variables=save_variables, export_tags=_TPU_TAGS,
                     check_variables=check_variables)
