# SPDX-License-Identifier: Apache-2.0
"""Who may import whom, checked on every import statement, inside functions too."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

import tpu_estimator_embedding

PACKAGE = tpu_estimator_embedding.__name__
ROOT = pathlib.Path(tpu_estimator_embedding.__file__).parent

BASE = {"types", "checks"}
PURE = BASE | {"optimizers", "kernels", "ops", "plan"}  # no variables, no TensorFlow API of old
WORDS = PURE | {"engine", "checkpoint", "config", "mid_level"}
ALL_BUT_TOP = WORDS | {"feature_column", "v1_engine", "compat", "estimator", "export"}

# Part of the package -> what it may import besides itself. The longest prefix counts.
MAY_IMPORT = {
    "types": set(),
    "checks": set(),
    "optimizers": BASE,
    "kernels": BASE,
    "ops": BASE | {"optimizers", "kernels"},
    "plan": BASE | {"optimizers"},
    "engine": PURE,
    "checkpoint": PURE,
    "config": BASE,
    "config.to_plan": BASE | {"plan", "optimizers"},
    "mid_level": BASE | {"engine"},
    "mid_level.to_plan": BASE | {"plan", "optimizers"},
    "mid_level.sparse_core": BASE | {"ops", "plan", "engine"},  # another layout of ids and rows
    "feature_column": BASE | {"config"},
    "v1_engine": WORDS,
    "compat": WORDS | {"feature_column", "v1_engine"},  # which its restored modules show
    "estimator": WORDS | {"feature_column", "compat"},
    "export": WORDS | {"feature_column", "compat"},
    "codemod": set(),
    # The parts of compat that put the finished package in place.
    "compat.environment": ALL_BUT_TOP,
    "compat.estimator_views": ALL_BUT_TOP,
    "compat.install": ALL_BUT_TOP,
    "compat.patch_list": ALL_BUT_TOP,
    "compat.program": ALL_BUT_TOP,
    "compat.program_setup": ALL_BUT_TOP,
    "compat.run_config": ALL_BUT_TOP,
    "compat.doctor": ALL_BUT_TOP | {""},  # prints the version, calls install()
    # What a user starts.
    "demo": ALL_BUT_TOP | {""},  # a program like a user's, so by the public names
    "cli": ALL_BUT_TOP | {"", "demo", "codemod"},
    "__main__": {"cli"},
    "": set(),  # the public names load by importlib when they are first read
}

# The parts of compat that import the estimator, which imports the rest of compat.
TOP_OF_COMPAT = {part for part in MAY_IMPORT if part.startswith("compat.")}


def modules() -> list[pathlib.Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)


def dotted(path: pathlib.Path) -> str:
    """The module's name within the package; the package itself is the empty name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: pathlib.Path) -> Iterator[tuple[str, int]]:
    """Every imported module of this package, by its name within it, and the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide their rank"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == PACKAGE or name.startswith(f"{PACKAGE}."):
                yield name.removeprefix(PACKAGE).removeprefix("."), node.lineno


def part_of(module: str) -> str:
    """The longest entry of MAY_IMPORT that the module lies in."""
    return max((part for part in MAY_IMPORT
                if part == module or module.startswith(f"{part}.") or part == ""), key=len)


def folder(module: str) -> str:
    return module.split(".")[0]


def is_allowed(importer: str, imported: str) -> bool:
    if part_of(imported) in TOP_OF_COMPAT:
        return importer.startswith("compat.") and part_of(importer) in TOP_OF_COMPAT or (
            folder(importer) in ("cli", "demo"))
    return folder(imported) in MAY_IMPORT[part_of(importer)] or (
        folder(imported) == folder(importer) and importer != "")


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports_only_lower_ranks(path):
    importer = dotted(path)
    wrong = [f"line {line}: {imported or PACKAGE}" for imported, line in imports(path)
             if not is_allowed(importer, imported)]
    assert not wrong


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_every_module_has_a_rank(path):
    assert dotted(path) == "" or part_of(dotted(path)) != ""


@pytest.mark.parametrize("module", ["", "cli", "__main__"])
def test_start_is_light(module):
    path = ROOT / f"{module}.py" if module else ROOT / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top_level = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {(node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
             for node in top_level}
    assert names <= {"argparse", "collections", "importlib", "sys", "typing", PACKAGE}


@pytest.mark.parametrize("importer, imported, allowed", [
    ("ops.lookup", "types", True),
    ("ops.lookup", "plan.embedding_plan", False),
    ("engine.variables", "checkpoint.variable_names", False),
    ("config.table_config", "plan.embedding_plan", False),
    ("config.to_plan", "plan.embedding_plan", True),
    ("compat.modules.tpu_embedding", "estimator.tpu_estimator", False),
    ("estimator.upstream", "compat.modules", True),
    ("estimator.upstream", "compat.install", False),
    ("compat.tpu_ops", "compat.install", False),
    ("compat.install", "compat.patch", True),
    ("engine.variables", "", False),
])
def test_rule_tells_right_from_wrong(importer, imported, allowed):
    assert is_allowed(importer, imported) is allowed
