"""What all estimators on the solver share: units, cells, warm starts, and telling how a fit went."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor
from tqdm.auto import tqdm

from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet._core.notebook import shown_in_notebooks
from bregnet.distributed import ALONE, Ranks, current
from bregnet.solver import checkpoints
from bregnet.solver.admm import FINE_TOLERANCE, Options
from bregnet.solver.geometry import Geometry
from bregnet.solver.growth import grown, known_places, nearest_cells
from bregnet.solver.partition import Merged
from bregnet.solver.points import MemoryNeed, Points, Standardisation, free_bytes, readable
from bregnet.solver.result import Check, Result
from bregnet.solver.solve import Solution
from bregnet.solver.storage import collected


@dataclass
class _Warm:
    """What a warm start goes on from."""

    geometry: Geometry
    state: Any  # of the solver
    n_pieces: int  # as asked for

    def fits(self, points: Tensor, n_pieces: int) -> bool:
        """Whether it is for these lifted points on this device, with as many pieces asked for."""
        known = self.geometry.lifted
        if known.shape != points.shape or known.device != points.device or self.n_pieces != n_pieces:
            return False
        return torch.equal(known, points)

    def grown(self, points: Tensor, like: Geometry, classes: Tensor | None) -> tuple[Geometry, Any] | None:
        """Cells and state for more points, if the pieces are of the same kind: one a point, or cells."""
        before = self.geometry
        if before.own_piece != like.own_piece or before.lifted.device != points.device:
            return None
        place = known_places(before.lifted, points)
        new = torch.nonzero(place < 0).squeeze(1)
        cells = before.cells[place.clamp_min(0)]
        if len(new):
            cells[new] = nearest_cells(before, points[new, :-1])
            if classes is not None:
                _keep_classes_apart(before, points, cells, place, classes)
        geometry = like if like.own_piece else replace(like, cells=cells, n_pieces=before.n_pieces)
        return geometry, grown(self.state, before, geometry, place, cells)


def _keep_classes_apart(before: Geometry, points: Tensor, cells: Tensor, place: Tensor, classes: Tensor) -> None:
    """Give new points of a class that has cells to the nearest of these."""
    known = place >= 0
    for label in torch.unique(classes[~known]):
        here = torch.nonzero(~known & (classes == label)).squeeze(1)
        theirs = torch.unique(cells[known & (classes == label)])
        if len(theirs):
            cells[here] = theirs[nearest_cells(before, points[here, :-1], theirs)]


@dataclass
class _Rows:
    """What `partial_fit` has seen."""

    features: np.ndarray
    targets: np.ndarray
    units: Standardisation

    def with_more(self, features: np.ndarray, targets: np.ndarray) -> _Rows:
        """All rows; the units stay, or the state would be for other coordinates."""
        targets = np.concatenate([self.targets, check.same_kind("y", targets, self.targets)])
        return _Rows(np.concatenate([self.features, features]), targets, self.units)


class Watch(Protocol):
    """Who looks at a fit while it runs."""

    tight_from: float  # iteration before which it has no use for a tight bound

    def __call__(self, check: Check, view: Callable[[float], Any]) -> bool:
        """Take a look, `view` being the fitted estimator by its temperature; True ends the fit."""
        ...


@shown_in_notebooks
class SolverEstimator(BaseEstimator, ABC):
    """An estimator whose fit is one run of the solver; subclasses have the constructor parameters named here."""

    alpha: float
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

    _warm: _Warm | None = None
    _seen: _Rows | None = None  # by partial_fit
    _watch: Watch | None = None
    _own_piece_points: int  # n_pieces="auto": up to here every point has its own piece
    _auto_cells: int  # and pieces beyond
    _shares_points: bool  # whether processes share the points of a fit, or else its pieces

    def _options(self) -> Options:
        """Checked parameters of the loop."""
        check_random_state(self.random_state)
        check.boolean("warm_start", self.warm_start)
        return Options(
            tol=check.positive("tol", self.tol),
            max_iter=check.integer_at_least("max_iter", self.max_iter, 1),
            verbose=check.verbosity(self.verbose),
        )

    def _watched(self, options: Options, view: Callable[[Tensor, float], Any]) -> Options:
        """Let the callback see every check, and who watches a fit this estimator as fitted with the best pieces so far.

        `view` makes it from pieces and a temperature.
        """
        callback, watch = check.callback(self.callback), self._watch

        def monitor(found: Check, pieces: Tensor) -> bool:
            stop = callback is not None and bool(callback(found))
            seen = watch is not None and watch(found, lambda temperature: view(pieces, temperature))
            return stop or seen

        tight_from = 0.0 if watch is None else watch.tight_from
        return replace(options, tight_from=tight_from, monitor=monitor)

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

    def _has_own_pieces(self, n_points: int) -> bool:
        """Whether every one of so many points has a piece of its own, whatever the seed."""
        return not isinstance(self.n_pieces, Integral) and self._piece_count(n_points) == n_points

    def memory_needed(self, n_samples: int, n_features: int) -> MemoryNeed:
        """What a fit to so many distinct rows would take at most, beside the rows themselves.

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
        883 MB (496 MB of them its state)
        """
        n = check.integer_at_least("n_samples", n_samples, 1)
        check.pieces(self.n_pieces, n)
        return self._need(n, check.integer_at_least("n_features", n_features, 1), self._piece_count(n), current())

    @abstractmethod
    def _need(self, n: int, n_features: int, n_pieces: int, ranks: Ranks) -> MemoryNeed:
        """What a fit to so many distinct points takes at most."""

    @property
    def _fine(self) -> bool:
        """Whether the state is in double precision."""
        return check.positive("tol", self.tol) < FINE_TOLERANCE

    def _points(self, features: np.ndarray, units: Standardisation, merged: Merged) -> Points:
        """The distinct points of a fit, where they belong."""
        ranks = current() if self._shares_points else ALONE
        return Points(features, units, merged, check.resolve_device(self.device), ranks)

    def _keeper(self) -> checkpoints.Keeper | None:
        kept = checkpoints.checked(self.checkpoint)
        return None if kept is None else checkpoints.Keeper(kept, current())

    def _geometry(
        self, points: Points, seed: Any, classes: np.ndarray | None = None, keeper: checkpoints.Keeper | None = None
    ) -> tuple[Geometry, Any]:
        """Points cut into cells, with the state of the last fit where a warm start applies."""
        n_pieces, ranks = self._piece_count(len(points)), points.ranks
        self._check_room(points, n_pieces)
        kept = self._kept_cells(points, classes, keeper)
        there = points.lifted()
        warm, self._warm = self._warm, None  # it is used up, also where the fit fails
        if self.warm_start and not ranks.any(warm is None or not warm.fits(there, n_pieces)):
            assert warm is not None
            return replace(warm.geometry, weights=points.weights), warm.state
        index = torch.arange(len(there), device=there.device)
        whole = Geometry(there, points.weights, index, len(there), ranks)
        own_piece = n_pieces == len(points)
        if self._seen is not None and warm is not None and (own_piece or warm.n_pieces == n_pieces):
            like = whole if own_piece else replace(whole, n_pieces=0)
            more = warm.grown(there, like, None if classes is None else torch.as_tensor(classes, device=there.device))
            if more is not None:
                return more
        if own_piece:
            return whole, None
        if kept is not None:
            cells, n_cells = kept.to(there.device), int(ranks.largest(kept.max())) + 1
        else:
            cells, n_cells = points.cut(there, n_pieces, classes, seed)
        return replace(whole, cells=cells, n_pieces=n_cells), None

    def _kept_cells(
        self, points: Points, classes: np.ndarray | None, keeper: checkpoints.Keeper | None
    ) -> Tensor | None:
        """The cells that a checkpoint of this fit has; other ranks must have the same data and parameters."""
        ranks = current()
        if keeper is None and ranks.size == 1:
            return None
        seed = int(self.random_state) if isinstance(self.random_state, Integral) else None
        values = [type(self).__name__, str(self.n_pieces), seed, float(self.alpha), float(self.tol)]
        units, merged = points.units, points.merged
        arrays = units.centre, units.scale, merged.inverse, merged.counts, np.zeros(0) if classes is None else classes
        about = checkpoints.digest(values, (torch.as_tensor(array) for array in arrays))
        number = float(int(about[:12], 16))  # fits a double
        if ranks.any(ranks.agreed(number, float(self.max_iter)) != (number, float(self.max_iter))):
            raise ValueError("X, y and parameters must be the same on every process that shares a fit, got others")
        return None if keeper is None else keeper.cells(about)

    def _seed(self) -> Any:
        """The seed of a fit: without one, ranks must still draw the same numbers."""
        ranks = current()
        if ranks.size == 1 or isinstance(self.random_state, Integral):
            return self.random_state
        return int(ranks.agreed(float(check_random_state(self.random_state).randint(2**31 - 1)))[0])

    def _check_room(self, points: Points, n_pieces: int) -> None:
        """Refuse what cannot be done, and say what is to come."""
        n, n_features, ranks = len(points), points.features.shape[1], current()
        if ranks.size > n:
            raise ValueError(f"X must have at least as many distinct rows as processes, {ranks.size}, got {n}")
        if points.ranks.size > 1 and n_pieces >= n:
            raise ValueError(
                f"n_pieces must be a number below that of the distinct points, {n}, where several processes share"
                f" them, got {self.n_pieces!r}"
            )
        need, free = self._need(n, n_features, n_pieces, ranks), free_bytes(points.device)
        wanted = need.total * (ranks.local_size if points.device.type == "cpu" else 1)
        if self.verbose and ranks.rank == 0:
            tqdm.write(f"{type(self).__name__}: {n} points, {n_pieces} pieces; {need}, {readable(free)} free")
        if ranks.any(wanted > free):
            raise MemoryError(
                f"the fit needs {need} for {n} points and {n_pieces} pieces, and {readable(free)} are"
                f" free; {self._advice(n, n_features, free, ranks)}"
            )

    def _advice(self, n: int, n_features: int, free: int, ranks: Ranks) -> str:
        """What to do where memory is short."""
        for n_pieces in (1000, 400, 200, 100, 50):
            need = self._need(n, n_features, n_pieces, ranks)
            if n_pieces < self._piece_count(n) and need.total * ranks.local_size <= free:
                return f"n_pieces={n_pieces} needs {readable(need.total)}"
        return "share it among more machines"

    def _keep_state(self, geometry: Geometry, solution: Solution) -> None:
        """Remember where a warm start, or a fit to more points, goes on."""
        self._warm = None
        if self.warm_start or self._seen is not None:
            self._warm = _Warm(geometry, solution.state, self._piece_count(geometry.n_total))

    @check.all_or_nothing
    def fit_blocks(self, blocks: Iterable[tuple[Array, Array]]) -> Any:
        """Fit to rows that come in blocks and need not fit into memory; they are collected in a file.

        The file lies where the system keeps its temporary files, and is gone afterwards.

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

    @abstractmethod
    def fit(self, X: Array, y: Array) -> Any:
        """Fit to rows and their targets or labels."""

    @abstractmethod
    def _fit(self, features: np.ndarray, targets: np.ndarray, units: Standardisation | None = None) -> Any:
        """Fit to checked rows, in given units if any."""

    @abstractmethod
    def _units(self, features: np.ndarray, targets: np.ndarray) -> Standardisation:
        """The units of a fit to these rows."""

    def _fit_more(self, features: np.ndarray, targets: np.ndarray) -> Any:
        """Fit to these rows and those of earlier calls of `partial_fit`."""
        if current().size > 1:
            raise ValueError("partial_fit must run in one process, got several that share the points")
        if checkpoints.checked(self.checkpoint) is not None:
            raise ValueError("checkpoint must be None for partial_fit, whose rows change")
        before = self._seen
        if before is None:
            self._warm, rows = None, _Rows(features, targets, self._units(features, targets))
        else:
            rows = before.with_more(features, targets)
            fresh = self._units(rows.features, rows.targets)
            if not rows.units.serves(fresh):
                self._warm, rows.units = None, fresh
        self._seen = rows
        try:
            return self._fit(rows.features, rows.targets, rows.units)
        except BaseException:
            self._seen = before
            raise

    def _record(self, result: Result) -> None:
        """Store how the fit went, and warn who called the library where it did not end well."""
        self.result_ = result
        self.gap_ = result.gap
        self.n_iter_ = max(1, result.n_iter)
        if not (result.converged or result.stopped) and self._watch is None:  # else it is for the watcher to tell
            message = f"{type(self).__name__} {result.status}; raise max_iter or tol"
            warnings.warn(message, ConvergenceWarning, stacklevel=check.calls_inside() + 1)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__().copy()
        state["_warm"] = None  # the state matrix of a warm start is large and of no use elsewhere
        state.pop("_watch", None)
        return state
