# SPDX-License-Identifier: Apache-2.0
"""Translates expressions of a model_fn to Keras 3, on any backend.

The world is closed: an expression is of a kind, or a call of a function with arguments, that is
known in full here, or it is a problem at its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

import libcst as cst

from tpu_estimator_embedding.migration.column_features import UnknownColumnsError, columns_of
from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.forward_rewrite import takes_columns_at_once
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import dotted, find_all, shown, text_of

CODE = "TEE402"
REQUIRED = None


@dataclasses.dataclass(frozen=True)
class Op:
    """A function of TensorFlow.

    Attributes:
        arguments: its arguments, in order -> default as text; REQUIRED without one.
        text: of the counterpart, with the arguments in braces.
        fixed: arguments that must have their default.
    """

    arguments: Mapping[str, str | None]
    text: str
    fixed: Collection[str] = ()


def signature(arguments: str) -> dict[str, str | None]:
    """Returns argument -> default.

    >>> signature("x axis=None")
    {'x': None, 'axis': 'None'}
    """
    pairs = (part.partition("=") for part in arguments.split())
    return {name: default if equal else REQUIRED for name, equal, default in pairs}


def _op(arguments: str, text: str, fixed: str = "") -> Op:
    return Op({**signature(arguments), "name": "None"}, text, fixed.split())


def _unary(name: str, argument: str = "x") -> Op:
    return _op(argument, f"keras.ops.{name}({{{argument}}})")


def _binary(name: str) -> Op:
    return _op("x y", f"keras.ops.{name}({{x}}, {{y}})")


def _reduction(name: str) -> Op:
    return _op("input_tensor axis=None keepdims=False reduction_indices=None keep_dims=None",
               f"keras.ops.{name}({{input_tensor}}, axis={{axis}}, keepdims={{keepdims}})",
               "reduction_indices keep_dims")


_LOSS = "weights=1.0 scope=None loss_collection=None reduction=None"
_LOSS_FIXED = "weights scope loss_collection reduction label_smoothing"
_SIGMOID = "keras_training.sigmoid_cross_entropy({labels}, {logits})"
_SOFTMAX = "keras_training.softmax_cross_entropy({labels}, {logits})"
_SPARSE = "keras_training.sparse_softmax_cross_entropy({labels}, {logits})"


def _mean(text: str, labels: str = "labels") -> str:
    return f"keras.ops.mean({text.replace('{labels}', f'{{{labels}}}')})"


OPS: dict[str, Op] = {
    "concat": _op("values axis", "keras.ops.concatenate({values}, axis={axis})"),
    "stack": _op("values axis=0", "keras.ops.stack({values}, axis={axis})"),
    "reshape": _op("tensor shape", "keras.ops.reshape({tensor}, {shape})"),
    "squeeze": _op("input axis=None squeeze_dims=None",
                   "keras.ops.squeeze({input}, axis={axis})", "squeeze_dims"),
    "expand_dims": _op("input axis=None dim=None", "keras.ops.expand_dims({input}, {axis})", "dim"),
    "transpose": _op("a perm=None", "keras.ops.transpose({a}, {perm})"),
    "cast": _op("x dtype", "keras.ops.cast({x}, {dtype})"),
    "to_float": _op("x", "keras.ops.cast({x}, 'float32')"),
    "gather": _op("params indices validate_indices=None axis=0 batch_dims=0",
                  "keras.ops.take({params}, {indices}, axis={axis})",
                  "validate_indices batch_dims"),
    "identity": _op("input", "{input}"),
    "one_hot": _op("indices depth", "keras.ops.one_hot({indices}, {depth})"),
    "argmax": _op("input axis=None dimension=None output_type=None",
                  "keras.ops.argmax({input}, axis={axis})", "dimension output_type"),
    "clip_by_value": _op("t clip_value_min clip_value_max",
                         "keras.ops.clip({t}, {clip_value_min}, {clip_value_max})"),
    **{f"reduce_{name}": _reduction(name) for name in ("sum", "mean", "max", "min")},
    **{name: _unary(name) for name in ("square", "sqrt", "exp", "abs", "sigmoid", "tanh", "round")},
    "log": _unary("log"), "log1p": _unary("log1p"),
    "zeros_like": _unary("zeros_like", "tensor"), "ones_like": _unary("ones_like", "tensor"),
    **{name: _binary(name) for name in (
        "multiply", "add", "subtract", "divide", "maximum", "minimum", "equal", "not_equal",
        "greater", "greater_equal", "less", "less_equal")},
    "nn.relu": _unary("relu", "features"), "nn.softplus": _unary("softplus", "features"),
    "nn.sigmoid": _unary("sigmoid"), "nn.tanh": _unary("tanh"),
    "nn.softmax": _op("logits axis=-1 dim=None", "keras.ops.softmax({logits}, axis={axis})", "dim"),
    "nn.sigmoid_cross_entropy_with_logits": _op("_sentinel=None labels logits", _SIGMOID,
                                                "_sentinel"),
    "nn.sparse_softmax_cross_entropy_with_logits": _op("_sentinel=None labels logits", _SPARSE,
                                                       "_sentinel"),
    "nn.softmax_cross_entropy_with_logits_v2": _op("labels logits axis=-1", _SOFTMAX, "axis"),
    "losses.sigmoid_cross_entropy": _op(
        "multi_class_labels logits weights=1.0 label_smoothing=0 scope=None loss_collection=None "
        "reduction=None", _mean(_SIGMOID, "multi_class_labels"), _LOSS_FIXED),
    "losses.softmax_cross_entropy": _op(
        "onehot_labels logits weights=1.0 label_smoothing=0 scope=None loss_collection=None "
        "reduction=None", _mean(_SOFTMAX, "onehot_labels"), _LOSS_FIXED),
    "losses.sparse_softmax_cross_entropy": _op(f"labels logits {_LOSS}", _mean(_SPARSE),
                                               _LOSS_FIXED),
    "losses.mean_squared_error": _op(
        f"labels predictions {_LOSS}",
        "keras.ops.mean(keras.ops.square({predictions} - {labels}))", _LOSS_FIXED),
}
OPS |= {f"math.{name}": op for name, op in OPS.items() if "." not in name}

_ACTIVATIONS = {"nn.relu": "'relu'", "nn.sigmoid": "'sigmoid'", "sigmoid": "'sigmoid'",
                "nn.tanh": "'tanh'", "tanh": "'tanh'", "nn.softplus": "'softplus'",
                "math.sigmoid": "'sigmoid'", "math.tanh": "'tanh'"}
_INITIALIZERS = {
    "glorot_uniform_initializer": ("GlorotUniform", ("seed",)),
    "glorot_normal_initializer": ("GlorotNormal", ("seed",)),
    "zeros_initializer": ("Zeros", ()), "ones_initializer": ("Ones", ()),
    "constant_initializer": ("Constant", ("value",)),
    "random_normal_initializer": ("RandomNormal", ("mean", "stddev", "seed")),
    "truncated_normal_initializer": ("TruncatedNormal", ("mean", "stddev", "seed"))}
# Defaults of tf.compat.v1's initializers that Keras 3 has otherwise.
_STDDEV = {"RandomNormal": "1.0", "TruncatedNormal": "1.0"}

# A transposed argument is another text.
MATMUL = _op("a b transpose_a=False transpose_b=False adjoint_a=False adjoint_b=False "
             "a_is_sparse=False b_is_sparse=False output_type=None", "",
             "adjoint_a adjoint_b a_is_sparse b_is_sparse output_type")
_MATMULS = ("matmul", "linalg.matmul")
INPUT_LAYER = _op("features feature_columns", "")
_INPUT_LAYER, _COLUMN_LAYER = "feature_column.input_layer", "keras.layers.DenseFeatures"
_BUILTINS = ("range", "enumerate", "zip", "len", "sorted", "reversed", "list")
DENSE = _op("inputs units activation=None use_bias=True kernel_initializer=None "
            "bias_initializer=None kernel_regularizer=None bias_regularizer=None "
            "activity_regularizer=None kernel_constraint=None bias_constraint=None trainable=True "
            "_name=None reuse=None", "", "kernel_regularizer bias_regularizer "
            "activity_regularizer kernel_constraint bias_constraint trainable reuse")
BATCH_NORM = _op("inputs axis=-1 momentum=0.99 epsilon=0.001 center=True scale=True "
                 "beta_initializer=None gamma_initializer=None moving_mean_initializer=None "
                 "moving_variance_initializer=None beta_regularizer=None gamma_regularizer=None "
                 "beta_constraint=None gamma_constraint=None training=False trainable=True "
                 "_name=None reuse=None renorm=False renorm_clipping=None renorm_momentum=0.99 "
                 "fused=None virtual_batch_size=None adjustment=None", "",
                 "beta_initializer gamma_initializer moving_mean_initializer "
                 "moving_variance_initializer beta_regularizer gamma_regularizer beta_constraint "
                 "gamma_constraint trainable reuse renorm renorm_clipping renorm_momentum fused "
                 "virtual_batch_size adjustment")
DROPOUT = _op("inputs rate=0.5 noise_shape=None seed=None training=False", "", "noise_shape")
FLATTEN = _op("inputs", "keras.layers.Flatten()({inputs})")
LAYERS = {"layers.dense": DENSE, "layers.batch_normalization": BATCH_NORM,
          "layers.dropout": DROPOUT, "layers.flatten": FLATTEN}
_DTYPES = ("float16", "float32", "float64", "int32", "int64", "bool", "bfloat16")


def names_of_loop(target: cst.BaseExpression) -> list[str]:
    """Returns the variables of a loop: a name, or a tuple of names; otherwise nothing.

    >>> names_of_loop(cst.parse_expression("name, size")), names_of_loop(
    ...     cst.parse_expression("sizes[0]"))
    (['name', 'size'], [])
    """
    nodes = [one.value for one in target.elements] if isinstance(target, cst.Tuple) else [target]
    names = [node.value for node in nodes if isinstance(node, cst.Name)]
    return names if len(names) == len(nodes) else []


class UntranslatedError(Exception):
    """An expression is of an unknown kind; `problem` has its place."""

    def __init__(self, node: cst.CSTNode, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(node, CODE, message)


class Translator:
    """Translates expressions of one model_fn.

    Args:
        names: of the module.
        constants: names of the module that expressions may use.
        is_training: whether an expression is true in training and false otherwise.
    """

    def __init__(self, names: Names, constants: Collection[str],
                 is_training: Callable[[cst.BaseExpression], bool]) -> None:
        self._names, self._constants, self._is_training = names, constants, is_training
        self.known: set[str] = {"params"}  # variables that the written function has
        self.local: Mapping[str, cst.BaseExpression] = {}  # variable of model_fn -> its only value
        self.layers_allowed = True

    def text(self, node: cst.BaseExpression) -> str:
        """Returns the text of an expression in Keras 3.

        Raises:
            UntranslatedError: it has a part of no known kind.
        """
        if isinstance(node, cst.Name):
            if node.value not in (*self.known, *self._constants, "None", "True", "False"):
                raise UntranslatedError(node, f"`{node.value}` has no counterpart here")
            return node.value
        if isinstance(node, (cst.Integer, cst.Float, cst.SimpleString)):
            return text_of(node)
        if isinstance(node, (cst.List, cst.Tuple)):
            return self._elements(node)
        if isinstance(node, cst.Dict):
            return self._dictionary(node)
        if isinstance(node, cst.FormattedString):
            return self._formatted(node)
        if isinstance(node, cst.Attribute) and self._names.of_tensorflow(node) == "newaxis":
            return "None"
        if isinstance(node, cst.BinaryOperation) and isinstance(
                node.operator, cst.Modulo) and isinstance(node.left, cst.SimpleString):
            return f"({text_of(node.left)} % {self.text(node.right)})"
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            return f"-{self.text(node.expression)}"
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (
                cst.Add, cst.Subtract, cst.Multiply, cst.Divide, cst.Power, cst.FloorDivide)):
            operator = text_of(node.operator).strip()
            return f"({self.text(node.left)} {operator} {self.text(node.right)})"
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1 and isinstance(
                node.comparisons[0].operator, (cst.LessThan, cst.GreaterThan, cst.LessThanEqual,
                                               cst.GreaterThanEqual)):
            [part] = node.comparisons
            operator = text_of(part.operator).strip()
            return f"({self.text(node.left)} {operator} {self.text(part.comparator)})"
        if isinstance(node, (cst.ListComp, cst.DictComp)):
            return self._comprehension(node)
        if isinstance(node, cst.Subscript):
            return self._subscript(node)
        if isinstance(node, cst.Call):
            return self._call(node)
        raise UntranslatedError(node, f"`{shown(node)}` has no counterpart known in full")

    def arguments(self, call: cst.Call, op: Op) -> dict[str, cst.BaseExpression | None]:
        """Returns argument -> its value, None where it is left out.

        Raises:
            UntranslatedError: an argument is not known, missing, or has no counterpart.
        """
        order, found = list(op.arguments), dict.fromkeys(op.arguments)
        given: dict[str, cst.BaseExpression | None] = {**found}
        for index, argument in enumerate(call.args):
            key = argument.keyword.value if argument.keyword else (
                order[index] if index < len(order) else "")
            key = "_name" if key == "name" and "_name" in order else key
            if argument.star or key not in given:
                raise UntranslatedError(call, f"`{text_of(argument)}` of `{text_of(call.func)}` "
                                        "is not known")
            given[key] = argument.value
        for key, value in given.items():
            default = op.arguments[key]
            if value is None and default is REQUIRED:
                raise UntranslatedError(call, f"`{text_of(call.func)}` without `{key}`")
            if value is not None and key in op.fixed and text_of(value) not in (default, "None"):
                raise UntranslatedError(value, f"`{key}={shown(value)}` of "
                                        f"`{text_of(call.func)}` has no counterpart")
        return given

    def filled(self, call: cst.Call, op: Op) -> str:
        """Returns the text of an op with the arguments of a call."""
        given = self.arguments(call, op)
        texts = {key: self._argument(key, value) if value is not None else op.arguments[key]
                 for key, value in given.items()
                 if key not in op.fixed and f"{{{key}}}" in op.text}
        return op.text.format(**texts)

    def _argument(self, key: str, value: cst.BaseExpression) -> str:
        return self._dtype(value) if key == "dtype" else self.text(value)

    def _call(self, call: cst.Call) -> str:
        name = self._names.of_tensorflow(call.func)
        if name in OPS:
            return self.filled(call, OPS[name])
        if name in LAYERS and self.layers_allowed:
            given = self.arguments(call, LAYERS[name])
            return {"layers.dense": self._dense, "layers.dropout": self._dropout,
                    "layers.batch_normalization": self._batch_norm}.get(
                        name, lambda _: self.filled(call, LAYERS[name]))(given)
        if name in _MATMULS:
            return self._matmul(call)
        if self.layers_allowed and (columns := self._column_arguments(call)) is not None:
            return self._input_layer(call, *columns)
        words = dotted(call.func)
        if len(words or ()) == 1 and words[0] in _BUILTINS and not self._is_bound(words[0]) and all(
                not one.star and not one.keyword for one in call.args):
            return f"{words[0]}({', '.join(self.text(one.value) for one in call.args)})"
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "format" and isinstance(
                call.func.value, cst.SimpleString) and all(
                    not one.star and not one.keyword for one in call.args):
            return (f"{text_of(call.func.value)}.format("
                    f"{', '.join(self.text(one.value) for one in call.args)})")
        if words == ("params", "get") and all(not one.star and not one.keyword
                                              for one in call.args):
            return f"params.get({', '.join(self.text(one.value) for one in call.args)})"
        raise UntranslatedError(call, f"`{text_of(call.func)}` has no counterpart known in full")

    def _is_bound(self, name: str) -> bool:
        """Whether the program binds this name itself."""
        return bool(name in self.known or self._names.functions.get(name)
                    or self._names.classes.get(name) or self._names.globals.get(name))

    def _matmul(self, call: cst.Call) -> str:
        given = self.arguments(call, MATMUL)
        texts = []
        for key in ("a", "b"):
            is_transposed = given[f"transpose_{key}"]
            text = self._text(given, key)
            if is_transposed is not None and text_of(is_transposed) not in ("True", "False"):
                raise UntranslatedError(is_transposed, f"`transpose_{key}` that is not a constant")
            texts.append(f"keras.ops.swapaxes({text}, -1, -2)" if is_transposed is not None
                         and text_of(is_transposed) == "True" else text)
        return f"keras.ops.matmul({', '.join(texts)})"

    def _column_arguments(self, call: cst.Call) -> tuple[cst.BaseExpression,
                                                         cst.BaseExpression] | None:
        """Returns features and columns of `input_layer` or `DenseFeatures(columns)(features)`."""
        if self._names.of_tensorflow(call.func) == _INPUT_LAYER:
            given = self.arguments(call, INPUT_LAYER)
            assert given["features"] is not None and given["feature_columns"] is not None
            return given["features"], given["feature_columns"]
        if isinstance(call.func, cst.Call) and self._names.of_tensorflow(
                call.func.func) == _COLUMN_LAYER and takes_columns_at_once(call):
            return call.args[0].value, call.func.args[0].value
        return None

    def _input_layer(self, call: cst.Call, features: cst.BaseExpression,
                     columns: cst.BaseExpression) -> str:
        """Returns the activations and values of columns, concatenated by the columns' names."""
        if text_of(features) != "features":
            raise UntranslatedError(call, "columns of something other than `features`")
        try:
            found = columns_of(columns, self._names, self.local)
        except UnknownColumnsError as error:
            raise UntranslatedError(columns, f"the columns: {error}") from error
        parts = [f"features[{column.key!r}]" if column.is_embedding else
                 f"keras.ops.reshape(keras.ops.cast(features[{column.key!r}], 'float32'), "
                 f"(-1, {column.size}))" for column in found]
        return parts[0] if len(parts) == 1 else (
            f"keras.ops.concatenate([{', '.join(parts)}], axis=1)")

    def columns_in(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Returns the columns in a node, which are not written."""
        found: list[cst.CSTNode] = []
        for call in find_all(node, cst.Call):
            try:
                given = self._column_arguments(call)
            except UntranslatedError:  # which is raised again where the call is written
                continue
            found += [] if given is None else [given[1]]
        return found

    def _formatted(self, node: cst.FormattedString) -> str:
        """Returns an f-string whose values are expressions of known kinds."""
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                self.text(part.expression)
                if find_all(part.expression, cst.Call, cst.Attribute) or part.format_spec:
                    raise UntranslatedError(node, f"`{shown(node)}` is not known in full")
        return text_of(node)

    def _dense(self, given: Mapping[str, cst.BaseExpression | None]) -> str:
        parts = [self._text(given, "units")]
        activation = given["activation"]
        if activation is not None and text_of(activation) != "None":
            found = _ACTIVATIONS.get(self._names.of_tensorflow(activation))
            if found is None:
                raise UntranslatedError(activation, f"the activation `{shown(activation)}` "
                                        "is not known")
            parts.append(f"activation={found}")
        parts += self._named(given, "use_bias")
        for key in ("kernel_initializer", "bias_initializer"):
            value = given[key]
            if value is not None and text_of(value) != "None":
                parts.append(f"{key}={self._initializer(value)}")
        return self._layer("Dense", [*parts, *self._layer_name(given)], given)

    def _batch_norm(self, given: Mapping[str, cst.BaseExpression | None]) -> str:
        parts = [one for key in ("axis", "momentum", "epsilon", "center", "scale")
                 for one in self._named(given, key)]
        return self._layer("BatchNormalization", [*parts, *self._layer_name(given)], given)

    def _dropout(self, given: Mapping[str, cst.BaseExpression | None]) -> str:
        rate = "0.5" if given["rate"] is None else self._text(given, "rate")
        return self._layer("Dropout", [rate, *self._named(given, "seed"),
                                       *self._layer_name({**given, "_name": given["name"]})], given)

    def _layer(self, kind: str, parts: list[str],
               given: Mapping[str, cst.BaseExpression | None]) -> str:
        training, call = given.get("training"), self._text(given, "inputs")
        if kind != "Dense":
            if training is None or text_of(training) == "False":
                call += ", training=False"
            elif not self._is_training(training):
                raise UntranslatedError(training, f"`training={shown(training)}` is not "
                                        "known to be true in training only")
        return f"keras.layers.{kind}({', '.join(parts)})({call})"

    def _layer_name(self, given: Mapping[str, cst.BaseExpression | None]) -> list[str]:
        name = given["_name"]
        return [] if name is None else [f"name={self.text(name)}"]

    def _named(self, given: Mapping[str, cst.BaseExpression | None], key: str) -> list[str]:
        return [] if given[key] is None else [f"{key}={self._text(given, key)}"]

    def _text(self, given: Mapping[str, cst.BaseExpression | None], key: str) -> str:
        value = given[key]
        assert value is not None
        return self.text(value)

    def _initializer(self, node: cst.BaseExpression) -> str:
        call = node if isinstance(node, cst.Call) else None
        name = self._names.of_tensorflow(call.func if call else node)
        found = _INITIALIZERS.get(name.removeprefix("initializers."))
        if found is None or call is None:
            raise UntranslatedError(node, f"the initializer `{shown(node)}` is not known")
        kind, order = found
        given = self.arguments(call, Op(dict.fromkeys(order, "None"), ""))
        texts = {key: self.text(value) for key, value in given.items() if value is not None}
        if kind in _STDDEV:
            texts.setdefault("stddev", _STDDEV[kind])
        return f"keras.initializers.{kind}({', '.join(f'{k}={v}' for k, v in texts.items())})"

    def _dtype(self, node: cst.BaseExpression) -> str:
        name = self._names.of_tensorflow(node)
        if name not in _DTYPES:
            raise UntranslatedError(node, f"the type `{text_of(node)}` is not known")
        return repr(name)

    def _elements(self, node: cst.List | cst.Tuple) -> str:
        parts = [self.text(one.value) for one in node.elements if isinstance(one, cst.Element)]
        if len(parts) != len(node.elements):
            raise UntranslatedError(node, "a `*` in a list")
        return f"[{', '.join(parts)}]" if isinstance(node, cst.List) else (
            f"({', '.join(parts)},)")

    def _dictionary(self, node: cst.Dict) -> str:
        parts = [(self.text(one.key), self.text(one.value)) for one in node.elements
                 if isinstance(one, cst.DictElement)]
        if len(parts) != len(node.elements):
            raise UntranslatedError(node, "a `**` in a dictionary")
        return f"{{{', '.join(f'{key}: {value}' for key, value in parts)}}}"

    def _comprehension(self, node: cst.ListComp | cst.DictComp) -> str:
        loop = node.for_in
        names = names_of_loop(loop.target)
        if not names or loop.ifs or loop.inner_for_in:
            raise UntranslatedError(node, "a comprehension with conditions or several loops")
        values = self.text(loop.iter)
        new = set(names) - self.known
        self.known |= new
        try:
            head = f"for {', '.join(names)} in {values}"
            if isinstance(node, cst.DictComp):
                return f"{{{self.text(node.key)}: {self.text(node.value)} {head}}}"
            return f"[{self.text(node.elt)} {head}]"
        finally:
            self.known -= new

    def _subscript(self, node: cst.Subscript) -> str:
        parts = []
        for one in node.slice:
            if isinstance(one.slice, cst.Index):
                parts.append(self.text(one.slice.value))
            elif isinstance(one.slice, cst.Slice):
                bounds = (one.slice.lower, one.slice.upper, one.slice.step)
                texts = ["" if bound is None else self.text(bound) for bound in bounds]
                parts.append(":".join(texts if texts[2] else texts[:2]))
        return f"{self.text(node.value)}[{', '.join(parts)}]"
