"""Plots of one fit: its certificate and its features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.pipeline import Pipeline

from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet.plotting._shared import axes, color, legend, real_numbers, shown_name
from bregnet.solver.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def convergence(fitted: Any, ax: Axes | None = None) -> Axes:
    """Objective and certified lower bound against iterations; the optimum lies in the shaded gap between them.

    Both are the best values so far. No function of the program has an objective below the bound.

    Parameters
    ----------
    fitted : estimator or Result
        A fitted estimator with a `result_`, such as :class:`bregnet.PBDL`, or its result; or an estimator that holds
        such an estimator, such as a search or a nearest-neighbor estimator.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from bregnet import ConvexRegressor, plotting
    >>> model = ConvexRegressor(0.01).fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0])
    >>> ax = plotting.convergence(model, Figure().add_subplot())
    >>> ax.get_xlabel()
    'iterations'
    """
    holder = fit_with_result(fitted)
    if holder is None and not isinstance(fitted, Result):
        check.fitted_if_estimator(fitted)
        raise TypeError(f"fitted must be an estimator with a result_, such as PBDL, or a Result, got {fitted!r}")
    result = fitted if holder is None else holder.result_
    ax = axes(ax)
    checks = finite_checks(result.history)
    iterations = [each.iteration for each in checks]
    objectives, bounds = [each.objective for each in checks], [each.dual_bound for each in checks]
    marker = "o" if len(checks) < 2 else None
    (upper,) = ax.plot(iterations, objectives, color=color(0), linewidth=2, marker=marker)
    (lower,) = ax.plot(iterations, bounds, color=color(1), linewidth=2, linestyle="--", marker=marker)
    ax.fill_between(iterations, bounds, objectives, color=color(0), alpha=0.15, linewidth=0)
    if checks:
        lowest, highest = level_range(checks)
        margin = 0.06 * (highest - lowest)
        ax.set_ylim(lowest - margin, highest + margin)
    ax.set(xlabel="iterations", ylabel="value of the program", title=f"certified gap {percent(result.gap)}")
    legend(ax, [upper, lower], ["objective", "certified lower bound"])
    return ax


def feature_bounds(
    fitted: Any,
    names: Sequence[str] | None = None,
    top: int = 20,
    ax: Axes | None = None,
    *,
    scales: Array | None = None,
) -> Axes:
    """Bars of `feature_bounds_`, largest first: the steepest slope in each feature, 0 where it is not used.

    Parameters
    ----------
    fitted : estimator
        A fitted :class:`bregnet.PBDL`, a regressor, or an estimator that holds one, such as a search or a
        nearest-neighbor estimator.
    names : sequence of str, default=None
        Names of the features; those of the data frame it was fitted to by default, or else their numbers.
    top : int, default=20
        How many are shown at most.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; new axes of pyplot by default.
    scales : array of shape (n_features,), default=None
        Slopes are multiplied by these. Those of a regressor are in the units of the data; the standard deviations of
        the features make them comparable.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from bregnet import PBDL, plotting
    >>> iris = load_iris()
    >>> model = PBDL(tol=0.1).fit(iris.data, iris.target)
    >>> ax = plotting.feature_bounds(model, iris.feature_names, top=3, ax=Figure().add_subplot())
    >>> len(ax.patches)
    3
    """
    holder = next((each for each in held_fits(fitted) if hasattr(each, "feature_bounds_")), None)
    if holder is None:
        check.fitted_if_estimator(fitted)
        raise TypeError(f"fitted must be an estimator with feature_bounds_, such as PBDL, got {fitted!r}")
    bounds = real_numbers("feature_bounds_", holder.feature_bounds_)
    bounds = bounds * (1.0 if scales is None else real_numbers("scales", scales))
    texts = feature_names_of(_named(fitted), names, len(bounds))
    order = np.argsort(-bounds, kind="stable")[: check.integer_at_least("top", top, 1)]
    ax = axes(ax)
    places = np.arange(len(order))
    ax.barh(places, bounds[order], color=color(0), height=0.7)
    ax.set_yticks(places, [shown_name(texts[number]) for number in order], parse_math=False)
    ax.set_xlim(left=0)
    ax.locator_params(axis="x", nbins=5)  # large slopes have long numbers
    # those of regressors are in the units of the data
    in_unit_variance = scales is not None or (getattr(holder, "standardize", False) and not is_regressor(holder))
    title = "features by their largest slope"
    if len(order) < len(bounds):
        title = f"{len(order)} largest of {len(bounds)} features"
    label = "largest slope, features of unit variance" if in_unit_variance else "largest slope"
    ax.set(ylim=(len(order) - 0.4, -0.6), xlabel=label, title=title)
    return ax


def fit_with_result(estimator: Any) -> Any:
    """The first of an estimator and those that it holds with the result of a solver, or None."""
    return next((each for each in held_fits(estimator) if isinstance(getattr(each, "result_", None), Result)), None)


def _named(fitted: Any) -> Any:
    """The innermost held estimator with names of features, not beyond a pipeline, whose steps change them."""
    inside = takewhile(lambda each: not isinstance(each, Pipeline), reversed(list(held_fits(fitted))))
    return next((each for each in inside if hasattr(each, "feature_names_in_")), None)


def feature_names_of(fitted: Any, names: Sequence[str] | None, n_features: int) -> list[str]:
    """A name for each feature: the given one, that of the fit, or its number."""
    if names is None:
        names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        return [f"feature {number}" for number in range(n_features)]
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of {n_features} names, got the text {names!r}")
    found = [str(name) for name in names]
    if len(found) != n_features:
        raise ValueError(f"names must have one entry for each of {n_features} features, got {len(found)}")
    return found


def held_fits(estimator: Any) -> Iterator[Any]:
    """An estimator and the fitted estimators that it holds, outermost first."""
    yield estimator
    held = [getattr(estimator, name, None) for name in ("learner_", "best_estimator_")]
    if isinstance(estimator, Pipeline):
        held.append(estimator.steps[-1][1])
    for each in held:
        if each is not None:
            yield from held_fits(each)


def finite_checks(history: Sequence[Any]) -> list[Any]:
    """The checks that can be drawn."""
    return [each for each in history if math.isfinite(each.objective) and math.isfinite(each.dual_bound)]


def level_range(history: Sequence[Any]) -> tuple[float, float]:
    """The range of values in which the closing of the certified gap is visible; the first checks may lie outside.

    It holds the gap after 15% of the iterations, and half as much again.
    """
    last = history[-1]
    settled = next((each for each in history if each.iteration >= 0.15 * last.iteration), last)
    room = 1.5 * max(settled.objective - settled.dual_bound, last.objective - last.dual_bound)
    lowest = max(min(each.dual_bound for each in history), last.dual_bound - room)
    highest = min(max(each.objective for each in history), last.objective + room)
    if highest <= lowest:
        lowest, highest = lowest - 0.5, lowest + 0.5
    return lowest, highest


def percent(share: float) -> str:
    """A share in percent, with two digits."""
    return f"{100 * share:.2g}%" if 100 * share < 99.5 else f"{100 * share:.0f}%"
