# SPDX-License-Identifier: Apache-2.0
"""A view of a module in which some names are replaced."""

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any


class ModuleView(ModuleType):
    """Shows the names of another module, some of them replaced.

    The other module is not changed, so its own functions do not see the replacements. Setting
    a name on the view sets it on the other module.

    Args:
        name: name under which the view is imported.
        load: returns the other module; called when a name is first read.
        replaced: name -> value that the view shows instead.

    >>> import math
    >>> rounded = ModuleView("rounded", lambda: math, {"pi": 3})
    >>> rounded.pi, rounded.e == math.e, "tau" in rounded.__all__
    (3, True, True)
    """

    def __init__(self, name: str, load: Callable[[], ModuleType],
                 replaced: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__(name, f"The names of {name}, kept for programs that import it.")
        vars(self).update(_load=load, **replaced)

    def __getattr__(self, name: str) -> Any:
        # `__path__` and similar names describe the view itself and must not load the module.
        if name == "__all__":
            return [shown for shown in dir(self) if not shown.startswith("_")]
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            return getattr(self._load(), name)
        except AttributeError:
            # After `import x.y.z`, `x.y` has the attribute `z`.
            if (below := sys.modules.get(f"{self.__name__}.{name}")) is None:
                raise
            return below

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__") or name in vars(self):
            super().__setattr__(name, value)
        else:
            setattr(self._load(), name, value)

    def __delattr__(self, name: str) -> None:
        if name in vars(self):
            super().__delattr__(name)
        else:
            delattr(self._load(), name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._load()), *vars(self)} - {"_load"})
