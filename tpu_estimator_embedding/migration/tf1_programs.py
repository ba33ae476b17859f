# SPDX-License-Identifier: Apache-2.0
"""Finds the files of TensorFlow 1.x programs, whose `import tensorflow` means TF1's names."""

import collections
import pathlib
from collections.abc import Iterable, Mapping

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.bindings import Bindings, dotted, module_of
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.tf1_names import is_tf1_only


def tf1_notes(candidates: Iterable[SourceFile],
              imported: Mapping[str, Iterable[str] | None]) -> dict[str, Finding]:
    """Returns a finding for each file of a TensorFlow 1.x program, with the name that shows it.

    A file is of such a program if it uses a name that only TensorFlow 1.x has, or if a chain
    of imports joins it to one that does.

    Args:
        candidates: the files that may use such a name.
        imported: path -> dotted names that the file imports; None for a file that decides for
            itself.
    """
    notes = {source.path: note for source in candidates if (note := _own_note(source))}
    if not notes:
        return {}
    joined = _joined(imported)
    waiting = collections.deque(notes)
    while waiting:
        other = waiting.popleft()
        for path in sorted(joined[other] - notes.keys()):
            if imported[path] is None:
                continue
            notes[path] = Finding(path, 0, 0, "TEE110", f"it is of one program with {other}")
            waiting.append(path)
    return notes


def _own_note(source: SourceFile) -> Finding | None:
    bindings = Bindings(source)
    used: list[tuple[str, cst.CSTNode]] = [
        (".".join((path, *chain.parts[1:])), chain.root) for chain in bindings.chains
        for path in bindings.meaning(chain.scope, chain.parts[0]).paths]
    for node in matchers.findall(source.module, matchers.ImportFrom()):
        if isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            used += [(f"{module_of(node)}.{'.'.join(dotted(alias.name))}", node)
                     for alias in node.names]
    for path, node in used:
        if path.startswith("tensorflow.") and is_tf1_only(path.removeprefix("tensorflow.")):
            start = bindings.positions[node].start
            return Finding(source.path, start.line, start.column + 1, "TEE110",
                           f"`{path}` is a name of TensorFlow 1.x alone")
    return None


def _joined(imported: Mapping[str, Iterable[str] | None]) -> Mapping[str, set[str]]:
    """Returns path -> the paths of `imported` that import it or that it imports."""
    paths_of: dict[str, set[str]] = collections.defaultdict(set)  # by each end of a module's name
    for path in imported:
        parts = _module_name(path).split(".")
        for start in range(len(parts)):
            paths_of[".".join(parts[start:])].add(path)
    joined: dict[str, set[str]] = collections.defaultdict(set)
    for path, names in imported.items():
        for name in names or ():
            for other in paths_of.get(name, set()) - {path}:
                joined[path].add(other)
                joined[other].add(path)
    return joined


def _module_name(path: str) -> str:
    parts = pathlib.PurePath(path).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__init__", "/", ".."))

