"""Plots of fits, divergences and retrieval, by matplotlib (``pip install 'bregnet[report]'``).

Each function draws on the axes it is given, or on new ones of pyplot, and returns them. Classes differ by marker as
well as by color, and color-blind readers can distinguish the colors. Where there are too many rows, evenly spaced ones
in the order of the classes are shown, so that classes keep their shares.
"""

from bregnet.plotting._fits import convergence, feature_bounds
from bregnet.plotting._matrices import divergence_map, divergence_matrix
from bregnet.plotting._regression import partial_dependence, predictions, residuals
from bregnet.plotting._retrieval import neighbors, precision_recall

neighbours = neighbors  # its name in 0.1.0

__all__ = [
    "convergence",
    "feature_bounds",
    "predictions",
    "residuals",
    "partial_dependence",
    "divergence_matrix",
    "divergence_map",
    "precision_recall",
    "neighbors",
    "neighbours",
]
