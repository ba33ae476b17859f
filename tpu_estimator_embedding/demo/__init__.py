# SPDX-License-Identifier: Apache-2.0
"""A complete example program: generates data, trains, evaluates and exports a model."""
