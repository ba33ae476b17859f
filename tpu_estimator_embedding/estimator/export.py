# SPDX-License-Identifier: Apache-2.0
"""Exports a model: the graphs of its modes, under the tags of a CPU and of a TPU, as one folder."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.export_directory import write_export
from tpu_estimator_embedding.compat import upstream

ModeKeys = upstream.model_fn.ModeKeys

# A mode for Estimator's own methods; the model_fn gets PREDICT.
EXPORT_FOR_TPU = "export for a TPU"

_TPU_TAGS = [tf.saved_model.SERVING, tf.saved_model.TPU]
# The first one saves the variables: TRAIN has all that a checkpoint has.
_MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


@dataclasses.dataclass(frozen=True)
class Export:
    """An export.

    Attributes:
        directory: the folder in which it creates a new one.
        receivers: mode -> function that receives the inputs.
        checkpoint_path: the checkpoint with the variables.
        assets_extra: name in the export -> path of a file to copy.
        as_text: whether the graphs are written as text.
        strip_default_attrs: whether attributes of ops that have their defaults are left out.
        for_cpu: `export_to_cpu` of the TPUEstimator.
        for_tpu: `export_to_tpu` of the TPUEstimator.
    """

    directory: str
    receivers: Mapping[str, Callable[[], Any]]
    checkpoint_path: str
    assets_extra: Mapping[str, str] | None
    as_text: bool
    strip_default_attrs: bool
    for_cpu: bool
    for_tpu: bool


def write(export: Export, add_graph: Callable[..., None]) -> bytes:
    """Writes an export, or nothing if it fails.

    Args:
        export: what to export.
        add_graph: builds the graph of a mode and adds it: takes a SavedModelBuilder, and by keyword
            the arguments of `Estimator._add_meta_graph_for_mode`.

    Returns:
        The path of the new folder.

    Raises:
        ValueError: if no mode is exported, or neither for a CPU nor for a TPU.
    """
    modes = [mode for mode in _MODES if export.receivers.get(mode)]
    checks.check_with_sentence(
        bool(modes), f"No valid modes for exporting found. Got {list(export.receivers)}.",
        f"Give a function for one of {list(_MODES)}.")

    def write_into(path: str) -> None:
        builder = tf.compat.v1.saved_model.Builder(path)

        def add(receivers: Mapping[str, Callable[[], Any]], **options: Any) -> None:
            add_graph(builder, input_receiver_fn_map=receivers,
                      checkpoint_path=export.checkpoint_path,
                      strip_default_attrs=export.strip_default_attrs, **options)

        for mode in modes:
            add_meta_graphs(add, export.receivers, mode, for_cpu=export.for_cpu,
                            for_tpu=export.for_tpu, save_variables=mode == modes[0])
        builder.save(export.as_text)

    return write_export(export.directory, export.assets_extra, write_into)


def add_meta_graphs(add_for_mode: Callable[..., None],
                    input_receiver_fns: Mapping[str, Callable[[], object]], mode: str, *,
                    for_cpu: bool, for_tpu: bool, save_variables: bool) -> None:
    """Adds the graph of a mode, and in PREDICT one that clients load by the tags of a TPU.

    Args:
        add_for_mode: adds one; takes input_receiver_fns, and by keyword the arguments of
            `Estimator._add_meta_graph_for_mode`.
        input_receiver_fns: mode -> function that receives the inputs.
        mode: TRAIN, EVAL or PREDICT.
        for_cpu: `export_to_cpu` of the TPUEstimator.
        for_tpu: `export_to_tpu` of the TPUEstimator.
        save_variables: whether the first graph saves the variables.

    Raises:
        ValueError: if both exports are disabled.
    """
    if not for_cpu and not for_tpu:
        raise ValueError("One of export_to_cpu and export_to_tpu must be true. Leave "
                         "`export_to_cpu` out of the TPUEstimator's arguments.")
    has_tpu_tags = for_tpu and mode == ModeKeys.PREDICT
    if for_cpu or not has_tpu_tags:
        add_for_mode(input_receiver_fns, mode=mode, save_variables=save_variables)
    if has_tpu_tags:
        tf.compat.v1.logging.info(
            "tpu_estimator_embedding: export_to_tpu=True: clients that load the tags %s get "
            "the graph for CPU and GPU under them%s", _TPU_TAGS, "; tf.saved_model.load needs "
            "tags=['serve'] or these where a model has both." if for_cpu else ".")
        # After the graph for a CPU the builder holds the variables.
        add_for_mode({EXPORT_FOR_TPU: input_receiver_fns[mode]}, mode=EXPORT_FOR_TPU,
                     save_variables=save_variables and not for_cpu, export_tags=_TPU_TAGS,
                     check_variables=not for_cpu)
