"""Plots of all divergences between rows: as a matrix, and as a map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from bregnet._core.arrays import Array
from bregnet.plotting._shared import (
    NEUTRAL,
    Measure,
    axes,
    classes_of,
    color,
    legend,
    measure,
    rows_of,
    shown_name,
    shown_rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def divergence_matrix(divergence: Any, X: Array, y: Array | None = None, ax: Axes | None = None) -> Axes:
    """Heat map of the divergences between rows, in the order of their classes.

    Colors follow the square root of the divergence, which shows more of the small values: the ticks of the color bar
    are evenly spaced in the root. Values above the 98% quantile have its color. Of more than 400 rows, 400 that are
    evenly spaced in the order of the classes are shown.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or estimator
        A divergence, its generator, its name, or a fitted estimator with a `divergence_`.
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,), default=None
        Class labels, by which rows are ordered; without them rows stay as they are.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.

    Returns
    -------
    ax : matplotlib.axes.Axes
        Row i and column j of its image have D(X[i], X[j]).

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from bregnet import plotting
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = plotting.divergence_matrix("sqeuclidean", X, y, Figure().add_subplot())
    >>> ax.images[0].get_array().shape
    (150, 150)
    """
    found = _looked_at(divergence, X, y)
    ax = axes(ax)
    draw_matrix(found, ax)
    return ax


class Shown(NamedTuple):
    """The rows that a plot shows, in the order of their classes."""

    divergences: np.ndarray  # among them
    classes: np.ndarray  # names
    numbers: np.ndarray | None  # the class of each row, where it is known
    share: str  # how many of all they are, where they are not all
    rows: np.ndarray  # their row numbers

    @property
    def in_mean_units(self) -> Shown:
        """The same with divergences as multiples of their mean, so that those of different functions compare."""
        mean = _off_diagonal(self.divergences).mean() if len(self.rows) > 1 else 0.0
        return self._replace(divergences=self.divergences / mean) if mean > 0 else self

    @property
    def highest(self) -> float:
        """The end of the color bar: 98% of the divergences are below it."""
        others = _off_diagonal(self.divergences)
        level = float(np.quantile(others, 0.98)) if len(others) else 0.0
        return level if level > 0 else float(self.divergences.max()) or 1.0


def _off_diagonal(found: np.ndarray) -> np.ndarray:
    return found[~np.eye(len(found), dtype=bool)]


def shown_divergences(by: Measure, rows: np.ndarray, classes: np.ndarray, numbers: np.ndarray | None) -> Shown:
    """Divergences among the rows that a plot shows; classes may have any order."""
    shown = shown_rows(numbers, len(rows), 400)
    share = "" if len(shown) == len(rows) else f", {len(shown)} of {len(rows)} rows"
    of_shown = None if numbers is None else numbers[shown]
    return Shown(by.divergence.pairwise(rows[shown]), classes, of_shown, share, shown)


def _looked_at(divergence: Any, X: Array, y: Array | None) -> Shown:
    by = measure(divergence)
    rows = rows_of("X", X, by.divergence.n_features, divergence)
    classes, numbers = (np.empty(0), None) if y is None else classes_of("y", y, len(rows))
    return shown_divergences(by, rows, classes, numbers)


def draw_matrix(found: Shown, ax: Axes, highest: float | None = None, unit: str = "D(x, y)") -> None:
    """What :func:`divergence_matrix` shows; `highest` is the end of the color bar."""
    _image(ax, found.divergences, found.highest if highest is None else highest, unit)
    ax.set(xlabel="y, the tangent point", ylabel="x", title=f"D(x, y){found.share}")
    if found.numbers is not None:
        _borders(ax, found.classes, found.numbers)


def _image(ax: Axes, found: np.ndarray, highest: float, unit: str) -> None:
    """The matrix, and a color bar."""
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.5, vmin=0, vmax=highest, clip=True)
    image = ax.imshow(found, cmap="viridis", norm=norm, interpolation="nearest", aspect="equal")
    bar = ax.get_figure().colorbar(image, ax=ax, shrink=0.8, extend="max")  # type: ignore[union-attr]
    levels = [highest * share**2 for share in (0, 0.25, 0.5, 0.75, 1)]
    # short: a long number would take the place of the matrix
    bar.set_ticks(levels, labels=[f"{level:,.0f}" if 100 <= level < 1e5 else f"{level:.2g}" for level in levels])
    bar.set_label(unit, fontsize="small")
    bar.outline.set_visible(False)


def blocks(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes of rows in the order of their classes, where each begins, and where it ends."""
    present, starts = np.unique(numbers, return_index=True)
    return present, starts, np.append(starts[1:], len(numbers))


