# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.training.HParams`: hyperparameters by name, each with the type of its first value."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# name, an index in brackets, "=", and a list in brackets or a value without a comma.
_ASSIGNMENT = re.compile(
    r"\s*(?P<name>[A-Za-z]\w*)(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"(?:\[(?P<items>[^\]]*)\]|(?P<value>[^,\[]*))\s*(?:,|$)")
_TRUTH = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}


class HParams:
    """Hyperparameters as attributes, which strings and dictionaries can override.

    Args:
        hparam_def: must be None, because TensorFlow 2 has no HParamDef protocol buffer.
        model_structure: any value; `get_model_structure` returns it.
        **kwargs: name -> number, string, bool or non-empty list of one of these types.

    Raises:
        ValueError: if a name is an attribute of this class, a list is empty, or `hparam_def` is
            given.

    >>> params = HParams(learning_rate=0.1, layers=[8, 4], use_bias=False)
    >>> params.parse("learning_rate=1e-3,layers[1]=2,use_bias=true").values()
    {'learning_rate': 0.001, 'layers': [8, 2], 'use_bias': True}
    """

    _types: dict[str, tuple[type, bool]]

    def __init__(self, hparam_def: None = None, model_structure: object = None,
                 **kwargs: object) -> None:
        if hparam_def is not None:
            raise ValueError("`hparam_def` must be None, because TensorFlow 2 has no HParamDef "
                             f"protocol buffer, got {hparam_def!r}. Pass names and values.")
        vars(self).update(_types={}, _model_structure=model_structure)
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter; ValueError if the name is taken or a list is empty."""
        if name in vars(self) or hasattr(type(self), name):
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, list(value) if is_list else value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Sets a known hyperparameter, cast to its type.

        Raises:
            KeyError: if the name is unknown.
            ValueError: if the value is a list for a single value, a single value for a list, or
                cannot be cast to the type.
        """
        kind, is_list = self._types[name]
        if isinstance(value, list) != is_list:
            raise ValueError(f"Must pass a list for multi-valued parameter: {name}." if is_list else
                             f"Must not pass a list for single-valued parameter: {name}")
        setattr(self, name, [_cast(name, kind, item) for item in value] if is_list
                else _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter; does nothing if the name is unknown."""
        if self._types.pop(name, None):
            delattr(self, name)

    def parse(self, values: str) -> "HParams":
        """Overrides hyperparameters from text, "name=value,other=[1,2],third[0]=3".

        Returns:
            This object.

        Raises:
            ValueError: if the text has another format, or a name is unknown.
        """
        for name, index, new in _assignments(values):
            if name not in self._types:
                raise ValueError(f"Unknown hyperparameter type for {name}")
            if index is None:
                self.set_hparam(name, new)
            else:
                changed = list(getattr(self, name))
                changed[index] = new
                self.set_hparam(name, changed)
        return self

    def override_from_dict(self, values_dict: Mapping[str, object]) -> "HParams":
        """Sets the hyperparameters in a dictionary; returns this object."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> "HParams":
        """Sets the hyperparameters in a JSON object; returns this object."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: int | None = None, separators: tuple[str, str] | None = None,
                sort_keys: bool = False) -> str:
        """Returns a JSON object of all values that are not functions."""
        values = {name: value for name, value in self.values().items() if not callable(value)}
        return json.dumps(values, indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """Returns name -> value of all hyperparameters."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a hyperparameter, or the default if it is unknown."""
        return getattr(self, key) if key in self._types else default

    def get_model_structure(self) -> Any:
        """Returns the `model_structure`."""
        return vars(self)["_model_structure"]

    def set_model_structure(self, model_structure: object) -> None:
        """Sets the `model_structure`."""
        vars(self)["_model_structure"] = model_structure

    def __contains__(self, key: str) -> bool:
        return key in self._types

    def __str__(self) -> str:
        return str(sorted(self.values().items()))

    def __repr__(self) -> str:
        return f"HParams({self})"


def _assignments(text: str) -> Iterator[tuple[str, int | None, str | list[str]]]:
    """Yields (name, index or None, value or list of values as strings)."""
    position = 0
    while position < len(text.rstrip(", ")):
        match = _ASSIGNMENT.match(text, position)
        if match is None:
            raise ValueError(f"Malformed hyperparameter value: {text[position:]}")
        position = match.end()
        items = match["items"]
        yield (match["name"], int(match["index"]) if match["index"] else None,
               match["value"].strip() if items is None
               else [item.strip() for item in items.split(",") if item.strip()])


def _cast(name: str, kind: type, value: object) -> object:
    """Casts a value to a type; refuses a number for a bool, and 0.5 for an int."""
    if kind is type(None) or value is None:
        return value
    if kind is bool and isinstance(value, str) and value in _TRUTH:
        return _TRUTH[value]
    is_refused = (isinstance(value, bool) != (kind is bool)
                  or kind is str and not isinstance(value, str)
                  or kind is int and isinstance(value, float) and value != int(value))
    try:
        if not is_refused:
            return kind(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"Could not cast hparam {name!r} of type {kind.__name__!r} from value "
                     f"{value!r}")
