# SPDX-License-Identifier: Apache-2.0
"""Compiles the arithmetic of the kernels, without TensorFlow, into a separate program."""

import pathlib
from collections.abc import Sequence

from tpu_estimator_embedding.kernels import compiler, units

PROGRAMS = pathlib.Path(__file__).parent / "native"


def compile_program(name: str, directory: pathlib.Path, sanitizer_flags: Sequence[str],
                    command: Sequence[str], is_alone: bool = False) -> pathlib.Path:
    """Returns the program of `native/{name}.cc`, with every unit that has no TensorFlow in it.

    A program that is alone includes the units that it needs itself.
    """
    flags_of_units = {} if is_alone else {
        unit: list(flags) for unit, flags in units.arithmetic_units().items()}
    # The slowest to compile comes first.
    flags_of_units = {PROGRAMS / f"{name}.cc": list(units.ARITHMETIC_FLAGS), **flags_of_units}
    objects = {unit: directory / f"{unit.stem}.o" for unit in flags_of_units}
    flags = [*sanitizer_flags, "-g", f"-I{units.SOURCES}"]
    compiler.run_all([[*command, "-c", str(unit), *own, *flags, "-o", str(objects[unit])]
                      for unit, own in flags_of_units.items()])
    program = directory / name
    compiler.run([*command, *map(str, objects.values()), *sanitizer_flags, "-pthread", "-o",
                  str(program)])
    return program
