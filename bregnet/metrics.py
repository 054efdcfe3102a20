"""How well divergences retrieve what is relevant, and how well clusters fit known classes.

A retrieval metric takes divergences of shape (n_queries, n_items), smaller is nearer, and of the same shape whether an
item is relevant. Items that are not to be counted, such as the query itself, have an infinite divergence and are not
relevant. Queries without a relevant item do not count. Items at the same divergence come in random order: all metrics
are expected values over these orders, so that the order of the columns does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal, overload

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from bregnet._core import tied_ranks
from bregnet._core import validation as check
from bregnet._core.arrays import Array, table, to_numpy, to_torch
from bregnet._core.chunks import batches, rows_at_once
from bregnet._core.tied_ranks import TiedRanks


@overload
def mean_average_precision(
    divergences: Array, relevant: Array, *, per_query: Literal[False] = False, n_jobs: int | None = None
) -> float: ...
@overload
def mean_average_precision(
    divergences: Array, relevant: Array, *, per_query: Literal[True], n_jobs: int | None = None
) -> np.ndarray: ...
def mean_average_precision(
    divergences: Array, relevant: Array, *, per_query: bool = False, n_jobs: int | None = None
) -> float | np.ndarray:
    r"""Mean over queries of the average precision of the items, nearest first.

    Average precision is the mean over the relevant items of the share of relevant items among those up to their place.
    Of items at the same divergence, it is the expected value when they come in random order: for R relevant items, and
    sets of t items at the same divergence with h relevant ones, after s nearer items with a relevant ones,

    .. math:: \frac 1 R \sum_{ties} \sum_{i=s+1}^{s+t} \frac h t \, \frac{a + 1 + (i - s - 1) \frac{h-1}{t-1}} i

    (McSherry and Najork). Without ties it is scikit-learn's ``average_precision_score``, which gives all items of a tie
    the last of their places.

    Parameters
    ----------
    divergences : array of shape (n_queries, n_items)
        Smaller is nearer; infinite for items that are not to be counted, such as the query itself.
    relevant : array of shape (n_queries, n_items), bool
        Whether an item is relevant for a query; False where the divergence is infinite.
    per_query : bool, default=False
        Whether to return a value for each query, in place of the mean over queries with a relevant item.
    n_jobs : int, default=None
        Threads that rank queries at the same time; None is 1 unless joblib is set otherwise, -1 takes all cores. The
        result does not depend on it.

    Returns
    -------
    score : float or ndarray of shape (n_queries,)
        Between 0 and 1; with `per_query`, NaN for queries without a relevant item.

    References
    ----------
    McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied
    Scores", ECIR 2008.

    Examples
    --------
    >>> from bregnet.metrics import mean_average_precision
    >>> round(mean_average_precision([[0.1, 0.2, 0.3]], [[True, False, True]]), 4)  # (1 + 2/3) / 2
    0.8333
    >>> mean_average_precision([[0.1, 0.1]], [[True, False]])  # first or second: (1 + 1/2) / 2
    0.75
    """
    return _summary(_per_query(tied_ranks.average_precision, divergences, relevant, n_jobs), per_query)


@overload
def map_at_r(
    divergences: Array, relevant: Array, *, per_query: Literal[False] = False, n_jobs: int | None = None
) -> float: ...
@overload
def map_at_r(
    divergences: Array, relevant: Array, *, per_query: Literal[True], n_jobs: int | None = None
) -> np.ndarray: ...
def map_at_r(
    divergences: Array, relevant: Array, *, per_query: bool = False, n_jobs: int | None = None
) -> float | np.ndarray:
    r"""Mean average precision at R: only the R nearest items count, R being the number of relevant ones.

    .. math:: \frac 1 R \sum_{i=1}^R P(i) \, rel(i)

    with rel(i) whether the i-th nearest item is relevant and P(i) the share of relevant items among the i nearest
    (Musgrave et al.). Of items at the same divergence, it is the expected value when they come in random order.

    Parameters
    ----------
    divergences, relevant : array of shape (n_queries, n_items)
    per_query : bool, default=False
    n_jobs : int, default=None
        As in :func:`mean_average_precision`.

    Returns
    -------
    score : float or ndarray of shape (n_queries,)

    References
    ----------
    Musgrave, Belongie and Lim, "A Metric Learning Reality Check", ECCV 2020.

    McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied
    Scores", ECIR 2008.

    Examples
    --------
    >>> from bregnet.metrics import map_at_r
    >>> map_at_r([[0.1, 0.2, 0.3]], [[True, False, True]])  # 1/2 * (1 + 0)
    0.5
    """
    return _summary(_per_query(tied_ranks.map_at_r, divergences, relevant, n_jobs), per_query)


@overload
def r_precision(
    divergences: Array, relevant: Array, *, per_query: Literal[False] = False, n_jobs: int | None = None
) -> float: ...
@overload
def r_precision(
    divergences: Array, relevant: Array, *, per_query: Literal[True], n_jobs: int | None = None
) -> np.ndarray: ...
def r_precision(
    divergences: Array, relevant: Array, *, per_query: bool = False, n_jobs: int | None = None
) -> float | np.ndarray:
    """Share of relevant items among the R nearest, R being the number of relevant ones.

    Of items at the same divergence as the R-th nearest, the expected number counts when they come in random order.

    Parameters
    ----------
    divergences, relevant : array of shape (n_queries, n_items)
    per_query : bool, default=False
    n_jobs : int, default=None
        As in :func:`mean_average_precision`.

    Returns
    -------
    score : float or ndarray of shape (n_queries,)

    Examples
    --------
    >>> from bregnet.metrics import r_precision
    >>> r_precision([[0.1, 0.2, 0.3]], [[True, False, True]])
    0.5
    >>> r_precision([[0.1, 0.2, 0.2]], [[True, False, True]])  # the last two share one place
    0.75
    """
    return _summary(_per_query(tied_ranks.r_precision, divergences, relevant, n_jobs), per_query)


@overload
def precision_at_k(
    divergences: Array, relevant: Array, k: int, *, per_query: Literal[False] = False, n_jobs: int | None = None
) -> float: ...
@overload
def precision_at_k(
    divergences: Array, relevant: Array, k: int, *, per_query: Literal[True], n_jobs: int | None = None
) -> np.ndarray: ...
def precision_at_k(
    divergences: Array, relevant: Array, k: int, *, per_query: bool = False, n_jobs: int | None = None
) -> float | np.ndarray:
    """Share of relevant items among the k nearest.

    Of items at the same divergence as the k-th nearest, the expected number counts when they come in random order.

    Parameters
    ----------
    divergences, relevant : array of shape (n_queries, n_items)
    k : int
        At least 1, and at most the number of items that are counted for any query with a relevant one.
    per_query : bool, default=False
    n_jobs : int, default=None
        As in :func:`mean_average_precision`.

    Returns
    -------
    score : float or ndarray of shape (n_queries,)

    Examples
    --------
    >>> from bregnet.metrics import precision_at_k
    >>> precision_at_k([[0.1, 0.2, 0.3, 0.4]], [[True, False, True, False]], k=1)
    1.0
    """
    n_nearest = check.integer_at_least("k", k, 1)
    scores = _per_query(partial(tied_ranks.precision_at, k=n_nearest), divergences, relevant, n_jobs, k=n_nearest)
    return _summary(scores, per_query)


@overload
def recall_at_k(
    divergences: Array, relevant: Array, k: int, *, per_query: Literal[False] = False, n_jobs: int | None = None
) -> float: ...
@overload
def recall_at_k(
    divergences: Array, relevant: Array, k: int, *, per_query: Literal[True], n_jobs: int | None = None
) -> np.ndarray: ...
def recall_at_k(
    divergences: Array, relevant: Array, k: int, *, per_query: bool = False, n_jobs: int | None = None
) -> float | np.ndarray:
    """Share of the relevant items that are among the k nearest.

    This is the recall of information retrieval; in metric learning the name also stands for the share of queries with
    any relevant item among the k nearest. Of items at the same divergence as the k-th nearest, the expected number
    counts when they come in random order.

    Parameters
    ----------
    divergences, relevant : array of shape (n_queries, n_items)
    k : int
        At least 1, and at most the number of items that are counted for any query with a relevant one.
    per_query : bool, default=False
    n_jobs : int, default=None
        As in :func:`mean_average_precision`.

    Returns
    -------
    score : float or ndarray of shape (n_queries,)

    Examples
    --------
    >>> from bregnet.metrics import recall_at_k
    >>> recall_at_k([[0.1, 0.2, 0.3, 0.4]], [[True, False, True, False]], k=1)
    0.5
    """
    n_nearest = check.integer_at_least("k", k, 1)
    scores = _per_query(partial(tied_ranks.recall_at, k=n_nearest), divergences, relevant, n_jobs, k=n_nearest)
    return _summary(scores, per_query)


@overload
def retrieval_auc(
    divergences: Array, relevant: Array, *, per_query: Literal[False] = False, n_jobs: int | None = None
) -> float: ...
@overload
def retrieval_auc(
    divergences: Array, relevant: Array, *, per_query: Literal[True], n_jobs: int | None = None
) -> np.ndarray: ...
def retrieval_auc(
    divergences: Array, relevant: Array, *, per_query: bool = False, n_jobs: int | None = None
) -> float | np.ndarray:
    """Probability that a relevant item is nearer than one that is not; the area under the ROC curve.

    Items at the same divergence count half, as in scikit-learn's ``roc_auc_score``. Queries whose items are all
    relevant do not count either.

    Parameters
    ----------
    divergences, relevant : array of shape (n_queries, n_items)
    per_query : bool, default=False
    n_jobs : int, default=None
        As in :func:`mean_average_precision`.

    Returns
    -------
    score : float or ndarray of shape (n_queries,)
        With `per_query`, NaN for queries whose items are not of both kinds.

    Examples
    --------
    >>> from bregnet.metrics import retrieval_auc
    >>> retrieval_auc([[0.1, 0.2, 0.3]], [[True, False, True]])
    0.5
    """
    scores = _per_query(tied_ranks.auc, divergences, relevant, n_jobs)
    return _summary(scores, per_query, "at least one item, and not all that count,")


def purity(labels_true: Array, labels_pred: Array) -> float:
    """Share of points that belong to the most frequent class of their cluster.

    Parameters
    ----------
    labels_true : array of shape (n_points,)
        The class of each point; numbers, strings or anything else that can be ordered.
    labels_pred : array of shape (n_points,)
        Its cluster.

    Returns
    -------
    score : float
        Between 0 and 1. Small clusters make it large: it is 1 when every point is its own cluster.

    References
    ----------
    Manning, Raghavan and Schuetze, "Introduction to Information Retrieval", section 16.3, 2008.

    Examples
    --------
    >>> from bregnet.metrics import purity
    >>> purity(["cat", "cat", "dog", "dog"], [0, 0, 0, 1])
    0.75
    """
    classes, clusters = _coded("labels_true", labels_true), _coded("labels_pred", labels_pred)
    if len(classes) != len(clusters):
        lengths = f"{len(classes)} and {len(clusters)}"
        raise ValueError(f"labels_true and labels_pred must have the same length, got {lengths}")
    counts = contingency_matrix(classes, clusters, sparse=True)  # one row a class, one column a cluster
    return float(counts.max(axis=0).sum() / len(classes))


def _per_query(
    score: Callable[[TiedRanks], np.ndarray],
    divergences: Array,
    relevant: Array,
    n_jobs: int | None,
    *,
    k: int | None = None,
) -> np.ndarray:
    """Scores (n_queries,), NaN for queries without a relevant item.

    Queries are taken a block at a time, and nothing is made of the others meanwhile: neither copies nor masks. With
    `k`, so many items must count for each that has a relevant one.
    """
    distances, marks = _same_shape(divergences, relevant)
    n_workers = effective_n_jobs(None if n_jobs is None else check.jobs(n_jobs))
    n_queries, n_items = distances.shape
    block = rows_at_once(n_items, budget=1 << 16)  # with all that is made to rank them, few enough to stay in the cache
    scores = np.full(n_queries, np.nan)

    def work(start: int, stop: int) -> None:
        for rows in batches(stop, block, start):
            values, hits = _checked(distances[rows], marks[rows], rows.start)
            ranks = TiedRanks.from_divergences(values, hits)
            if k is not None:
                _check_k(k, ranks, rows.start)
            scores[rows] = score(ranks)

    # several parts a job, so that one that is done early takes over from another
    n_parts = 1 if n_workers == 1 else max(1, min(4 * n_workers, -(-n_queries // block)))
    edges = np.linspace(0, n_queries, n_parts + 1).astype(int).tolist()
    # threads: numpy sorts without the interpreter's lock, and a process would have to be sent the matrix
    Parallel(n_jobs=min(n_workers, n_parts), require="sharedmem")(delayed(work)(*part) for part in pairwise(edges))
    return scores


def _summary(scores: np.ndarray, per_query: bool, needed: str = "at least one item") -> float | np.ndarray:
    if check.boolean("per_query", per_query):
        return scores
    counted = scores[~np.isnan(scores)]
    if len(counted) == 0:
        raise ValueError(f"relevant must mark {needed} for some query, got none")
    return float(counted.mean())


def _same_shape(divergences: Array, relevant: Array) -> tuple[Array, Array]:
    """Both as arrays, of which rows can be taken; their entries are not looked at."""
    given = [each.detach() if isinstance(each, Tensor) else table(each) for each in (divergences, relevant)]
    for name, array in zip(("divergences", "relevant"), given, strict=True):
        to_torch(name, array[:0] if array.ndim else array)  # raises an error where there can be no numbers
    if given[0].ndim != 2 or given[0].shape != given[1].shape:
        shapes = " and ".join(str(tuple(array.shape)) for array in given)
        raise ValueError(f"divergences and relevant must have the same shape (n_queries, n_items), got {shapes}")
    return given[0], given[1]


def _checked(divergences: Array, relevant: Array, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of both, from the row `first` on, as numpy arrays, float and bool."""
    distances, marks = to_torch("divergences", divergences), to_torch("relevant", relevant)
    single = distances.dtype in (torch.float16, torch.bfloat16, torch.float32)
    values = distances.cpu().to(torch.float32 if single else torch.float64).numpy()
    if marks.dtype != torch.bool:
        others = ((marks != 0) & (marks != 1)).cpu().numpy()
        _refuse("relevant must hold True or False, got another value", others, first)
    hits = marks.cpu().to(torch.bool).numpy()
    infinite = ~np.isfinite(values)
    if infinite.any():
        _refuse("divergences must not be NaN, got NaN", np.isnan(values), first)
        _refuse("divergences must be finite, or inf for items that do not count, got -inf", np.isneginf(values), first)
        _refuse("relevant must be False where divergences are infinite, got True", hits & infinite, first)
    return values, hits


