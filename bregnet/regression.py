"""Convex and difference-of-convex regression as scikit-learn estimators."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from bregnet import _validation as check
from bregnet.admm.geometry import Geometry
from bregnet.admm.loop import Options, Solution, State, solve
from bregnet.admm.prox import Penalty
from bregnet.admm.result import Check, Result
from bregnet.functions import Array, DifferenceOfConvex, MaxAffine
from bregnet.partition import kmeans_cells, merge_duplicates
from bregnet.problems.convex import ConvexRegression
from bregnet.problems.dc import DCRegression
from bregnet.problems.least_squares import LeastSquares

OWN_PIECE_POINTS = 4000  # "auto": up to here every point has its own piece
AUTO_CELLS = 1000  # "auto": pieces beyond
ARGMAX_POINTS = 1024  # points whose largest piece is found at once


@dataclass(frozen=True)
class Standardisation:
    """Affine maps to the solver's coordinates: unit-variance features and targets.

    The solver always works there, so that its step size suits data of any scale; whether the penalty acts there
    or on the original slopes is a matter of its level per feature.
    """

    centre: np.ndarray
    scale: np.ndarray  # 0 where a feature does not vary
    target_centre: float
    target_scale: float

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray) -> Standardisation:
        """Means and standard deviations."""
        centre, scale = _spread("X", X)
        target_centre, target_scale = _spread("y", y)
        return cls(centre, scale, float(target_centre), float(target_scale) or 1.0)

    @property
    def unit(self) -> np.ndarray:
        """The scale of each feature, 1 for one that does not vary."""
        return np.where(self.scale > 0, self.scale, 1.0)

    def points(self, X: np.ndarray) -> np.ndarray:
        """Features in the solver's coordinates; 0 where a feature does not vary."""
        return np.where(self.scale > 0, (X - self.centre) / self.unit, 0.0)

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Targets in the solver's coordinates."""
        return (y - self.target_centre) / self.target_scale

    def original(self, pieces: np.ndarray, *, level: float) -> MaxAffine:
        """The function of pieces (K, d + 1) in the original coordinates, raised by `level`."""
        slopes = self.target_scale * pieces[:, :-1] / self.unit
        intercepts = self.target_scale * pieces[:, -1] + level - slopes @ self.centre
        return MaxAffine(slopes, intercepts)


