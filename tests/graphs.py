# SPDX-License-Identifier: Apache-2.0
"""What waits for what in a graph."""


def ancestors(op):
    """Returns `op` and every op that it waits for."""
    found, waiting = set(), [op]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return found