def _borders(ax: Axes, classes: np.ndarray, numbers: np.ndarray) -> None:
    """Lines between classes, and their names."""
    from matplotlib.patches import Rectangle

    present, starts, ends = blocks(numbers)
    for start in starts[1:]:
        ax.axhline(start - 0.5, color="white", linewidth=1)
        ax.axvline(start - 0.5, color="white", linewidth=1)
    names = [shown_name(name, 14) for name in classes[present]]  # longer ones would take the place of the matrix
    middles = (starts + ends - 1) / 2
    if len(present) > 26:  # names would lie over each other
        ax.set(xticks=[], yticks=[])
        return
    for row in range(len(present)):  # nothing is to be seen of these; in a report they have tooltips
        for column in range(len(present)):
            corner = (starts[column] - 0.5, starts[row] - 0.5)
            sides = ends[column] - starts[column], ends[row] - starts[row]
            ax.add_patch(Rectangle(corner, *sides, facecolor="none", edgecolor="none", gid=f"block-{row}-{column}"))
    size, room = ("medium", 0.05) if len(present) <= 12 else ("xx-small", 0.03)
    named: list[int] = []  # the larger of classes whose names would lie over each other
    for at in np.argsort(starts - ends, kind="stable"):
        if all(abs(middles[at] - middles[other]) >= room * len(numbers) for other in named):
            named.append(int(at))
    places, names = middles[sorted(named)], [names[at] for at in sorted(named)]
    ax.set_yticks(places, names, parse_math=False, fontsize=size)
    turn = 0 if max(map(len, names)) * len(names) <= 30 and len(names) == len(present) else 90
    ax.set_xticks(places, names, parse_math=False, fontsize=size, rotation=turn)
    ax.tick_params(length=0)


def divergence_map(divergence: Any, X: Array, y: Array | None = None, ax: Axes | None = None) -> Axes:
    """A map of rows on which distances follow their divergences as well as two dimensions allow.

    Distances on it approximate the square root of the symmetrized divergence (D(x, y) + D(y, x)) / 2, which for
    "sqeuclidean" is the Euclidean distance. Multidimensional scaling (SMACOF) finds them, starting from classical
    scaling, so that the same rows give the same map. Where the outcome is nearly a line, points are moved across it so
    that none covers another. Of more than 400 rows, 400 that are evenly spaced in the order of the classes are shown.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or estimator
        A divergence, its generator, its name, or a fitted estimator with a `divergence_`.
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,), default=None
        Class labels, shown by colors and markers.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from bregnet import plotting
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = plotting.divergence_map("sqeuclidean", X, y, Figure().add_subplot())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['0', '1', '2']
    """
    found = _looked_at(divergence, X, y)
    ax = axes(ax)
    draw_map(found, ax)
    return ax


def draw_map(found: Shown, ax: Axes, places: np.ndarray | None = None, limits: np.ndarray | None = None) -> None:
    """What :func:`divergence_map` shows, at given places and within given limits of their coordinates."""
    if places is None:
        places = mapped(found.divergences)
        places = apart(places, np.ptp(places[:, 0]))
    if found.numbers is None:
        ax.scatter(places[:, 0], places[:, 1], s=22, color=color(0), alpha=0.75, linewidth=0)
    else:
        _by_class(ax, places, found.classes, found.numbers)
    ax.set(xticks=[], yticks=[], title=f"map{found.share}")
    ax.spines[:].set_visible(True)
    ax.spines[:].set_color(NEUTRAL)
    ax.set_aspect("equal", adjustable="datalim" if limits is None else "box")
    if limits is None:
        ax.margins(0.08)
    else:
        ax.set(xlim=(-limits[0], limits[0]), ylim=(-limits[1], limits[1]))


