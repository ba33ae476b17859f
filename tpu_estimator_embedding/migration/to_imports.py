# SPDX-License-Identifier: Apache-2.0
"""Stage 1: a program on this package's own names, with no patching of TensorFlow.

Chains of attributes that begin with TensorFlow become names of this package, imported above
TensorFlow. Imports of the legacy API become imports of this package under the same variable,
so that code that uses them does not change. Names in comments and docstrings are not rewritten,
and neither is what the report lists. What needs a check although no legacy name is involved, such
as sessions with an address, is reported, too.
"""

import re
from collections.abc import Sequence
from typing import Any

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.compat.contrib import contents
from tpu_estimator_embedding.migration import import_statements, text_names
from tpu_estimator_embedding.migration.legacy_names import NAMES
from tpu_estimator_embedding.migration.module_rewrite import ModuleRewrite, Rewritten
from tpu_estimator_embedding.migration.names import OWN, Chain
from tpu_estimator_embedding.migration.node_search import dotted, find_all, last_word
from tpu_estimator_embedding.migration.source_file import Edit, SourceFile
from tpu_estimator_embedding.migration.targets import Target

_SESSIONS = ("Session", "InteractiveSession", "train.MonitoredTrainingSession")
_LIKE_TENSORFLOW = re.compile(r"(tf|tensorflow)(_?v?[12])?(_compat)?")  # variables for it
_ROOTS = ("tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2")
# Functions that inspect a module without using its names.
_LOOKING = ("getattr", "hasattr", "setattr", "print", "dir", "id", "reload", "str", "repr", "vars",
            "type", "getsource", "getfile", "isinstance", "dict", "super")

# Functions of hand-driven programs, whose counterparts replace TensorFlow's only when patched.
_BY_HAND = frozenset((
    "InfeedQueue", "infeed_enqueue", "infeed_enqueue_tuple", "infeed_dequeue",
    "infeed_dequeue_tuple", "outfeed_enqueue", "outfeed_enqueue_tuple", "outfeed_dequeue",
    "outfeed_dequeue_tuple", "enqueue_tpu_embedding_integer_batch",
    "enqueue_tpu_embedding_sparse_batch", "enqueue_tpu_embedding_sparse_tensor_batch",
    "enqueue_tpu_embedding_ragged_tensor_batch", "enqueue_tpu_embedding_arbitrary_tensor_batch",
    "recv_tpu_embedding_activations", "send_tpu_embedding_gradients"))


def rewrite(source: SourceFile, is_tf1: bool) -> Rewritten:
    """Rewrites one module for explicit imports.

    Args:
        source: the module.
        is_tf1: whether `import tensorflow` means TensorFlow 1.x in it.
    """
    module = ModuleRewrite(source, is_tf1)
    text_names.rewrite_calls(module)
    postponed = [(chain, target) for chain in module.names.chains
                 if (target := _rewrite_chain(module, chain)) is not None]
    text_names.rewrite_strings(module)
    _report_cautions(module)
    _report_unfollowed(module)
    edits = {**import_statements.plan(module), **_plan_removals(module, postponed)}
    if module.replacements or edits or module.references.needed:
        source = import_statements.insert(module, source.edited(
            _Replace(module.replacements, edits)))
    return Rewritten(source.module.bytes, tuple(module.findings), source)


def _rewrite_chain(module: ModuleRewrite, chain: Chain) -> Target | None:
    """Rewrites a chain of attributes; returns the target of a namespace without a counterpart."""
    meaning = module.names.meaning(chain.scope, chain.parts[0])
    if not any(path.startswith("tensorflow") for path in meaning.paths):
        return None
    resolved = module.resolve(chain, meaning)
    if resolved is None or all(map(module.is_reported, meaning.paths)):
        return None
    target, path = resolved
    name = ".".join(chain.parts)
    if not target.home and target.is_namespace and target.parts == name.count(".") + 1 + (
            path.count(".")):
        return target
    if not target.home:
        module.report(chain.root, "TEE201", f"`{name}`: {target.advice}")
        return None
    carried = [path, path.rpartition(".")[0]] if meaning.is_star else meaning.paths
    if all(map(module.is_carried, carried)):
        return None
    index = target.parts - path.count(".") - 1
    node = chain.nodes[index]
    if node in module.replacements:
        return None
    new = module.references.expression(target.home, chain.parts[0], path)
    module.replace(node, new, "TEE101", ".".join(chain.parts[:index + 1]))
    return None


