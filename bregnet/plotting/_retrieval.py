"""Plots of retrieval: how precise it is, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet.plotting._shared import (
    NEUTRAL,
    Measure,
    axes,
    classes_of,
    color,
    labels_of,
    legend,
    measure,
    rows_of,
    same_columns,
    shown_distance,
    shown_name,
)
from bregnet.retrieval import BregmanIndex
from bregnet.retrieval.base import nearest_others
from bregnet.retrieval.evaluation import RECALL_LEVELS, retrieval_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = ("-", "--", "-.", ":")


def precision_recall(
    divergences: Mapping[str, Any],
    X: Array,
    y: Array,
    ax: Axes | None = None,
    known: tuple[Array, Array] | None = None,
) -> Axes:
    """Precision of retrieval at levels of recall, with the mean average precision of each divergence.

    Every row of X is a query, against all others or against known rows; rows of its class are relevant. Precision is
    interpolated: at a recall r it is the highest at any recall from r on, averaged over the queries; a threshold takes
    all items at the same divergence or none. Their order is random for the mean average precision, as in
    :func:`bregnet.metrics.mean_average_precision`.

    Parameters
    ----------
    divergences : dict of str to BregmanDivergence, Generator, str or estimator
        What to compare, by the names that the legend shows.
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        Class labels.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.
    known : tuple of (X, y), default=None
        Rows to search, with their labels; by default the other rows of X.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from bregnet import plotting
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = plotting.precision_recall({"Euclid": "sqeuclidean"}, X, y, Figure().add_subplot())
    >>> ax.get_legend().get_texts()[0].get_text()
    'Euclid, mAP 0.881'
    """
    if not isinstance(divergences, Mapping) or not divergences:
        raise TypeError(f"divergences must be a dict of names and divergences, got {divergences!r}")
    if isinstance(known, tuple | list) and len(known) == 2:
        same_columns("known[0]", known[0], X)
    found = {}
    for name, given in divergences.items():
        by = measure(given, f"divergences[{name!r}]")
        found[name] = curve(by, rows_of("X", X, by.divergence.n_features, given), y, known)
    ax = axes(ax)
    draw_curves(found, ax)
    return ax


class Curve(NamedTuple):
    """How precise retrieval is."""

    precisions: np.ndarray  # at RECALL_LEVELS, interpolated
    per_query: np.ndarray  # average precision, NaN for queries with nothing to find

    @property
    def map(self) -> float:
        """Mean average precision."""
        return float(np.nanmean(self.per_query))


def draw_curves(found: Mapping[str, Curve], ax: Axes) -> None:
    """What :func:`precision_recall` shows."""
    lines, names = [], []
    for number, (name, each) in enumerate(found.items()):
        style = LINES[number % len(LINES)]
        lines += ax.plot(RECALL_LEVELS, each.precisions, color=color(number), linestyle=style, linewidth=2)
        names.append(f"{shown_name(name)}, mAP {each.map:.3f}")
    ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02), title="retrieval")
    legend(ax, lines, names, loc="lower left")


def curve(by: Measure, X: Array, y: Array, known: tuple[Array, Array] | None) -> Curve:
    """Precision of all queries, against all other rows or known ones."""
    queries = rows_of("X", X, by.divergence.n_features)
    wanted = labels_of("y", y, len(queries))
    if known is None and len(queries) < 2:
        raise ValueError(f"X must have at least 2 rows, got {len(queries)}")
    items = None if known is None else known_rows(known, queries.shape[1])
    measures = ("precision_at_recall", "map")
    precisions, per_query = retrieval_scores(
        by.divergence, queries, wanted, items, side=by.side, measures=measures
    ).values()
    return Curve(np.nanmean(precisions, axis=0), per_query)


def known_rows(known: tuple[Array, Array], n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels to search."""
    if not isinstance(known, tuple | list) or len(known) != 2:
        raise TypeError(f"known must be a pair (X, y) or None, got {known!r}")
    items = rows_of("known[0]", known[0], n_features)
    return items, labels_of("known[1]", known[1], len(items))


def neighbors(
    divergence: Any, X: Array, y: Array, queries: int | Sequence[int], k: int = 5, ax: Axes | None = None
) -> Axes:
    r"""Example queries with their nearest rows: a row of boxes for each, with classes and divergences.

    Neighbors of the query's class have a check mark, the others a cross and a dashed border.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or estimator
        A divergence, its generator, its name, or a fitted estimator with a `divergence_`.
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        Class labels.
    queries : int or sequence of int
        Row numbers of the queries, each of which is not its own neighbor; a number takes as many rows, evenly spaced
        in the order of the classes.
    k : int, default=5
        Neighbors of each.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from bregnet import plotting
    >>> X, y = [[0.0], [0.1], [1.0], [1.2]], ["a", "a", "b", "b"]
    >>> ax = plotting.neighbors("sqeuclidean", X, y, queries=[0], k=1, ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.texts]
    ['query\na\nrow 0', '✓ a\nrow 1\n0.01']
    """
    by = measure(divergence)
    rows = rows_of("X", X, by.divergence.n_features, divergence)
    classes, numbers = classes_of("y", y, len(rows))
    labels, chosen = classes[numbers], query_rows(queries, numbers)
    if check.integer_at_least("k", k, 1) >= len(rows):
        raise ValueError(f"k must be at most {len(rows) - 1}, the number of rows to find, got {k}")
    index = BregmanIndex(by.divergence, side=by.side, device="cpu")
    index.add(rows)
    distances, ids = nearest_others(index, rows[chosen], k, chosen, progress=False)
    ax = axes(ax)
    for line, query in enumerate(chosen):
        _box(ax, 0, line, f"query\n{shown_name(labels[query], 12)}\nrow {query}", NEUTRAL, "-")
        for place, (distance, item) in enumerate(zip(distances[line], ids[line], strict=True)):
            right = labels[item] == labels[query]
            text = f"{'✓' if right else '✗'} {shown_name(labels[item], 12)}\nrow {item}\n{shown_distance(distance)}"
            _box(ax, place + 1.25, line, text, color(0 if right else 1), "-" if right else "--")
    title = "queries and their nearest rows"
    ax.set(xlim=(-0.1, ids.shape[1] + 1.35), ylim=(len(chosen) + 0.05, -0.15), title=title)
    ax.set_axis_off()
    return ax


def _box(ax: Axes, left: float, top: float, text: str, shade: str, line: str) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((left, top), 0.94, 0.86, facecolor=shade + "22", edgecolor=shade, linestyle=line))
    ax.text(left + 0.47, top + 0.43, text, parse_math=False, ha="center", va="center", fontsize="small")


def query_rows(queries: int | Sequence[int], classes: np.ndarray) -> np.ndarray:
    """The row numbers that were asked for, or evenly spaced ones in the order of the classes."""
    n_rows = len(classes)
    if isinstance(queries, Integral) and not isinstance(queries, bool):
        count = min(check.integer_at_least("queries", queries, 1), n_rows)
        places = (np.arange(count) + 0.5) * n_rows / count  # the middle of as many equal parts
        return np.argsort(classes, kind="stable")[places.astype(int)]
    chosen = np.asarray(queries)
    if chosen.ndim != 1 or len(chosen) == 0 or chosen.dtype.kind not in "iu":
        raise TypeError(f"queries must be a number or row numbers of X, got {queries!r}")
    if chosen.min() < 0 or chosen.max() >= n_rows:
        raise ValueError(f"queries must be row numbers from 0 to {n_rows - 1}, got {chosen.min()} to {chosen.max()}")
    return chosen
