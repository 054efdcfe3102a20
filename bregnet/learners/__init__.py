"""Estimators on the solver: learning a divergence, and convex regression."""

from bregnet.learners.feature_maps import FeatureMap
from bregnet.learners.pbdl import PBDL
from bregnet.learners.regressors import ConvexRegressor, DCRegressor

__all__ = ["PBDL", "FeatureMap", "ConvexRegressor", "DCRegressor"]
