"""Choosing the parameters of learners by cross-validation."""

from bregnet.selection.estimators import PBDLCV, ConvexRegressorCV, DCRegressorCV

__all__ = ["PBDLCV", "ConvexRegressorCV", "DCRegressorCV"]
