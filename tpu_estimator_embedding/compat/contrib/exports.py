# SPDX-License-Identifier: Apache-2.0
"""Functions of `tf.contrib.estimator` and `tf.contrib.tpu` that are methods of Estimators today."""

from collections.abc import Callable, Mapping
from typing import Any


def export_estimator_savedmodel(
        estimator: Any, export_dir_base: str, serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None, as_text: bool = False,
        checkpoint_path: str | None = None) -> bytes:
    """Exports an Estimator for TPUs, whose ops this machine computes; returns the directory."""
    return estimator.export_saved_model(export_dir_base, serving_input_receiver_fn, assets_extra,
                                        as_text, checkpoint_path)


def export_saved_model_for_mode(
        estimator: Any, export_dir_base: str, input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None, as_text: bool = False,
        checkpoint_path: str | None = None, strip_default_attrs: bool = False,
        mode: str = "infer") -> bytes:
    """Exports the graph of one mode of an Estimator; returns the directory.

    Args:
        strip_default_attrs: whether to leave out attributes of ops that have their default value.
        mode: a mode of tf.estimator.ModeKeys; by default, PREDICT.
        others: as in `export_saved_model` of the Estimator.
    """
    return estimator._export_all_saved_models(
        export_dir_base, {mode: input_receiver_fn}, assets_extra, as_text, checkpoint_path,
        strip_default_attrs=strip_default_attrs)


def export_all_saved_models(
        estimator: Any, export_dir_base: str,
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: dict[str, str] | None = None, as_text: bool = False,
        checkpoint_path: str | None = None, strip_default_attrs: bool = False) -> bytes:
    """Exports graphs of several modes of an Estimator into one SavedModel; returns the directory.

    Args:
        input_receiver_fn_map: mode -> function that returns the receiver of its input.
        others: as in `export_saved_model_for_mode`.
    """
    return estimator._export_all_saved_models(
        export_dir_base, dict(input_receiver_fn_map), assets_extra, as_text, checkpoint_path,
        strip_default_attrs=strip_default_attrs)
