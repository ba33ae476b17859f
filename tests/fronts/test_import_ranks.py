# SPDX-License-Identifier: Apache-2.0
"""Which folder may import which, checked on every import statement, inside functions too."""

import ast
import functools
import pathlib
from collections.abc import Iterator

import pytest

import tpu_estimator_embedding

PACKAGE = tpu_estimator_embedding.__name__
ROOT = pathlib.Path(tpu_estimator_embedding.__file__).parent

# A part imports only itself and what stands before it.
ORDER = (
    "",  # the package itself: the version, and public names that load when they are read
    "types", "checks", "figures", "toml_table", "json_text", "free_memory",
    "settings", "tf_config", "processes", "versions",
    "other_api", "optimizers", "patches", "multipliers", "ops", "kernels", "channels", "plan",
    "engine", "statistics", "checkpoint", "config", "feature_column", "mid_level", "low_level",
    "compat", "estimator", "io", "runtime", "tf_estimator", "tf_tpu", "trainer", "experiments",
    "cluster", "migration", "demo", "cli", "__main__")

# Front doors, side by side: none is built on another.
FRONT_DOORS = {"mid_level", "low_level", "estimator"}

# Within a part that has folders: each group of folders and modules imports only what stands before
# it. OTHERS are the part's modules that are not listed, and its name itself.
OTHERS = "*"
WITHIN = {
    "compat": ({OTHERS}, {"modules", "contrib", "stubs"}),
    "engine": ({"enqueue_data", "placement"}, {"variables"}, {"measures"}, {"step"},
               {"checked_ids"}, {"native", "tf_ops"}, {"step_ids"}, {OTHERS}),
    "estimator": ({"replicas"}, {"step_session"}, {"cluster"}, {"hooks"}, {"input"},
                  {"step"}, {OTHERS}),
    "mid_level": ({"config"}, {"input"}, {"execution"}, {"sparse_core"}, {"serving"},
                  {"keras_layers", OTHERS}),
    "migration": ({"stages"}, {"verify"}, {OTHERS}),
}

# The backends of the engine, and the one module that chooses between them.
BACKENDS = ("engine.native", "engine.tf_ops")
CHOICE = "engine.step_ids"

# What a user starts reads public names of the package, as a user's program does.
PROGRAMS = {"experiments", "cluster", "migration", "demo", "cli"}


def modules() -> list[pathlib.Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)


@functools.cache
def nodes(path: pathlib.Path) -> list[ast.AST]:
    """Every node of a module."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def dotted(path: pathlib.Path) -> str:
    """The module's name within the package; the package itself is the empty name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: pathlib.Path) -> Iterator[tuple[str, int]]:
    """Every imported module of this package, by its name within it, and the line."""
    for node in nodes(path):
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


def imported_modules() -> dict[str, set[str]]:
    """Every module of this package, and those that it imports, not only for its annotations."""
    known = {dotted(path) for path in modules()}

    def module_of(name: str) -> str:
        return name if name in known or not name else module_of(name.rpartition(".")[0])

    found = {}
    for path in modules():
        ignored = lines_for_annotations(path)
        found[dotted(path)] = {module_of(name) for name, line in imports(path)
                               if line not in ignored} - {"", dotted(path)}
    return found


def lines_for_annotations(path: pathlib.Path) -> set[int]:
    """The lines that only type checkers execute."""
    return {line for node in nodes(path)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for line in range(node.lineno, node.end_lineno + 1)}


def part_of(module: str) -> str:
    """The part that a module, or a name in the package itself, belongs to."""
    first = module.split(".")[0]
    is_name_of_package = first in tpu_estimator_embedding.__all__
    return "" if is_name_of_package else first


def backend_of(module: str) -> str | None:
    """The backend that a module, or a name in one, belongs to."""
    return next((backend for backend in BACKENDS
                 if f"{module}.".startswith(f"{backend}.")), None)


def rank_within(module: str) -> int:
    """The place of a module within its part; in a part without folders it is 0."""
    part, _, inner = module.partition(".")
    groups = WITHIN.get(part, ({OTHERS},))
    listed = set().union(*groups)
    name = inner.split(".")[0] if inner.split(".")[0] in listed else OTHERS
    return next(rank for rank, group in enumerate(groups) if name in group)


def is_allowed(importer: str, imported: str) -> bool:
    backend = backend_of(imported)
    if backend is not None and importer != CHOICE and backend_of(importer) != backend:
        return False
    above, below = part_of(imported), part_of(importer)
    if above == below:
        return rank_within(importer) >= rank_within(imported)
    if above == "" and imported:  # a public name, which may load any part
        return below in PROGRAMS or imported == "__version__"
    return ORDER.index(above) < ORDER.index(below) and not {above, below} <= FRONT_DOORS


def test_every_part_has_a_rank():
    parts = {part_of(dotted(path)) for path in modules()}
    assert parts <= set(ORDER), f"no rank: {sorted(parts - set(ORDER))}"


def test_every_folder_within_a_part_has_a_rank():
    folders = {part: {path.parent.name for path in (ROOT / part).glob("*/__init__.py")}
               for part in ORDER if part}
    assert WITHIN.keys() == {part for part in folders if folders[part]}
    for part, groups in WITHIN.items():
        assert folders[part] <= set().union(*groups)
        for name in set().union(*groups) - folders[part] - {OTHERS}:
            assert (ROOT / part / f"{name}.py").exists(), f"{part}.{name} is no more"


def test_no_modules_import_each_other():
    waiting = imported_modules()
    while ready := [module for module, needed in waiting.items() if not needed & waiting.keys()]:
        for module in ready:
            del waiting[module]
    assert not waiting, f"circles, or what needs them: {waiting}"


def test_modules_import_only_what_stands_before_them():
    wrong = [f"{path}:{line} imports {imported or PACKAGE}"
             for path in modules() for imported, line in imports(path)
             if not is_allowed(dotted(path), imported)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", ["", "cli", "__main__"])
def test_start_is_light(module):
    path = ROOT / f"{module}.py" if module else ROOT / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top_level = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {(node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
             for node in top_level}
    assert names <= {"argparse", "collections", "importlib", "sys", "typing", PACKAGE}
