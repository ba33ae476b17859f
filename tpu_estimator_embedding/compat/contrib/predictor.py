# SPDX-License-Identifier: Apache-2.0
"""The predictors of `tf.contrib.predictor`: a session and the tensors of a signature."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

v1 = tf.compat.v1


class Predictor:
    """Computes the outputs of a graph for given inputs.

    Args:
        session: a session, whose graph has the tensors.
        feed_tensors: name -> tensor of an input.
        fetch_tensors: name -> tensor of an output.
    """

    def __init__(self, session: tf.compat.v1.Session, feed_tensors: Mapping[str, Tensor],
                 fetch_tensors: Mapping[str, Tensor]) -> None:
        self._session = session
        self._feeds, self._fetches = dict(feed_tensors), dict(fetch_tensors)

    @property
    def graph(self) -> tf.Graph:
        """The graph of the session."""
        return self._session.graph

    @property
    def session(self) -> tf.compat.v1.Session:
        """The session."""
        return self._session

    @property
    def feed_tensors(self) -> dict[str, Tensor]:
        """Name -> tensor of each input."""
        return self._feeds

    @property
    def fetch_tensors(self) -> dict[str, Tensor]:
        """Name -> tensor of each output."""
        return self._fetches

    def __call__(self, input_dict: Mapping[str, object]) -> dict[str, Any]:
        """Returns name -> value of each output.

        Args:
            input_dict: name -> value of inputs.

        Raises:
            ValueError: if a name is not that of an input.
        """
        if unknown := sorted(set(input_dict) - set(self._feeds)):
            raise ValueError(f"Got unexpected keys in input_dict: {unknown}. The inputs are "
                             f"{sorted(self._feeds)}.")
        return self._session.run(self._fetches, {
            self._feeds[name]: value for name, value in input_dict.items()})


def from_saved_model(export_dir: str, signature_def_key: str | None = None,
                     signature_def: Any = None, input_names: Mapping[str, str] | None = None,
                     output_names: Mapping[str, str] | None = None,
                     tags: str | Sequence[str] | None = None, graph: tf.Graph | None = None,
                     config: tf.compat.v1.ConfigProto | None = None) -> Predictor:
    """Returns a predictor for a SavedModel.

    Args:
        export_dir: its directory.
        signature_def_key: name of the signature; by default `serving_default`.
        signature_def: the signature itself.
        input_names: name -> name of a tensor, instead of a signature.
        output_names: likewise.
        tags: tags of the graph, or one string of them with commas; by default `serve`.
        graph: the graph to load it into; by default a new one.
        config: configuration of the session.

    Raises:
        ValueError: if more than one of the three ways to name tensors is given, or the SavedModel
            has no such signature.
    """
    names = input_names, output_names
    if sum((signature_def_key is not None, signature_def is not None, any(names))) > 1:
        raise ValueError("You must specify at most one of signature_def_key OR signature_def OR "
                         f"(input_names AND output_names), got {signature_def_key!r}, "
                         f"{'a' if signature_def else 'no'} signature_def and {names}.")
    if any(names) and not all(names):
        raise ValueError("`input_names` and `output_names` must both be specified, got "
                         f"{input_names} and {output_names}.")
    tags = tags.split(",") if isinstance(tags, str) else tags or ["serve"]
    session = v1.Session(graph=graph or tf.Graph(), config=config)
    with session.graph.as_default():
        loaded = v1.saved_model.load(session, list(tags), export_dir)
    if not any(names):
        key = signature_def_key or "serving_default"
        if signature_def is None and key not in loaded.signature_def:
            raise ValueError(f"Got signature_def_key {key!r}. Available signatures are "
                             f"{sorted(loaded.signature_def)}.")
        signature = signature_def or loaded.signature_def[key]
        # Also sparse ones, which have no name.
        return Predictor(session, *(
            {name: v1.saved_model.get_tensor_from_tensor_info(info, session.graph)
             for name, info in part.items()} for part in (signature.inputs, signature.outputs)))
    return Predictor(session, *({name: session.graph.get_tensor_by_name(tensor)
                                 for name, tensor in (part or {}).items()} for part in names))


def from_estimator(estimator: Any, serving_input_receiver_fn: Callable[[], Any],
                   output_key: str | None = None, graph: tf.Graph | None = None,
                   config: tf.compat.v1.ConfigProto | None = None) -> Predictor:
    """Returns a predictor for the latest checkpoint of an Estimator.

    Args:
        estimator: an Estimator.
        serving_input_receiver_fn: as for `export_saved_model`.
        output_key: name of the entry of `export_outputs`; None means its only or default one.
        graph: the graph to load the model into; by default a new one.
        config: configuration of the session.

    Raises:
        ValueError: if the Estimator has no checkpoint, or no such output.
    """
    with tempfile.TemporaryDirectory() as directory:
        exported = estimator.export_saved_model(directory, serving_input_receiver_fn)
        return from_saved_model(exported.decode() if isinstance(exported, bytes) else exported,
                                signature_def_key=output_key, graph=graph, config=config)
