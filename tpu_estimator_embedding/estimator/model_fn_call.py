# SPDX-License-Identifier: Apache-2.0
"""Calls a user's model_fn with the arguments that it accepts."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.estimator.upstream import fn_args, tpu_estimator
from tpu_estimator_embedding.ops.nests import own_containers


def call_model_fn(model_fn: Callable[..., Any], features: Any, labels: Any, mode: str,
                  config: Any, params: Any, added_params: Mapping[str, Any]) -> Any:
    """Returns what `model_fn` returns.

    Args:
        model_fn: takes `features`, `params` and any of `labels`, `mode`, `config`.
        features: the features, activations among them; the model_fn gets its own containers.
        labels: the labels, or None; likewise.
        mode: TRAIN, EVAL or PREDICT.
        config: the run configuration; the model_fn gets a copy.
        params: the user's parameters; the model_fn gets a copy with `added_params`.
        added_params: `batch_size`, `context` and `use_tpu`, where they apply.

    Raises:
        ValueError: if the model_fn lacks a required argument.
    """
    accepted = fn_args(model_fn)
    checks.check_with_sentence(
        "params" in accepted, f"model_fn ({model_fn}) does not include params argument, required "
        "by TPUEstimator to pass batch size as params['batch_size'].",
        f"Add `params` to its arguments, which are {accepted}.")
    checks.check_with_sentence(
        "labels" in accepted or labels is None,
        "model_fn does not take labels, but input_fn returns labels.",
        f"Add `labels` to its arguments, which are {accepted}, or return features alone.")
    features, labels = own_containers((features, labels))
    given = {"labels": labels, "mode": mode, "config": copy.deepcopy(config),
             "params": _with(params, added_params)}
    return model_fn(features=features,
                    **{name: value for name, value in given.items() if name in accepted})


def params_for(model_fn: Any, params: Any) -> Any:
    """Returns {} for no parameters, of which Estimator warns though `batch_size` is always passed.
    """
    return {} if params is None and callable(model_fn) and "params" in fn_args(model_fn) else params


def _with(params: Any, added: Mapping[str, Any]) -> Any:
    """Returns a copy of `params`, a dictionary or an `HParams`, with more entries."""
    params = copy.deepcopy(params)
    for key, value in added.items():
        tpu_estimator._add_item_to_params(params, key, value)
    return params
