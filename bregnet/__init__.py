"""Metric learning and retrieval with Bregman divergences, and convex regression on the same solver."""

from bregnet._version import __version__
from bregnet.admm.result import Check, Result
from bregnet.functions import DifferenceOfConvex, MaxAffine
from bregnet.regression import ConvexRegressor, DCRegressor

__all__ = ["Check", "ConvexRegressor", "DCRegressor", "DifferenceOfConvex", "MaxAffine", "Result", "__version__"]
