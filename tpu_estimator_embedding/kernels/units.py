# SPDX-License-Identifier: Apache-2.0
"""The C++ sources, and the flags that each of them is compiled with.

Units that include TensorFlow's headers are compiled with exactly TensorFlow's flags: an
instruction set of ours would change how Eigen aligns memory that TensorFlow frees. The
arithmetic is in units without TensorFlow, for one instruction set each where the name of the
file says so; which of them runs is decided when the library is used.
"""

import hashlib
import pathlib
import platform

from tpu_estimator_embedding.kernels.tensorflow_build import TensorFlowBuild

SOURCES = pathlib.Path(__file__).parent / "src"

# Sums may not be contracted to fused multiply-adds: every instruction set gives the same bits.
ARITHMETIC_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-pthread", "-Wall", "-Wextra",
                    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
# Rows are summed in vectors written by hand: what -O3 adds to their loops makes them slower.
_ROW_FLAGS = {
    "_baseline": ("-O2",),
    "_avx2": ("-O2", "-mavx2", "-mfma"),
    "_avx512": ("-O2", "-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mavx2", "-mfma"),
}
# Compiled as one unit: TensorFlow's headers take longer than the code of all of these.
_TOGETHER = ("channel_ops", "input_ops", "process_variable_ops", "snapshot_ops", "stored_table_ops")


def is_tensorflow_unit(source: pathlib.Path) -> bool:
    """Whether the source includes TensorFlow's headers."""
    return source.stem.endswith(("_op", "_ops"))


def arithmetic_units() -> dict[pathlib.Path, tuple[str, ...]]:
    """Returns source -> flags of the units without TensorFlow, for this machine's architecture.

    >>> any(unit.stem.endswith("_op") for unit in arithmetic_units())
    False
    """
    units = {}
    for source in sorted(SOURCES.glob("*.cc")):
        row_flags = next((flags for ending, flags in _ROW_FLAGS.items()
                          if source.stem.endswith(ending)), ())
        if not is_tensorflow_unit(source) and ("-mavx2" not in row_flags or _has_avx()):
            units[source] = (*ARITHMETIC_FLAGS, *_baseline_only(), *row_flags, _source_names())
    return units


def tensorflow_units(tensorflow: TensorFlowBuild) -> dict[pathlib.Path, tuple[str, ...]]:
    """Returns source -> flags of the units with TensorFlow's headers.

    The flags of a unit that several sources make include the other ones.
    """
    flags = (f"-isystem{tensorflow.include}", *tensorflow.flags, "-O2", "-fPIC", "-Wall",
             _source_names(), f"-ffile-prefix-map={tensorflow.include}=tensorflow/include")
    sources = [source for source in sorted(SOURCES.glob("*.cc")) if is_tensorflow_unit(source)]
    together = [source for source in sources if source.stem in _TOGETHER]
    units = {source: flags for source in sources if source not in together}
    if together:
        units[together[-1]] = (*flags, *(f"-include{source}" for source in together[:-1]))
    return units


def digest(tensorflow: TensorFlowBuild) -> str:
    """Returns 16 hexadecimal digits that change with anything that changes the library."""
    state = hashlib.sha256(tensorflow.identity.encode())
    state.update(repr((ARITHMETIC_FLAGS, _ROW_FLAGS, _TOGETHER, platform.machine())).encode())
    for source in sorted([*SOURCES.glob("*.cc"), *SOURCES.glob("*.h")]):
        state.update(f"{source.name}\n".encode() + source.read_bytes())
    return state.hexdigest()[:16]


def _source_names() -> str:
    """The flag that names sources as in the package: the same bytes wherever it was unpacked."""
    return f"-ffile-prefix-map={SOURCES}=tpu_estimator_embedding/kernels/src"


def _has_avx() -> bool:
    return platform.machine() in ("x86_64", "AMD64")


def _baseline_only() -> tuple[str, ...]:
    return () if _has_avx() else ("-DTPU_EMBEDDING_BASELINE_ONLY",)
