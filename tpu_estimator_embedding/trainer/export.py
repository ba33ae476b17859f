# SPDX-License-Identifier: Apache-2.0
"""The receivers and signatures of a SavedModel that a Trainer exports.

The receiver functions are those of an Estimator: they make placeholders in a graph.

>>> receiver_fn = build_parsing_serving_input_receiver_fn({
...     "age": tf.io.FixedLenFeature([], tf.int64)})
>>> with tf.Graph().as_default():
...     receiver = receiver_fn()
>>> list(receiver.receiver_tensors), list(receiver.features)
(['examples'], ['age'])
"""

import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.saved_model import save_context
from tensorflow.python.saved_model.model_utils.export_output import (
    ClassificationOutput,
    PredictOutput,
    RegressionOutput,
)
from tensorflow.python.trackable.resource import ResourceTracker, resource_tracker_scope

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.types import Structure, Tensor

OUTPUTS = (PredictOutput, ClassificationOutput, RegressionOutput)
_DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_INPUT_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


class ServingInputReceiver(NamedTuple):
    """What a model gets from a request.

    Attributes:
        features: the features of the model; those with a table are ids.
        receiver_tensors: name of an input of the signature -> placeholder; or one placeholder.
        receiver_tensors_alternatives: None or empty.
    """

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: None = None


def build_parsing_serving_input_receiver_fn(
        feature_spec: Mapping[str, Any],
        default_batch_size: int | None = None) -> Callable[[], ServingInputReceiver]:
    """Returns a function that receives serialized `tf.train.Example`s as the input `examples`.

    Args:
        feature_spec: as for `tf.io.parse_example`.
        default_batch_size: the number of examples in a request; None means any.
    """
    def receive() -> ServingInputReceiver:
        examples = tf.compat.v1.placeholder(tf.string, [default_batch_size], "input_example_tensor")
        return ServingInputReceiver(tf.io.parse_example(examples, feature_spec),
                                    {"examples": examples})

    return receive


def build_raw_serving_input_receiver_fn(
        features: Mapping[str, Tensor],
        default_batch_size: int | None = None) -> Callable[[], ServingInputReceiver]:
    """Returns a function that receives every feature as an input of its name.

    Args:
        features: feature -> tensor of its dtype and of its shape behind the batch axis.
        default_batch_size: the number of samples in a request; None means any.
    """
    specs = {name: tf.TensorSpec([default_batch_size, *tensor.shape[1:]], tensor.dtype)
             for name, tensor in features.items()}

    def receive() -> ServingInputReceiver:
        inputs = {name: tf.compat.v1.placeholder(spec.dtype, spec.shape)
                  for name, spec in specs.items()}
        return ServingInputReceiver(inputs, inputs)

    return receive


class Signature(NamedTuple):
    """What a client gives, and what it gets: name -> tensor."""

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


class Received(NamedTuple):
    """What a receiver function returned.

    Attributes:
        features: name -> feature.
        inputs: name of an input -> placeholder.
    """

    features: dict[str, Any]
    inputs: dict[str, Tensor]


def receive(receiver_fn: Callable[[], Any]) -> Received:
    """Calls a receiver function, in a graph.

    Raises:
        ValueError: the result is no receiver, has alternatives, or an input has a name that TF2
            cannot export.
        TypeError: an input is no tensor.
    """
    receiver = receiver_fn()
    checks.check(hasattr(receiver, "features") and hasattr(receiver, "receiver_tensors"),
                 "result of the input receiver function", "a ServingInputReceiver", receiver)
    alternatives = getattr(receiver, "receiver_tensors_alternatives", None)
    checks.check(not alternatives, "receiver_tensors_alternatives", "None or empty", alternatives,
                 "Export once more, with a receiver function of these tensors.")
    inputs = _named(receiver.receiver_tensors, "input")
    for name, tensor in inputs.items():
        checks.check(bool(_INPUT_NAME.fullmatch(str(name))) and not keyword.iskeyword(name),
                     "receiver_tensors", "named with letters, digits and _, beginning with a "
                     "letter, as arguments of a signature of TF2", name,
                     "Rename the input, also in its clients.")
        checks.check_type(tf.Tensor, f"receiver_tensors[{name!r}]", "a dense tensor", tensor,
                          "Make a SparseTensor of dense placeholders in the function.")
    return Received(_named(receiver.features, "feature"), inputs)


