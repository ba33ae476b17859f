# SPDX-License-Identifier: Apache-2.0
"""How the workers of a parameter-server cluster train together."""

import dataclasses
import numbers

from tpu_estimator_embedding import checks, settings


@dataclasses.dataclass(frozen=True)
class ClusterConfig:
    """How the workers of a parameter-server cluster train together.

    Attributes:
        synchronous: whether every step makes one update of the sum of all workers' gradients, of
            tables and of the model's variables, as the cores of a TPU do. Otherwise each worker
            updates independently.
        timeout_seconds: how long a synchronous step waits for a worker before training fails.

    Raises:
        ValueError: if `timeout_seconds` is not positive, or `synchronous` not a flag.
        TypeError: if `timeout_seconds` is not a number.

    >>> ClusterConfig(synchronous=True)
    ClusterConfig(synchronous=True, timeout_seconds=1800.0)
    """

    synchronous: bool = False
    timeout_seconds: float = 1800.0

    def __post_init__(self) -> None:
        checks.check_one_of("synchronous", (True, False), self.synchronous)
        checks.check_type(numbers.Real, "timeout_seconds", "a number", self.timeout_seconds)
        checks.check(self.timeout_seconds > 0, "timeout_seconds", "positive", self.timeout_seconds)


def chosen_config(given: ClusterConfig | None) -> ClusterConfig:
    """Returns what a program gave; the default of its command line if it gave nothing.

    Raises:
        TypeError: if something else was given.
    """
    if given is None:
        return ClusterConfig(synchronous=settings.SYNCHRONOUS.read())
    checks.check_type(ClusterConfig, "cluster_config", "a tpu_estimator_embedding.ClusterConfig",
                      given)
    return given
