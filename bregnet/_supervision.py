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


def in_groups(merged: Merged, classes: np.ndarray) -> Merged:
    """Distinct points in such an order that those with the same classes lie together."""
    if len(merged.points) == len(classes):
        groups = np.empty_like(classes)
        groups[merged.inverse] = classes
    else:
        groups = np.unique(_class_table(classes, merged.inverse, len(merged.points)), axis=0, return_inverse=True)[1]
    order = np.argsort(groups.reshape(-1), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Merged(merged.points[order], place[merged.inverse], merged.counts[order])


def class_histograms(classes: np.ndarray, place: np.ndarray, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes at a point of each group (G, C), and the points in each group (G,), in the points' order."""
    table = _class_table(classes, place, n_points)
    starts = np.flatnonzero(np.append(True, (table[1:] != table[:-1]).any(1)))
    return table[starts], np.diff(np.append(starts, n_points))


def majority(merged: Merged, classes: np.ndarray) -> np.ndarray:
    """The most frequent class at each distinct point, numbered without gaps."""
    table = _class_table(classes, merged.inverse, len(merged.points))
    return np.unique(table.argmax(1), return_inverse=True)[1]
