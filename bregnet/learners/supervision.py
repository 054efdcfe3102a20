"""What is known about the rows of X: class labels, pairs or triplets.

Each kind checks what the user gave, names pairs of rows that are known to be similar or not, by which a threshold is
set, and builds the loss of the solver's program once the points are cut into cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet.learners.calibration import KnownPairs
from bregnet.solver import bregman
from bregnet.solver.geometry import Geometry
from bregnet.solver.partition import Merged
from bregnet.solver.points import Points


class Supervision(ABC):
    """What is known about the rows of X."""

    known: KnownPairs  # pairs of rows to set the threshold by
    classes: np.ndarray | None = None  # the class of each row, from 0, where labels were given
    weights: np.ndarray | None = None  # how much each row counts, where that differs

    def arranged(self, merged: Merged) -> tuple[Merged, np.ndarray | None]:
        """The distinct points in the order that the loss needs, and the classes within which to cut cells, if any."""
        return merged, None

    @abstractmethod
    def loss(self, geometry: Geometry, points: Points) -> bregman.SlackLoss:
        """The loss of the program."""


class Labels(Supervision):
    """Rows of the same class are similar, others are not.

    Parameters
    ----------
    labels : ndarray of shape (n_rows,)
        Numbers or strings.
    balanced : bool
        Whether similar and dissimilar pairs weigh one half each in total.
    random_state : int, RandomState or None
        Of the pairs by which the threshold is set.
    weights : ndarray of shape (n_rows,), default=None
        Of the rows: a pair counts by the product of two.

    Attributes
    ----------
    names : ndarray
        What the classes 0, 1, ... are called.
    """

    classes: np.ndarray

    def __init__(
        self, labels: np.ndarray, *, balanced: bool, random_state: Any, weights: np.ndarray | None = None
    ) -> None:
        check.class_labels(labels)
        self.names, self.classes = np.unique(labels, return_inverse=True)
        if len(self.names) < 2:
            raise ValueError("y must have at least 2 classes, got 1 class")
        if np.bincount(self.classes).max() < 2:
            raise ValueError("y must have a class with at least 2 rows, got only classes of one row")
        self.weights, counts = weights, np.bincount(self.classes, weights).astype(float)
        n_similar, n_pairs = np.square(counts).sum(), counts.sum() ** 2
        self._weights = _pair_weights(balanced, n_similar, n_pairs - n_similar)
        known = drawn_pairs(self.classes, random_state)
        self.known = (
            known if weights is None else known._replace(weights=weights[known.tangents] * weights[known.points])
        )

    def arranged(self, merged: Merged) -> tuple[Merged, np.ndarray]:
        """Points with the same classes lie together."""
        merged = in_groups(merged, self.classes, self.weights)
        return merged, majority(merged, self.classes, self.weights)

    def loss(self, geometry: Geometry, points: Points) -> bregman.LabelLoss:
        """All pairs count."""
        histograms, sizes = class_histograms(points.merged, self.classes, self.weights)
        ends, share = np.cumsum(sizes), points.share
        local = (np.minimum(ends, share.stop) - np.maximum(ends - sizes, share.start)).clip(0)  # of each group
        classes, counts = (torch.as_tensor(part[local > 0], device=points.device) for part in (histograms, local))
        return bregman.LabelLoss(geometry, classes, counts, *self._weights)


class Pairs(Supervision):
    """Some pairs of rows are similar, some are not; both directions of a pair count alike.

    Parameters
    ----------
    pairs : array of shape (m, 2)
        Row numbers.
    similar : array of shape (m,), bool, or 1 and -1
    n_rows : int
        Of X.
    balanced : bool
        Whether similar and dissimilar pairs weigh one half each in total.
    """

    def __init__(self, pairs: Any, similar: Any, n_rows: int, *, balanced: bool) -> None:
        ends = _row_numbers("pairs", pairs, 2, n_rows)
        alike = check.booleans("similar", similar, len(ends), signs=True)
        itself = (ends[:, 0] == ends[:, 1]) & ~alike
        if itself.any():
            raise ValueError(f"pairs must not call a row dissimilar to itself, got {ends[itself][0].tolist()}")
        keys = ends.min(1) * n_rows + ends.max(1)
        both = np.intersect1d(keys[alike], keys[~alike])
        if len(both):
            pair = [int(row) for row in divmod(both[0], n_rows)]
            raise ValueError(f"pairs must not call the same rows similar and dissimilar, got both for {pair}")
        if alike.all() or not alike.any():
            kind = "similar" if alike.any() else "dissimilar"
            raise ValueError(f"similar must mark pairs of both kinds, got only {kind} ones")
        tangents, points = np.concatenate([ends, ends[:, ::-1]]).T
        self.known = KnownPairs(tangents, points, np.concatenate([alike, alike]))
        self._weights = _pair_weights(balanced, 2 * float(alike.sum()), 2 * float((~alike).sum()))

    def loss(self, geometry: Geometry, points: Points) -> bregman.PairLoss:
        """The given pairs count."""
        (pull, push), known, place = self._weights, self.known, points.merged.inverse
        parts = place[known.tangents], place[known.points], pull * known.similar, push * ~known.similar
        return bregman.PairLoss(geometry, *(torch.as_tensor(part, device=points.device) for part in parts))


class Triplets(Supervision):
    """An anchor is nearer to a positive than to a negative row.

    Parameters
    ----------
    triplets : array of shape (m, 3)
        Row numbers of anchor, positive and negative.
    n_rows : int
        Of X.
    """

    def __init__(self, triplets: Any, n_rows: int) -> None:
        self._rows = rows = _row_numbers("triplets", triplets, 3, n_rows)
        bad = (rows[:, 0] == rows[:, 2]) | (rows[:, 1] == rows[:, 2])
        if bad.any():
            found = rows[bad][0].tolist()
            raise ValueError(f"triplets must have a negative other than their anchor and positive, got {found}")
        tangents, points = np.concatenate([rows[:, [0, 1]], rows[:, [0, 2]]]).T
        self.known = KnownPairs(tangents, points, np.arange(2 * len(rows)) < len(rows))

    def loss(self, geometry: Geometry, points: Points) -> bregman.TripletLoss:
        """The given triplets count, all the same."""
        triplets = torch.as_tensor(points.merged.inverse[self._rows], device=points.device)
        return bregman.TripletLoss(geometry, triplets, geometry.lifted.new_full((len(triplets),), 1 / len(triplets)))


def rows_apart(name: str, width: int, rows: Any, numbers: Any) -> tuple[Any, Any]:
    """Rows, and pairs or triplets of their numbers, also where the rows are these themselves, (m, width, d)."""
    table = arrays.table(rows)
    if table.ndim != 3:
        return rows, numbers
    if numbers is not None:
        found = f"got {arrays.table(numbers).shape}" + (": give what is similar by its name, similar" * (width == 2))
        raise ValueError(f"{name} must be None where X has them, of shape {table.shape}, {found}")
    if table.shape[1] != width:
        shape = f"(n_{name}, {width}, n_features)"
        raise ValueError(f"X must have shape {shape} where it has the {name}, got {table.shape}")
    return table.reshape(-1, table.shape[2]), np.arange(width * len(table)).reshape(-1, width)


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


def _pair_weights(balanced: bool, n_similar: float, n_dissimilar: float) -> tuple[float, float]:
    """Weight of a similar and of a dissimilar pair."""
    if check.boolean("balanced", balanced):
        return 0.5 / n_similar, 0.5 / n_dissimilar
    return (1 / (n_similar + n_dissimilar),) * 2


def drawn_pairs(classes: np.ndarray, random_state: Any, n_rows: int = 500) -> KnownPairs:
    """Pairs of different rows, as many at most as `n_rows` have, with some of both kinds.

    All pairs, or all of some rows with some others, drawn at random: divergences of these are a matrix.
    """
    n = len(classes)
    if n <= n_rows:
        tangents, points = np.nonzero(~np.eye(n, dtype=bool))
        return KnownPairs(tangents, points, classes[tangents] == classes[points])
    seed = check_random_state(random_state)
    rows, others = (seed.choice(n, n_rows, replace=False) for _ in range(2))
    tangents, points = np.repeat(rows, len(others)), np.tile(others, len(rows))
    tangents, points = tangents[tangents != points], points[tangents != points]
    order = np.argsort(classes, kind="stable")
    together = classes[order[:-1]] == classes[order[1:]]
    for kind in (True, False):
        if not ((classes[tangents] == classes[points]) == kind).any():
            at = np.flatnonzero(together == kind)[:n_rows]
            tangents, points = np.append(tangents, order[at]), np.append(points, order[at + 1])
    return KnownPairs(tangents, points, classes[tangents] == classes[points])


class ClassCounts(NamedTuple):
    """How many rows of which class every distinct point stands for, or the sum of their weights.

    A list in the order of points and classes.
    """

    points: np.ndarray
    classes: np.ndarray
    counts: np.ndarray

    @classmethod
    def from_rows(cls, classes: np.ndarray, place: np.ndarray, weights: np.ndarray | None) -> ClassCounts:
        """From the class of each row and its place among the points."""
        n_classes = int(classes.max()) + 1
        keys, inverse, counts = np.unique(place * n_classes + classes, return_inverse=True, return_counts=True)
        sums = counts if weights is None else np.bincount(inverse, weights)
        return cls(keys // n_classes, keys % n_classes, sums)


def in_groups(merged: Merged, classes: np.ndarray, weights: np.ndarray | None = None) -> Merged:
    """Distinct points in such an order that those with the same classes lie together."""
    order = np.argsort(_group_numbers(merged, classes, weights), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Merged(merged.first[order], place[merged.inverse], merged.counts[order])


def _group_numbers(merged: Merged, classes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """A number for every point, equal for points that stand for as many rows of each class."""
    found, n_points = ClassCounts.from_rows(classes, merged.inverse, weights), len(merged.first)
    n_classes = np.bincount(found.points, minlength=n_points)
    single = n_classes[found.points] == 1
    groups = np.empty(n_points, dtype=np.int64)
    sizes, size = np.unique(found.counts[single], return_inverse=True)
    keys = found.classes[single] * max(1, len(sizes)) + size
    groups[found.points[single]] = np.unique(keys, return_inverse=True)[1]
    mixed = np.flatnonzero(n_classes > 1)  # few, as a rule: only these need a table of all classes
    if len(mixed):
        table = np.zeros((len(mixed), classes.max() + 1))
        table[np.searchsorted(mixed, found.points[~single]), found.classes[~single]] = found.counts[~single]
        groups[mixed] = len(keys) + np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
    return groups


def class_histograms(
    merged: Merged, classes: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The classes at a point of each group (G, C), and the points in each group (G,), which lie together."""
    found, n_points = ClassCounts.from_rows(classes, merged.inverse, weights), len(merged.first)
    starts = np.flatnonzero(np.diff(_group_numbers(merged, classes, weights), prepend=-1))
    histograms = np.zeros((len(starts), int(classes.max()) + 1))
    group = np.full(n_points, -1)
    group[starts] = np.arange(len(starts))
    first = group[found.points] >= 0
    histograms[group[found.points[first]], found.classes[first]] = found.counts[first]
    return histograms, np.diff(np.append(starts, n_points))


def majority(merged: Merged, classes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The most frequent class at each distinct point, numbered without gaps."""
    found = ClassCounts.from_rows(classes, merged.inverse, weights)
    order = np.lexsort((found.classes, -found.counts, found.points))
    first = np.unique(found.points[order], return_index=True)[1]
    return np.unique(found.classes[order][first], return_inverse=True)[1]
