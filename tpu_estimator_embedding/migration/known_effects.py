# SPDX-License-Identifier: Apache-2.0
"""What functions that a model_fn calls do in addition to computing their result.

A forward pass is the same in TF2 only if all that it does is known. The tables in
`known_effects.toml` have what is: the functions that compute their result and no more, and the ones
whose effect differs in TF2. Names are relative to `tensorflow` or `tensorflow.compat.v1`.
"""

from tpu_estimator_embedding.toml_table import read_table

_TABLE = read_table(__package__, "known_effects.toml")


def _words(key: str) -> tuple[str, ...]:
    return tuple(_TABLE[key].split())


PURE_NAMESPACES = _words("pure_namespaces")
PURE = frozenset(f"{namespace}.{name}".lstrip(".") for namespace, names in _TABLE["pure"].items()
                 for name in names.split())
MAKES_A_TENSOR = frozenset(_words("makes_a_tensor"))
RANDOM: dict[str, str] = _TABLE["random"]
_DRAWS = frozenset(_words("draws"))
PURE_MODULES, NOT_PURE = _words("pure_modules"), _words("not_pure")
BUILTINS = frozenset(_words("builtins"))
CHANGING_METHODS = frozenset(_words("changing_methods"))
METHODS = frozenset(_words("methods"))

READS_REGULARIZATION = _words("reads_regularization")
ACTIVITY_REGULARIZER = "activity_regularizer"
BEFORE_ACTIVITY_REGULARIZER: dict[str, int] = _TABLE["before_activity_regularizer"]
STATE_OF_GRAPH = (*_words("state_of_graph"), *READS_REGULARIZATION)

NO_EFFECT = tuple(_TABLE["no_effect"])
AS_IN_A_GRAPH = tuple(_TABLE["as_in_a_graph"])
# Function -> what it does otherwise in TF2. A name ending in "." is a namespace.
OTHER_EFFECTS: dict[str, str] = {
    name: effect for table in ("other_effects", "no_effect", "as_in_a_graph")
    for effect, names in _TABLE[table].items() for name in names.split()}


def is_random(name: str) -> bool:
    """Whether a function or a layer draws random numbers when it is called."""
    last = name.rpartition(".")[2].lower()
    return "initializer" not in name and (
        name in _DRAWS or RANDOM.get(name, name).startswith("random.")
        or last.startswith("random") or last.endswith(("dropout", "noise", "candidate_sampler")))
