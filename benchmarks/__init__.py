# SPDX-License-Identifier: Apache-2.0
"""Side-by-side measurements of libraries that train embedding tables on a CPU.

`python -m benchmarks --help` lists the options.
"""