def _plan_removals(module: ModuleRewrite,
                   postponed: Sequence[tuple[Chain, Target]],
                   ) -> dict[cst.CSTNode, import_statements.Replacement]:
    """Removes `variable = tf.contrib` if every use of the variable was rewritten."""
    edits: dict[cst.CSTNode, import_statements.Replacement] = {}
    lines = _plain_assignments(module.source.module) if postponed else {}
    for chain, target in postponed:
        name = ".".join(chain.parts)
        line, variable = lines.get(chain.nodes[-1], (None, ""))
        uses = [use for use in module.names.uses(variable)
                if not set(use.nodes) & module.replacements.keys()] if variable else []
        if line is not None and not uses:
            edits[line] = cst.RemoveFromParent()
            module.report(line, "TEE108", f"`{variable} = {name}`")
        elif chain.nodes[-1] not in module.replacements:
            module.report(chain.root, "TEE201", f"`{name}`: {target.advice}")
    return edits


def _plain_assignments(
        module: cst.Module) -> dict[cst.CSTNode, tuple[cst.SimpleStatementLine, str]]:
    """Returns the value of every plain `variable = value` -> its line, and the variable."""
    return {assign.value: (line, assign.targets[0].target.value)
            for line in find_all(module, cst.SimpleStatementLine) for assign in line.body
            if len(line.body) == 1 and isinstance(assign, cst.Assign)
            and len(assign.targets) == 1 and isinstance(assign.targets[0].target, cst.Name)}


def _report_cautions(module: ModuleRewrite) -> None:
    """Reports sessions with an address, TensorFlow passed on, Keras 3, and feeds of a TPU."""
    calls = list(find_all(module.source.module, cst.Call))
    _report_feeds(module, calls)
    for call in calls:
        _report_session(module, call)
        for argument in call.args:
            _report_value(module, call, argument.value)
    for line in find_all(module.source.module, cst.Import):
        if any(dotted(alias.name)[0] == "keras" for alias in line.names):
            _report_keras(module, line)


def _report_feeds(module: ModuleRewrite, calls: Sequence[cst.Call]) -> None:
    """Reports the first call that feeds a TPU by hand."""
    for call in calls:
        if any(path.startswith("tensorflow") and path.rpartition(".")[2] in _BY_HAND
               for path in module.names.paths(call.func)):
            module.report(call, "TEE212", f"`{'.'.join(dotted(call.func) or ())}` and similar "
                          "calls work on the names that `run` and `install()` patch: start the "
                          "unchanged file with `tpu-estimator-embedding run`")
            return


def _report_unfollowed(module: ModuleRewrite) -> None:
    """Reports names of the legacy API below values that may be TensorFlow."""
    chains = find_all(module.source.module, cst.Attribute)
    imports = find_all(module.source.module, cst.Import, cst.ImportFrom)
    passed = {*(chain.value for chain in chains),  # of which longer chains are made
              *(name for line in imports for name in find_all(line, cst.Attribute))}
    held = {target.attr.value for target, value in module.names.values.items()
            if isinstance(target, cst.Attribute) and value is not None
            and module.names.of_tensorflow(value)}
    for chain in chains:
        root, words = _taken_apart(chain)
        start, end = _legacy_words(words)
        if chain not in passed and end and words[start] not in held and _may_be_tensorflow(
                module.names.paths(root), words[:start]):
            module.report(chain, "TEE213", f"`{'.'.join(words[start:end])}` seems to be "
                          "TensorFlow's, in a value that is not followed; import TensorFlow in "
                          "this module")


