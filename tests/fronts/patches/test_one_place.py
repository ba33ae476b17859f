# SPDX-License-Identifier: Apache-2.0
"""Names of other packages change in `patches/patch.py` only, where every change is recorded."""

import ast
import functools
import itertools
import pathlib
from collections.abc import Iterator

import pytest

import tpu_estimator_embedding
from tests.fronts.compat.foreign_names import source_files

ROOT = pathlib.Path(tpu_estimator_embedding.__file__).parent
FOREIGN = ("tensorflow", "tensorflow_estimator", "keras", "tf_keras",
           "tpu_estimator_embedding.compat.upstream")
SETTERS = ("setattr", "delattr", "object.__setattr__", "type.__setattr__")
OWN = ("self", "super()")
MUTATING = ("update", "pop", "setdefault", "clear", "popitem")

# (module, what it changes) -> why that is no patch, or no patch of a running program.
EXCEPTIONS = {
    ("patches/patch.py", "_target(patch)"): "the one place",
    ("patches/patch.py", "target"): "the one place",
    ("patches/patch.py", "sys.modules"): "the one place",
    ("patches/module_view.py", "self._load()"): "a program sets a name of the module it sees",
    ("runtime/tf1.py", "self._original"): "a program sets a name of the module it sees",
    ("runtime/interception.py", "owner"):
        "sweep, capture and verify watch a program that they run in a process of their own",
    ("compat/stubs/batch_normalization.py", "cls"): "a program's own class, as it is made",
    ("compat/contrib/modules.py", "made[parent]"): "this package's modules for tf.contrib",
    ("compat/contrib/modules.py", "sys.modules"): "this package's modules for tf.contrib",
    ("compat/contrib/finder.py", "sys.modules"): "a loader puts in place what Python asks it for",
    ("runtime/program_runner.py", "vars(main)"): "`run` makes __main__ for the program",
    ("runtime/program_runner.py", "sys.modules"): "`run` makes __main__ for the program",
    ("migration/captured_file.py", "sys.modules"): "capture makes __main__ for the program",
    ("migration/plan_comparison.py", "sys.modules"):
        "plans are compared by Keras 3, which needs the TensorFlow below `run --tf1`",
    ("ops/outermost_graph.py", "graph"): "an object: what must live as long as the graph",
    ("channels/channel.py", "graph"): "an object: the mark of a graph with channels",
    ("mid_level/keras_layers/optimizer_steps.py", "carrier"): "an object: a layer's variable",
    ("mid_level/keras_layers/optimizer_steps.py", "carrier.value"): "an object: such a variable",
    ("mid_level/keras_layers/embedding_layer.py", "copied"): "an object: the copy of a layer",
    ("mid_level/execution/deep_copies.py", "vars(copied)"): "an object: the copy of another",
    ("estimator/input/machine_context.py", "made.__dict__"): "an object: the copy of a context",
    ("checkpoint/async_saver_hook.py", "own.__dict__"): "an object: the copy of a hook",
    ("optimizers/record.py", "message"): "an object: a protocol buffer",
}


def changed_names(tree: ast.Module) -> Iterator[str]:
    """Yields what a module may change of others, as it writes it, without the attribute."""
    foreign = foreign_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from changed_by_call(node)
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            is_attribute = isinstance(node, ast.Attribute)
            if root(node) in foreign if is_attribute else is_namespace(node.value):
                yield ast.unparse(node.value)


def changed_by_call(node: ast.Call) -> Iterator[str]:
    called = ast.unparse(node.func)
    if called in SETTERS:
        yield ast.unparse(node.args[0])
    elif isinstance(node.func, ast.Attribute):
        of, name = node.func.value, node.func.attr
        if name in ("__setattr__", "__delattr__") or name in MUTATING and is_namespace(of):
            yield ast.unparse(of)
    for setter, target in itertools.pairwise(map(ast.unparse, node.args)):
        if setter in SETTERS:  # to be called later
            yield target


def is_namespace(node: ast.expr) -> bool:
    """Whether this is the dictionary of an object's attributes, or of all modules."""
    text = ast.unparse(node)
    return text == "sys.modules" or (text.startswith("vars(") or text.endswith(".__dict__")) and (
        text not in ("vars(self)", "self.__dict__"))


def foreign_names(tree: ast.Module) -> set[str]:
    """Returns the names of a module that lead to another package: imports, and aliases of them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names
                      if is_foreign(alias.name)}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names
                      if is_foreign(f"{node.module}.{alias.name}")}
    while more := {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign)
                   and isinstance(node.value, ast.Attribute | ast.Name)
                   and root(node.value) in found
                   for target in node.targets if isinstance(target, ast.Name)} - found:
        found |= more
    return found


def is_foreign(path: str) -> bool:
    return f"{path}.".startswith(tuple(f"{package}." for package in FOREIGN))


def root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


@functools.cache
def found_in_package() -> set[tuple[str, str]]:
    return {(path.relative_to(ROOT).as_posix(), name)
            for path, tree in source_files(ROOT).items()
            for name in changed_names(tree) if name not in OWN}


def test_names_of_other_packages_change_in_one_place():
    unknown = found_in_package() - EXCEPTIONS.keys()
    assert not unknown, "Add a row to a patch table, which `uninstall` undoes and `doctor` lists."


def test_every_exception_is_needed():
    assert EXCEPTIONS.keys() <= found_in_package()


@pytest.mark.parametrize("code", [
    "import tensorflow as tf\ntf.keras = 1",
    "import tensorflow as tf\nv1 = tf.compat.v1\ndef f():\n    v1.train.Saver.save = print",
    "import tf_keras\ndel tf_keras.layers.Dense",
    "from tensorflow.python.client import session\nsession.BaseSession.run += 1",
    "from tpu_estimator_embedding.compat import upstream\nupstream.estimator.Estimator.train = 1",
    "import importlib\nsetattr(importlib.import_module('keras'), 'x', 1)",
    "import keras\ntype.__setattr__(keras.Layer, 'call', 1)",
    "import keras\nsuper(type, keras.Layer).__setattr__('call', 1)",
    "import tensorflow as tf\nvars(tf)['keras'] = 1", "import keras\nkeras.__dict__.update(x=1)",
    "import sys\nsys.modules['tensorflow'] = 1", "import sys\nsys.modules.pop('tensorflow')",
    "def f(stack, owner):\n    stack.callback(setattr, owner, 'x', 1)"])
def test_changes_are_found(code):
    assert set(changed_names(ast.parse(code))) - {*OWN}


@pytest.mark.parametrize("code", [
    "import tensorflow as tf\nx = tf.keras\ny = x.layers",
    "class A:\n    def f(self):\n        self.x = 1\n        setattr(self, 'y', 2)",
    "def f(other):\n    other.x = 1", "seen = {}\nseen['x'] = 1\nseen.update(y=2)"])
def test_other_assignments_are_not(code):
    assert not set(changed_names(ast.parse(code))) - {*OWN}
