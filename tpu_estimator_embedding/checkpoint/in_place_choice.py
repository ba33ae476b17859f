# SPDX-License-Identifier: Apache-2.0
"""Whether large tables are read in place, which an environment variable turns off."""

import os

from tpu_estimator_embedding import checks

TABLES_IN_PLACE = "TPU_ESTIMATOR_EMBEDDING_TABLES_IN_PLACE"


def choice() -> str:
    """Returns the value of the variable; "" where it is not set.

    Raises:
        ValueError: if the value is not known.
    """
    given = os.environ.get(TABLES_IN_PLACE, "")
    if given:
        checks.check_one_of(TABLES_IN_PLACE, ("off",), given, "Unset it to read them in place.")
    return given
