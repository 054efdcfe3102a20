"""Pictures of fits, divergences and retrieval, as matplotlib functions that take an `ax` (``bregnet[report]``).

Each function draws on the axes it is given, or on new ones of pyplot, and returns them. Classes differ by marker as
well as by colour, and the colours are told apart by colour-blind readers. Rows beyond a limit are left out by a fixed
rule: they are put in the order of their classes and evenly spaced ones are kept, so that classes keep their shares.
"""

from bregnet.plotting._fits import convergence, feature_bounds, predictions
from bregnet.plotting._matrices import divergence_map, divergence_matrix
from bregnet.plotting._retrieval import neighbours, precision_recall

__all__ = [
    "convergence",
    "feature_bounds",
    "predictions",
    "divergence_matrix",
    "divergence_map",
    "precision_recall",
    "neighbours",
]
