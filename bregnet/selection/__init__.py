"""Choosing the parameters of learners by cross-validation."""

from bregnet.selection.divergences import PBDLCV
from bregnet.selection.regressors import ConvexRegressorCV, DCRegressorCV

__all__ = ["PBDLCV", "ConvexRegressorCV", "DCRegressorCV"]
