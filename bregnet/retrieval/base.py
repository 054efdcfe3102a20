"""What neighbors and rankings share as estimators: the divergence, the index, queries in and arrays out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet._core.notebook import shown_in_notebooks
from bregnet.divergences import BregmanDivergence
from bregnet.divergences.resolve import LearnedDivergenceMixin, fitted_divergence, last_learner
from bregnet.retrieval.engines import is_seeded
from bregnet.retrieval.index import KINDS, BregmanIndex

PRECISIONS = (np.float64, np.float32)


@shown_in_notebooks
class DivergenceSearcher(LearnedDivergenceMixin, BaseEstimator):
    """An estimator with its training rows in an index; subclasses have the constructor parameters named here."""

    side: str
    kind: str
    index: str
    n_cells: int | None
    nprobe: int
    device: str | torch.device
    random_state: int | np.random.RandomState | None

    divergence_: BregmanDivergence
    index_: BregmanIndex
    n_features_in_: int

    def __init__(
        self,
        divergence: Any = None,
        *,
        side: str = "right",
        kind: str = "flat",
        n_cells: int | None = None,
        nprobe: int = 8,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        index: str = "deprecated",
    ) -> None:
        self.divergence = divergence
        self.side = side
        self.kind = kind
        self.n_cells = n_cells
        self.nprobe = nprobe
        self.device = device
        self.random_state = random_state
        self.index = index

    def _check_parameters(self) -> None:
        """Raise an error for bad parameters before anything is learned."""
        check.one_of("side", self.side, ("right", "left"))
        if self.index != "deprecated":
            warnings.warn("index is now called kind, as in BregmanIndex, and will go", FutureWarning, stacklevel=4)
        check.one_of("kind" if self.index == "deprecated" else "index", self._kind, KINDS)
        if self.n_cells is not None:
            check.integer_at_least("n_cells", self.n_cells, 1)
        check.integer_at_least("nprobe", self.nprobe, 1)
        check.resolve_device(self.device)
        check_random_state(self.random_state)

    @property
    def _kind(self) -> str:
        """The kind of index, also by its earlier name."""
        return self.kind if self.index == "deprecated" else self.index

    def _build(self, features: np.ndarray, y: Any) -> None:
        """Set the divergence, from y where it is to be learned, and put the rows into an index by their numbers."""
        divergence, learner = fitted_divergence(self.divergence, features, y)
        index = BregmanIndex(
            divergence,
            side=self.side,
            kind=self._kind,
            n_cells=self.n_cells,
            nprobe=self.nprobe,
            device=self.device,
            random_state=_seed(self.random_state) if is_seeded(self._kind) else None,
        )
        index.add(features)
        self.divergence_, self.learner_, self.index_ = divergence, learner, index
        self.n_samples_fit_ = len(features)

    def _queries(self, name: str, X: Array) -> Array:
        """Rows to look for; torch tensors stay where they are."""
        check_is_fitted(self, "index_")
        if X is None:
            raise ValueError(f"{name} must have shape (n_queries, {self.n_features_in_}), got None")
        if isinstance(X, Tensor):
            queries: Array = arrays.points(name, X, self.n_features_in_, None, None)
        else:
            queries = check.rows_of(self, name, to_numpy(X, name), dtype=PRECISIONS)
        # The index checks it too, but does not know the name of the argument.
        points = self.divergence_._mapped(name, arrays.to_torch(name, queries).double())
        self.divergence_.generator._check_domain(name, points, tangent=self.index_.side == "left")
        return queries

    @property
    def _items(self) -> Tensor:
        """The training rows as the index keeps them, mapped where its divergence has a feature map."""
        check_is_fitted(self, "index_")
        return self.index_._collection.gallery().points


class NeighborSearcher(DivergenceSearcher):
    """Nearest training rows, with `n_neighbors` of the constructor as their default number."""

    n_neighbors: int | None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_neighbors is not None:
            check.integer_at_least("n_neighbors", self.n_neighbors, 1)

    @property
    def n_neighbors_(self) -> int:
        """The number of neighbors: that of the constructor, or what the learner has chosen, or 5."""
        if self.n_neighbors is not None:
            return self.n_neighbors
        return getattr(last_learner(self.learner_), "n_neighbors_", None) or 5

    def _asked(self, X: Array | None) -> tuple[BregmanIndex, Array]:
        """The index and queries for it: the rows of X, or the training rows, which it has."""
        return (self.index_._of_mapped, self._items) if X is None else (self.index_, self._queries("X", X))

    def kneighbors(
        self, X: Array | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Array | tuple[Array, Array]:
        """The nearest training rows of each query.

        Parameters
        ----------
        X : array of shape (n_queries, n_features), default=None
            The queries. None takes the training rows, none of which is then its own neighbor.
        n_neighbors : int, default=None
            Neighbors of each query; that of the constructor by default.
        return_distance : bool, default=True
            Whether to return the divergences too.

        Returns
        -------
        divergences : array of shape (n_queries, n_neighbors), double precision
            D(query, row), or D(row, query) for ``side="left"``, nearest first; only if `return_distance`.
        ids : array of shape (n_queries, n_neighbors), int
            Row numbers of the training data: by divergence, then squared Euclidean distance, then number. Torch
            tensors where X is one, as the divergences; numpy arrays where it is None.

        Examples
        --------
        >>> from bregnet import BregmanNearestNeighbors
        >>> model = BregmanNearestNeighbors(n_neighbors=2).fit([[0.0], [1.0], [3.0]])
        >>> divergences, ids = model.kneighbors([[0.9]])
        >>> ids
        array([[1, 0]])
        >>> divergences.round(2)
        array([[0.01, 0.81]])
        >>> model.kneighbors(n_neighbors=1, return_distance=False)
        array([[1],
               [0],
               [1]])
        """
        check_is_fitted(self, "index_")
        count = check.integer_at_least("n_neighbors", self.n_neighbors_ if n_neighbors is None else n_neighbors, 1)
        both = check.boolean("return_distance", return_distance)
        alone = X is None  # a training row does not count itself
        index, queries = self._asked(X)
        if count + alone > self.n_samples_fit_:
            most = "below" if alone else "at most"
            found = f"got {count} with n_samples = {len(queries)} queries"
            raise ValueError(f"n_neighbors must be {most} the number of training rows ({self.n_samples_fit_}), {found}")
        if alone:
            own = torch.arange(len(queries))
            divergences, ids = map(to_numpy, nearest_others(index, queries, count, own))
        else:
            divergences, ids = index.search(queries, count)
        return (divergences, ids) if both else ids

    def kneighbors_graph(
        self, X: Array | None = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> csr_array:
        """The nearest training rows of each query as a sparse matrix.

        Parameters
        ----------
        X : array of shape (n_queries, n_features), default=None
        n_neighbors : int, default=None
            As in :meth:`kneighbors`.
        mode : {"connectivity", "distance"}, default="connectivity"
            Whether the entries of neighbors are ones or divergences.

        Returns
        -------
        graph : csr_array of shape (n_queries, n_samples_fit)
            Neighbors at divergence 0 are stored like all others.

        Examples
        --------
        >>> from bregnet import BregmanNearestNeighbors
        >>> model = BregmanNearestNeighbors(n_neighbors=1).fit([[0.0], [1.0], [3.0]])
        >>> model.kneighbors_graph(mode="distance").toarray()
        array([[0., 1., 0.],
               [1., 0., 0.],
               [0., 4., 0.]])
        """
        check.one_of("mode", mode, ("connectivity", "distance"))
        divergences, ids = (to_numpy(part) for part in self.kneighbors(X, n_neighbors))
        return self._graph(divergences.ravel(), ids.ravel(), np.full(len(ids), ids.shape[1]), mode)

    def _graph(self, divergences: np.ndarray, ids: np.ndarray, counts: np.ndarray, mode: str) -> csr_array:
        """Neighbors of all queries, one query after the other, as a sparse matrix."""
        starts = np.append(0, np.cumsum(counts))
        entries = divergences if mode == "distance" else np.ones(len(ids))
        return csr_array((entries, ids, starts), shape=(len(counts), self.n_samples_fit_))


class RadiusSearcher(NeighborSearcher):
    """All training rows that are near enough too, with `radius` of the constructor as the default."""

    radius: float

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check.at_least_zero("radius", self.radius)

    def radius_neighbors(
        self, X: Array | None = None, radius: float | None = None, return_distance: bool = True
    ) -> Any:
        """All training rows within a divergence of each query.

        Parameters
        ----------
        X : array of shape (n_queries, n_features), default=None
            The queries. None takes the training rows, none of which is then its own neighbor.
        radius : float, default=None
            The largest divergence, included (up to rounding); that of the constructor by default.
        return_distance : bool, default=True
            Whether to return the divergences too.

        Returns
        -------
        divergences : ndarray of shape (n_queries,) of ndarray
            For each query, those of its neighbors, nearest first; only if `return_distance`.
        ids : ndarray of shape (n_queries,) of ndarray
            Their row numbers. Lists of tensors where X is a torch tensor, as the divergences.

        Examples
        --------
        >>> from bregnet import BregmanNearestNeighbors
        >>> model = BregmanNearestNeighbors(radius=1.0).fit([[0.0], [1.0], [3.0]])
        >>> divergences, ids = model.radius_neighbors([[0.5], [9.0]])
        >>> ids.tolist()
        [array([0, 1]), array([], dtype=int64)]
        """
        check_is_fitted(self, "index_")
        both = check.boolean("return_distance", return_distance)
        largest = check.at_least_zero("radius", self.radius if radius is None else radius)
        index, queries = self._asked(X)
        divergences, ids = index.search_radius(queries, largest)
        if X is None:
            others = [to_numpy(each) != row for row, each in enumerate(ids)]
            divergences, ids = _chosen(divergences, others), _chosen(ids, others)
        if isinstance(X, Tensor):
            return (divergences, ids) if both else ids
        return (_ragged(divergences), _ragged(ids)) if both else _ragged(ids)

    def radius_neighbors_graph(
        self, X: Array | None = None, radius: float | None = None, mode: str = "connectivity"
    ) -> csr_array:
        """All training rows within a divergence of each query, as a sparse matrix.

        Parameters
        ----------
        X : array of shape (n_queries, n_features), default=None
        radius : float, default=None
            As in :meth:`radius_neighbors`.
        mode : {"connectivity", "distance"}, default="connectivity"
            Whether the entries of neighbors are ones or divergences.

        Returns
        -------
        graph : csr_array of shape (n_queries, n_samples_fit)
            Neighbors at divergence 0 are stored like all others.

        Examples
        --------
        >>> from bregnet import BregmanNearestNeighbors
        >>> model = BregmanNearestNeighbors().fit([[0.0], [1.0], [3.0]])
        >>> model.radius_neighbors_graph(radius=4.0).toarray()
        array([[0., 1., 0.],
               [1., 0., 1.],
               [0., 1., 0.]])
        """
        check.one_of("mode", mode, ("connectivity", "distance"))
        divergences, ids = ([to_numpy(each) for each in part] for part in self.radius_neighbors(X, radius))
        counts = np.array([len(each) for each in ids], dtype=np.int64)
        together = np.concatenate([np.empty(0), *divergences]), np.concatenate([np.empty(0, dtype=np.int64), *ids])
        return self._graph(*together, counts, mode)


class WeightedNeighbors(NeighborSearcher):
    """Neighbors that count by weights, in a vote or a mean."""

    def __init__(
        self,
        divergence: Any = None,
        n_neighbors: int | None = None,
        *,
        weights: str | Callable[[np.ndarray], np.ndarray] = "uniform",
        side: str = "right",
        kind: str = "flat",
        n_cells: int | None = None,
        nprobe: int = 8,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        index: str = "deprecated",
    ) -> None:
        settings: dict[str, Any] = {"n_cells": n_cells, "nprobe": nprobe, "device": device}
        super().__init__(divergence, side=side, kind=kind, **settings, random_state=random_state, index=index)
        self.n_neighbors, self.weights = n_neighbors, weights

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_weights()

    def _check_weights(self) -> None:
        if not (callable(self.weights) or (isinstance(self.weights, str) and self.weights in WEIGHTS)):
            raise ValueError(f"weights must be {', '.join(map(repr, WEIGHTS))} or a callable, got {self.weights!r}")

    def _weighted_neighbors(self, X: Array | None) -> tuple[np.ndarray, np.ndarray]:
        """Weights and row numbers of the neighbors (n_queries, n_neighbors); no query has zero weights only."""
        divergences, ids = (to_numpy(part) for part in self.kneighbors(X))
        self._check_weights()  # they may have been set after the fit
        if isinstance(self.weights, str):
            return WEIGHTS[self.weights](divergences), ids
        weights = np.asarray(to_numpy(self.weights(divergences)), dtype=np.float64)
        if weights.shape != divergences.shape:
            raise ValueError(f"weights must return an array of shape {divergences.shape}, got {weights.shape}")
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            found = f"{weights.min():g} to {weights.max():g}"
            raise ValueError(f"weights must return finite numbers of at least 0, got {found}")
        nothing = np.flatnonzero(~weights.any(1))
        if len(nothing):
            raise ValueError(f"weights must return a positive number for each query, got zeros for query {nothing[0]}")
        return weights, ids


def _seed(random_state: int | np.random.RandomState | None) -> int:
    """One seed for an index, so that its cells are the same wherever they are made: a pickled one makes them anew."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _inverse(divergences: np.ndarray) -> np.ndarray:
    """Multiples of 1 / D, such that the nearest neighbor has weight 1: nothing overflows, however small D is."""
    nearest = np.broadcast_to(divergences.min(1, keepdims=True), divergences.shape)
    at_zero = (divergences == 0).astype(np.float64)
    return np.divide(nearest, divergences, out=at_zero, where=nearest > 0)


