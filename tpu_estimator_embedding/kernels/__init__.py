# SPDX-License-Identifier: Apache-2.0
"""The C++ ops, their build and their loader. Everything works, slower, without them."""
