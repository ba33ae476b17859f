# SPDX-License-Identifier: Apache-2.0
"""The codes of a migration's report, which stay the same from release to release."""

import dataclasses

CHANGED, NOTE, DECISION, LEFT = "changed", "note", "decision", "left"

# Kinds that need a person's attention: the exit status is 2.
OPEN = (DECISION, LEFT)

_GUIDE = "migration_guide/report_codes.rst"


@dataclasses.dataclass(frozen=True)
class Code:
    """The code of a line in the report.

    Attributes:
        name: "TEE" and three digits.
        kind: CHANGED, NOTE, DECISION (it works, but needs a person's decision) or LEFT.
        title: what happened, without the particulars.
    """

    name: str
    kind: str
    title: str

    @property
    def guide(self) -> str:
        """The place in the migration guide that explains it."""
        return f"{_GUIDE}#{self.name.lower()}"


CODES = {code.name: code for code in (
    # Explicit imports.
    Code("TEE101", CHANGED, "name replaced by this package's"),
    Code("TEE102", CHANGED, "import replaced by this package's"),
    Code("TEE103", CHANGED, "tensorflow imported as tensorflow.compat.v1"),
    Code("TEE104", CHANGED, "TensorFlow 2 behaviour switched off"),
    Code("TEE105", CHANGED, "import added"),
    Code("TEE106", CHANGED, "import removed"),
    Code("TEE107", CHANGED, "name in a string replaced"),
    Code("TEE108", CHANGED, "assignment removed"),
    Code("TEE110", NOTE, "taken for a TensorFlow 1.x program"),
    Code("TEE111", NOTE, "registered under a string that stays as it is"),
    Code("TEE201", LEFT, "name without a counterpart"),
    Code("TEE202", LEFT, "name that means several things"),
    Code("TEE203", LEFT, "attribute looked up by a computed name"),
    Code("TEE204", LEFT, "string that names the legacy API"),
    Code("TEE205", LEFT, "name that a star import may define"),
    Code("TEE206", LEFT, "Python 2 syntax"),
    Code("TEE207", LEFT, "file that cannot be parsed"),
    Code("TEE208", LEFT, "file that cannot be decoded"),
    Code("TEE209", DECISION, "session with an address"),
    Code("TEE210", DECISION, "Keras imported where this package may not be loaded yet"),
    Code("TEE211", DECISION, "tensorflow passed on as a value"),
    Code("TEE212", LEFT, "program that drives the TPU by hand"),
    Code("TEE213", LEFT, "name of the legacy API below a value that is not followed"),
    # Capture.
    Code("TEE301", CHANGED, "configuration captured"),
    Code("TEE302", LEFT, "value that has no source text"),
    Code("TEE303", DECISION, "names of tables in the checkpoint not known"),
    Code("TEE304", LEFT, "program ended without a TPUEstimator"),
    Code("TEE305", LEFT, "captured configuration builds another plan"),
    Code("TEE306", NOTE, "setting that only the Estimator has"),
    Code("TEE307", DECISION, "value of one run"),
    Code("TEE308", LEFT, "configuration not captured"),
    Code("TEE309", LEFT, "column for a TensorCore"),
    # TF2 training loops and Keras layers.
    Code("TEE401", CHANGED, "model_fn split into a forward function and a training step"),
    Code("TEE402", LEFT, "model_fn that cannot be split"),
    Code("TEE403", CHANGED, "counterpart written"),
    Code("TEE404", LEFT, "manual step"),
    Code("TEE405", DECISION, "numbers that may differ"),
    Code("TEE406", DECISION, "dense optimizer replaced by one of Keras"),
    Code("TEE407", LEFT, "dense optimizer without a counterpart in Keras"),
    Code("TEE408", DECISION, "argument that is not carried over"),
    Code("TEE409", LEFT, "effect that differs in TF2"),
    Code("TEE410", DECISION, "code whose effect is not known"),
    Code("TEE411", DECISION, "random numbers that differ"),
    # Keras RS.
    Code("TEE502", DECISION, "arithmetic that differs by a stated amount"),
    Code("TEE503", LEFT, "not available in Keras RS"),
)}
