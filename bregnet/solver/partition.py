"""Merging duplicate rows, and cutting points into cells that share a piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils import check_random_state

from bregnet._core.chunks import CACHE, blocks

FEW_POINTS = 20_000  # up to here duplicates are found by sorting rows, and cells by k-means on all points
CELLS_A_CLASS = 2  # at least, where there are as many: one a class is too few to tell its parts apart


class Merged(NamedTuple):
    """Distinct rows and how the original rows map onto them."""

    first: np.ndarray  # (m,), a row that is equal to each
    inverse: np.ndarray  # (n,)
    counts: np.ndarray  # (m,)

    def weighted(self, weights: np.ndarray | None) -> Merged:
        """With sums of the weights of rows (n,) in place of counts, where there are weights."""
        return self if weights is None else self._replace(counts=np.bincount(self.inverse, weights))


def row_blocks(X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Rows of X in double precision, some at a time: X may lie in a file."""
    for part in blocks(*X.shape, budget=CACHE):
        yield part, np.asarray(X[part], dtype=np.float64)


def merge_duplicates(X: np.ndarray, standardized: Callable[[np.ndarray], np.ndarray] = lambda rows: rows) -> Merged:
    """Distinct rows of X with their counts: duplicates would leave the program without an interior.

    Few rows come out sorted, many in the order in which they first appear.
    """
    if len(X) > FEW_POINTS:
        keys = np.concatenate([row_keys(standardized(rows)) for _, rows in row_blocks(X)])
        return _merged_by_keys(keys)
    rows = standardized(np.asarray(X, dtype=np.float64))
    _, first, inverse, counts = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return Merged(first, inverse.reshape(-1), counts)


def _merged_by_keys(keys: np.ndarray) -> Merged:
    """Rows of equal keys, in the order in which these first appear."""
    by_key = np.lexsort((keys["low"], keys["high"]))  # stable: the first of equal rows comes first
    starts = np.flatnonzero(np.append(True, keys[by_key][1:] != keys[by_key][:-1]))
    first, counts = by_key[starts], np.diff(np.append(starts, len(keys)))
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    inverse = np.empty_like(by_key)
    inverse[by_key] = np.repeat(place, counts)
    return Merged(first[order], inverse, counts[order])


def row_keys(rows: np.ndarray) -> np.ndarray:
    """A key of 128 bits for every row, equal for equal rows; different rows share one with a chance below 1e-26."""
    bits = (rows + 0.0).view(np.uint64)  # one zero for both signs
    out = np.empty(len(rows), dtype=[("high", np.uint64), ("low", np.uint64)])
    for name, seed in (("high", 0x9E3779B97F4A7C15), ("low", 0xC2B2AE3D27D4EB4F)):
        key = np.full(len(rows), seed, dtype=np.uint64)
        for column in bits.T:
            key = _mixed((key ^ column) + np.uint64(seed))
        out[name] = key
    return out


def _mixed(key: np.ndarray) -> np.ndarray:
    """A permutation of 64-bit numbers in which every bit depends on every other (the finalizer of SplitMix64)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


def kmeans_cells(
    points: np.ndarray, n_cells: int, weights: np.ndarray, random_state: int | np.random.RandomState | None
) -> np.ndarray:
    """Cells by k-means, numbered 0.. without gaps; fewer than `n_cells` where clusters come out empty."""
    seed = check_random_state(random_state)
    labels = KMeans(n_cells, n_init=1, random_state=seed).fit(points, sample_weight=weights).labels_
    return np.unique(labels, return_inverse=True)[1]


def class_cells(
    points: np.ndarray,
    classes: np.ndarray,
    n_cells: int,
    weights: np.ndarray,
    random_state: int | np.random.RandomState | None,
) -> np.ndarray:
    """Cells by k-means inside each class, as many a class as it has a share of the points, and two if that can be.

    Plain k-means where there are fewer cells than classes.
    """
    sizes = np.bincount(classes)
    if n_cells < len(sizes):
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


def sampled_centers(
    points_at: Callable[[np.ndarray], np.ndarray],
    classes: np.ndarray | None,
    n_cells: int,
    weights: np.ndarray,
    random_state: int | np.random.RandomState | None,
) -> list[np.ndarray]:
    """Centers of cells, by mini-batch k-means on a sample of very many points.

    `points_at` goes from numbers of points to the points, and `classes` and `weights` are those of all. A list of the
    centers of each class, or of one array where there are no classes, or too many to be cut one by one.
    """
    seed = check_random_state(random_state)
    sizes = np.array([len(weights)]) if classes is None else np.bincount(classes)
    if n_cells < len(sizes):
        classes, sizes = None, np.array([len(weights)])
    found = []
    for label, share in enumerate(_shares(sizes, n_cells)):
        members = np.arange(len(weights)) if classes is None else np.flatnonzero(classes == label)
        size = min(len(members), 100 * int(share))  # so many a cell
        chosen = np.sort(seed.choice(members, size, replace=False))
        method = MiniBatchKMeans(int(share), n_init=1, random_state=seed)
        found.append(method.fit(points_at(chosen), sample_weight=weights[chosen]).cluster_centers_)
    return found


def nearest_center(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The number of the nearest center for every point, some points at a time."""
    halves = np.square(centers).sum(1) / 2
    out = np.empty(len(points), dtype=np.int64)
    for part in blocks(len(points), len(centers), budget=CACHE):
        out[part] = (halves - points[part] @ centers.T).argmin(1)
    return out


def _shares(sizes: np.ndarray, total: int) -> np.ndarray:
    """At least two (one where `total` is too small) and at most its size for each, in proportion otherwise."""
    least = np.minimum(sizes, min(CELLS_A_CLASS, total // len(sizes)))
    shares = np.maximum(least, np.minimum(sizes, total * sizes // sizes.sum()))
    while shares.sum() != total:  # a few steps: rounding and the least are off by at most two a class
        up = shares.sum() < total
        wanting = np.where(shares < sizes if up else shares > least, (total * sizes / sizes.sum() - shares), np.nan)
        shares[np.nanargmax(wanting) if up else np.nanargmin(wanting)] += 1 if up else -1
    return shares
