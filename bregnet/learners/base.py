"""What all estimators on the solver share: their parameters, and validate, build, solve, store in that order."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet._core.notebook import shown_in_notebooks
from bregnet.distributed import ALONE, Ranks, current
from bregnet.learners.start import SeenRows, Start, WarmStart, open_checkpoint, require_room, starting_geometry
from bregnet.solver import checkpoints
from bregnet.solver.admm import FINE_TOLERANCE, Options
from bregnet.solver.partition import Merged
from bregnet.solver.points import MemoryNeed, Points, Standardization
from bregnet.solver.problem import Problem
from bregnet.solver.result import Check, Result
from bregnet.solver.solve import solve
from bregnet.solver.storage import collected


class Monitor:
    """Follows a fit while it runs; this one lets it run to its end."""

    tight_from: float = 0.0  # iteration before which it has no use for a tight bound

    def __call__(self, check: Check, learned: Callable[[float], Any]) -> bool:
        """Take a look, `learned` being the best function or divergence so far by its temperature; True ends the fit."""
        return False

    def finish(self, learned: Callable[[float], Any]) -> None:
        """Take what was learned, when the fit has ended."""


@dataclass(frozen=True)
class _Listeners:
    """The callback and the monitor of a fit, as the solver calls them."""

    callback: Callable[[Check], bool | None] | None
    monitor: Monitor | None
    learned: Callable[[Tensor, float], Any]

    def __call__(self, found: Check, pieces: Tensor) -> bool:
        stop = self.callback is not None and bool(self.callback(found))
        return (self.monitor is not None and self.monitor(found, partial(self.learned, pieces))) or stop


@shown_in_notebooks
class SolverEstimator(BaseEstimator, ABC):
    """An estimator whose fit is one run of the solver; subclasses have the constructor parameters named here."""

    alpha: float | str
    n_pieces: int | str | None
    standardize: bool
    tol: float
    max_iter: int
    warm_start: bool
    checkpoint: str | os.PathLike | checkpoints.Checkpoint | None
    device: str | torch.device
    verbose: int
    callback: Callable | None
    random_state: int | np.random.RandomState | None

    _warm: WarmStart | None = None
    _seen: SeenRows | None = None  # by partial_fit
    _predicts: bool  # whether targets are numbers to predict, or else class labels
    _own_piece_points: int  # n_pieces="auto": up to here every point has its own piece
    _auto_cells: int  # and pieces beyond
    _shares_points: bool  # whether processes share the points of a fit, or else its pieces

    @abstractmethod
    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Any:
        """Fit to rows and their targets or labels."""

    @abstractmethod
    def _fit(
        self,
        features: np.ndarray,
        targets: np.ndarray,
        monitor: Monitor | None = None,
        weights: np.ndarray | None = None,
    ) -> Any:
        """Fit to checked rows, each of which counts by its weight, if there are weights."""

    @abstractmethod
    def _need(self, n: int, n_features: int, n_pieces: int, ranks: Ranks) -> MemoryNeed:
        """What a fit to so many distinct points takes at most."""

    def memory_needed(self, n_samples: int, n_features: int) -> MemoryNeed:
        """The memory that a fit to this many distinct rows needs at most, in addition to the rows themselves.

        Parameters
        ----------
        n_samples : int
        n_features : int

        Returns
        -------
        need : MemoryNeed
            Bytes; with several processes, those of each.

        Examples
        --------
        >>> from bregnet import ConvexRegressor
        >>> print(ConvexRegressor(n_pieces=None).memory_needed(100_000, 10))
        931 MB (544 MB of them its state)
        """
        n = check.integer_at_least("n_samples", n_samples, 1)
        check.pieces(self.n_pieces, n)
        return self._need(n, check.integer_at_least("n_features", n_features, 1), self._piece_count(n), current())

    @check.all_or_nothing
    def fit_blocks(self, blocks: Iterable[tuple[Array, Array]]) -> Any:
        """Fit to rows that come in blocks and need not fit into memory; they are collected in a file.

        The file is in the system's folder of temporary files, and is deleted afterwards.

        Parameters
        ----------
        blocks : iterable of (X, y)
            Rows and their targets, or their class labels.

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import ConvexRegressor
        >>> blocks = ((x, x[:, 0] ** 2) for x in np.split(np.linspace(-1, 1, 40)[:, None], 4))
        >>> ConvexRegressor(1e-3).fit_blocks(blocks).gap_ <= 0.01
        True
        """
        features, targets, names = collected(blocks)
        self.fit(features, targets)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        return self

    @check.all_or_nothing
    def partial_fit(self, X: Array, y: Array) -> Any:
        """Fit to the rows of all calls since the first, or since the last :meth:`fit`.

        A fit to more rows goes on from the one before: the state of the rows that are known is kept, and so are the
        cells, and the units of the first call. Later calls may bring new classes.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Targets, or class labels.

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
        features, targets = self._validated(X, y, reset=self._seen is None, dtype=np.float64)
        if current().size > 1:
            raise ValueError("partial_fit must run in one process, got several that share the points")
        if checkpoints.checked(self.checkpoint) is not None:
            raise ValueError("checkpoint must be None for partial_fit, whose rows change")
        if self._seen is not None:
            targets = np.concatenate([self._seen.targets, check.same_kind("y", targets, self._seen.targets)])
            features = np.concatenate([self._seen.features, features])
        fresh = Standardization.from_rows(features, targets if self._predicts else None)
        if self._seen is None or not self._seen.units.serves(fresh):
            self._warm, self._seen = None, SeenRows(features, targets, fresh)
        else:
            self._seen = SeenRows(features, targets, self._seen.units)
        return self._fit(features, targets)

    @check.all_or_nothing
    def _fit_monitored(self, X: Array, y: Array, monitor: Monitor, sample_weight: np.ndarray | None = None) -> Any:
        """Fit as `fit` does while `monitor` looks on; it is for the caller to warn where the fit does not end well."""
        return self._fit_weighted(*self._validated(X, y), sample_weight, monitor)

    def _fit_weighted(
        self, features: np.ndarray, targets: np.ndarray, sample_weight: Array | None, monitor: Monitor | None = None
    ) -> Any:
        """Fit to rows that count by their weights; those of weight 0 are left out."""
        weights = check.sample_weights(sample_weight, len(features))
        if weights is not None and not weights.all():
            features, targets, weights = (part[weights > 0] for part in (features, targets, weights))
        return self._fit(features, targets, monitor, weights)

    def _validated(self, X: Array, y: Array, **checks: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows and targets; those of a memory-mapped array stay in their file, in their precision."""
        kind = "numeric" if isinstance(X, np.memmap) else np.float64
        checks = {"dtype": kind, "y_numeric": self._predicts, **checks}
        features, targets = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), **checks)
        return features, targets.astype(np.float64) if self._predicts else targets

    def _units(
        self, features: np.ndarray, targets: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> Standardization:
        """The units of a fit: those that `partial_fit` goes on with, or else those of the rows."""
        return Standardization.from_rows(features, targets, weights) if self._seen is None else self._seen.units

    def _options(self, n_rows: int) -> Options:
        """Parameters of the loop; those that all learners have are checked."""
        check_random_state(self.random_state)
        check.boolean("warm_start", self.warm_start)
        check.boolean("standardize", self.standardize)
        check.callback(self.callback)
        checkpoints.checked(self.checkpoint)
        check.pieces(self.n_pieces, n_rows)
        return Options(
            tol=check.positive("tol", self.tol),
            max_iter=check.integer_at_least("max_iter", self.max_iter, 1),
            verbose=check.verbosity(self.verbose),
        )

    def _penalty_level(self, units: Standardization, device: torch.device) -> Tensor:
        """alpha_l in the solver's coordinates: alpha acts on the original slopes where nothing is standardized."""
        unit = np.ones_like(units.unit) if self.standardize else units.target_scale * units.unit
        return torch.as_tensor(check.positive("alpha", self.alpha) / unit, device=device)

    def _piece_count(self, n_points: int, n_classes: int | None = None) -> int:
        """The pieces asked for, given the number of distinct points, and of their classes where these are known."""
        if self.n_pieces == "auto":
            return n_points if n_points <= self._own_piece_points else self._auto_cells
        return n_points if self.n_pieces is None else min(int(self.n_pieces), n_points)

    @property
    def _fine(self) -> bool:
        """Whether the state is in double precision."""
        return check.positive("tol", self.tol) < FINE_TOLERANCE

    def _seed(self) -> Any:
        """The seed of a fit: without one, ranks must still draw the same numbers."""
        ranks = current()
        if ranks.size == 1 or isinstance(self.random_state, Integral):
            return self.random_state
        return int(ranks.agreed(float(check_random_state(self.random_state).randint(2**31 - 1)))[0])

    def _points(self, features: np.ndarray, units: Standardization, merged: Merged) -> Points:
        """The distinct points of a fit, where they belong."""
        ranks = current() if self._shares_points else ALONE
        return Points(features, units, merged, check.resolve_device(self.device), ranks)

    def _start(self, points: Points, seed: Any, classes: np.ndarray | None = None) -> Start:
        """Cells, inside each class where classes of the points are given, and what there is to go on from."""
        n, n_features = len(points), points.features.shape[1]
        n_pieces = self._piece_count(n, None if classes is None else int(classes.max()) + 1)
        need = partial(self._need, n, n_features, ranks=current())
        if points.ranks.size > 1 and n_pieces >= n:
            raise ValueError(
                f"n_pieces must be a number below that of the distinct points, {n}, where several processes share"
                f" them, got {self.n_pieces!r}"
            )
        require_room(type(self).__name__, points, n_pieces, need, verbose=bool(self.verbose))
        known_seed = int(self.random_state) if isinstance(self.random_state, Integral) else None
        alpha = self.alpha if isinstance(self.alpha, str) else float(self.alpha)
        parameters = [type(self).__name__, str(self.n_pieces), known_seed, alpha, float(self.tol)]
        writer, cells = open_checkpoint(self.checkpoint, parameters, self.max_iter, points, classes)
        warm, self._warm = self._warm, None  # it is used up, also where the fit fails
        geometry, state = starting_geometry(
            points,
            n_pieces,
            seed=seed,
            classes=classes,
            cells=cells,
            warm=warm,
            same_points=self.warm_start,
            more_points=self._seen is not None,
        )
        return Start(geometry, state, writer, n_pieces)

    def _solve(
        self,
        problem: Problem,
        start: Start,
        options: Options,
        learned: Callable[[Tensor, float], Any],
        monitor: Monitor | None,
    ) -> tuple[Tensor, Result]:
        """The best pieces and how they were found; where a later fit may go on from them, their state is kept."""
        listeners = _Listeners(self.callback, monitor, learned)
        options = replace(options, monitor=listeners, tight_from=0.0 if monitor is None else monitor.tight_from)
        solution = solve(problem, options, start=start.state, writer=start.checkpoint)
        if monitor is not None:
            monitor.finish(partial(learned, solution.pieces))
        if self.warm_start or self._seen is not None:
            self._warm = WarmStart(problem.geometry, solution.state, start.n_pieces)
        return solution.pieces, solution.result

    def _record(self, result: Result, *, monitored: bool) -> None:
        """Store how the fit went, and warn who called the library where it did not end well."""
        self.result_ = result
        self.gap_ = result.gap
        self.n_iter_ = max(1, result.n_iter)
        if not (result.converged or result.stopped or monitored):
            message = f"{type(self).__name__} {result.status}; raise max_iter or tol"
            warnings.warn(message, ConvergenceWarning, stacklevel=check.calls_inside() + 1)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__().copy()
        state["_warm"] = None  # the state matrix of a warm start is large and of no use elsewhere
        return state
