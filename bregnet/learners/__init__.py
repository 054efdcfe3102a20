"""Estimators on the solver: learning a divergence, and convex regression."""

from bregnet.learners.feature_maps import FeatureMap
from bregnet.learners.pbdl import PBDL
from bregnet.learners.regressors import ConvexRegressor, DCRegressor
from bregnet.learners.soft_neighbors import BregmanNCA

__all__ = ["PBDL", "BregmanNCA", "ConvexRegressor", "DCRegressor", "FeatureMap"]
