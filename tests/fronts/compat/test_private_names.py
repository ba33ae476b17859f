# SPDX-License-Identifier: Apache-2.0
"""The list of private names is right: all of them exist, and no others are touched."""

import ast
import functools
import importlib
import inspect
import pathlib
import pkgutil
import re

import pytest
import tf_keras

import tpu_estimator_embedding
from tests.fronts.compat import foreign_names, private_names
from tests.fronts.compat.foreign_names import PACKAGE, is_private
from tests.fronts.compat.private_names import PrivateName
from tpu_estimator_embedding import versions
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.mid_level.keras_layers import embedding_layer, partial_layer

ROOT = pathlib.Path(tpu_estimator_embedding.__file__).parent
LISTED = {name.path for name in private_names.ALL}
OF_PYTHON = {"_getframe"}  # documented, although it is spelled like a private name
MEMBERS = {name.path.rpartition(".")[2] for name in private_names.ALL}


@functools.cache
def files() -> dict[pathlib.Path, ast.Module]:
    return foreign_names.source_files(ROOT)


@functools.cache
def own_names() -> set[str]:
    return set().union(*map(foreign_names.defined_names, files().values()))


@functools.cache
def names_of_upstream() -> dict[str, str]:
    return foreign_names.reexports(files()[pathlib.Path(upstream.__file__)],
                                   f"{PACKAGE}.compat.upstream")


def resolve(name: PrivateName) -> None:
    """Raises AttributeError, or ImportError, unless the name exists."""
    found = importlib.import_module(name.module)
    for part in name.name.split("."):
        if inspect.isclass(found) and not hasattr(found, part) and is_set_on_objects(found, part):
            return
        found = getattr(found, part)


def is_set_on_objects(kind: type, member: str) -> bool:
    """Whether the source of a class, or of one above it, sets the member, or lists it.

    RunConfig has a list of its properties and sets `_` and the property.
    """
    sets = re.compile(rf"\bself\.(_config\.)?{member}\b|\b{member}=|['\"]_?{member[1:]}['\"],")
    return any(sets.search(foreign_names.source(base)) or sets.search(
        foreign_names.source(inspect.getmodule(base))) for base in kind.__mro__[:-1])


@pytest.mark.smoke
@pytest.mark.parametrize("name", private_names.ALL, ids=lambda name: name.path)
def test_listed_name_exists(name):
    if versions.tensorflow_minor() < name.since:
        pytest.skip(f"new in TensorFlow {'.'.join(map(str, name.since))}")
    resolve(name)


def test_missing_name_is_noticed():
    with pytest.raises(AttributeError):
        resolve(PrivateName("tensorflow.python.framework.ops", "Operation._no_such", ""))
    with pytest.raises(ImportError):
        resolve(PrivateName("tensorflow.python.no_such", "name", ""))


def test_every_name_is_listed_once_with_its_reason():
    assert len(LISTED) == len(private_names.ALL)
    assert all(name.reason for name in private_names.ALL)


def is_listed(path: str) -> bool:
    """Whether a name, or what it is a public part of, is listed; or it holds such names."""
    parts = re.sub(r"(\.__\w+__)+$", "", path).split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in LISTED:
            return not any(map(is_private, parts[end:])) or parts[-1] in MEMBERS
    return False


def is_module_of_listed(path: str) -> bool:
    return any(name.module == path or name.path == path or name.module.startswith(f"{path}.")
               for name in private_names.ALL)


def unlisted(tree: ast.Module) -> list[str]:
    upstream_names = names_of_upstream()
    known = own_names() | MEMBERS | OF_PYTHON | foreign_names.OF_NAMED_TUPLES
    bound = foreign_names.bindings(tree, upstream_names)
    wrong = [f"imports {path}" for path in bound.values()
             if path.startswith(foreign_names.PRIVATE_MODULES) and not is_module_of_listed(path)]
    for first, names, line in foreign_names.chains(tree):
        path = ".".join([bound.get(getattr(first, "id", ""), "?"), *names])
        if path.startswith(f"{PACKAGE}.compat.upstream."):
            parts = path.split(".")
            path = ".".join([upstream_names.get(".".join(parts[:4]), "?"), *parts[4:]])
        if path.startswith(foreign_names.PRIVATE_MODULES):
            if not is_listed(path) and not is_module_of_listed(path.removesuffix(".__name__")):
                wrong.append(f"line {line}: {path}")
        else:
            wrong += [f"line {line}: {path}" for name in names if is_private(name)
                      and name not in known]
    return wrong


def test_code_touches_listed_names_only():
    wrong = {path.relative_to(ROOT): found for path, tree in files().items()
             if (found := unlisted(tree))}
    assert not wrong, "List them, each with its reason, in tests/fronts/compat/private_names.py."


@pytest.mark.parametrize("code", [
    "from tensorflow.python.ops import array_ops",
    "from tensorflow.python.tpu import tpu\ntpu.device_assignment",
    "import tensorflow as tf\ntf.__internal__.monitoring.Counter",
    "import tensorflow as tf\ntf.Graph()._nodes_by_id",
    "def f(op):\n    op._set_func_attr('x', 'y')", "def f(op):\n    op._device_code = 3",
    "def f(op):\n    return getattr(op, '_device_code', None)",
    "from tpu_estimator_embedding.compat import upstream\nupstream.tpu_estimator._Inputs",
    "from tpu_estimator_embedding.compat.upstream import tpu_estimator\n"
    "tpu_estimator._InputPipeline"])
def test_unlisted_names_are_found(code):
    assert unlisted(ast.parse(code))


def classes() -> list[type]:
    modules = [importlib.import_module(module.name)
               for module in pkgutil.walk_packages([str(ROOT)], f"{PACKAGE}.")
               if not module.name.endswith("__main__")]
    found = {value: None for module in modules for value in vars(module).values()
             if inspect.isclass(value) and str(value.__module__).startswith(PACKAGE)}
    return [*found, embedding_layer.embedding_layer_class(tf_keras),
            partial_layer.partial_layer_class(tf_keras)]


@pytest.mark.long
def test_classes_share_only_listed_members_with_those_they_derive_from():
    wrong = {f"{kind.__module__}.{kind.__name__}: {base.__module__}.{base.__name__}.{name}"
             for kind in classes() for base, name in foreign_names.shared_members(kind)
             if name not in MEMBERS}
    assert not wrong
