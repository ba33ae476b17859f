# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/, checked against the package."""

import pathlib
import re

import pytest

from tests import docs
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY

PACKAGE = docs.ROOT / "tpu_estimator_embedding"


def test_layout_names_every_part_of_the_package():
    [layout] = [block for block in docs.literal_blocks(docs.page("architecture"))
                if block.startswith("types.py")]
    named = set(re.findall(r"^(\S+?)(?:/|\.py,?) ", layout, re.MULTILINE))
    named |= set(re.findall(r", (\w+)\.py", layout))
    parts = {path.stem for path in PACKAGE.iterdir()
             if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert named == parts - {"__init__", "__main__"}


def test_walks_name_modules_of_the_package():
    walks = [block for block in docs.literal_blocks(docs.page("architecture"))
             if re.match(r"\w+/[\w/]+ ", block)]
    assert len(walks) == 6
    lines = [line for walk in walks for line in re.findall(r"^ *(\w+/[\w/]+(?:, \w+)*)", walk,
                                                           re.MULTILINE)]
    named = [line.split(", ")[0].rsplit("/", 1)[0] + "/" + name.rsplit("/", 1)[-1]
             for line in lines for name in line.split(", ")]
    assert len(named) > 60
    assert not [name for name in named if not (PACKAGE / f"{name}.py").exists()]


def test_verbs_of_the_pages_exist():
    from tpu_estimator_embedding import cli
    named = {verb for path in docs.pages() for verb in re.findall(
        r"(?:^    |``)tpu-estimator-embedding ([a-z][a-z-]*)", path.read_text(encoding="utf-8"),
        re.MULTILINE)}
    assert named <= set(cli.VERBS)


# Errors of TensorFlow itself, where it runs without this package.
OF_TENSORFLOW = {"Op type not registered 'TpuEmbedding",
                 "no attribute 'CheckpointInputPipelineHook'"}


def sentences_of_errors() -> list[str]:
    terms = re.findall(r"^``(.+)``\n    ", docs.page("troubleshooting"), re.MULTILINE)
    return [term for term in terms if term not in OF_TENSORFLOW]


@pytest.fixture(scope="module")
def sources() -> str:
    """All strings of the package, with neighbouring ones joined."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return re.sub(r"\"\s*\n?\s*f?\"", "", text)


@pytest.mark.parametrize("sentence", sentences_of_errors())
def test_errors_of_the_troubleshooting_page_exist(sentence, sources):
    assert sentence in sources


@pytest.mark.parametrize("path", docs.pages(), ids=lambda path: path.stem)
def test_files_that_a_page_names_exist(path: pathlib.Path):
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"``((?:docs|examples|tests|benchmarks|tpu_estimator_embedding)/[\w/.]*)``",
                       text)
    missing = {name for name in named if not (docs.ROOT / name).exists()}
    assert not missing - {TABLE_LAYOUTS_KEY}  # a tensor's
