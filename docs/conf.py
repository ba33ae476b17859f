# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation: `python -m release docs`."""

import builtins
import difflib
import os
import pathlib
import re
import sys

from docutils import nodes
from sphinx import addnodes

DOCS = pathlib.Path(__file__).parent
GUIDE = DOCS.parent / "migration_guide"
sys.path.insert(0, str(DOCS.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # the layers that autodoc reads are Keras 2's

import tpu_estimator_embedding  # noqa: E402 (needs the path above)
from tpu_estimator_embedding.migration import legacy_names, rewrite, stages  # noqa: E402
from tpu_estimator_embedding.runtime import patch_list  # noqa: E402

project = "tpu_estimator_embedding"
author = "The tpu_estimator_embedding authors"
release = tpu_estimator_embedding.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"{project} {release}"
exclude_patterns = ["_build", "_generated"]
html_static_path = ["static"]
html_css_files = ["narrow.css"]
if tags.has("versions"):  # type: ignore[name-defined]  # noqa: F821 (Sphinx defines it)
    templates_path = ["templates"]
    html_sidebars = {"**": [
        "sidebar/brand.html", "versions.html", "sidebar/search.html", "sidebar/scroll-start.html",
        "sidebar/navigation.html", "sidebar/scroll-end.html"]}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
# README.rst writes its images as the repository sees them.
html_extra_path: list[str] = []


def names_table() -> list[str]:
    """Returns a list-table with a row for each legacy name and a column for each stage."""
    rows = [["Legacy name", "Imports", "TF2", "Layers", "Keras 3"]]
    for name, row in sorted(legacy_names.NAMES.items()):
        texts = [row.counterpart(stage).replace("`", "") for stage in stages.LATER_STAGES]
        rows.append([f"``{name}``", f"``{row.imports}``",
                     *(re.sub(r"[\\*_|]", r"\\\g<0>", text) for text in texts)])
    return [".. list-table::", "   :header-rows: 1", "", *(
        f"   {'  ' if index else '* '}- {cell}" for row in rows for index, cell in enumerate(row))]


def write_tables(app: object) -> None:
    """Writes what pages include: patches, legacy names, and what `migrate` makes of programs."""
    generated = DOCS / "_generated"
    generated.mkdir(exist_ok=True)
    (generated / "patches.txt").write_text("\n".join(patch_list.lines(patch_list.ROWS)) + "\n")
    (generated / "migration_names.txt").write_text("\n".join(names_table()) + "\n")
    for before in GUIDE.glob("*/before.py"):
        program = before.read_text()
        lines = [text.splitlines(keepends=True)
                 for text in (program, rewrite.rewrite(program).data.decode())]
        (generated / f"migration_{before.parent.name}.diff").write_text("".join(
            difflib.unified_diff(*lines, "before.py", "after_imports.py", n=0)))
    program = (GUIDE / "jax" / "before.py").read_text()
    (generated / "migration_jax.py").write_bytes(rewrite.rewrite(program, to="keras3").data)


def keep_builtin_types(app: object, page: nodes.document) -> None:
    """Keeps the type `bytes` of an argument from matching attributes of that name."""
    for reference in page.findall(addnodes.pending_xref):
        if hasattr(builtins, reference["reftarget"]):
            reference.attributes.pop("refspecific", None)


def setup(app: object) -> None:
    """Registers what runs before and after the pages are read."""
    app.connect("builder-inited", write_tables)  # type: ignore[attr-defined]
    app.connect("doctree-read", keep_builtin_types)  # type: ignore[attr-defined]
