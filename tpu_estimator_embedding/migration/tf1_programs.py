# SPDX-License-Identifier: Apache-2.0
"""Finds the files of TensorFlow 1.x programs, whose `import tensorflow` means TF1's names."""

import pathlib
from collections.abc import Iterator, Sequence

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.bindings import Bindings, dotted, module_of
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.tf1_names import is_tf1_only


def tf1_notes(sources: Sequence[SourceFile]) -> dict[str, Finding]:
    """Returns a finding for each file of a TensorFlow 1.x program, with the name that shows it.

    A file is of such a program if it uses a name that only TensorFlow 1.x has, or if a chain
    of imports joins it to one that does. A file that names `compat` itself decides for itself.
    """
    notes = {source.path: note for source in sources if (note := _own_note(source))}
    imports = {source.path: _imported(source, sources) for source in sources
               if b"compat" not in source.data}
    is_growing = bool(notes)
    while is_growing:
        joined = {path: other for path, others in imports.items() if path not in notes
                  for other in notes if other in others or path in imports.get(other, ())}
        notes.update({path: Finding(path, 0, 0, "TEE110", f"it is of one program with {other}")
                      for path, other in joined.items()})
        is_growing = bool(joined)
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


def _imported(source: SourceFile, sources: Sequence[SourceFile]) -> set[str]:
    """Returns the paths of the sources that a module imports."""
    files = {other.path: _module_name(other.path) for other in sources if other is not source}
    names = list(_imported_names(source.module))
    return {path for path, module in files.items() for name in names
            if f".{module}".endswith(f".{name}")}


def _imported_names(module: cst.Module) -> Iterator[str]:
    for node in matchers.findall(module, matchers.Import() | matchers.ImportFrom()):
        if isinstance(node, cst.Import):
            yield from (".".join(dotted(alias.name)) for alias in node.names)
        elif isinstance(node, cst.ImportFrom):
            parent = module_of(node).lstrip(".")
            if parent:
                yield parent
            if not isinstance(node.names, cst.ImportStar):
                yield from (f"{parent}.{'.'.join(dotted(alias.name))}".lstrip(".")
                            for alias in node.names)


def _module_name(path: str) -> str:
    parts = pathlib.PurePath(path).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__init__", "/", ".."))

