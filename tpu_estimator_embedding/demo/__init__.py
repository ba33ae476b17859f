# SPDX-License-Identifier: Apache-2.0
"""A program like a user's, from data that it writes itself to a model that is served."""

import os

# Read when TensorFlow loads: notes of its C++ parts would break up the progress line.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
