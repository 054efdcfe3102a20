"""Metric learning and retrieval with Bregman divergences, and convex regression on the same solver.

The library is imported when the first of its names is asked for, so that help on the command line comes at once.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bregnet._core.importing import imported as _imported
from bregnet._core.version import __version__ as __version__

if TYPE_CHECKING:
    from bregnet._api import *  # noqa: F403
    from bregnet.clustering import mixture as mixture
    from bregnet.retrieval import inner_product as inner_product
    from bregnet.retrieval import neighbors as neighbors
    from bregnet.retrieval import ranking as ranking

# modules that the documentation has named, and the subpackages in which they are now
DOCUMENTED_PATHS = {
    "inner_product": "retrieval",
    "neighbors": "retrieval",
    "ranking": "retrieval",
    "mixture": "clustering",
}


def _path_to(name: str, package: str) -> ModuleType:
    """A module with the names of one in a subpackage, which is imported when the first of them is used."""

    def attribute(each: str) -> Any:
        if each.startswith("__"):
            raise AttributeError(f"module 'bregnet.{name}' has no attribute {each!r}")
        return getattr(import_module(f"bregnet.{package}.{name}"), each)

    module = ModuleType(f"bregnet.{name}", f"The names of `bregnet.{package}.{name}`.")
    module.__spec__ = ModuleSpec(module.__name__, None)
    module.__dict__["__getattr__"] = attribute
    return module


for _name, _package in DOCUMENTED_PATHS.items():
    globals()[_name] = sys.modules[f"bregnet.{_name}"] = _path_to(_name, _package)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*(each for each in vars(_imported("bregnet._api")) if not each.startswith("_")), "__version__"]
    if not name.startswith("_"):
        if "." not in name and find_spec(f"bregnet.{name}") is not None:
            return _imported(f"bregnet.{name}")
        found = vars(_imported("bregnet._api"))
        if name in found:
            globals()[name] = found[name]
            return found[name]
    raise AttributeError(f"module 'bregnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
