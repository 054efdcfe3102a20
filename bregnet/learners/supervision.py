"""Checks of pairs and triplets, and labels in terms of distinct points."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet.solver.partition import Merged


def _row_numbers(name: str, values: Any, width: int, n_rows: int) -> np.ndarray:
    """Row numbers (m, width), at least one row of them."""
    rows = arrays.table(values)
    if rows.ndim != 2 or rows.shape[1] != width or len(rows) == 0:
        raise ValueError(f"{name} must have shape (n_{name}, {width}) with at least one row, got {rows.shape}")
    if rows.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold row numbers of X (integers), got dtype {rows.dtype}")
    outside = (rows < 0) | (rows >= n_rows)
    if outside.any():
        raise ValueError(f"{name} must hold row numbers of X from 0 to {n_rows - 1}, got {rows[outside][0]}")
    return rows.astype(np.int64)


def given_pairs(pairs: Any, similar: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Checked pairs (m, 2) and whether they are similar (m,)."""
    ends = _row_numbers("pairs", pairs, 2, n_rows)
    alike = check.booleans("similar", similar, len(ends))
    itself = (ends[:, 0] == ends[:, 1]) & ~alike
    if itself.any():
        raise ValueError(f"pairs must not call a row dissimilar to itself, got {ends[itself][0].tolist()}")
    keys = ends.min(1) * n_rows + ends.max(1)
    both = np.intersect1d(keys[alike], keys[~alike])
    if len(both):
        pair = [int(row) for row in divmod(both[0], n_rows)]
        raise ValueError(f"pairs must not call the same rows similar and dissimilar, got both for {pair}")
    return ends, alike


def given_triplets(triplets: Any, n_rows: int) -> np.ndarray:
    """Checked triplets (m, 3)."""
    rows = _row_numbers("triplets", triplets, 3, n_rows)
    bad = (rows[:, 0] == rows[:, 2]) | (rows[:, 1] == rows[:, 2])
    if bad.any():
        found = rows[bad][0].tolist()
        raise ValueError(f"triplets must have a negative other than their anchor and positive, got {found}")
    return rows


class ClassCounts(NamedTuple):
    """How many rows of which class every distinct point stands for, as a list in the order of points and classes."""

    points: np.ndarray
    classes: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, classes: np.ndarray, place: np.ndarray) -> ClassCounts:
        """From the class of each row and its place among the points."""
        n_classes = int(classes.max()) + 1
        keys, counts = np.unique(place * n_classes + classes, return_counts=True)
        return cls(keys // n_classes, keys % n_classes, counts)


def in_groups(merged: Merged, classes: np.ndarray) -> Merged:
    """Distinct points in such an order that those with the same classes lie together."""
    order = np.argsort(_group_numbers(merged, classes), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Merged(merged.first[order], place[merged.inverse], merged.counts[order])


def _group_numbers(merged: Merged, classes: np.ndarray) -> np.ndarray:
    """A number for every point, equal for points that stand for as many rows of each class."""
    found, n_points = ClassCounts.of(classes, merged.inverse), len(merged.first)
    n_classes = np.bincount(found.points, minlength=n_points)
    single = n_classes[found.points] == 1
    groups = np.empty(n_points, dtype=np.int64)
    keys = found.classes[single] * (found.counts.max() + 1) + found.counts[single]
    groups[found.points[single]] = np.unique(keys, return_inverse=True)[1]
    mixed = np.flatnonzero(n_classes > 1)  # few, as a rule: only these need a table of all classes
    if len(mixed):
        table = np.zeros((len(mixed), classes.max() + 1))
        table[np.searchsorted(mixed, found.points[~single]), found.classes[~single]] = found.counts[~single]
        groups[mixed] = len(keys) + np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
    return groups


def class_histograms(classes: np.ndarray, place: np.ndarray, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes at a point of each group (G, C), and the points in each group (G,), in the points' order."""
    found = ClassCounts.of(classes, place)
    firsts = np.searchsorted(found.points, np.arange(n_points + 1))
    # points of a group have the same list of classes and counts
    lengths = np.diff(firsts)
    same = np.append(False, lengths[1:] == lengths[:-1])
    for offset in range(int(lengths.max())):
        longer = np.flatnonzero(same & (lengths > offset))
        at, before = firsts[longer] + offset, firsts[longer - 1] + offset
        alike = (found.classes[at] == found.classes[before]) & (found.counts[at] == found.counts[before])
        same[longer] = alike
    starts = np.flatnonzero(~same)
    histograms = np.zeros((len(starts), int(classes.max()) + 1))
    for row, start in enumerate(starts):
        part = slice(firsts[start], firsts[start + 1])
        histograms[row, found.classes[part]] = found.counts[part]
    return histograms, np.diff(np.append(starts, n_points))


def majority(merged: Merged, classes: np.ndarray) -> np.ndarray:
    """The most frequent class at each distinct point, numbered without gaps."""
    found = ClassCounts.of(classes, merged.inverse)
    order = np.lexsort((found.classes, -found.counts, found.points))
    first = np.unique(found.points[order], return_index=True)[1]
    return np.unique(found.classes[order][first], return_inverse=True)[1]
