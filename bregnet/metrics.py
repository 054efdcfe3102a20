"""How well divergences retrieve what is relevant."""

from __future__ import annotations

import numpy as np

from bregnet._arrays import Array, to_torch


def mean_average_precision(divergences: Array, relevant: Array) -> float:
    """Mean over queries of the average precision of the items, nearest first.

    Items at the same divergence share one place, as in scikit-learn's ``average_precision_score``. Items that are
    not to be counted, such as the query itself, have an infinite divergence and are not relevant. Queries without any
    relevant item do not count.

    Parameters
    ----------
    divergences : array of shape (n_queries, n_items)
        Smaller is nearer.
    relevant : array of shape (n_queries, n_items)
        Whether an item is relevant for a query.

    Returns
    -------
    score : float
        Between 0 and 1.

    Examples
    --------
    >>> from bregnet.metrics import mean_average_precision
    >>> round(mean_average_precision([[0.1, 0.2, 0.3]], [[True, False, True]]), 4)  # (1 + 2/3) / 2
    0.8333
    """
    values = to_torch("divergences", divergences).detach().cpu().numpy()
    hits = to_torch("relevant", relevant).detach().cpu().numpy().astype(bool)
    if values.ndim != 2 or values.shape != hits.shape:
        shapes = f"{values.shape} and {hits.shape}"
        raise ValueError(f"divergences and relevant must have the same shape (n_queries, n_items), got {shapes}")
    if np.isnan(values).any():
        raise ValueError("divergences must not be NaN")
    counted = hits.any(1)
    if not counted.any():
        raise ValueError("relevant must mark at least one item for some query, got none")
    return float(np.mean([_average_precision(v, h) for v, h in zip(values[counted], hits[counted], strict=True)]))


def _average_precision(values: np.ndarray, hits: np.ndarray) -> float:
    order = np.argsort(values)
    values, hits = values[order], hits[order]
    last_of_tie = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    found = np.cumsum(hits)[last_of_tie]
    precision = found / (last_of_tie + 1)
    return float(np.sum(np.diff(found, prepend=0) * precision) / found[-1])
