"""Merging duplicate rows, and cutting points into cells that share a piece."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils import check_random_state

MINI_BATCH_POINTS = 20_000
CELLS_A_CLASS = 2  # below, on average, classes are too many to be cut one by one


class Merged(NamedTuple):
    """Distinct rows and how the original rows map onto them."""

    points: np.ndarray  # (m, d)
    inverse: np.ndarray  # (n,)
    counts: np.ndarray  # (m,)


def merge_duplicates(X: np.ndarray) -> Merged:
    """Distinct rows of X with their counts: duplicates would leave the program without an interior."""
    points, inverse, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    return Merged(points, inverse.reshape(-1), counts)


def kmeans_cells(
    points: np.ndarray, n_cells: int, weights: np.ndarray, random_state: int | np.random.RandomState | None
) -> np.ndarray:
    """Cells by k-means, numbered 0.. without gaps; fewer than `n_cells` where clusters come out empty."""
    seed = check_random_state(random_state)
    method = MiniBatchKMeans if len(points) > MINI_BATCH_POINTS else KMeans
    labels = method(n_cells, n_init=1, random_state=seed).fit(points, sample_weight=weights).labels_
    return np.unique(labels, return_inverse=True)[1]


def class_cells(
    points: np.ndarray,
    classes: np.ndarray,
    n_cells: int,
    weights: np.ndarray,
    random_state: int | np.random.RandomState | None,
) -> np.ndarray:
    """Cells by k-means inside each class, as many a class as it has a share of the points.

    Plain k-means where there are not enough cells for a few in every class.
    """
    sizes = np.bincount(classes)
    if n_cells < CELLS_A_CLASS * len(sizes):
        return kmeans_cells(points, n_cells, weights, random_state)
    seed = check_random_state(random_state)
    cells = np.empty(len(points), dtype=np.int64)
    first = 0
    for label, share in enumerate(_shares(sizes, n_cells)):
        inside = classes == label
        found = kmeans_cells(points[inside], int(share), weights[inside], seed)
        cells[inside] = first + found
        first += found.max() + 1
    return cells


def _shares(sizes: np.ndarray, total: int) -> np.ndarray:
    """At least one and at most its size for each, in proportion otherwise; adds up to `total`."""
    shares = np.maximum(1, np.minimum(sizes, total * sizes // sizes.sum()))
    while shares.sum() != total:  # a few steps: rounding is off by at most one a class
        up = shares.sum() < total
        wanting = np.where(shares < sizes if up else shares > 1, (total * sizes / sizes.sum() - shares), np.nan)
        shares[np.nanargmax(wanting) if up else np.nanargmin(wanting)] += 1 if up else -1
    return shares
