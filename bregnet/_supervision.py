"""Checks of pairs and triplets, and labels in terms of distinct points."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregnet import _validation as check
from bregnet.partition import Merged


def _row_numbers(name: str, values: Any, width: int, n_rows: int) -> np.ndarray:
    """Row numbers (m, width), at least one row of them."""
    rows = np.asarray(values)
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


def _class_table(classes: np.ndarray, place: np.ndarray, n_points: int) -> np.ndarray:
    """How many rows of each class every distinct point stands for, (n_points, n_classes)."""
    table = np.zeros((n_points, classes.max() + 1))
    np.add.at(table, (place, classes), 1)
    return table


def _single_classes(classes: np.ndarray, place: np.ndarray, n_points: int) -> np.ndarray | None:
    """The class of each point where every row is a point of its own: no table of all points and classes is needed."""
    if n_points < len(classes):
        return None
    at_points = np.empty_like(classes)
    at_points[place] = classes
    return at_points


def in_groups(merged: Merged, classes: np.ndarray) -> Merged:
    """Distinct points in such an order that those with the same classes lie together."""
    groups = _single_classes(classes, merged.inverse, len(merged.points))
    if groups is None:
        groups = np.unique(_class_table(classes, merged.inverse, len(merged.points)), axis=0, return_inverse=True)[1]
    order = np.argsort(groups.reshape(-1), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Merged(merged.points[order], place[merged.inverse], merged.counts[order])


def class_histograms(classes: np.ndarray, place: np.ndarray, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes at a point of each group (G, C), and the points in each group (G,), in the points' order."""
    single = _single_classes(classes, place, n_points)
    if single is not None:
        starts = np.flatnonzero(np.append(True, single[1:] != single[:-1]))
        histograms = np.eye(classes.max() + 1)[single[starts]]
    else:
        table = _class_table(classes, place, n_points)
        starts = np.flatnonzero(np.append(True, (table[1:] != table[:-1]).any(1)))
        histograms = table[starts]
    return histograms, np.diff(np.append(starts, n_points))


def majority(merged: Merged, classes: np.ndarray) -> np.ndarray:
    """The most frequent class at each distinct point, numbered without gaps."""
    most = _single_classes(classes, merged.inverse, len(merged.points))
    if most is None:
        most = _class_table(classes, merged.inverse, len(merged.points)).argmax(1)
    return np.unique(most, return_inverse=True)[1]