def _spread(name: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, without overflow; 0 where a column varies by rounding only."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre = values.mean(0)
        deviation = values - centre
        largest = np.abs(deviation).max(0)
        unit = np.where(largest > 0, largest, 1.0)
        scale = unit * np.sqrt(np.square(deviation / unit).mean(0))
    if not (np.isfinite(centre).all() and np.isfinite(scale).all()):
        raise ValueError(f"{name} must have finite means and deviations, got values up to {np.abs(values).max():.3g}")
    return centre, np.where(largest <= 1e-13 * np.abs(values).max(0), 0.0, scale)


@dataclass
class _Warm:
    """What a warm start goes on from."""

    geometry: Geometry
    state: State
    n_pieces: int  # as asked for

    def fits(self, points: Tensor, n_pieces: int) -> bool:
        """Whether it is for these points on this device, with as many pieces asked for."""
        known = self.geometry.points
        if known.shape != points.shape or known.device != points.device or self.n_pieces != n_pieces:
            return False
        return torch.equal(known, points)


class _MaxAffineRegressor(RegressorMixin, BaseEstimator):
    """What the two regressors share: validate, build the problem, solve, store, warn."""

    def __init__(
        self,
        alpha: float = 1e-2,
        *,
        n_pieces: int | str | None = "auto",
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        warm_start: bool = False,
        device: str | torch.device = "auto",
        verbose: int = 0,
        callback: Callable[[Check], bool | None] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alpha = alpha
        self.n_pieces = n_pieces
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.device = device
        self.verbose = verbose
        self.callback = callback
        self.random_state = random_state

    @abstractmethod
    def _problem(self, geometry: Geometry, targets: Tensor, level: Tensor, offset: float) -> LeastSquares:
        """The program in the solver's coordinates."""

    @abstractmethod
    def _functions(
        self, pieces: np.ndarray, units: Standardisation
    ) -> tuple[MaxAffine | DifferenceOfConvex, np.ndarray]:
        """The fitted function and the bounds on its slopes, in the original coordinates."""

    def fit(self, X: Array, y: Array) -> Any:
        """Fit to rows of X and targets y.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)

        Returns
        -------
        self : estimator
        """
        features, targets = validate_data(self, _to_numpy(X), _to_numpy(y), dtype=np.float64, y_numeric=True)
        targets = targets.astype(np.float64)
        options = Options(
            tol=check.positive("tol", self.tol),
            max_iter=check.integer_at_least("max_iter", self.max_iter, 1),
            verbose=check.verbosity(self.verbose),
            callback=check.callback(self.callback),
        )
        check_random_state(self.random_state)
        units = Standardisation.of(features, targets)
        problem, state = self._prepare(features, targets, units)
        problem, solution = self._solve(problem, options, state)

        self._warm = (
            _Warm(problem.geometry, solution.state, self._piece_count(problem.geometry.n_points))
            if self.warm_start
            else None
        )
        self.function_, self.feature_bounds_ = self._functions(solution.pieces.cpu().numpy(), units)
        self.result_ = _in_units(solution.result, 1.0 if self.standardize else units.target_scale**2)
        self.gap_ = self.result_.gap
        self.n_iter_ = max(1, self.result_.n_iter)
        if not (self.result_.converged or self.result_.stopped):
            message = f"{type(self).__name__} {self.result_.status}; raise max_iter or tol"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def _solve(self, problem: LeastSquares, options: Options, state: State | None) -> tuple[LeastSquares, Solution]:
        """Solve the program; returns the one that was solved last."""
        return problem, solve(problem, options, start=state)

    def _prepare(
        self, features: np.ndarray, targets: np.ndarray, units: Standardisation
    ) -> tuple[LeastSquares, State | None]:
        """The program in the solver's coordinates, duplicates merged, and the state to start from."""
        alpha = check.positive("alpha", self.alpha)
        check.pieces(self.n_pieces, len(features))
        device = check.resolve_device(self.device)
        merged = merge_duplicates(units.points(features))
        scaled = units.targets(targets)
        means = np.bincount(merged.inverse, scaled) / merged.counts
        offset = float(np.mean((scaled - means[merged.inverse]) ** 2))
        # alpha acts on the original slopes where nothing is to be standardised
        unit = (
            np.ones_like(units.unit)
            if check.boolean("standardize", self.standardize)
            else units.target_scale * units.unit
        )
        level = torch.as_tensor(alpha / unit, device=device)
        geometry, state = self._geometry(merged.points, merged.counts.astype(float), device)
        return self._problem(geometry, torch.as_tensor(means, device=device), level, offset), state

    def _piece_count(self, n_points: int) -> int:
        """The pieces asked for, given the number of distinct points."""
        if self.n_pieces == "auto":
            return n_points if n_points <= OWN_PIECE_POINTS else AUTO_CELLS
        return n_points if self.n_pieces is None else min(int(self.n_pieces), n_points)

    def _geometry(self, points: np.ndarray, counts: np.ndarray, device: torch.device) -> tuple[Geometry, State | None]:
        """Points with their cells; those of the last fit, with its state, where a warm start applies."""
        n = len(points)
        there, weights = torch.as_tensor(points, device=device), torch.as_tensor(counts, device=device)
        n_pieces = self._piece_count(n)
        warm: _Warm | None = getattr(self, "_warm", None)
        if self.warm_start and warm is not None and warm.fits(there, n_pieces):
            return replace(warm.geometry, weights=weights), warm.state
        if n_pieces == n:
            return Geometry.build(there, weights), None
        cells = kmeans_cells(points, n_pieces, counts, self.random_state)
        return Geometry.build(there, weights, torch.as_tensor(cells, device=device), int(cells.max()) + 1), None

    def predict(self, X: Array) -> Array:
        """Values of the fitted function at the rows of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        y : array of shape (n_samples,)
            A torch tensor where X is one.
        """
        check_is_fitted(self, "function_")
        if isinstance(X, Tensor):
            if not torch.isfinite(X).all():
                raise ValueError("X must be finite, got NaN or infinity")
            return self.function_(X)
        return self.function_(validate_data(self, X, dtype=np.float64, reset=False))

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__().copy()
        state["_warm"] = None  # the state matrix of a warm start is large and of no use elsewhere
        return state


def _to_numpy(values: Array) -> Any:
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.double() if values.is_floating_point() else values).numpy()


def _in_units(result: Result, unit: float) -> Result:
    """The same result with values of the loss multiplied by `unit`."""
    history = tuple(replace(c, objective=c.objective * unit, dual_bound=c.dual_bound * unit) for c in result.history)
    return replace(result, objective=result.objective * unit, dual_bound=result.dual_bound * unit, history=history)


def reassigned(geometry: Geometry, solution: Solution) -> tuple[Geometry, State]:
    """Give every point to the piece that is largest there, drop pieces left without, and carry the state over."""
    pieces, state = solution.pieces[0], solution.state
    cells = torch.cat([(part @ pieces.T).argmax(1) for part in geometry.lifted.split(ARGMAX_POINTS)])
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
        The fitted function, in the original coordinates.
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
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        reassign: int = 0,
        warm_start: bool = False,
        device: str | torch.device = "auto",
        verbose: int = 0,
        callback: Callable[[Check], bool | None] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            alpha,
            n_pieces=n_pieces,
            standardize=standardize,
            tol=tol,
            max_iter=max_iter,
            warm_start=warm_start,
            device=device,
            verbose=verbose,
            callback=callback,
            random_state=random_state,
        )
        self.monotone = monotone
        self.reassign = reassign

    def _solve(self, problem: LeastSquares, options: Options, state: State | None) -> tuple[LeastSquares, Solution]:
        n_rounds = check.integer_at_least("reassign", self.reassign, 0)
        best = latest = problem, solve(problem, options, start=state)
        for _ in range(0 if problem.geometry.own_piece else n_rounds):
            if latest[1].result.stopped:
                break
            geometry, state = reassigned(latest[0].geometry, latest[1])
            after = self._problem(geometry, problem.targets, problem.penalty.level, problem.offset)
            latest = after, solve(after, options, start=state)
            best = min(best, latest, key=lambda pair: pair[1].result.objective)
        return best

    def _problem(self, geometry: Geometry, targets: Tensor, level: Tensor, offset: float) -> LeastSquares:
        signs = check.monotone_signs(self.monotone, geometry.dimension)
        there = None if signs is None else torch.as_tensor(signs, device=targets.device)
        return ConvexRegression(geometry, targets, Penalty(level, there), offset)

    def _functions(self, pieces: np.ndarray, units: Standardisation) -> tuple[MaxAffine, np.ndarray]:
        function = units.original(pieces[0], level=units.target_centre)
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
    standardize : bool, default=True
        Whether alpha refers to features and targets of unit variance.
    tol : float, default=0.01
        Certified relative gap at which the fit stops.
    max_iter : int, default=5000
        Iterations after which it stops all the same, with a ``ConvergenceWarning``.
    warm_start : bool, default=False
        Go on from the previous fit when the rows of X are the same.
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
        The fitted function, in the original coordinates.
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

    def _problem(self, geometry: Geometry, targets: Tensor, level: Tensor, offset: float) -> LeastSquares:
        return DCRegression(geometry, targets, Penalty(level), offset)

    def _functions(self, pieces: np.ndarray, units: Standardisation) -> tuple[DifferenceOfConvex, np.ndarray]:
        convex = units.original(pieces[0], level=units.target_centre)
        concave = units.original(pieces[1], level=0.0)
        return DifferenceOfConvex(convex, concave), np.abs(convex.slopes).max(0) + np.abs(concave.slopes).max(0)