def _exponential(divergences: np.ndarray) -> np.ndarray:
    """Multiples of exp(-D), such that the nearest neighbor has weight 1."""
    return np.exp(divergences.min(1, keepdims=True) - divergences)


WEIGHTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform": np.ones_like,
    "distance": _inverse,
    "softmax": _exponential,
}


def nearest_others(index: BregmanIndex, Q: Array, k: int, own: Array, **options: Any) -> tuple[Any, Any]:
    """Divergences and ids of the k nearest items of each query but the item that is the query, (n_queries, k).

    Parameters
    ----------
    index : BregmanIndex
    Q : array of shape (n_queries, n_features)
    k : int
    own : array of shape (n_queries,), int
        The ids of the queries themselves.
    **options
        Those of :meth:`bregnet.BregmanIndex.search`.
    """
    divergences: Any
    ids: Any
    divergences, ids = index.search(Q, k + 1, **options)
    is_own = ids == (own.to(ids.device) if isinstance(own, Tensor) else own)[:, None]
    # Of more than k duplicates, those with the least numbers are found: without the last, they are the k nearest.
    is_own[~is_own.any(1), -1] = True
    return divergences[~is_own].reshape(-1, k), ids[~is_own].reshape(-1, k)


def _chosen(parts: list, places: list[np.ndarray]) -> list:
    """Some places of each part."""
    return [to_numpy(each)[there] for each, there in zip(parts, places, strict=True)]


def _ragged(parts: list) -> np.ndarray:
    """Arrays of different lengths as one array of objects."""
    out = np.empty(len(parts), dtype=object)
    out[:] = parts
    return out