def features_spec(receiver_fn: Callable[[], Any]) -> Structure:
    """Returns the TypeSpecs of the features that a receiver function makes."""
    with tf.Graph().as_default():
        return tf.nest.map_structure(tf.type_spec_from_value, receive(receiver_fn).features)


def signatures_of(predictions: Structure, export_outputs: Mapping[str, Any] | None,
                  inputs: Mapping[str, Tensor]) -> dict[str, Signature]:
    """Returns the signatures of an export.

    Args:
        predictions: name -> tensor, or one tensor: the only signature without export_outputs.
        export_outputs: signature -> PredictOutput, ClassificationOutput or RegressionOutput.
        inputs: of the signatures. Those of classification and regression have one, `inputs`.

    Raises:
        TypeError: `export_outputs` has no outputs.
        ValueError: of several signatures none is the default, or none fits the inputs. One that
            does not is left out, with a warning, as the Estimator does.
    """
    if export_outputs is None:
        return {_DEFAULT: Signature(dict(inputs), _named(predictions, "output"))}
    checks.check_type(Mapping, "export_outputs", "a dictionary", export_outputs)
    for key, output in export_outputs.items():
        checks.check_type(OUTPUTS, f"export_outputs[{key!r}]", "a PredictOutput, "
                          "ClassificationOutput or RegressionOutput", output)
    checks.check(_DEFAULT in export_outputs or len(export_outputs) == 1, "export_outputs",
                 f"have the signature {_DEFAULT!r}, unless there is one signature only",
                 [*export_outputs])
    found = {key: signature for key, output in export_outputs.items()
             if (signature := _signature(key, output, inputs)) is not None}
    checks.check(bool(found), "export_outputs", f"for the inputs {[*inputs]}", [*export_outputs],
                 "Classification and regression take one input of serialized examples.")
    return found if len(export_outputs) > 1 else {_DEFAULT: next(iter(found.values())), **found}


def _signature(key: str, output: Any, inputs: Mapping[str, Tensor]) -> Signature | None:
    """Returns a signature; None if it does not fit the inputs, as in the Estimator."""
    try:
        definition = output.as_signature_def(dict(inputs))
    except ValueError as error:
        tf.get_logger().warning("The export has no signature %r: %s", key, error)
        return None
    graph = tf.compat.v1.get_default_graph()
    return Signature(*({name: graph.get_tensor_by_name(info.name) for name, info in infos.items()}
                       for infos in (definition.inputs, definition.outputs)))


class Served(NamedTuple):
    """What a SavedModel consists of, beside the variables.

    Attributes:
        functions: signature -> a function that computes what its outputs need.
        resources: the lookup tables that the functions use.
    """

    functions: dict[str, Any]
    resources: list[Any]


def serve(receiver_fn: Callable[[], Any],
          signatures: Callable[[Received], dict[str, Signature]]) -> Served:
    """Returns what to save for the requests that a receiver function receives.

    Args:
        receiver_fn: makes placeholders.
        signatures: returns the signatures for features, in the graph with the placeholders.
    """
    tracker = ResourceTracker()
    options = tf.saved_model.SaveOptions()
    with save_context.save_context(options), resource_tracker_scope(tracker):
        wrapped = tf.compat.v1.wrap_function(lambda: signatures(receive(receiver_fn)), [])

    def function_of(signature: Signature) -> Any:
        pruned = wrapped.prune(list(signature.inputs.values()), signature.outputs)
        return tf.function(
            lambda *tensors: pruned(*tensors), autograph=False, input_signature=[
                tf.TensorSpec(tensor.shape, tensor.dtype, name)
                for name, tensor in signature.inputs.items()])

    return Served({key: function_of(signature)
                   for key, signature in wrapped.structured_outputs.items()}, tracker.resources)


def _named(value: Any, default: str) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {default: value}
