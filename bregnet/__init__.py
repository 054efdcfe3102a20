# ruff: noqa: F405
"""Metric learning and retrieval with Bregman divergences, and convex regression on the same solver.

The library is imported when the first of its names is asked for, so that help on the command line comes at once.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bregnet._version import __version__

if TYPE_CHECKING:
    from bregnet._api import *  # noqa: F403

__all__ = [
    "PBDL",
    "ConvexRegressor",
    "DCRegressor",
    "PBDLCV",
    "ConvexRegressorCV",
    "DCRegressorCV",
    "Check",
    "Result",
    "Checkpoint",
    "BregmanDivergence",
    "divergence",
    "BregmanIndex",
    "BregmanNearestNeighbors",
    "BregmanKNeighborsClassifier",
    "BregmanKNeighborsRegressor",
    "BregmanRanker",
    "BregmanKMeans",
    "BregmanMixture",
    "Generator",
    "GeneratorSum",
    "MaxAffine",
    "DifferenceOfConvex",
    "Quadratic",
    "SquaredEuclidean",
    "KullbackLeibler",
    "ItakuraSaito",
    "Logistic",
    "save",
    "load",
    "UnreadableFileError",
    "report",
    "Report",
    "datasets",
    "distributed",
    "metrics",
    "nn",
    "plotting",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'bregnet' has no attribute {name!r}")
    if "." not in name and find_spec(f"bregnet.{name}") is not None:
        return import_module(f"bregnet.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'bregnet' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("bregnet._api"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
