# SPDX-License-Identifier: Apache-2.0
"""Finds the files of TensorFlow 1.x programs, by names that TensorFlow 2 does not have."""

from __future__ import annotations

import ast
import collections
import functools
import importlib.machinery
import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import libcst as cst

from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import dotted, find_all, module_of
from tpu_estimator_embedding.migration.report import Finding

if TYPE_CHECKING:
    from tpu_estimator_embedding.migration.source_file import ProgramFile, SourceFile

# TensorFlow's own table of names that moved, in which its upgrade script looks names up.
_TABLE = "tools/compatibility/renames_v2.py"
# Modules whose names in the table count. Programs of TensorFlow 2 also use the names
# of the others, such as `estimator`.
_COUNTED = frozenset(("", "data", "distribute", "feature_column", "image", "initializers", "io",
                      "losses", "metrics", "nn", "random", "saved_model", "summary", "train"))
# Names in the table that TensorFlow 2 has, too, with another meaning.
_IN_BOTH = """
    losses.Reduction losses.mean_squared_error metrics.mean_absolute_error
    metrics.mean_squared_error summary.audio summary.histogram summary.image summary.scalar
    summary.text
"""
# Names of TensorFlow 1.x that are not in the table, because their functions changed.
_NOT_IN_TABLE = """
    arg_max arg_min assert_greater_equal assert_integer assert_less_equal assert_near
    assert_negative assert_non_negative assert_non_positive assert_none_equal assert_positive
    assert_rank_at_least assert_rank_in assert_scalar assert_type assert_variables_initialized
    batch_gather batch_to_space_nd bincount confusion_matrix count_nonzero decode_csv
    decode_raw extract_image_patches floor_div glorot_normal_initializer
    glorot_uniform_initializer image.extract_image_patches image.resize_images
    load_file_system_library mixed_precision multinomial nn.conv2d_backprop_input
    nn.fused_batch_norm nn.rnn_cell nn.softmax_cross_entropy_with_logits_v2
    orthogonal_initializer parse_example parse_single_example quantize_v2 random.multinomial
    random.stateless_multinomial reduce_join saved_model.builder saved_model.constants
    saved_model.load_v2 saved_model.loader saved_model.main_op saved_model.signature_constants
    saved_model.signature_def_utils saved_model.tag_constants saved_model.utils sparse_matmul
    string_split string_to_hash_bucket string_to_number substr train.queue_runner
    train.sdca_fprint train.sdca_optimizer train.sdca_shrink_l1 truncated_normal_initializer
    variance_scaling_initializer where_v2
"""

# Whole modules that only TensorFlow 1.x has.
_MODULES = frozenset(("app", "distributions", "flags", "gfile", "layers", "logging", "manip",
                      "python_io", "resource_loader", "spectral", "user_ops"))


def is_tf1_only(path: str) -> bool:
    """Whether a dotted path below `tensorflow` exists in TensorFlow 1.x alone.

    >>> is_tf1_only("train.AdamOptimizer"), is_tf1_only("layers.dense"), is_tf1_only("nn.relu")
    (True, True, False)
    """
    parts = path.split(".")
    return parts[0] in _MODULES or any(
        ".".join(parts[:count]) in _tf1_only() for count in range(1, min(len(parts), 2) + 1))


@functools.cache
def _tf1_only() -> frozenset[str]:
    """Reads TensorFlow's table, without importing TensorFlow."""
    spec = importlib.machinery.PathFinder.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("TensorFlow is not installed, and its table of names identifies "
                                "TensorFlow 1.x programs: pip install tensorflow")
    text = pathlib.Path(spec.submodule_search_locations[0], _TABLE).read_text(encoding="utf-8")
    [renames] = [node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    names = {name.removeprefix("tf.") for name in ast.literal_eval(renames)}
    counted = {name for name in names if name.rpartition(".")[0] in _COUNTED}
    return frozenset(counted.difference(_IN_BOTH.split()).union(_NOT_IN_TABLE.split()))


def tf1_notes(files: Iterable[ProgramFile]) -> dict[str, Finding]:
    """Returns a finding for each file of a TensorFlow 1.x program, with the name that shows it.

    A file is of such a program if it uses a name that only TensorFlow 1.x has, or if a chain
    of imports joins it to one that does. One that names `tf.compat` decides for itself.

    Args:
        files: all of the program.
    """
    scans = {file.path: scan for file in files if (scan := file.scan)}
    notes = {file.path: note for file in files if file.path in scans
             and scans[file.path].may_be_tf1 and not isinstance(file.source, Finding)
             and (note := own_note(file.source))}
    if not notes:
        return {}
    joined = _joined({path: () if scan.uses_compat else scan.imported
                      for path, scan in scans.items()})
    waiting = collections.deque(notes)
    while waiting:
        other = waiting.popleft()
        for path in sorted(joined[other] - notes.keys()):
            if not scans[path].uses_compat:
                notes[path] = Finding(path, 0, 0, "TEE110", "it belongs to the same program as "
                                      f"{other}")
                waiting.append(path)
    return notes


def own_note(source: SourceFile) -> Finding | None:
    """Returns a finding if a module uses a name that only TensorFlow 1.x has."""
    names = Names(source.module)
    used: list[tuple[str, cst.CSTNode]] = [
        (path, chain.root) for chain in names.chains
        for path in names.paths_in(chain.scope, chain.parts)]
    for line in find_all(source.module, cst.ImportFrom):
        if not isinstance(line.names, cst.ImportStar):
            used += [(f"{module_of(line)}.{'.'.join(dotted(alias.name))}", line)
                     for alias in line.names]
    for path, node in used:
        if path.startswith("tensorflow.") and is_tf1_only(path.removeprefix("tensorflow.")):
            return source.finding(node, "TEE110", f"`{path}` is a name of TensorFlow 1.x alone")
    return None


def _joined(imported: Mapping[str, Iterable[str]]) -> Mapping[str, set[str]]:
    """Returns path -> the paths of `imported` that import it or that it imports."""
    paths_of: dict[str, set[str]] = collections.defaultdict(set)  # by each end of a module's name
    for path in imported:
        parts = _module_name(path).split(".")
        for start in range(len(parts)):
            paths_of[".".join(parts[start:])].add(path)
    joined: dict[str, set[str]] = collections.defaultdict(set)
    for path, names in imported.items():
        for name in names:
            for other in paths_of.get(name, set()) - {path}:
                joined[path].add(other)
                joined[other].add(path)
    return joined


def _module_name(path: str) -> str:
    parts = pathlib.PurePath(path).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__init__", "/", ".."))

