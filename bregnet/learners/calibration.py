"""A threshold on divergences that tells similar from dissimilar pairs."""

from __future__ import annotations

from numbers import Real

import numpy as np

from bregnet._core import validation as check


def similarity_threshold(
    distances: np.ndarray, similar: np.ndarray, strategy: str = "accuracy", rate: float | None = None
) -> float:
    """The threshold up to which pairs count as similar.

    Parameters
    ----------
    distances : ndarray of shape (n_pairs,)
    similar : ndarray of shape (n_pairs,), bool
    strategy : {"accuracy", "balanced_accuracy", "true_positive_rate", "false_positive_rate"}
        What is best: most pairs told right; most of both kinds; at least `rate` of the similar pairs found, with as
        few others as possible; or at most `rate` of the dissimilar pairs let through, with as many similar ones as
        possible.
    rate : float or None
        Between 0 and 1, for the last two.

    Returns
    -------
    threshold : float
        Midway between two distances, or as near to it as numbers get; plus or minus infinity where everything or
        nothing counts as similar.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet.learners.calibration import similarity_threshold
    >>> similarity_threshold(np.array([0.1, 0.2, 0.9, 1.0]), np.array([True, True, False, False]))
    0.55
    """
    strategies = "accuracy", "balanced_accuracy", "true_positive_rate", "false_positive_rate"
    check.one_of("strategy", strategy, strategies)
    known = isinstance(rate, Real) and not isinstance(rate, bool) and 0 <= rate <= 1
    if strategy.endswith("rate") and not known:
        raise ValueError(f"rate must be between 0 and 1 for strategy {strategy!r}, got {rate!r}")
    if rate is not None and not strategy.endswith("rate"):
        raise ValueError(f"rate goes with a strategy of a rate, got {rate!r} with {strategy!r}")
    goal = 0.0 if rate is None else float(rate)
    n_similar, n_other = int(similar.sum()), int((~similar).sum())
    if n_similar == 0 or n_other == 0:
        raise ValueError(f"pairs of both kinds are needed, got {n_similar} similar and {n_other} dissimilar ones")
    order = np.argsort(distances, kind="stable")
    ordered = distances[order]
    ends = np.flatnonzero(np.append(ordered[1:] > ordered[:-1], True))  # a threshold cannot part ties
    found = np.append(0, np.cumsum(similar[order])[ends])
    wrong = np.append(0, np.cumsum(~similar[order])[ends])
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
