"""What all estimators on the solver share: units, cells, warm starts, and telling how a fit went."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from bregnet import _validation as check
from bregnet.admm.geometry import Geometry
from bregnet.admm.loop import Options, State
from bregnet.admm.result import Check, Result


@dataclass(frozen=True)
class Standardisation:
    """Affine maps to the solver's coordinates: unit-variance features and targets.

    The solver always works there, so that its step size suits data of any scale; whether the penalty acts there
    or on the original slopes is a matter of its level per feature.
    """

    centre: np.ndarray
    scale: np.ndarray  # 0 where a feature does not vary
    target_centre: float = 0.0
    target_scale: float = 1.0

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray | None = None) -> Standardisation:
        """Means and standard deviations."""
        centre, scale = _spread("X", X)
        if y is None:
            return cls(centre, scale)
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

    def original(self, pieces: np.ndarray, *, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Slopes and intercepts of pieces (K, d + 1) in the original coordinates, raised by `level`."""
        slopes = np.where(self.scale > 0, self.target_scale * pieces[:, :-1] / self.unit, 0.0)
        return slopes, self.target_scale * pieces[:, -1] + level - slopes @ self.centre


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


class Watch(Protocol):
    """Who looks at a fit while it runs."""

    tight_from: float  # iteration before which it has no use for a tight bound

    def __call__(self, check: Check, view: Callable[[float], Any]) -> bool:
        """Take a look, `view` being the fitted estimator by its temperature; True ends the fit."""
        ...


class SolverEstimator(BaseEstimator):
    """An estimator whose fit is one run of the solver; subclasses have the constructor parameters named here."""

    alpha: float
    n_pieces: int | str | None
    standardize: bool
    tol: float
    max_iter: int
    warm_start: bool
    device: str | torch.device
    verbose: int
    callback: Callable | None
    random_state: int | np.random.RandomState | None

    _warm: _Warm | None = None
    _watch: Watch | None = None
    _own_piece_points = 4000  # n_pieces="auto": up to here every point has its own piece
    _auto_cells = 1000  # and pieces beyond

    def _options(self) -> Options:
        """Checked parameters of the loop."""
        check_random_state(self.random_state)
        return Options(
            tol=check.positive("tol", self.tol),
            max_iter=check.integer_at_least("max_iter", self.max_iter, 1),
            verbose=check.verbosity(self.verbose),
            callback=check.callback(self.callback),
        )

    def _watched(self, options: Options, view: Callable[[Tensor, float], Any]) -> Options:
        """Let who watches a fit see, at every check, this estimator as if fitted with the best pieces so far.

        `view` makes it from pieces and a temperature.
        """
        watch = self._watch
        if watch is None:
            return options
        monitor = lambda check, pieces: watch(check, lambda temperature: view(pieces, temperature))  # noqa: E731
        return replace(options, repairs_from=watch.tight_from, monitor=monitor)

    def _penalty_level(self, units: Standardisation, device: torch.device) -> Tensor:
        """alpha_l in the solver's coordinates: alpha acts on the original slopes where nothing is standardised."""
        alpha = check.positive("alpha", self.alpha)
        plain = check.boolean("standardize", self.standardize)
        unit = np.ones_like(units.unit) if plain else units.target_scale * units.unit
        return torch.as_tensor(alpha / unit, device=device)

    def _piece_count(self, n_points: int) -> int:
        """The pieces asked for, given the number of distinct points."""
        if self.n_pieces == "auto":
            return n_points if n_points <= self._own_piece_points else self._auto_cells
        return n_points if self.n_pieces is None else min(int(self.n_pieces), n_points)

    def _geometry(
        self, points: np.ndarray, counts: np.ndarray, device: torch.device, cut: Callable[[int], np.ndarray]
    ) -> tuple[Geometry, State | None]:
        """Points with the cells that `cut` makes; those of the last fit, with its state, where a warm start applies."""
        n = len(points)
        there, weights = torch.as_tensor(points, device=device), torch.as_tensor(counts, device=device)
        n_pieces = self._piece_count(n)
        warm, self._warm = self._warm, None  # it is used up, also where the fit fails
        if self.warm_start and warm is not None and warm.fits(there, n_pieces):
            return replace(warm.geometry, weights=weights), warm.state
        if n_pieces == n:
            return Geometry.build(there, weights), None
        cells = cut(n_pieces)
        return Geometry.build(there, weights, torch.as_tensor(cells, device=device), int(cells.max()) + 1), None

    def _keep_state(self, geometry: Geometry, state: State) -> None:
        """Remember where a warm start goes on."""
        self._warm = _Warm(geometry, state, self._piece_count(geometry.n_points)) if self.warm_start else None

    def _record(self, result: Result, *, depth: int = 1) -> None:
        """Store how the fit went, and warn the caller `depth` calls above where it did not end well."""
        self.result_ = result
        self.gap_ = result.gap
        self.n_iter_ = max(1, result.n_iter)
        if not (result.converged or result.stopped) and self._watch is None:  # else it is for the watcher to tell
            message = f"{type(self).__name__} {result.status}; raise max_iter or tol"
            warnings.warn(message, ConvergenceWarning, stacklevel=2 + depth)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__().copy()
        state["_warm"] = None  # the state matrix of a warm start is large and of no use elsewhere
        state.pop("_watch", None)
        return state
