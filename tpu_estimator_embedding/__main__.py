# SPDX-License-Identifier: Apache-2.0
"""`python -m tpu_estimator_embedding` is `tpu-estimator-embedding`."""

import sys

from tpu_estimator_embedding.cli import main

if __name__ == "__main__":
    sys.exit(main())
