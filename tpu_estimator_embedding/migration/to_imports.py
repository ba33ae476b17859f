# SPDX-License-Identifier: Apache-2.0
"""Stage 1: a program on this package's own names, with no patching of TensorFlow.

Chains of attributes that begin with TensorFlow become names of this package, imported above
TensorFlow. Imports of the legacy API become imports of this package under the same variable,
so that code that uses them does not change. Names in comments and docstrings are not rewritten,
and neither is what the report lists.
"""

import dataclasses
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration import (
    added_imports,
    cautions,
    import_statements,
    text_names,
)
from tpu_estimator_embedding.migration.bindings import Bindings, Chain, Meaning
from tpu_estimator_embedding.migration.references import References
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.targets import Target, target_of


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """A rewritten file.

    Attributes:
        data: its bytes; unchanged if there is nothing to rewrite.
        findings: what was changed and what is left to do.
    """

    data: bytes
    findings: tuple[Finding, ...]


class ModuleRewriter:
    """Rewrites one module for explicit imports.

    Args:
        source: the module.
        is_tf1: whether `import tensorflow` means TensorFlow 1.x in it.
    """

    def __init__(self, source: SourceFile, is_tf1: bool) -> None:
        self.source = source
        self.is_tf1 = is_tf1
        self.bindings = Bindings(source)
        self.references = References(self.bindings, is_tf1)
        self.replacements: dict[cst.CSTNode, str] = {}
        self.findings: list[Finding] = []
        self.postponed: list[tuple[Chain, Target]] = []

    def run(self) -> Rewritten:
        """Returns the rewritten file."""
        text_names.rewrite_calls(self)
        for chain in self.bindings.chains:
            self._rewrite_chain(chain)
        text_names.rewrite_strings(self)
        cautions.report(self)
        edits = {**import_statements.plan(self), **self._plan_removals()}
        if not (self.replacements or edits or self.references.needed):
            return Rewritten(self.source.data, tuple(self.findings))
        module = self.source.module.visit(_Replace(self.replacements, edits))
        module = added_imports.insert(self, module)
        return Rewritten(module.bytes, tuple(self.findings))

    def report(self, node: cst.CSTNode, code: str, message: str) -> None:
        """Adds a finding about a node."""
        start = self.bindings.positions[node].start
        self.findings.append(
            Finding(self.source.path, start.line, start.column + 1, code, message))

    def replace(self, node: cst.CSTNode, new: str, code: str, old: str) -> None:
        """Replaces an expression."""
        self.replacements[node] = new
        self.report(node, code, f"`{old}` is now `{new}`")

    def target(self, path: str) -> Target | None:
        """Returns the replacement of a qualified name in this module."""
        return target_of(path, self.is_tf1)

    def is_carried(self, path: str) -> bool:
        """Whether the binding of a dotted name is rewritten, so that its uses do not change."""
        target = self.target(path)
        return bool(target and target.home and target.parts <= path.count(".") + 1)

    def is_reported(self, path: str) -> bool:
        """Whether a dotted name without a counterpart is reported where it is bound."""
        target = self.target(path)
        return bool(target and not target.home and not target.is_namespace
                    and target.parts <= path.count(".") + 1)

    def resolve(self, chain: Chain, meaning: Meaning) -> tuple[Target, str] | None:
        """Returns the replacement of a chain, and the path of its root; reports ambiguity."""
        rest = "".join(f".{part}" for part in chain.parts[1:])
        found = {path: self.target(f"{path}{rest}") for path in meaning.paths}
        legacy = {path: target for path, target in found.items() if target}
        if not legacy:
            return None
        name = ".".join(chain.parts)
        if not meaning.is_sure:
            self.report(chain.root, "TEE202", f"`{name}`: `{chain.parts[0]}` may also be "
                        "something that is not imported; write the name out")
            return None
        path, target = min(legacy.items())
        if len({one.home for one in legacy.values()}) > 1:
            self.report(chain.root, "TEE202", f"`{name}` is one of "
                        f"{', '.join(sorted(one.home or 'nothing' for one in legacy.values()))}")
            return None
        return target, path

    def _plan_removals(self) -> dict[cst.CSTNode, object]:
        """Removes `variable = tf.contrib` if every use of the variable was rewritten."""
        edits: dict[cst.CSTNode, Any] = {}
        for chain, target in self.postponed:
            name = ".".join(chain.parts)
            line, variable = self.bindings.assignment_of(chain.nodes[-1])
            uses = [use for use in self.bindings.uses(variable)
                    if not set(use.nodes) & self.replacements.keys()] if variable else []
            if line is not None and not uses:
                edits[line] = cst.RemoveFromParent()
                self.report(line, "TEE108", f"`{variable} = {name}`")
            elif chain.nodes[-1] not in self.replacements:
                self.report(chain.root, "TEE201", f"`{name}`: {target.advice}")
        return edits

    def _rewrite_chain(self, chain: Chain) -> None:
        meaning = self.bindings.meaning(chain.scope, chain.parts[0])
        if not any(path.startswith("tensorflow") for path in meaning.paths):
            return
        resolved = self.resolve(chain, meaning)
        if resolved is None or all(map(self.is_reported, meaning.paths)):
            return
        target, path = resolved
        name = ".".join(chain.parts)
        if not target.home and target.is_namespace and target.parts == name.count(".") + 1 + (
                path.count(".")):
            self.postponed.append((chain, target))
            return
        if not target.home:
            self.report(chain.root, "TEE201", f"`{name}`: {target.advice}")
            return
        if all(map(self.is_carried, meaning.paths)) and not (
                meaning.is_star and not self.is_carried(path.rpartition(".")[0])):
            return
        index = target.parts - path.count(".") - 1
        node = chain.nodes[index]
        if node in self.replacements:
            return
        new = self.references.expression(target.home, chain.parts[0], path)
        self.replace(node, new, "TEE101", ".".join(chain.parts[:index + 1]))


def rewrite(source: SourceFile, is_tf1: bool) -> Rewritten:
    """Rewrites one module for explicit imports."""
    return ModuleRewriter(source, is_tf1).run()


class _Replace(cst.CSTTransformer):
    """Applies replacements, by the nodes of the tree that was analysed."""

    def __init__(self, replacements: dict[cst.CSTNode, str],
                 edits: dict[cst.CSTNode, Any]) -> None:
        super().__init__()
        self._replacements = replacements
        self._edits = edits

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._replacements and node not in self._edits

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        if original_node in self._edits:
            return self._edits[original_node]
        if original_node not in self._replacements:
            return super().on_leave(original_node, updated_node)
        new = cst.parse_expression(self._replacements[original_node])
        return new.with_changes(lpar=original_node.lpar, rpar=original_node.rpar)

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock,
                            updated_node: cst.IndentedBlock) -> cst.IndentedBlock:
        if updated_node.body or not original_node.body:
            return updated_node
        return updated_node.with_changes(body=[cst.parse_statement("pass")])
