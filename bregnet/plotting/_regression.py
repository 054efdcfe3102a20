"""Plots of a regression: its predictions, its residuals, and how it depends on a feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.metrics import r2_score

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.divergences import DifferenceOfConvex
from bregnet.plotting._fits import feature_names_of, held_fits
from bregnet.plotting._shared import (
    NEUTRAL,
    axes,
    color,
    legend,
    real_numbers,
    rows_of,
    shown_name,
    shown_number,
    shown_rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {"prediction": "-", "convex part": "--", "concave part": "-."}


def predictions(fitted: Any, X: Array, y: Array, ax: Axes | None = None) -> Axes:
    """Predicted against true targets, with R^2.

    Parameters
    ----------
    fitted : estimator
        A fitted regressor.
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        The true targets.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from bregnet import ConvexRegressor, plotting
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = ConvexRegressor(0.001).fit(X, X[:, 0] ** 2)
    >>> ax = plotting.predictions(model, X, X[:, 0] ** 2, Figure().add_subplot())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('true', 'predicted')
    """
    targets, found = _true_and_predicted(fitted, X, y)
    ax = axes(ax)
    draw_predictions(targets, found, ax)
    return ax


def _true_and_predicted(fitted: Any, X: Array, y: Array) -> tuple[np.ndarray, np.ndarray]:
    n_rows = len(rows_of("X", X))
    return targets_of(y, n_rows), predicted_by("fitted", fitted, X, n_rows)


def targets_of(y: Array, n_rows: int, name: str = "y") -> np.ndarray:
    """A finite target for each row."""
    targets = real_numbers(name, y)
    if targets.shape != (n_rows,):
        raise ValueError(f"{name} must have shape ({n_rows},), a target for each row, got {targets.shape}")
    return targets


def predicted_by(name: str, fitted: Any, X: Array, n_rows: int) -> np.ndarray:
    """A number for each row."""
    if not hasattr(fitted, "predict"):
        raise TypeError(f"{name} must be a regressor, got {fitted!r}")
    found = np.asarray(to_numpy(fitted.predict(X)))
    if found.shape != (n_rows,) or found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        raise TypeError(f"{name} must predict a finite number for each of {n_rows} rows, got {fitted!r}")
    return found.astype(np.float64)


def draw_predictions(targets: np.ndarray, found: np.ndarray, ax: Axes) -> None:
    """What :func:`predictions` shows."""
    ends = min(targets.min(), found.min())
    ax.axline((ends, ends), slope=1, color=NEUTRAL, linewidth=1, linestyle="--", zorder=1)
    _dots(ax, targets, found)
    title = f"R² = {r2_score(targets, found):.3f}" if len(found) > 1 else "one row"
    ax.set(xlabel="true", ylabel="predicted", title=title)


def _dots(ax: Axes, x: np.ndarray, y: np.ndarray) -> None:
    many = len(x) > 1000
    ax.scatter(x, y, s=6 if many else 18, color=color(0), alpha=0.6, linewidth=0, rasterized=many, gid="rows")


def residuals(fitted: Any, X: Array, y: Array, ax: Axes | None = None) -> Axes:
    """Residuals of a regressor, true minus predicted, against its predictions.

    A good fit shows no pattern here. A curve means that the form of the function is wrong, a funnel that the noise
    grows with the target.

    Parameters
    ----------
    fitted : estimator
        A fitted regressor.
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        The true targets.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from bregnet import ConvexRegressor, plotting
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = ConvexRegressor(0.001).fit(X, X[:, 0] ** 2)
    >>> ax = plotting.residuals(model, X, X[:, 0] ** 2, Figure().add_subplot())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('predicted', 'true - predicted')
    """
    targets, found = _true_and_predicted(fitted, X, y)
    ax = axes(ax)
    draw_residuals(targets, found, ax)
    return ax


def draw_residuals(targets: np.ndarray, found: np.ndarray, ax: Axes) -> None:
    """What :func:`residuals` shows."""
    left = targets - found
    ax.axhline(0, color=NEUTRAL, linewidth=1, linestyle="--", zorder=1)
    _dots(ax, found, left)
    title = f"half of the residuals are within ±{shown_number(np.median(np.abs(left)), 3)}"
    ax.set(xlabel="predicted", ylabel="true - predicted", title=title)


def partial_dependence(
    fitted: Any, X: Array, feature: int | str, ax: Axes | None = None, *, names: list[str] | None = None
) -> Axes:
    """How the mean prediction changes along one feature, all others as they are in the rows of X.

    For a difference of convex functions (:class:`bregnet.DCRegressor`), its convex and its concave part are also shown;
    what is predicted is their sum. Every line is shown less its mean. At most 200 rows, evenly spaced, are averaged.

    Parameters
    ----------
    fitted : estimator
        A fitted regressor.
    X : array of shape (n_samples, n_features)
    feature : int or str
        The column, by its number or its name.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.
    names : sequence of str, default=None
        Names of the features; those of the data frame it was fitted to by default, or else their numbers.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from bregnet import DCRegressor, plotting
    >>> X = np.linspace(-3, 3, 30)[:, None]
    >>> model = DCRegressor(0.001).fit(X, np.sin(X[:, 0]))
    >>> ax = plotting.partial_dependence(model, X, 0, Figure().add_subplot())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['prediction', 'convex part', 'concave part']
    """
    rows = rows_of("X", X)
    texts = feature_names_of(fitted, names, rows.shape[1])
    if feature in texts:
        column = texts.index(str(feature))
    else:
        column = check.integer_at_least("feature", feature, 0)
        if column >= rows.shape[1]:
            raise ValueError(f"feature must be a name or a number below {rows.shape[1]}, got {feature!r}")

    def predict(rows: np.ndarray) -> np.ndarray:
        frame: Any = X
        same = type(frame)(rows, columns=frame.columns) if hasattr(frame, "columns") else rows
        return predicted_by("fitted", fitted, same, len(rows))

    function = next((each.function_ for each in held_fits(fitted) if hasattr(each, "function_")), None)
    if len(list(held_fits(fitted))) > 1 and not hasattr(fitted, "function_"):
        function = None  # steps before it change the features
    ax = axes(ax)
    draw_dependence(dependence(predict, function, rows, column), ax, texts[column])
    return ax


class Dependence(NamedTuple):
    """How predictions depend on one feature."""

    grid: np.ndarray  # values of the feature
    lines: dict[str, np.ndarray]  # the prediction and, of a difference, its parts: each less its mean


def dependence(predict: Callable[[np.ndarray], np.ndarray], function: Any, rows: np.ndarray, column: int) -> Dependence:
    """The lines of :func:`partial_dependence`."""
    grid = np.unique(rows[:, column])
    if len(grid) > 40:
        low, high = np.quantile(rows[:, column], [0.01, 0.99])
        grid = np.linspace(low, high, 40) if low < high else np.linspace(grid[0], grid[-1], 40)
    some = np.tile(rows[shown_rows(None, len(rows), 200)], (len(grid), 1))
    some[:, column] = np.repeat(grid, len(some) // len(grid))
    found = {"prediction": predict(some)}
    if isinstance(function, DifferenceOfConvex):
        found |= {"convex part": np.asarray(function.convex(some)), "concave part": -np.asarray(function.concave(some))}
    means = {name: values.reshape(len(grid), -1).mean(1) for name, values in found.items()}
    return Dependence(grid, {name: values - values.mean() for name, values in means.items()})


def draw_dependence(found: Dependence, ax: Axes, name: str, limits: tuple[float, float] | None = None) -> None:
    """What :func:`partial_dependence` shows, within given limits of the changes."""
    lines = []
    for number, (part, values) in enumerate(found.lines.items()):
        width, marker = (2.4 if number == 0 else 1.4), "o" if len(found.grid) < 3 else None
        lines += ax.plot(found.grid, values, PARTS[part], color=color(number), linewidth=width, marker=marker)
    if len(found.grid) < 3:  # nothing lies between two values
        ax.set_xticks(found.grid, [f"{value:g}" for value in found.grid])
    ax.set_xlabel(shown_name(name), parse_math=False)
    ax.set_ylabel("change of the mean prediction")
    if limits is not None:
        ax.set_ylim(*limits)
    if len(lines) > 1:
        legend(ax, lines, list(found.lines), loc="best")
