"""Nearest neighbours under a Bregman divergence as scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from bregnet import _validation as check
from bregnet._arrays import Array, to_numpy
from bregnet._searching import PRECISIONS, NeighborSearcher, WeightedNeighbors


class BregmanNearestNeighbors(NeighborSearcher):
    """Search for the nearest rows under a Bregman divergence.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or learner, default=None
        A divergence, its generator, its name as in :func:`bregnet.divergence`, or a learner such as
        :class:`bregnet.PBDL`, of which `fit` fits a clone to X and y. None is squared Euclidean.
    n_neighbors : int, default=5
    radius : float, default=1.0
        The largest divergence in :meth:`radius_neighbors`.
    side : {"right", "left"}, default="right"
        "right" searches for the least D(query, row), "left" for the least D(row, query).
    index : {"flat", "ivf"}, default="flat"
        Kind of :class:`bregnet.BregmanIndex`: "flat" is exact, "ivf" approximate and faster; ``index_.nprobe`` sets
        how much it finds.
    device : str or torch.device, default="auto"
        Where to search; "auto" takes CUDA when there is one.

    Attributes
    ----------
    divergence_ : BregmanDivergence
    learner_ : estimator or None
        The fitted learner, where the divergence was learned.
    index_ : BregmanIndex
        The training rows, by their numbers.
    n_samples_fit_ : int
        Number of training rows.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet.neighbors import BregmanNearestNeighbors
    >>> X = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    >>> model = BregmanNearestNeighbors("kl", n_neighbors=2).fit(X)
    >>> divergences, ids = model.kneighbors([[0.6, 0.4]])
    >>> ids
    array([[0, 1]])
    >>> divergences.round(2)
    array([[0.02, 0.31]])
    """

    def __init__(
        self,
        divergence: Any = None,
        n_neighbors: int = 5,
        radius: float = 1.0,
        *,
        side: str = "right",
        index: str = "flat",
        device: str | torch.device = "auto",
    ) -> None:
        self.divergence = divergence
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.side = side
        self.index = index
        self.device = device

    def fit(self, X: Array, y: Any = None) -> BregmanNearestNeighbors:
        """Take the rows of X, and learn the divergence where a learner was given.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), default=None
            What a learner learns the divergence from, such as class labels; not used otherwise.

        Returns
        -------
        self : BregmanNearestNeighbors

        Examples
        --------
        >>> from bregnet.neighbors import BregmanNearestNeighbors
        >>> BregmanNearestNeighbors().fit([[0.0], [1.0]]).n_samples_fit_
        2
        """
        self._check_parameters()
        check.at_least_zero("radius", self.radius)
        self._build(validate_data(self, to_numpy(X), dtype=PRECISIONS), to_numpy(y))
        return self

    def radius_neighbors(
        self, X: Array | None = None, radius: float | None = None, return_distance: bool = True
    ) -> Any:
        """All training rows within a divergence of each query.

        Parameters
        ----------
        X : array of shape (n_queries, n_features), default=None
            The queries. None takes the training rows, each of which is not its own neighbour.
        radius : float, default=None
            The largest divergence, included (up to rounding); that of the constructor by default.
        return_distance : bool, default=True
            Whether to return the divergences too.

        Returns
        -------
        divergences : ndarray of shape (n_queries,) of ndarray
            For each query, those of its neighbours, nearest first; only if `return_distance`.
        ids : ndarray of shape (n_queries,) of ndarray
            Their row numbers. Lists of tensors where X is a torch tensor, as the divergences.

        Examples
        --------
        >>> from bregnet.neighbors import BregmanNearestNeighbors
        >>> model = BregmanNearestNeighbors(radius=1.0).fit([[0.0], [1.0], [3.0]])
        >>> divergences, ids = model.radius_neighbors([[0.5], [9.0]])
        >>> ids.tolist()
        [array([0, 1]), array([], dtype=int64)]
        """
        check_is_fitted(self, "index_")
        both = check.boolean("return_distance", return_distance)
        largest = check.at_least_zero("radius", self.radius if radius is None else radius)
        queries = self._queries("X", self._items if X is None else X)
        divergences, ids = self.index_.search_radius(queries, largest)
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
            Whether the entries of neighbours are ones or divergences.

        Returns
        -------
        graph : csr_array of shape (n_queries, n_samples_fit)
            Neighbours at divergence 0 are stored like all others.

        Examples
        --------
        >>> from bregnet.neighbors import BregmanNearestNeighbors
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


class BregmanKNeighborsClassifier(ClassifierMixin, WeightedNeighbors):
    """Classification by a vote of the nearest neighbours under a Bregman divergence.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or learner, default=None
        As in :class:`BregmanNearestNeighbors`; a learner learns from the class labels.
    n_neighbors : int, default=5
    weights : {"uniform", "distance"} or callable, default="uniform"
        Whether neighbours vote alike or by 1 / D, those at D = 0 alone if there are any; or a function from the
        divergences (n_queries, n_neighbors), an ndarray, to weights of at least 0.
    side : {"right", "left"}, default="right"
    index : {"flat", "ivf"}, default="flat"
    device : str or torch.device, default="auto"
        As in :class:`BregmanNearestNeighbors`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    divergence_ : BregmanDivergence
    learner_ : estimator or None
        The fitted learner, where the divergence was learned.
    index_ : BregmanIndex
        The training rows, by their numbers.
    n_samples_fit_ : int
        Number of training rows.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bregnet import PBDL
    >>> from bregnet.neighbors import BregmanKNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BregmanKNeighborsClassifier(PBDL(temperature=0.3, tol=0.1)).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    def fit(self, X: Array, y: Array) -> BregmanKNeighborsClassifier:
        """Take the rows of X and their classes, and learn the divergence where a learner was given.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Class labels, numbers or strings.

        Returns
        -------
        self : BregmanKNeighborsClassifier

        Examples
        --------
        >>> from bregnet.neighbors import BregmanKNeighborsClassifier
        >>> BregmanKNeighborsClassifier().fit([[0.0], [1.0]], ["b", "a"]).classes_
        array(['a', 'b'], dtype='<U1')
        """
        self._check_parameters()
        features, labels = validate_data(self, to_numpy(X), to_numpy(y), dtype=PRECISIONS)
        check_classification_targets(labels)
        self._build(features, labels)
        self.classes_, self._classes = np.unique(labels, return_inverse=True)
        return self

    def predict(self, X: Array | None) -> Array:
        """The class of each row of X: the one with most votes, the first in `classes_` of several.

        Parameters
        ----------
        X : array of shape (n_queries, n_features) or None
            None predicts the training rows from the others.

        Returns
        -------
        y : array of shape (n_queries,)
            A torch tensor where X is one and the classes are numbers.

        Examples
        --------
        >>> from bregnet.neighbors import BregmanKNeighborsClassifier
        >>> model = BregmanKNeighborsClassifier(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "a", "b"])
        >>> model.predict([[0.4], [2.4]])
        array(['a', 'b'], dtype='<U1')
        """
        votes = self._votes(X)
        predicted = self.classes_[votes.argmax(1)]
        return _like(predicted, X) if predicted.dtype.kind in "biuf" else predicted

    def predict_proba(self, X: Array | None) -> Array:
        """The share of votes of each class.

        Parameters
        ----------
        X : array of shape (n_queries, n_features) or None
            None predicts the training rows from the others.

        Returns
        -------
        p : array of shape (n_queries, n_classes)
            In the order of `classes_`; a torch tensor where X is one.

        Examples
        --------
        >>> from bregnet.neighbors import BregmanKNeighborsClassifier
        >>> X, y = [[0.0], [1.0], [3.0]], ["a", "a", "b"]
        >>> model = BregmanKNeighborsClassifier(n_neighbors=2, weights="distance").fit(X, y)
        >>> model.predict_proba([[2.0]])  # rows 1 and 2, both at D = 1
        array([[0.5, 0.5]])
        """
        votes = self._votes(X)
        return _like(votes / votes.sum(1, keepdims=True), X)

    def _votes(self, X: Array | None) -> np.ndarray:
        """Sum of the weights of each class, (n_queries, n_classes)."""
        weights, ids = self._weighted_neighbours(X)
        n_queries, n_classes = len(ids), len(self.classes_)
        places = n_classes * np.arange(n_queries)[:, None] + self._classes[ids]
        return np.bincount(places.ravel(), weights.ravel(), n_queries * n_classes).reshape(n_queries, n_classes)

    def score(self, X: Any, y: Array, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted.

        Parameters
        ----------
        X : array of shape (n_queries, n_features) or None
            None predicts the training rows from the others.
        y : array of shape (n_queries,)
        sample_weight : array of shape (n_queries,), default=None

        Returns
        -------
        score : float

        Examples
        --------
        >>> from bregnet.neighbors import BregmanKNeighborsClassifier
        >>> model = BregmanKNeighborsClassifier(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "a", "b"])
        >>> model.score([[0.4], [2.4]], ["a", "a"])
        0.5
        """
        return super().score(to_numpy(X), to_numpy(y), to_numpy(sample_weight))


class BregmanKNeighborsRegressor(RegressorMixin, WeightedNeighbors):
    """Regression by the mean of the nearest neighbours under a Bregman divergence.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or learner, default=None
        As in :class:`BregmanNearestNeighbors`; a learner is fitted to the targets.
    n_neighbors : int, default=5
    weights : {"uniform", "distance"} or callable, default="uniform"
    side : {"right", "left"}, default="right"
    index : {"flat", "ivf"}, default="flat"
    device : str or torch.device, default="auto"
        As in :class:`BregmanKNeighborsClassifier`.

    Attributes
    ----------
    divergence_ : BregmanDivergence
    learner_ : estimator or None
        The fitted learner, where the divergence was learned.
    index_ : BregmanIndex
        The training rows, by their numbers.
    n_samples_fit_ : int
        Number of training rows.
    n_features_in_ : int

    Examples
    --------
    >>> from bregnet.neighbors import BregmanKNeighborsRegressor
    >>> model = BregmanKNeighborsRegressor("kl", n_neighbors=2).fit([[1.0], [2.0], [4.0]], [1.0, 2.0, 5.0])
    >>> model.predict([[1.2], [3.5]])
    array([1.5, 3.5])
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Array, y: Array) -> BregmanKNeighborsRegressor:
        """Take the rows of X and their targets, and learn the divergence where a learner was given.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        self : BregmanKNeighborsRegressor

        Examples
        --------
        >>> from bregnet.neighbors import BregmanKNeighborsRegressor
        >>> model = BregmanKNeighborsRegressor(n_neighbors=1).fit([[0.0], [1.0]], [[1.0, -1.0], [2.0, -2.0]])
        >>> model.predict([[0.1]])
        array([[ 1., -1.]])
        """
        self._check_parameters()
        features, targets = validate_data(self, to_numpy(X), to_numpy(y), dtype=PRECISIONS, multi_output=True)
        values = check_array(targets, ensure_2d=False, dtype=np.float64, input_name="y")
        self._build(features, targets)
        self._targets = values
        return self

    def predict(self, X: Array | None) -> Array:
        """The weighted mean of the neighbours' targets for each row of X.

        Parameters
        ----------
        X : array of shape (n_queries, n_features) or None
            None predicts the training rows from the others.

        Returns
        -------
        y : array of shape (n_queries,) or (n_queries, n_outputs), double precision
            A torch tensor where X is one.

        Examples
        --------
        >>> from bregnet.neighbors import BregmanKNeighborsRegressor
        >>> model = BregmanKNeighborsRegressor(n_neighbors=2, weights="distance").fit([[0.0], [3.0]], [0.0, 5.0])
        >>> model.predict([[1.0], [3.0]])  # weights 1 and 1/4; D = 0 outweighs all others
        array([1., 5.])
        """
        weights, ids = self._weighted_neighbours(X)
        shares = weights / weights.sum(1, keepdims=True)
        return _like(np.einsum("nk,nk...->n...", shares, self._targets[ids]), X)

    def score(self, X: Any, y: Array, sample_weight: Any = None) -> float:
        """Coefficient of determination of the prediction, the mean over outputs.

        Parameters
        ----------
        X : array of shape (n_queries, n_features) or None
            None predicts the training rows from the others.
        y : array of shape (n_queries,) or (n_queries, n_outputs)
        sample_weight : array of shape (n_queries,), default=None

        Returns
        -------
        score : float
            At most 1.

        Examples
        --------
        >>> from bregnet.neighbors import BregmanKNeighborsRegressor
        >>> model = BregmanKNeighborsRegressor(n_neighbors=1).fit([[0.0], [1.0]], [0.0, 4.0])
        >>> model.score([[0.1], [0.8]], [0.0, 4.0])
        1.0
        """
        return super().score(to_numpy(X), to_numpy(y), to_numpy(sample_weight))


def _chosen(parts: list, places: list[np.ndarray]) -> list:
    """Some places of each part."""
    return [to_numpy(each)[there] for each, there in zip(parts, places, strict=True)]


def _ragged(parts: list) -> np.ndarray:
    """Arrays of different lengths as one array of objects."""
    out = np.empty(len(parts), dtype=object)
    out[:] = parts
    return out


def _like(values: np.ndarray, X: Array | None) -> Array:
    """A torch tensor where X is one, on its device."""
    return torch.as_tensor(values, device=X.device) if isinstance(X, Tensor) else values
