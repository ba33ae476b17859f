# SPDX-License-Identifier: Apache-2.0
"""Input pipelines: reads serialized records in batches, and parses their embedding features."""

from tpu_estimator_embedding.io.parse_examples import parse_examples
from tpu_estimator_embedding.io.record_batches import record_batches

__all__ = ["parse_examples", "record_batches"]
