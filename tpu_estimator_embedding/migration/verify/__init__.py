# SPDX-License-Identifier: Apache-2.0
"""Proof that a migrated program computes what the legacy program computed.

    from tpu_estimator_embedding.migration import verify

    result = verify.compare("train.py", "new/train.py", ["--steps=100"], steps=20)
    assert result.agree, result.to_text()
"""

from tpu_estimator_embedding.migration.verify.comparison import Verification, compare

__all__ = ["Verification", "compare"]
