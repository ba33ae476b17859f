# SPDX-License-Identifier: Apache-2.0
"""Side-by-side measurements against everything else that trains embedding tables on a CPU.

`python -m benchmarks --help` says what there is.
"""
