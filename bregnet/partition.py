"""Merging duplicate rows, and cutting points into cells that share a piece."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils import check_random_state

MINI_BATCH_POINTS = 20_000


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
