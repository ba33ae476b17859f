# SPDX-License-Identifier: Apache-2.0
"""Experiments with embeddings: sweeps, plans and reports.

`sweep` trains a model once for every setting and seed, and reports the results;
`tpu-estimator-embedding sweep` does the same with an unmodified program.
"""

from tpu_estimator_embedding.experiments.estimator_sweep import sweep
from tpu_estimator_embedding.experiments.results import Results, RunResult
from tpu_estimator_embedding.experiments.setting import Setting, grid

__all__ = ["Results", "RunResult", "Setting", "grid", "sweep"]
