# SPDX-License-Identifier: Apache-2.0
"""A program's source, read, decoded and parsed, or the reason of the failure."""

import ast
import dataclasses
import functools
import io
import re
import tokenize
import warnings
from collections.abc import Mapping
from typing import Any

import libcst as cst
from libcst import metadata

from tpu_estimator_embedding.migration import quick_scan
from tpu_estimator_embedding.migration.node_search import dotted, find_all, nodes_of
from tpu_estimator_embedding.migration.quick_scan import QuickScan
from tpu_estimator_embedding.migration.report import Finding

# Python 3's messages about Python 2 source.
_PYTHON_2 = re.compile(
    r"Missing parentheses in call to '(print|exec)'"
    r"|multiple exception types must be parenthesized"
    r"|leading zeros in decimal integer literals|invalid decimal literal"
    r"|Did you mean print\(")
_PYTHON_2_LINE = re.compile(
    rb"^\s*(print\s+[^\s(=]|exec\s+['\"]|raise\s+\w+\s*,)|<>|`\w+`|\bur['\"]"
    rb"|\bexcept\s+[\w.]+\s*,\s*\w+\s*:|\b\d+[lL]\b")
_ADVICE = ("convert the file to Python 3 first, for example with `2to3 -w` of a Python before "
           "3.13 or with the package `modernize`; it was left as it is")

_DECODING = "declare its encoding or save it as UTF-8"


