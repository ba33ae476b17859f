# SPDX-License-Identifier: Apache-2.0
"""Programs before and after `migrate`, to be read side by side: NAME.before.py and NAME.after.py.

A folder has the name of a stage. A file has several cases, each below a line `# === its name`; that
line ends with the codes of the report in the second file, with line and column for what is no
change. `test_codemods` compares them.
"""
