"""Convex and difference-of-convex regression as scikit-learn estimators."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy, to_torch
from bregnet.distributed import Ranks, current
from bregnet.divergences import DifferenceOfConvex, MaxAffine
from bregnet.learners.base import Monitor, SolverEstimator
from bregnet.learners.start import Start
from bregnet.solver.checkpoints import Checkpoint
from bregnet.solver.partition import merge_duplicates
from bregnet.solver.penalty import Penalty
from bregnet.solver.points import MemoryNeed, Points, Standardization, working_pairs_need
from bregnet.solver.regression import LeastSquares, Regression
from bregnet.solver.result import Check, Result

LearnedFunction: TypeAlias = MaxAffine | DifferenceOfConvex
LEAST_TEMPERATURE = math.sqrt(sys.float_info.min)  # that MaxAffine takes, beside 0


class FunctionRegressor(RegressorMixin, BaseEstimator):
    """A regressor that predicts the values of its `function_`."""

    clip: bool
    function_: Any
    target_range_: tuple[float, float]

    def predict(self, X: Array) -> Array:
        """Values of the fitted function at the rows of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        y : array of shape (n_samples,)
            A torch tensor where X is one.

        Examples
        --------
        >>> from bregnet import ConvexRegressor
        >>> model = ConvexRegressor(1e-4).fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0])
        >>> model.predict([[2.0]]).round(1)
        array([4.])
        """
        check_is_fitted(self, "function_")
        if not isinstance(X, Tensor):
            X = check.validate_data(self, to_numpy(X, "X"), dtype=np.float64, reset=False)
        elif not torch.isfinite(to_torch("X", X)).all():
            raise ValueError("X must be finite, got NaN or infinity")
        values = self.function_(X)
        return values.clip(*self.target_range_) if self.clip else values

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """Coefficient of determination of the prediction.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), default=None

        Returns
        -------
        score : float
            At most 1.

        Examples
        --------
        >>> from bregnet import ConvexRegressor
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0]
        >>> ConvexRegressor(1e-4).fit(X, y).score(X, y) > 0.99
        True
        """
        return check.checked_score(super().score, X, y, sample_weight)


class _MaxAffineRegressor(FunctionRegressor, SolverEstimator):
    """What the two regressors share: validate, build the problem, solve, store, warn."""

    temperature: float
    monotone: Any = None
    _predicts = True
    _own_piece_points = 20_000
    _auto_cells = 1000
    _shares_points = False
    _signs: tuple[int, ...]  # of the convex functions that the fitted one is made of
    _loss: type[Regression] = LeastSquares

    def _penalty_level(self, units: Standardization, device: torch.device, n_rows: float = 0) -> Tensor:
        if self.alpha != "auto":
            self.alpha_ = check.positive("alpha", self.alpha)
            return super()._penalty_level(units, device)
        n_features = max(1, int((units.scale > 0).sum()))
        # Mean loss of R^2 against the best of seven fixed alphas, on two splits of eleven sets of 180 to 840 rows:
        # convex 0.022 (0.018 with 0.1, 0.075 with 0.03, 0.186 with 0.01), DC 0.019 (0.024 with 0.03, 0.044 with 0.01).
        self.alpha_ = math.sqrt(math.log(n_features + 1) / n_rows) / len(self._signs)
        return torch.full((len(units.unit),), self.alpha_, dtype=torch.float64, device=device)

    def _need(self, n: int, n_features: int, n_pieces: int, ranks: Ranks) -> MemoryNeed:
        n_sets = len(self._signs)
        return working_pairs_need(n, n_features, n_pieces, n_sets, fine=self._fine, n_processes=ranks.size)

    @check.all_or_nothing
    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Any:
        """Fit to rows of X and targets y.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            A memory-mapped array (:class:`numpy.memmap`) of any precision is read in blocks.
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), default=None
            Weights of the rows: one of weight 2 counts as two rows, one of weight 0 not at all.

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> from bregnet import ConvexRegressor
        >>> ConvexRegressor().fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0]).gap_ <= 0.01
        True
        """
        features, targets = self._validated(X, y)
        self._seen = None
        return self._fit_weighted(features, targets, sample_weight)

    def _fit(
        self,
        features: np.ndarray,
        targets: np.ndarray,
        monitor: Monitor | None = None,
        weights: np.ndarray | None = None,
    ) -> Any:
        """Validate the parameters, build the program, solve it, store the function."""
        options = self._options(len(features))
        temperature = check.at_least_zero("temperature", self.temperature)
        check.boolean("clip", self.clip)

        units = self._units(features, targets, weights)
        problem, start = self._program(features, targets, units, weights)
        learned = _FunctionFromPieces(
            problem, units, units.target_scale if self.standardize else 1.0, features, weights
        )

        pieces, result = self._solve(problem, start, options, learned.quick_function, monitor)

        self.function_, self.feature_bounds_ = learned.function(pieces, temperature)
        self.target_range_ = float(targets.min()), float(targets.max())
        result = _in_units(result, 1.0 if self.standardize else units.target_scale**problem.degree)
        self._record(result, monitored=monitor is not None)
        return self

    def _program(
        self, features: np.ndarray, targets: np.ndarray, units: Standardization, weights: np.ndarray | None = None
    ) -> tuple[Regression, Start]:
        """The program for rows in these units, and where the solver starts."""
        signs = check.monotone_signs(self.monotone, features.shape[1])
        merged = merge_duplicates(features, units.points).weighted(weights)
        points = self._points(features, units, merged)
        slope_signs = None if signs is None else torch.as_tensor(signs, device=points.device)
        level = self._penalty_level(units, points.device, float(merged.counts.sum()))
        if not self.standardize:  # the level is that of squared errors
            level = level * units.target_scale ** (2 - self._loss.degree)
        start = self._start(points, self._seed())
        return self._problem(start, points, units.targets(targets), weights, Penalty(level, slope_signs)), start

    def _problem(
        self, start: Start, points: Points, targets: np.ndarray, weights: np.ndarray | None, penalty: Penalty
    ) -> Regression:
        """The loss, for scaled targets and weights of all rows, with the penalty."""
        merged = points.merged
        means = np.bincount(merged.inverse, targets if weights is None else weights * targets) / merged.counts
        offset = float(np.average((targets - means[merged.inverse]) ** 2, weights=weights))
        return self._loss(start.geometry, points.here(means), penalty, self._signs, offset, current())


@dataclass(frozen=True)
class _FunctionFromPieces:
    """From pieces in the solver's coordinates to the function in those of the data."""

    problem: Regression
    units: Standardization
    temperature_unit: float
    features: np.ndarray
    weights: np.ndarray | None

    def quick_function(self, pieces: Tensor, temperature: float) -> LearnedFunction:
        """The function during a fit: where it is smoothed, its level is that at about 500 points."""
        return self._smoothed(self._plain(pieces), temperature, 500)

    def function(self, pieces: Tensor, temperature: float) -> tuple[LearnedFunction, np.ndarray]:
        """The function, and the bounds on its slopes before it is smoothed."""
        plain = self._plain(pieces)
        bounds = sum(np.abs(part.slopes).max(0) for part in parts_of(plain))
        return self._smoothed(plain, temperature, 20_000), np.asarray(bounds)

    def _smoothed(self, plain: LearnedFunction, temperature: float, n_points: int) -> LearnedFunction:
        unit = self.temperature_unit
        if unit * temperature < LEAST_TEMPERATURE <= temperature:
            needed = f"at least {LEAST_TEMPERATURE / temperature:.2g} for temperature={temperature:g}"
            raise ValueError(f"y must have a standard deviation of {needed}, got {unit:.3g}")
        return smoothed(plain, unit * temperature, *self._sample(n_points))

    def _plain(self, pieces: Tensor) -> LearnedFunction:
        used = (part.cpu().numpy() for part in self.problem.used(pieces))
        levels = (self.units.target_center, 0.0)
        parts = [MaxAffine(*self.units.original(part, level=at)) for part, at in zip(used, levels, strict=False)]
        return parts[0] if len(parts) == 1 else DifferenceOfConvex(*parts)

    def _sample(self, n_points: int) -> tuple[np.ndarray, np.ndarray | None]:
        """About so many rows, and their weights."""
        part = slice(None, None, max(1, len(self.features) // n_points))
        return self.features[part], None if self.weights is None else self.weights[part]


def _in_units(result: Result, unit: float) -> Result:
    """The same result with values of the loss multiplied by `unit`."""
    history = tuple(replace(c, objective=c.objective * unit, dual_bound=c.dual_bound * unit) for c in result.history)
    return replace(result, objective=result.objective * unit, dual_bound=result.dual_bound * unit, history=history)


def parts_of(function: LearnedFunction) -> list[MaxAffine]:
    """The convex functions that it is made of."""
    if isinstance(function, DifferenceOfConvex):
        return [cast(MaxAffine, function.convex), cast(MaxAffine, function.concave)]
    return [function]


def smoothed(
    function: LearnedFunction, temperature: float, X: np.ndarray, weights: np.ndarray | None = None
) -> LearnedFunction:
    """The function with its maxima softened, at the same level on average over the rows of X, which may have weights.

    A soft maximum is above the plain one, by more where more pieces are near the largest.
    """
    if temperature == 0:
        return function
    parts = []
    for plain in parts_of(function):
        soft = MaxAffine(plain.slopes, plain.intercepts, temperature=temperature)
        level = float(np.average(plain(X) - soft(X), weights=weights))
        parts.append(MaxAffine(plain.slopes, plain.intercepts + level, temperature=temperature))
    return parts[0] if len(parts) == 1 else DifferenceOfConvex(*parts)


class ConvexRegressor(_MaxAffineRegressor):
    """Convex regression: the max-affine function of least penalized squared error (paper, program 3).

    Minimizes ``mean((f(x_j) - y_j)^2) + alpha * sum_l max_k |a_kl|`` over convex f with slopes a_k, and certifies
    how far from the optimum the returned function can be.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Weight of the penalty, which bounds the slopes and switches features off (the paper's lambda, for the
        mean loss). "auto" is ``sqrt(log(n_features + 1) / n_samples)`` for features and targets of unit variance, as
        for the lasso: it falls as rows are added, or as their weights grow, for a row counts by its weight.
        :class:`ConvexRegressorCV` chooses it by the data.
    monotone : array-like of shape (n_features,) or int, default=None
        1 where f must not decrease, -1 where it must not increase, 0 where it is free.
    n_pieces : int, "auto" or None, default="auto"
        Affine pieces: None gives every point its own, an integer cuts the points into that many cells by
        k-means, "auto" takes None up to 20,000 distinct points and 1000 cells beyond.
    temperature : float, default=0.0
        Smoothing of the fitted function, in standard deviations of y (or in the units of y, without `standardize`): the
        largest piece becomes a soft maximum of all. It is applied after the fit; the certificate is that of the plain
        function.
    clip : bool, default=False
        Keep predictions within the range of the training targets. `function_` is linear beyond the data, so a rare
        category, or a drift, can make predictions extreme.
    standardize : bool, default=True
        Whether alpha refers to features and targets of unit variance. Otherwise it refers to the data as given.
    tol : float, default=0.01
        Certified relative gap at which the fit stops.
    max_iter : int, default=5000
        The largest number of iterations; a fit that has not reached `tol` by then gives a ``ConvergenceWarning``.
    warm_start : bool, default=False
        Go on from the previous fit when the rows of X are the same, for instance along alpha.
    checkpoint : path, Checkpoint or None, default=None
        A folder in which a long fit keeps its state, and from which it goes on after an interruption; see
        :class:`bregnet.Checkpoint`.
    device : str or torch.device, default="auto"
        Where to compute; "auto" takes CUDA when there is one.
    verbose : int, default=0
        1 shows a progress bar.
    callback : callable, default=None
        Called with each :class:`bregnet.Check`; returning True stops the fit.
    random_state : int, RandomState or None, default=None
        Seed of the cells.

    Attributes
    ----------
    function_ : MaxAffine
        The fitted function, in the original coordinates, smoothed as asked for.
    alpha_ : float
        The weight of the penalty, as given or as "auto" set it.
    target_range_ : tuple of float
        Least and largest training target.
    feature_bounds_ : ndarray of shape (n_features,)
        L_l, the largest absolute slope of each feature; 0 for a feature that is not used.
    result_ : Result
        Status, objective, bound, gap, history and time.
    gap_ : float
        The certified relative gap, ``result_.gap``. With cells it refers to the program with these cells; the
        returned maximum of all pieces may be better than that program's optimum, and the gap is then 0.
    n_iter_ : int
    n_features_in_ : int

    References
    ----------
    Siahkamari et al., "Faster Algorithms for Learning Convex Functions", ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet import ConvexRegressor
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> model = ConvexRegressor(alpha=1e-3).fit(x, x[:, 0] ** 2)
    >>> model.gap_ <= 0.01
    True
    >>> bool(abs(model.predict([[0.5]])[0] - 0.25) < 0.01)
    True
    """

    _signs = (1,)

    def __init__(
        self,
        alpha: float | str = "auto",
        *,
        monotone: Any = None,
        n_pieces: int | str | None = "auto",
        temperature: float = 0.0,
        clip: bool = False,
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        warm_start: bool = False,
        checkpoint: str | os.PathLike | Checkpoint | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
        callback: Callable[[Check], bool | None] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alpha = alpha
        self.monotone = monotone
        self.n_pieces = n_pieces
        self.temperature = temperature
        self.clip = clip
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.device = device
        self.verbose = verbose
        self.callback = callback
        self.random_state = random_state


class DCRegressor(_MaxAffineRegressor):
    """Difference-of-convex regression (paper, program 11): fits functions that need not be convex.

    Minimizes ``mean((f(x_j) - g(x_j) - y_j)^2) + alpha * sum_l (max_k |a_kl| + max_k |c_kl|)`` over convex f and g
    with slopes a_k and c_k, with a certificate as :class:`ConvexRegressor`.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Weight of the penalty on the slopes of both functions. "auto" is half that of :class:`ConvexRegressor`;
        :class:`DCRegressorCV` chooses it by the data.
    n_pieces : int, "auto" or None, default="auto"
        Affine pieces of each function, as in :class:`ConvexRegressor`.
    temperature : float, default=0.0
        Smoothing of the fitted function, in standard deviations of y (or in the units of y, without `standardize`):
        both maxima become soft ones. It is applied after the fit; the certificate is that of the plain function.
    clip : bool, default=False
        Keep predictions within the range of the training targets. `function_` is linear beyond the data, so a rare
        category, or a drift, can make predictions extreme.
    standardize : bool, default=True
        Whether alpha refers to features and targets of unit variance.
    tol : float, default=0.01
        Certified relative gap at which the fit stops.
    max_iter : int, default=5000
        The largest number of iterations; a fit that has not reached `tol` by then gives a ``ConvergenceWarning``.
    warm_start : bool, default=False
        Go on from the previous fit when the rows of X are the same.
    checkpoint : path, Checkpoint or None, default=None
        A folder in which a long fit keeps its state, and from which it goes on after an interruption; see
        :class:`bregnet.Checkpoint`.
    device : str or torch.device, default="auto"
        Where to compute.
    verbose : int, default=0
        1 shows a progress bar.
    callback : callable, default=None
        Called with each :class:`bregnet.Check`; returning True stops the fit.
    random_state : int, RandomState or None, default=None
        Seed of the cells.

    Attributes
    ----------
    function_ : DifferenceOfConvex
        The fitted function, in the original coordinates, smoothed as asked for.
    alpha_ : float
        The weight of the penalty, as given or as "auto" set it.
    target_range_ : tuple of float
        Least and largest training target.
    feature_bounds_ : ndarray of shape (n_features,)
        Bound on the absolute slope of each feature: the sum of the two functions' L_l.
    result_ : Result
        Status, objective, bound, gap, history and time.
    gap_ : float
        The certified relative gap, ``result_.gap``. With cells it refers to the program with these cells; the
        returned maximum of all pieces may be better than that program's optimum, and the gap is then 0.
    n_iter_ : int
    n_features_in_ : int

    References
    ----------
    Siahkamari et al., "Faster Algorithms for Learning Convex Functions", ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet import DCRegressor
    >>> x = np.linspace(-3, 3, 80)[:, None]
    >>> model = DCRegressor(alpha=1e-3).fit(x, np.sin(x[:, 0]))
    >>> bool(model.score(x, np.sin(x[:, 0])) > 0.99)
    True
    """

    _signs = (1, -1)

    def __init__(
        self,
        alpha: float | str = "auto",
        *,
        n_pieces: int | str | None = "auto",
        temperature: float = 0.0,
        clip: bool = False,
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        warm_start: bool = False,
        checkpoint: str | os.PathLike | Checkpoint | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
        callback: Callable[[Check], bool | None] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alpha = alpha
        self.n_pieces = n_pieces
        self.temperature = temperature
        self.clip = clip
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.device = device
        self.verbose = verbose
        self.callback = callback
        self.random_state = random_state
