# SPDX-License-Identifier: Apache-2.0
"""A program's source, read, decoded and parsed, or the reason of the failure."""

import ast
import dataclasses
import io
import re
import tokenize
import warnings

import libcst as cst

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


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A parsed file.

    Attributes:
        path: as in the report.
        data: the bytes that were read.
        module: the syntax tree, which reproduces the same bytes.
    """

    path: str
    data: bytes
    module: cst.Module


def parse(data: bytes, path: str) -> SourceFile:
    """Parses a file.

    Raises:
        UnreadableError: it is not Python 3, or cannot be decoded.

    >>> parse(b"x = 1", "a.py").module.body[0].body[0].targets[0].target.value
    'x'
    """
    tree = check_is_python(data, path)
    _check_no_print_statement(tree, path)
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
            path, 0, 0, "TEE208", "it does not come out as it was read; remove its byte order "
            "mark or save it as UTF-8"))
    return SourceFile(path, data, module)


def check_is_python(data: bytes, path: str) -> ast.Module:
    """Returns the tree of Python's own parser, which is faster and keeps no comments.

    Raises:
        UnreadableError: it is not Python 3, or cannot be decoded.
    """
    if b"\0" in data:  # at which some of Python's parsers stop
        raise UnreadableError(Finding(path, 0, 0, "TEE207", "it has null bytes; it was left as it "
                                      "is"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # for example of escapes in strings
            tree = ast.parse(data, path)
    except SyntaxError as error:
        raise UnreadableError(_syntax_finding(error, data, path)) from error
    except (ValueError, UnicodeError) as error:
        raise UnreadableError(Finding(path, 0, 0, "TEE208", str(error))) from error
    try:  # Python's parser does not decode comments
        data.decode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])
    except (SyntaxError, UnicodeError) as error:
        raise UnreadableError(Finding(path, 0, 0, "TEE208", f"{error}; {_DECODING}")) from error
    return tree


def _syntax_finding(error: SyntaxError, data: bytes, path: str) -> Finding:
    line, column = error.lineno or 0, error.offset or 0
    lines = data.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else b""
    if _PYTHON_2.search(str(error.msg)) or _PYTHON_2_LINE.search(text):
        return Finding(path, line, column, "TEE206", f"{error.msg}; {_ADVICE}")
    if "codec" in str(error.msg) or "encoding" in str(error.msg):
        return Finding(path, line, column, "TEE208", f"{error.msg}; it was left as it is")
    return Finding(path, line, column, "TEE207", f"{error.msg}; it was left as it is")


def _check_no_print_statement(tree: ast.Module, path: str) -> None:
    """Finds `print >>file, text`, which Python 3 parses but cannot run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift) and (
                isinstance(node.left, ast.Name) and node.left.id == "print"):
            raise UnreadableError(Finding(
                path, node.lineno, node.col_offset + 1, "TEE206",
                f"`print >>file` is a statement of Python 2; {_ADVICE}"))
