# SPDX-License-Identifier: Apache-2.0
"""A module while it is rewritten for stage 1: its names, the imports they need, and the edits."""

from __future__ import annotations

import dataclasses

import libcst as cst

from tpu_estimator_embedding.migration.legacy_names import NAMES
from tpu_estimator_embedding.migration.names import Chain, Meaning, Names
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import ProgramFile, SourceFile
from tpu_estimator_embedding.migration.targets import PACKAGE, Target, in_full, names_in, target_of

_V1 = "tensorflow.compat.v1"

# Name at the top of this package -> where a namespace has it too.
_ALSO_IN = {row.imports: (f"tf_tpu.{name}" if name.startswith("tpu_embedding.") else
                          "tf_tpu.TPUClusterResolver" if name.startswith("distribute.") else
                          f"tf_{name}")
            for name, row in NAMES.items() if "." not in row.imports}


class References:
    """Writes names for one module, and collects the imports that they need.

    Args:
        names: the existing names of the module.
        is_tf1: whether its `tensorflow` becomes `tensorflow.compat.v1`.
    """

    def __init__(self, names: Names, is_tf1: bool) -> None:
        self._names = names
        self._is_tf1 = is_tf1
        self.needed: dict[tuple[str, str], str] = {}  # (module, name) -> its variable

    def expression(self, home: str, root: str, root_path: str) -> str:
        """Returns the expression for a home of `targets.Target`.

        Args:
            home: the home.
            root: the variable through which the program accessed it.
            root_path: the meaning of that variable.
        """
        if in_full(home) == home:
            return self._elsewhere(home, root, root_path)
        if "." not in home and home in _ALSO_IN and self._is_taken(home, home):
            home = _ALSO_IN[home]
        first, *rest = home.split(".")
        bound = self._import(PACKAGE, first)
        return ".".join((bound, *rest))

    def _elsewhere(self, home: str, root: str, root_path: str) -> str:
        if home.startswith(f"{_V1}."):
            below = home.removeprefix(_V1)
            if root_path == _V1 or (root_path == "tensorflow" and self._is_tf1):
                return f"{root}{below}"
            if root_path == "tensorflow":
                return f"{root}.compat.v1{below}"
        module, _, name = home.rpartition(".")
        parent, _, last = module.rpartition(".")
        return f"{self._import(parent, last)}.{name}"

    def variable(self, module: str, name: str) -> str:
        """Returns the variable under which a name is imported."""
        return f"tee_{name}" if self._is_taken(name, f"{module}.{name}") else name

    def _import(self, module: str, name: str) -> str:
        return self.needed.setdefault((module, name), self.variable(module, name))

    def _is_taken(self, name: str, path: str) -> bool:
        """Whether the module uses a name for anything other than the intended import."""
        if name not in self._names.bound_names:
            return False
        full = path if "." in path else f"{PACKAGE}.{path}"
        return not self._names.is_only(name, full)


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """A rewritten file.

    Attributes:
        data: its bytes; unchanged if there is nothing to rewrite.
        findings: what was changed and what is left to do.
        source: the file with these bytes; None if it was not parsed.
    """

    data: bytes
    findings: tuple[Finding, ...]
    source: SourceFile | None = None


def parsed(file: ProgramFile, result: Rewritten) -> SourceFile | None:
    """Returns the parsed file as rewritten so far; None if it cannot be parsed."""
    source = result.source or file.source
    return source if isinstance(source, SourceFile) else None


class ModuleRewrite:
    """One module while it is rewritten for explicit imports: its names, and the edits so far.

    Args:
        source: the module.
        is_tf1: whether `import tensorflow` means TensorFlow 1.x in it.
    """

    def __init__(self, source: SourceFile, is_tf1: bool) -> None:
        self.source = source
        self.is_tf1 = is_tf1
        self.names = Names(source.module)
        self.references = References(self.names, is_tf1)
        self.replacements: dict[cst.CSTNode, str] = {}
        self.findings: list[Finding] = []

    def report(self, node: cst.CSTNode, code: str, message: str) -> None:
        """Adds a finding about a node."""
        self.findings.append(self.source.finding(node, code, message))

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

    def may_be_of_other_star(self, name: str, module: str) -> bool:
        """Whether a name may come from another module, of which all names are imported."""
        return any(self._may_have(path) for path in self.names.star_paths(name)
                   if path != f"{module}.{name}")

    def _may_have(self, path: str) -> bool:
        """Whether the module of a dotted name may have the name, as far as that is known."""
        home, _, name = path.rpartition(".")
        module = self.target(home)
        return not (module and module.is_namespace and module.home) or (
            name in names_in(module.home))

    def resolve(self, chain: Chain, meaning: Meaning) -> tuple[Target, str] | None:
        """Returns the replacement of a chain, and the path of its root; reports ambiguity."""
        rest = "".join(f".{part}" for part in chain.parts[1:])
        if meaning.is_star:
            meaning = dataclasses.replace(meaning, paths=frozenset(
                path for path in meaning.paths if self._may_have(path)))
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
