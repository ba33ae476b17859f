# SPDX-License-Identifier: Apache-2.0
"""How a rewritten program writes a name: the expression, and the import that it needs."""

from tpu_estimator_embedding.migration.bindings import Bindings
from tpu_estimator_embedding.migration.legacy_names import NAMES
from tpu_estimator_embedding.migration.targets import PACKAGE, in_full

_V1 = "tensorflow.compat.v1"

# Name at the top of this package -> where a namespace has it too.
_ALSO_IN = {row.imports: (f"tf_tpu.{name}" if name.startswith("tpu_embedding.") else
                          "tf_tpu.TPUClusterResolver" if name.startswith("distribute.") else
                          f"tf_{name}")
            for name, row in NAMES.items() if "." not in row.imports}


class References:
    """Writes names for one module, and collects the imports that they need.

    Args:
        bindings: the existing names of the module.
        is_tf1: whether its `tensorflow` becomes `tensorflow.compat.v1`.
    """

    def __init__(self, bindings: Bindings, is_tf1: bool) -> None:
        self._bindings = bindings
        self._is_tf1 = is_tf1
        self.needed: dict[tuple[str, str], str] = {}  # (module, name) -> its variable

    def expression(self, home: str, root: str, root_path: str) -> str:
        """Returns the expression for a home of `targets.Target`.

        Args:
            home: the home.
            root: the variable through which the program accessed it.
            root_path: the meaning of that variable.
        """
        if in_full(home) == home:
            return self._elsewhere(home, root, root_path)
        if "." not in home and home in _ALSO_IN and self._is_taken(home, home):
            home = _ALSO_IN[home]
        first, *rest = home.split(".")
        bound = self._import(PACKAGE, first)
        return ".".join((bound, *rest))

    def _elsewhere(self, home: str, root: str, root_path: str) -> str:
        if home.startswith(f"{_V1}."):
            below = home.removeprefix(_V1)
            if root_path == _V1 or (root_path == "tensorflow" and self._is_tf1):
                return f"{root}{below}"
            if root_path == "tensorflow":
                return f"{root}.compat.v1{below}"
        module, _, name = home.rpartition(".")
        parent, _, last = module.rpartition(".")
        return f"{self._import(parent, last)}.{name}"

    def _import(self, module: str, name: str) -> str:
        if (module, name) not in self.needed:
            bound = name if not self._is_taken(name, f"{module}.{name}") else f"tee_{name}"
            self.needed[module, name] = bound
        return self.needed[module, name]

    def _is_taken(self, name: str, path: str) -> bool:
        """Whether the module uses a name for anything other than the intended import."""
        if name not in self._bindings.bound_names:
            return False
        full = path if "." in path else f"{PACKAGE}.{path}"
        return not self._bindings.is_only(name, full)