def _refuse(message: str, bad: np.ndarray, first: int) -> None:
    """Raise an error with the first place that is `bad`, in rows that begin with the number `first`."""
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"{message} in row {first + row}, column {column}")


def _check_k(k: int, ranks: TiedRanks, first: int) -> None:
    """Raise an error where fewer than k items are counted for a query with a relevant one."""
    short = np.flatnonzero((ranks.n_items < k) & (ranks.n_hits > 0))
    if len(short):
        found = f"{k} where query {first + short[0]} has {ranks.n_items[short[0]]}"
        raise ValueError(f"k must be at most the number of items that are counted for a query, got {found}")


def _coded(name: str, labels: Array) -> np.ndarray:
    """Labels as the numbers 0, 1, ..."""
    array = np.asarray(to_numpy(labels, name))
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name} must have shape (n_points,) with at least one point, got {array.shape}")
    try:
        missing = np.flatnonzero(array != array)  # only NaN and its kin differ from themselves, in an array of any type
        codes = np.unique(array, return_inverse=True)[1]
    except TypeError as error:
        raise TypeError(f"{name} must hold labels that can be ordered, got an array where {error}") from error
    if len(missing):
        raise ValueError(f"{name} must not be NaN, got {array[missing[0]]} for point {missing[0]}")
    return codes
