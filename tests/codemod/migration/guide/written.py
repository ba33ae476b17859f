# SPDX-License-Identifier: Apache-2.0
"""Writes the programs of the guide that `migrate` writes beside those that are written by hand.

    python -m tests.codemod.migration.guide.written DIRECTORY PAGE...

DIRECTORY/PAGE gets the programs of the page, `after_imports.py` and, of pages without a program of
stage 2 that is written by hand, `after_tf2.py`, `after_layers.py` and `embedding_config.py`.
"""

import pathlib
import shutil
import sys

from tests.docs import ROOT
from tpu_estimator_embedding.migration.rewrite import rewrite

GUIDE = ROOT / "migration_guide"
PAGES = tuple(sorted(path.parent.name for path in GUIDE.glob("*/before.py")))
# Pages of what Keras RS trains, whose program has its own test.
LAST = ("jax",)
OF_STAGE_2 = ("tf2", "layers")


def is_by_hand(page: str) -> bool:
    """Whether the programs of stage 2 of a page are written by hand, to show the loop itself."""
    return (GUIDE / page / "after_tf2.py").exists()


def stages(page: str) -> tuple[str, ...]:
    """Returns the names of the programs of a page, `before` first."""
    found = tuple(f"after_{stage}" for stage in OF_STAGE_2
                  if (GUIDE / page / f"after_{stage}.py").exists() or not is_by_hand(page))
    return ("before", "after_imports", *(found if page not in LAST else ()))


def write(page: str, directory: pathlib.Path) -> None:
    """Writes the programs of a page, without running anything."""
    directory.mkdir(parents=True)
    for path in (GUIDE / page).glob("*.py"):
        shutil.copy(path, directory)
    program = (GUIDE / page / "before.py").read_bytes()
    for stage in stages(page)[1:]:
        if not (directory / f"{stage}.py").exists():
            result = rewrite(program, "before.py", to=stage.removeprefix("after_"))
            left = [one for one in result.findings if one.about.kind in ("left", "decision")]
            assert not left, (page, stage, left)
            (directory / f"{stage}.py").write_bytes(result.data)


def capture(page: str, directory: pathlib.Path) -> None:
    """Runs the program of a page, and writes the tables that it configures."""
    from tpu_estimator_embedding.migration import captured_config, captured_file
    found = captured_config.capture(str(directory / "before.py"), ["never"], steps=1)
    text, findings = captured_file.written(found, "tf2")
    left = [one for one in findings if one.about.kind in ("left", "decision")]
    assert not left, (page, left)
    (directory / "embedding_config.py").write_text(text)


def main(root: str, *pages: str) -> None:
    """Writes the programs of pages."""
    for page in pages:
        directory = pathlib.Path(root, page)
        write(page, directory)
        if not is_by_hand(page) and page not in LAST:
            capture(page, directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