def _taken_apart(chain: cst.BaseExpression) -> tuple[cst.BaseExpression, list[str]]:
    """Returns what a chain of attributes begins with, and the attributes."""
    words: list[str] = []
    while isinstance(chain, cst.Attribute):
        words.insert(0, chain.attr.value)
        chain = chain.value
    return chain, words


def _legacy_words(words: Sequence[str]) -> tuple[int, int]:
    """Returns where the first name of the legacy API is in a chain; zeros if there is none."""
    for start in range(len(words) - 1):
        if words[start] == "contrib" and words[start + 1] in contents.CONTENTS:
            return start, start + 2
        for end in range(start + 2, len(words) + 1):
            name = ".".join(words[start:end])
            if name in NAMES and name.startswith(("estimator.", "tpu.")):
                return start, end
    return 0, 0


def _may_be_tensorflow(roots: Sequence[str], between: Sequence[str]) -> bool:
    """Whether attributes of a value may be TensorFlow's.

    Args:
        roots: the dotted names that the value may be imported as; none if it is not imported.
        between: the attributes between it and a name of the legacy API.
    """
    if any(f"{root}.".startswith((OWN, "tensorflow")) for root in roots):
        return False  # which is followed
    return not roots or any(
        _LIKE_TENSORFLOW.fullmatch([*root.split("."), *between][-1]) for root in roots)


def _report_session(module: ModuleRewrite, call: cst.Call) -> None:
    paths = module.names.paths(call.func)
    if not any(path == f"{root}.{name}" for path in paths for root in _ROOTS
               for name in _SESSIONS):
        return
    first = call.args[0] if call.args else None
    named = {argument.keyword.value for argument in call.args if argument.keyword}
    given = first is not None and first.keyword is None and not first.star and not (
        matchers.matches(first.value, matchers.SimpleString("''") | matchers.SimpleString('""')
                         | matchers.Name("None")))
    if given or named & {"target", "master"}:
        module.report(call, "TEE209", "the address may have no server; write "
                      "`tf.compat.v1.Session()` if it is that of a TPU")


def _report_value(module: ModuleRewrite, call: cst.Call, value: cst.BaseExpression) -> None:
    function = last_word(call.func)
    if not isinstance(value, cst.Name) or function in _LOOKING:
        return
    if set(module.names.paths(value)) & {*_ROOTS, "tensorflow.contrib"}:
        module.report(value, "TEE211", f"`{value.value}` is given to `{function}`, which may "
                      "use names of the legacy API")


def _report_keras(module: ModuleRewrite, line: cst.Import) -> None:
    module.report(line, "TEE210", "`keras` is Keras 3 from TensorFlow 2.16 on, and Estimators "
                  "need Keras 2: import `tf_keras` or `tensorflow.keras` instead")


class _Replace(Edit):
    """Applies replacements, by the nodes of the tree that was analysed."""

    def __init__(self, replacements: dict[cst.CSTNode, str],
                 edits: dict[cst.CSTNode, import_statements.Replacement]) -> None:
        super().__init__()
        self._replacements = replacements
        self._edits = edits

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._replacements and node not in self._edits

    def changed(self, original_node: Any, updated_node: Any) -> Any:
        """Returns what stands in the place of a node."""
        if original_node in self._edits:
            return self._edits[original_node]
        if original_node not in self._replacements:
            return super().changed(original_node, updated_node)
        new = cst.parse_expression(self._replacements[original_node])
        return new.with_changes(lpar=original_node.lpar, rpar=original_node.rpar)

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock,
                            updated_node: cst.IndentedBlock) -> cst.IndentedBlock:
        if updated_node.body or not original_node.body:
            return updated_node
        return updated_node.with_changes(body=[cst.parse_statement("pass")])