class UnreadableError(Exception):
    """A file cannot be rewritten; `finding` has the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


@dataclasses.dataclass(frozen=True, eq=False)
class SourceFile:
    """A parsed file, and what a rewrite has made of it so far.

    Attributes:
        path: as in the report.
        written: the syntax tree of the user's text, which reproduces the bytes that were read.
        module: the syntax tree now.
        origins: a node that a rewrite has made -> the one in whose place it stands.
    """

    path: str
    written: cst.Module
    module: cst.Module
    origins: Mapping[cst.CSTNode, cst.CSTNode] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """The identifiers in its tree."""
        return frozenset(name.value for name in find_all(self.module, cst.Name))

    def rewritten(self, module: cst.Module,
                  origins: Mapping[cst.CSTNode, cst.CSTNode]) -> "SourceFile":
        """Returns the file with another tree, whose new nodes stand in the place of others."""
        return dataclasses.replace(self, module=module, origins={**self.origins, **origins})

    def edited(self, edit: "Edit") -> "SourceFile":
        """Returns the file as a transformer changes it."""
        module = self.module.visit(edit)
        assert isinstance(module, cst.Module)
        return self.rewritten(module, edit.origins)

    def with_distinct_nodes(self) -> "SourceFile":
        """Returns the file with a copy of every node, as a rewrite may use one in two places."""
        module = self.module.deep_clone()
        return self.rewritten(module, dict(zip(
            nodes_of(module), nodes_of(self.module), strict=True)))

    def start(self, node: cst.CSTNode) -> metadata.CodePosition:
        """Returns the place of a node in the user's text; its column is counted from 0.

        What a rewrite has added there stands where the text begins.
        """
        while node not in self._ranges:
            node = self.origins.get(node, self.written)
        return self._ranges[node].start

    def finding(self, node: cst.CSTNode, code: str, message: str) -> Finding:
        """Returns a finding about a node."""
        start = self.start(node)
        return Finding(self.path, start.line, start.column + 1, code, message)

    @functools.cached_property
    def _ranges(self) -> Mapping[cst.CSTNode, metadata.CodeRange]:
        return _ranges(self.written)


@functools.lru_cache(1)
def _ranges(module: cst.Module) -> Mapping[cst.CSTNode, metadata.CodeRange]:
    """Returns where nodes stand; cached, as a file and what is made of it have the same tree."""
    return metadata.MetadataWrapper(module, unsafe_skip_copy=True).resolve(
        metadata.PositionProvider)


class Edit(cst.CSTTransformer):
    """Changes a tree, and notes in the place of which nodes the new ones stand.

    Attributes:
        origins: new node -> the node in whose place it stands.
    """

    def __init__(self) -> None:
        super().__init__()
        self.origins: dict[cst.CSTNode, cst.CSTNode] = {}

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> Any:
        """Changes a node."""
        new = self.changed(original_node, updated_node)
        if updated_node is not original_node:
            self.origins[updated_node] = original_node
        for node in new if isinstance(new, cst.FlattenSentinel) else [new]:
            if isinstance(node, cst.CSTNode) and node not in (original_node, updated_node):
                self._note(node, original_node)
        return new

    def changed(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> Any:
        """Returns what stands in the place of a node: what its method `leave_...` returns."""
        return super().on_leave(original_node, updated_node)

    def _note(self, new: cst.CSTNode, original: cst.CSTNode) -> None:
        """Notes the nodes of a tree that stand for no other yet."""
        if new not in self.origins:
            self.origins[new] = original
            for child in new.children:
                self._note(child, original)


@dataclasses.dataclass(frozen=True, eq=False)
class ProgramFile:
    """A file of a program, which is parsed when it is needed, and once.

    Attributes:
        path: as in the report.
        data: its bytes.
    """

    path: str
    data: bytes

    @functools.cached_property
    def scan(self) -> QuickScan | None:
        """What it may have; None if it has nothing of the legacy API, or cannot be parsed."""
        return quick_scan.scan(self.data) if quick_scan.has_any_word(self.data) else None

    @functools.cached_property
    def source(self) -> SourceFile | Finding:
        """The parsed file, or why it cannot be read."""
        try:
            return parse(self.data, self.path, is_python=self.scan is not None)
        except UnreadableError as error:
            return error.finding


def parse(data: bytes, path: str, *, is_python: bool = False) -> SourceFile:
    """Parses a file.

    Args:
        data: its bytes.
        path: as in the report.
        is_python: whether Python's own parser has read it already.

    Raises:
        UnreadableError: it is not Python 3, or cannot be decoded.

    >>> parse(b"x = 1", "a.py").module.body[0].body[0].targets[0].target.value
    'x'
    """
    if is_python:
        _check_is_decoded(data, path)
    else:
        check_is_python(data, path)
    try:
        module = cst.parse_module(data)
    except (SyntaxError, UnicodeError, LookupError) as error:  # bytes of another encoding
        raise UnreadableError(Finding(
            path, 0, 0, "TEE208", f"{error}; {_DECODING}")) from error
    except cst.ParserSyntaxError as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableError(Finding(path, 0, 0, "TEE207", reason)) from error
    if module.bytes != data:
        raise UnreadableError(Finding(
            path, 0, 0, "TEE208", "it cannot be written back unchanged; save it as UTF-8 without a "
            "byte order mark, with \\n at the ends of lines"))
    _check_no_print_statement(source := SourceFile(path, module, module))
    return source


def check_is_python(data: bytes, path: str) -> None:
    """Checks a file with Python's own parser, which is faster and has other messages.

    Raises:
        UnreadableError: it is not Python 3.
    """
    if b"\0" in data:  # at which some of Python's parsers stop
        raise UnreadableError(Finding(path, 0, 0, "TEE207", "it has null bytes; it was left as it "
                                      "is"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # for example of escapes in strings
            ast.parse(data, path)
    except SyntaxError as error:
        raise UnreadableError(_syntax_finding(error, data, path)) from error
    except (ValueError, UnicodeError) as error:
        raise UnreadableError(Finding(path, 0, 0, "TEE208", str(error))) from error
    _check_is_decoded(data, path)


def _check_is_decoded(data: bytes, path: str) -> None:
    """Decodes a file, as Python's parser does not decode comments."""
    try:
        data.decode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])
    except (SyntaxError, UnicodeError) as error:
        raise UnreadableError(Finding(path, 0, 0, "TEE208", f"{error}; {_DECODING}")) from error


def _syntax_finding(error: SyntaxError, data: bytes, path: str) -> Finding:
    line, column = error.lineno or 0, error.offset or 0
    lines = data.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else b""
    if _PYTHON_2.search(str(error.msg)) or _PYTHON_2_LINE.search(text):
        return Finding(path, line, column, "TEE206", f"{error.msg}; {_ADVICE}")
    if "codec" in str(error.msg) or "encoding" in str(error.msg):
        return Finding(path, line, column, "TEE208", f"{error.msg}; it was left as it is")
    return Finding(path, line, column, "TEE207", f"{error.msg}; it was left as it is")


def _check_no_print_statement(source: SourceFile) -> None:
    """Finds `print >>file, text`, which Python 3 parses but cannot run."""
    for node in find_all(source.module, cst.BinaryOperation):
        if isinstance(node.operator, cst.RightShift) and dotted(node.left) == ("print",):
            raise UnreadableError(source.finding(
                node, "TEE206", f"`print >>file` is a statement of Python 2; {_ADVICE}"))
