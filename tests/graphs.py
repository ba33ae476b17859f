# SPDX-License-Identifier: Apache-2.0
"""What depends on what in a graph."""


def ancestors(op):
    """Every op that `op` waits for, itself included."""
    found, waiting = set(), [op]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return found
