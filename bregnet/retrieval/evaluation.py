"""The evaluation of retrieval: every query ranks all items by their divergence, and items of its class are relevant.

All scores of the package that ask how well a divergence retrieves come from :func:`retrieval_scores`: those of the
learners, of cross-validation, of the ranker, and what reports, plots and the command line show. Three rules make them
one figure:

- Where the queries are the items, each is a query against all others: a row never finds itself.
- Items tie where search says that they do (:func:`bregnet.retrieval.items.ties_with_next`): rounding does not rank.
- Tied items come in random order, and a score is its expected value over these orders. That search lists them by
  squared Euclidean distance does not count, for it is no merit of the divergence.

The work is done in two steps with :class:`~bregnet._core.tied_ranks.TiedRanks` between them: :class:`Scan` finds the
ranks of the relevant items, and scores follow from these alone. What finds ranks in another way, such as by bounds,
takes the place of the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from bregnet._core import arrays, tied_ranks
from bregnet._core.arrays import Array, to_numpy
from bregnet._core.chunks import batches
from bregnet._core.parallel import mapped, progress_bar
from bregnet._core.tied_ranks import TiedRanks
from bregnet.divergences import BregmanDivergence
from bregnet.retrieval.items import Gallery, ties_with_next
from bregnet.retrieval.lift import Lift
from bregnet.retrieval.vectors import NEAR, outliers

BLOCK_ELEMENTS = 1 << 20  # divergences that are held at once; what is made of them takes some ten times as much memory
RECALL_LEVELS = np.linspace(0, 1, 21)

MEASURES: dict[str, Callable[[TiedRanks], np.ndarray]] = {
    "map": tied_ranks.average_precision,
    "r_precision": tied_ranks.r_precision,
    "auc": tied_ranks.auc,
    "precision_at_recall": lambda ranks: tied_ranks.interpolated_precision(ranks, RECALL_LEVELS),
}


@torch.no_grad()
def retrieval_scores(
    divergence: BregmanDivergence,
    X: Array,
    y: Array,
    known: tuple[Array, Array] | None = None,
    *,
    side: str = "right",
    measures: Sequence[str] = ("map",),
    block_elements: int = BLOCK_ELEMENTS,
    progress: bool | None = None,
) -> dict[str, np.ndarray]:
    """How well a divergence retrieves, query by query.

    Parameters
    ----------
    divergence : BregmanDivergence
    X : array of shape (n_queries, n_features)
        The queries.
    y : array of shape (n_queries,)
        Their class labels; items of the same class are relevant.
    known : tuple of (X, y), default=None
        The items with their class labels; by default the queries, each against all others.
    side : {"right", "left"}, default="right"
        "right" ranks by D(query, item), "left" by D(item, query).
    measures : sequence of {"map", "r_precision", "auc", "precision_at_recall"}, default=("map",)
        Average precision, R-precision, area under the ROC curve, and the highest precision at a recall of at least each
        of `RECALL_LEVELS`, as :mod:`bregnet.metrics` and :func:`bregnet.plotting.precision_recall` define them.
    block_elements : int, default=BLOCK_ELEMENTS
        Divergences that are held at once, at least those of one query on each thread.
    progress : bool, default=None
        Whether to show a progress bar; by default on a terminal, after two seconds.

    Returns
    -------
    scores : dict of str to ndarray of shape (n_queries,)
        By measure; (n_queries, n_levels) for "precision_at_recall". NaN for queries without a relevant item, and for
        "auc" without any other; ``np.nanmean`` is the score.

    Examples
    --------
    >>> from bregnet import divergence
    >>> from bregnet.retrieval.evaluation import retrieval_scores
    >>> X, y = [[0.0], [1.0], [2.0]], ["a", "a", "b"]
    >>> retrieval_scores(divergence("sqeuclidean"), X, y)["map"]  # both others are at 1 from the second row
    array([1.  , 0.75,  nan])
    """
    items, labels = (X, y) if known is None else known
    queries = _points(divergence, "X", X, tangent=side == "left" or known is None)
    found = queries if known is None else _points(divergence, "known[0]", items, tangent=side == "right")
    classes, numbers = np.unique(to_numpy(labels, "y" if known is None else "known[1]"), return_inverse=True)
    wanted = _class_numbers(to_numpy(y, "y"), classes)
    if known is None and (np.bincount(numbers) < 2).all():
        raise ValueError("y must have a class with at least 2 rows, got none")
    if (wanted < 0).all():
        advice = "in cross-validation take stratified folds, such as cv=StratifiedKFold(3)"
        raise ValueError(f"y must have a class that the items have, got none; {advice}")
    scan = Scan(divergence.base, side, found, numbers)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in measures}
    with progress_bar("evaluating", len(queries), progress) as advance:
        for ranks in scan.ranks(queries, wanted, leave_one_out=known is None, block_elements=block_elements):
            for name, collected in parts.items():
                collected.append(MEASURES[name](ranks))
            advance(len(ranks.n_hits))
    scores = {name: np.concatenate(collected) for name, collected in parts.items()}
    if "auc" in scores and np.isnan(scores["auc"]).all():
        raise ValueError("y must have rows of a class with items to find and others among them, got only one kind")
    return scores


class Scan:
    """Finds ranks by all divergences, computed for some queries at a time, on all threads.

    Items that are equally far from every query are computed once: duplicates, and on the right side all items with the
    same tangent plane. A max-affine function without temperature has no more of these than pieces.

    Parameters
    ----------
    divergence : BregmanDivergence
    side : {"right", "left"}
    points : Tensor of shape (n_items, n_features)
    classes : ndarray of shape (n_items,), int
    """

    def __init__(self, divergence: BregmanDivergence, side: str, points: Tensor, classes: np.ndarray) -> None:
        exact = divergence.to(torch.float64).to("cpu")
        first, self._copies = _distinct(exact, side, points)
        self._gallery = Gallery(exact, side, points[first], torch.as_tensor(first))
        self._lift = Lift.from_gallery(self._gallery)
        self._vectors = self._lift.items(self._gallery.points)  # (n_distinct, width)
        self._far, longest = outliers(self._vectors.norm(dim=1))  # always computed pair by pair
        self._rounding = self._lift.rounding(longest)  # of products
        self._classes = classes
        self._class_of = classes[first]  # of the distinct items, -1 where their copies have several
        self._class_of[self._copies[classes != self._class_of[self._copies]]] = -1
        self._totals = np.bincount(self._copies, minlength=len(first))
        mixed = self._class_of < 0
        self._several = np.cumsum(mixed) - 1  # rows of the next, which counts their copies by class
        self._hits_of = np.zeros((mixed.sum(), classes.max() + 1), dtype=np.int64)
        there = mixed[self._copies]
        np.add.at(self._hits_of, (self._several[self._copies[there]], classes[there]), 1)

    def ranks(
        self, points: Tensor, classes: np.ndarray, *, leave_one_out: bool, block_elements: int
    ) -> Iterator[TiedRanks]:
        """Ranks of the items of the queries' classes, block by block; with `leave_one_out` query i is item i."""
        step = max(1, block_elements // max(1, len(self._gallery)) // torch.get_num_threads())

        def ranked(rows: slice) -> TiedRanks:
            own = self._copies[rows] if leave_one_out else np.empty(0, dtype=np.int64)
            return self._ranks(points[rows], classes[rows], own)

        return mapped(ranked, list(batches(len(points), step)))

    def _ranks(self, points: Tensor, classes: np.ndarray, own: np.ndarray) -> TiedRanks:
        """Ranks for some queries (m,), which are the items `own` (m,), if any."""
        from bregnet.retrieval.compiled_ranks import find_ties  # numba is slow to import

        values, order = self.divergences(points, classes)
        n_hits = np.append(np.bincount(self._classes), 0)[classes] - (len(own) > 0)
        parts = [np.empty(n_hits.sum(), dtype=np.int64) for _ in range(5)]
        about = self._totals, self._class_of, self._several, self._hits_of
        count = find_ties(values, order, *about, classes, own, *parts)
        n_items = np.full(len(classes), len(self._classes) - (len(own) > 0))
        query, before, size, hits_before, hits = (part[:count] for part in parts)
        return TiedRanks(query, before, size, hits_before, hits, n_items, n_hits)

    def divergences(self, points: Tensor, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Divergences of the distinct items from some queries (m, n_distinct), equal to the last bit where they tie.

        Returns them and their order. Inner products in double precision tell most items apart. Where they are too near
        each other for that, divergences are computed pair by pair, as for a search; but not among neighbors that are
        all of the query's class (m,), or all of others, for their order does not matter.
        """
        from bregnet.retrieval.compiled_ranks import mark_doubtful

        queries = self._lift.queries(points)
        products = queries.vectors @ self._vectors.T
        values = (queries.offsets[:, None] - queries.reach[:, None] * products).clamp_min_(0).numpy()
        if len(self._far):
            asked = torch.arange(len(points)).repeat_interleave(len(self._far))
            there = self._far.repeat(len(points))
            values[asked, there] = self._gallery.paired(queries.points[asked], there)[0]
        order, doubtful = values.argsort(1), np.zeros(values.shape, dtype=bool)
        # wide enough for rounding, and for all that `ties_with_next` may call a tie
        share = 16 * NEAR
        near = (share * queries.scale + 2 * queries.reach * self._rounding).numpy()
        mark_doubtful(values, order, near, share, self._class_of, classes, doubtful)
        query, item = np.nonzero(doubtful)
        if len(query):
            values[query, item] = self._tied(queries.points, query, item)
            again = np.unique(query)
            order[again] = values[again].argsort(1)
        if not np.isfinite(values).all():
            raise ValueError("X and the items must have finite divergences, got values so large that they overflow")
        return values, order

    def _tied(self, points: Tensor, query: np.ndarray, item: np.ndarray) -> np.ndarray:
        """Divergences of pairs, those that tie for a query with the least of their values."""
        values, ties = self._gallery.paired(points[query], torch.as_tensor(item))
        order = np.lexsort((values.numpy(), query))
        values = values[order]
        tied = ties_with_next(values, ties[order]).numpy() & (np.diff(query[order]) == 0)
        starts = np.flatnonzero(np.append(True, ~tied)[: len(order)])
        out = np.empty(len(order))
        out[order] = np.repeat(values.numpy()[starts], np.diff(np.append(starts, len(order))))
        return out


def _distinct(divergence: BregmanDivergence, side: str, points: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Rows of items that represent all others, (n_distinct,), and the place among them for each item, (n_items,)."""
    first, place = _unique_rows(points)
    if side == "left":
        return first, place
    there = points[first].double()
    planes_first, planes_place = _unique_rows(divergence.lift_items(there, side))
    # planes that are equal but for rounding may belong to divergences that are tiny, and known to all digits
    same = to_numpy(divergence.paired(there, there[planes_first[planes_place]])) == 0
    chosen = np.where(same, planes_first[planes_place], np.arange(len(there)))
    kept, again = np.unique(chosen, return_inverse=True)
    return first[kept], again[place]


def _unique_rows(rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of distinct rows, and the place among them of each row; they are compared byte by byte."""
    table = np.ascontiguousarray(to_numpy(rows))
    _, first, place = np.unique(
        table.view(np.dtype((np.void, table.itemsize * table.shape[1])))[:, 0], return_index=True, return_inverse=True
    )
    return first, place


def _points(divergence: BregmanDivergence, name: str, X: Array, *, tangent: bool) -> Tensor:
    """Points in their own precision, single or double, in the domain of the divergence."""
    points = arrays.points(name, X, divergence.n_features, None, torch.device("cpu")).detach()
    points = divergence._mapped(name, points)
    divergence.generator._check_domain(name, points, tangent)
    return points


def _class_numbers(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The place of each label among sorted classes, -1 where it is none of them."""
    try:
        places = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    except TypeError as error:
        raise TypeError(f"y must hold labels such as those of the items, got an array where {error}") from error
    return np.where(classes[places] == labels, places, -1)
