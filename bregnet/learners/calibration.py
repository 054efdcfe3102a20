"""A threshold on divergences: pairs up to it count as similar."""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

import numpy as np

from bregnet._core import validation as check
from bregnet.divergences import BregmanDivergence


class KnownPairs(NamedTuple):
    """Pairs of rows that are known to be similar or not: D(point, tangent) should be small or large."""

    tangents: np.ndarray  # (m,), row numbers
    points: np.ndarray
    similar: np.ndarray  # bool
    weights: np.ndarray | None = None  # how much each pair counts, where that differs

    def divergences(self, divergence: BregmanDivergence, features: np.ndarray, n_elements: int = 1 << 20) -> np.ndarray:
        """D of every pair of rows of `features`, which may lie in a file.

        Entries of a matrix where a fourth of it, or more, is needed: one of a pair costs more. Else some pairs at a
        time, whose features are `n_elements` numbers at most.
        """
        (rows, place), (others, other) = (np.unique(ends, return_inverse=True) for ends in (self.points, self.tangents))
        if len(rows) * len(others) <= 4 * len(self.points):
            return np.asarray(divergence.pairwise(_double(features[rows]), _double(features[others])))[place, other]
        step = max(1, n_elements // features.shape[1])
        parts = (slice(start, start + step) for start in range(0, len(self.points), step))
        pairs = ((_double(features[self.points[part]]), _double(features[self.tangents[part]])) for part in parts)
        return np.concatenate([divergence.paired(*pair) for pair in pairs])


def _double(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows, dtype=np.float64)


def similarity_threshold(
    distances: np.ndarray,
    similar: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    strategy: str = "accuracy",
    rate: float | None = None,
) -> float:
    """The threshold up to which pairs count as similar, best by a strategy of :meth:`bregnet.PBDL.calibrate`.

    Pairs count by their weights, if there are any. Midway between two distances, or as near to it as numbers get; plus
    or minus infinity where everything or nothing counts as similar.
    """
    known = ("accuracy", "balanced_accuracy", "true_positive_rate", "false_positive_rate")
    check.one_of("strategy", strategy, known)
    proper = isinstance(rate, Real) and not isinstance(rate, bool) and 0 <= rate <= 1
    if strategy.endswith("rate") and not proper:
        raise ValueError(f"rate must be between 0 and 1 for strategy {strategy!r}, got {rate!r}")
    if rate is not None and not strategy.endswith("rate"):
        raise ValueError(f"rate goes with a strategy of a rate, got {rate!r} with {strategy!r}")
    goal = 0.0 if rate is None else float(rate)
    alike, unlike = (kind if weights is None else weights * kind for kind in (similar, ~similar))
    n_similar, n_other = alike.sum(), unlike.sum()
    if n_similar == 0 or n_other == 0:
        raise ValueError(f"pairs of both kinds are needed, got {n_similar} similar and {n_other} dissimilar ones")
    order = np.argsort(distances, kind="stable")
    ordered = distances[order]
    ends = np.flatnonzero(np.append(ordered[1:] > ordered[:-1], True))  # a threshold cannot part ties
    found = np.append(0, np.cumsum(alike[order])[ends])
    wrong = np.append(0, np.cumsum(unlike[order])[ends])
    below, above = ordered[ends[:-1]], ordered[ends[:-1] + 1]
    between = below / 2 + above / 2
    levels = np.concatenate([[-np.inf], np.where((below <= between) & (between < above), between, below), [np.inf]])
    if strategy == "accuracy":
        best = int(np.argmax(found - wrong))
    elif strategy == "balanced_accuracy":
        best = int(np.argmax(found / n_similar - wrong / n_other))
    elif strategy == "true_positive_rate":
        fewest = wrong[np.argmax(found / n_similar >= goal)]
        best = int(np.flatnonzero(wrong == fewest)[-1])
    else:
        most = found[np.flatnonzero(wrong / n_other <= goal)[-1]]
        best = int(np.argmax(found == most))
    return float(levels[best])