def _by_class(ax: Axes, places: np.ndarray, classes: np.ndarray, numbers: np.ndarray) -> None:
    """Points of each class, with a legend below, or with names among the points where there are many classes."""
    dots, names = [], []
    for number in np.unique(numbers):
        own = places[numbers == number]
        marker = "os^DvPX*<>"[number % 10]
        look: dict[str, Any] = {"s": 22, "color": color(number), "marker": marker, "alpha": 0.75, "linewidth": 0}
        dots.append(ax.scatter(own[:, 0], own[:, 1], gid=f"class-{number}", **look))
        names.append(shown_name(classes[number]))
    if len(names) <= 12:
        lines = math.ceil(len(names) / max(1, 48 // (max(map(len, names)) + 4)))
        columns = math.ceil(len(names) / lines)
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": columns}
        legend(ax, dots, names, handletextpad=0.2, columnspacing=1.2, **below)
        return
    for number, name in zip(np.unique(numbers), names, strict=True):
        x, y = np.median(places[numbers == number], axis=0)
        ax.text(x, y, name, parse_math=False, ha="center", va="center", fontweight="bold", fontsize="x-small")


def mapped(divergences: np.ndarray) -> np.ndarray:
    """Coordinates (n, 2) whose distances approximate the roots of the symmetrized divergences."""
    from sklearn.manifold import smacof

    squared = (divergences + divergences.T) / 2
    start = scaled(squared)
    if not start.any():
        return start
    places = smacof(np.sqrt(squared), n_components=2, init=start, n_init=1, max_iter=200, normalized_stress=False)[0]
    places = places - places.mean(0)
    _, _, directions = np.linalg.svd(places, full_matrices=False)
    places = _with_signs(places @ directions.T)
    return places - (places.min(0) + places.max(0)) / 2


def apart(places: np.ndarray, width: float) -> np.ndarray:
    """Points that lie near a line, moved across it by as little as lets none cover another; others as they are.

    Two well separated classes lie on a line: there is one distance to show. Drawn as it is, hundreds of points would
    cover each other. The width is that of the picture, 50 points wide; points move by at most a third of it.
    """
    if np.std(places[:, 1]) > 0.2 * np.std(places[:, 0]):
        return places
    size, moved = width / 50, np.empty_like(places)
    order = np.lexsort((places[:, 1], places[:, 0]))
    for count, (x, y) in enumerate(places[order]):
        near = moved[:count][np.abs(moved[:count, 0] - x) < size]
        steps = np.arange(2 * len(near) + 3) * (size / 2)
        heights = y + np.stack([steps, -steps], axis=1).ravel()
        gaps = np.hypot(near[:, :1] - x, near[:, 1:] - heights).min(0, initial=np.inf)
        moved[count] = x, heights[np.argmax(gaps >= size)]
    found = np.empty_like(places)
    found[order] = moved
    most = np.abs(found[:, 1]).max()
    found[:, 1] *= min(1.0, width / 3 / most) if most > 0 else 1.0
    return found


def scaled(squared: np.ndarray) -> np.ndarray:
    """Classical scaling of squared distances to two dimensions, (n, 2), largest spread first."""
    squared = squared - squared.mean(0)
    products = -(squared - squared.mean(1, keepdims=True)) / 2
    n, n_kept = len(squared), min(2, len(squared))
    levels, vectors = eigh((products + products.T) / 2, subset_by_index=[n - n_kept, n - 1])
    places = np.zeros((n, 2))
    places[:, :n_kept] = (vectors * np.sqrt(np.maximum(levels, 0)))[:, ::-1]
    return _with_signs(places)


def _with_signs(places: np.ndarray) -> np.ndarray:
    """The place farthest along each axis has a positive coordinate: the sign of an eigenvector is arbitrary."""
    largest = np.abs(places).argmax(0)
    return places * np.where(places[largest, [0, 1]] < 0, -1.0, 1.0)
