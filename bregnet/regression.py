"""Convex and difference-of-convex regression as scikit-learn estimators."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bregnet import _validation as check
from bregnet._arrays import Array, to_numpy, to_torch
from bregnet._clusterer import sample_weights
from bregnet._estimator import SolverEstimator
from bregnet.functions import DifferenceOfConvex, MaxAffine
from bregnet.solver.checkpoints import Checkpoint, Keeper
from bregnet.solver.convex import ConvexRegression
from bregnet.solver.dc import DCRegression
from bregnet.solver.geometry import Geometry
from bregnet.solver.loop import Options, Solution, State, solve
from bregnet.solver.partition import merge_duplicates
from bregnet.solver.penalty import Penalty
from bregnet.solver.points import Standardisation
from bregnet.solver.regression import LeastSquares
from bregnet.solver.result import Check, Result

LEVEL_POINTS = 500  # to set the level of a smoothed function by, during a fit
MOST_LEVEL_POINTS = 20_000  # and afterwards

LearnedFunction: TypeAlias = MaxAffine | DifferenceOfConvex


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
        rows, targets, score = to_numpy(X, "X"), to_numpy(y, "y"), super().score
        n_rows = check.length("y", targets)
        weights = sample_weights(sample_weight, n_rows)
        return check.finite_score(lambda: score(rows, targets, weights), n_rows)


class _MaxAffineRegressor(FunctionRegressor, SolverEstimator):
    """What the two regressors share: validate, build the problem, solve, store, warn."""

    def __init__(
        self,
        alpha: float = 1e-2,
        *,
        n_pieces: int | str | None = "auto",
        temperature: float = 0.0,
        clip: bool = False,
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        warm_start: bool = False,
        checkpoint: str | os.PathLike | Checkpoint | None = None,
        scratch: str | os.PathLike | None = None,
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
        self.scratch = scratch
        self.device = device
        self.verbose = verbose
        self.callback = callback
        self.random_state = random_state

    @abstractmethod
    def _problem(self, geometry: Geometry, targets: Tensor, level: Tensor, offset: float) -> LeastSquares:
        """The program in the solver's coordinates."""

    @abstractmethod
    def _functions(self, pieces: np.ndarray, units: Standardisation) -> tuple[LearnedFunction, np.ndarray]:
        """The fitted function and the bounds on its slopes, in the original coordinates."""

    @check.all_or_nothing
    def fit(self, X: Array, y: Array) -> Any:
        """Fit to rows of X and targets y.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            A memory-mapped array (:class:`numpy.memmap`) of any precision is read in blocks and never held whole.
        y : array of shape (n_samples,)

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> from bregnet import ConvexRegressor
        >>> ConvexRegressor().fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0]).gap_ <= 0.01
        True
        """
        streamed = isinstance(X, np.memmap)
        kind = "numeric" if streamed else np.float64
        features, targets = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), dtype=kind, y_numeric=True)
        self._seen = None
        return self._fit(features, targets.astype(np.float64), streamed=streamed)

    @check.all_or_nothing
    def partial_fit(self, X: Array, y: Array) -> Any:
        """Fit to the rows of all calls since the first, or since the last :meth:`fit`.

        A fit to more rows goes on from the one before: the state of the rows that are known is kept, and so are the
        cells, and the units of the first call.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import ConvexRegressor
        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> model = ConvexRegressor(1e-3).partial_fit(x[::2], x[::2, 0] ** 2)
        >>> bool(model.partial_fit(x[1::2], x[1::2, 0] ** 2).score(x, x[:, 0] ** 2) > 0.99)
        True
        """
        first = self._seen is None
        checks = {"dtype": np.float64, "y_numeric": True, "reset": first}
        features, targets = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), **checks)
        return self._fit_more(features, targets.astype(np.float64))

    def _units(self, features: np.ndarray, targets: np.ndarray) -> Standardisation:
        return Standardisation.of(features, targets)

    def _fit(
        self, features: np.ndarray, targets: np.ndarray, units: Standardisation | None = None, *, streamed: bool = False
    ) -> Any:
        temperature = check.at_least_zero("temperature", self.temperature)
        check.boolean("clip", self.clip)
        check.boolean("standardize", self.standardize)
        units = units or self._units(features, targets)
        unit = units.target_scale if self.standardize else 1.0  # of temperatures
        spread = float(targets.min()), float(targets.max())
        few = features[:: max(1, len(features) // LEVEL_POINTS)]
        many = features[:: max(1, len(features) // MOST_LEVEL_POINTS)]

        def view(pieces: Tensor, temperature: float) -> Any:
            seen = copy(self)
            plain, seen.feature_bounds_ = self._functions(pieces.cpu().numpy(), units)
            seen.function_ = smoothed(plain, unit * temperature, few)
            seen.target_range_, seen.temperature = spread, temperature
            return seen

        options, keeper = self._watched(self._options(), view), self._keeper()
        problem, state = self._prepare(features, targets, units, keeper, streamed=streamed)
        problem, solution = self._solve(problem, options, state, keeper)

        self._keep_state(problem.geometry, solution)
        plain, self.feature_bounds_ = self._functions(solution.pieces.cpu().numpy(), units)
        self.function_ = smoothed(plain, unit * temperature, many)
        self.target_range_ = spread
        self._record(_in_units(solution.result, 1.0 if self.standardize else units.target_scale**2))
        return self

    def _solve(
        self, problem: LeastSquares, options: Options, state: State | None, keeper: Keeper | None
    ) -> tuple[LeastSquares, Solution]:
        """Solve the program; returns the one that was solved last."""
        return problem, solve(problem, options, start=state, keeper=keeper)

    def _prepare(
        self,
        features: np.ndarray,
        targets: np.ndarray,
        units: Standardisation,
        keeper: Keeper | None = None,
        *,
        streamed: bool = False,
    ) -> tuple[LeastSquares, State | None]:
        """The program in the solver's coordinates, duplicates merged, and the state to start from."""
        check.pieces(self.n_pieces, len(features))
        merged = merge_duplicates(features, units.points)
        points = self._points(features, units, merged, streamed=streamed)
        level = self._penalty_level(units, points.device)
        scaled = units.targets(targets)
        means = np.bincount(merged.inverse, scaled) / merged.counts
        offset = float(np.mean((scaled - means[merged.inverse]) ** 2))
        geometry, state = self._geometry(points, self._seed(), keeper=keeper)
        return self._problem(geometry, points.here(means), level, offset), state


def _in_units(result: Result, unit: float) -> Result:
    """The same result with values of the loss multiplied by `unit`."""
    history = tuple(replace(c, objective=c.objective * unit, dual_bound=c.dual_bound * unit) for c in result.history)
    return replace(result, objective=result.objective * unit, dual_bound=result.dual_bound * unit, history=history)


def smoothed(function: LearnedFunction, temperature: float, X: np.ndarray) -> LearnedFunction:
    """The function with its maxima softened, at the same level on average over the rows of X.

    A soft maximum is above the plain one, by more where more pieces are near the largest.
    """
    if temperature == 0:
        return function
    if isinstance(function, DifferenceOfConvex):
        parts = (cast(MaxAffine, part) for part in (function.convex, function.concave))
        return DifferenceOfConvex(*(_soft(part, temperature, X) for part in parts))
    return _soft(function, temperature, X)


def _soft(function: MaxAffine, temperature: float, X: np.ndarray) -> MaxAffine:
    soft = MaxAffine(function.slopes, function.intercepts, temperature=temperature)
    level = float(np.mean(function(X) - soft(X)))
    return MaxAffine(function.slopes, function.intercepts + level, temperature=temperature)


def _counting_from(n_iter: int, options: Options) -> Options:
    """For a later round: who watches the fit sees the iterations of all rounds."""
    monitor = options.monitor
    if monitor is None:
        return options
    return replace(options, monitor=lambda c, pieces: monitor(replace(c, iteration=c.iteration + n_iter), pieces))


def reassigned(geometry: Geometry, solution: Solution) -> tuple[Geometry, State]:
    """Give every point to the piece that is largest there, drop pieces left without, and carry the state over."""
    pieces, state = solution.pieces[0], solution.state
    cells = geometry.largest(pieces)[1]
    slacks = state.slacks[0]
    moved = torch.nonzero(cells != geometry.cells).squeeze(1)
    # a moved point has new constraints: their multipliers start at zero and their slacks where the pieces are
    there = geometry.lifted[moved] @ pieces.T
    own = there.gather(1, cells[moved, None])
    slacks[:, moved] = (there - own).clamp_max(0).T.to(slacks.dtype)
    # a piece without points has no data to hold it: it leaves the program
    kept, cells = torch.unique(cells, return_inverse=True)
    after = State([slacks[kept]], state.slopes[:, kept], state.rho)
    return replace(geometry, cells=cells, n_pieces=len(kept)), after


class ConvexRegressor(_MaxAffineRegressor):
    """Convex regression: the max-affine function of least penalised squared error (paper, program 3).

    Minimises ``mean((f(x_j) - y_j)^2) + alpha * sum_l max_k |a_kl|`` over convex f with slopes a_k, and certifies
    how far from the optimum the returned function can be.

    Parameters
    ----------
    alpha : float, default=0.01
        Weight of the penalty, which bounds the slopes and switches features off (the paper's lambda, for the
        mean loss).
    monotone : array-like of shape (n_features,) or int, default=None
        1 where f must not decrease, -1 where it must not increase, 0 where it is free.
    n_pieces : int, "auto" or None, default="auto"
        Affine pieces: None gives every point its own, an integer cuts the points into that many cells by
        k-means, "auto" takes None up to 4000 distinct points and 1000 cells beyond.
    temperature : float, default=0.0
        Smoothing of the fitted function, in standard deviations of y (or in the units of y, without `standardize`):
        the largest piece becomes a soft maximum of all. It comes after the fit; the certificate is that of the plain
        function.
    clip : bool, default=False
        Keep predictions within the range of the training targets. `function_` goes on linearly beyond the data; a
        rare category, or a drift, can take it far away.
    standardize : bool, default=True
        Whether alpha refers to features and targets of unit variance. Otherwise it refers to the data as given.
    tol : float, default=0.01
        Certified relative gap at which the fit stops.
    max_iter : int, default=5000
        Iterations after which it stops all the same, with a ``ConvergenceWarning``.
    reassign : int, default=0
        With cells: rounds that give every point to its largest piece and go on. Each round lowers the objective;
        whether new data are predicted better depends on the data (``python -m benchmarks.cells``). `result_` is
        that of the round whose function is returned.
    warm_start : bool, default=False
        Go on from the previous fit when the rows of X are the same, for instance along alpha.
    checkpoint : path, Checkpoint or None, default=None
        A folder in which a long fit keeps its state, and from which it goes on after an interruption; see
        :class:`bregnet.Checkpoint`.
    scratch : path, default=None
        A folder for files in place of memory, for fits that are larger than memory: points and state lie there.
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

    def __init__(
        self,
        alpha: float = 1e-2,
        *,
        monotone: Any = None,
        n_pieces: int | str | None = "auto",
        temperature: float = 0.0,
        clip: bool = False,
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        reassign: int = 0,
        warm_start: bool = False,
        checkpoint: str | os.PathLike | Checkpoint | None = None,
        scratch: str | os.PathLike | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
        callback: Callable[[Check], bool | None] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            alpha,
            n_pieces=n_pieces,
            temperature=temperature,
            clip=clip,
            standardize=standardize,
            tol=tol,
            max_iter=max_iter,
            warm_start=warm_start,
            checkpoint=checkpoint,
            scratch=scratch,
            device=device,
            verbose=verbose,
            callback=callback,
            random_state=random_state,
        )
        self.monotone = monotone
        self.reassign = reassign

    def _solve(
        self, problem: LeastSquares, options: Options, state: State | None, keeper: Keeper | None
    ) -> tuple[LeastSquares, Solution]:
        n_rounds = check.integer_at_least("reassign", self.reassign, 0)
        if n_rounds and keeper is not None:
            raise ValueError(f"reassign must be 0 where a checkpoint is kept, got {n_rounds}")
        if n_rounds and problem.geometry.ranks.size > 1:
            raise ValueError(f"reassign must be 0 where several processes share the points, got {n_rounds}")
        best = latest = problem, solve(problem, options, start=state, keeper=keeper)
        n_iter = 0
        for _ in range(0 if problem.geometry.own_piece else n_rounds):
            if latest[1].result.stopped:
                break
            geometry, state = reassigned(latest[0].geometry, latest[1])
            after = self._problem(geometry, problem.targets, problem.penalty.level, problem.offset)
            n_iter += latest[1].result.n_iter
            latest = after, solve(after, _counting_from(n_iter, options), start=state)
            best = min(best, latest, key=lambda pair: pair[1].result.objective)
        return best

    def _problem(self, geometry: Geometry, targets: Tensor, level: Tensor, offset: float) -> LeastSquares:
        signs = check.monotone_signs(self.monotone, geometry.dimension)
        there = None if signs is None else torch.as_tensor(signs, device=targets.device)
        return ConvexRegression(geometry, targets, Penalty(level, there), offset)

    def _functions(self, pieces: np.ndarray, units: Standardisation) -> tuple[MaxAffine, np.ndarray]:
        function = MaxAffine(*units.original(pieces[0], level=units.target_centre))
        return function, np.abs(function.slopes).max(0)


class DCRegressor(_MaxAffineRegressor):
    """Difference-of-convex regression (paper, program 11): fits functions that need not be convex.

    Minimises ``mean((f(x_j) - g(x_j) - y_j)^2) + alpha * sum_l (max_k |a_kl| + max_k |c_kl|)`` over convex f and g
    with slopes a_k and c_k, with a certificate as :class:`ConvexRegressor`.

    Parameters
    ----------
    alpha : float, default=0.01
        Weight of the penalty on the slopes of both functions.
    n_pieces : int, "auto" or None, default="auto"
        Affine pieces of each function, as in :class:`ConvexRegressor`.
    temperature : float, default=0.0
        Smoothing of the fitted function, in standard deviations of y (or in the units of y, without `standardize`):
        both maxima become soft ones. It comes after the fit; the certificate is that of the plain function.
    clip : bool, default=False
        Keep predictions within the range of the training targets. `function_` goes on linearly beyond the data; a
        rare category, or a drift, can take it far away.
    standardize : bool, default=True
        Whether alpha refers to features and targets of unit variance.
    tol : float, default=0.01
        Certified relative gap at which the fit stops.
    max_iter : int, default=5000
        Iterations after which it stops all the same, with a ``ConvergenceWarning``.
    warm_start : bool, default=False
        Go on from the previous fit when the rows of X are the same.
    checkpoint : path, Checkpoint or None, default=None
        A folder in which a long fit keeps its state, and from which it goes on after an interruption; see
        :class:`bregnet.Checkpoint`.
    scratch : path, default=None
        A folder for files in place of memory, for fits that are larger than memory: points and state lie there.
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

    _n_sets = 2

    def _problem(self, geometry: Geometry, targets: Tensor, level: Tensor, offset: float) -> LeastSquares:
        return DCRegression(geometry, targets, Penalty(level), offset)

    def _functions(self, pieces: np.ndarray, units: Standardisation) -> tuple[DifferenceOfConvex, np.ndarray]:
        convex = MaxAffine(*units.original(pieces[0], level=units.target_centre))
        concave = MaxAffine(*units.original(pieces[1], level=0.0))
        return DifferenceOfConvex(convex, concave), np.abs(convex.slopes).max(0) + np.abs(concave.slopes).max(0)
