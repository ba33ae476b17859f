# SPDX-License-Identifier: Apache-2.0
"""Input pipelines: serialized records to what embedding features are looked up with."""

from tpu_estimator_embedding.io.parse_examples import parse_examples
from tpu_estimator_embedding.io.record_batches import record_batches

__all__ = ["parse_examples", "record_batches"]
