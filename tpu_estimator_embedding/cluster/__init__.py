# SPDX-License-Identifier: Apache-2.0
"""Starting the tasks of a parameter-server cluster on one machine."""
