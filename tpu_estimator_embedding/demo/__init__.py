# SPDX-License-Identifier: Apache-2.0
"""A program like a user's, from data that it writes itself to a model that is served."""
