"""Nearest neighbors under a Bregman divergence as scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_array
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.retrieval.base import PRECISIONS, RadiusSearcher, WeightedNeighbors


def class_votes(classes: np.ndarray, n_classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Sums of the weights of each class (n_queries, n_classes), given the neighbors' classes (n_queries, n_neighbors).

    Without weights all neighbors count alike. The class of a query is the one with most votes, the first of several.
    """
    n_queries = len(classes)
    places = (n_classes * np.arange(n_queries)[:, None] + classes).ravel()
    votes = np.bincount(places, None if weights is None else weights.ravel(), n_queries * n_classes)
    return votes.reshape(n_queries, n_classes)


class BregmanNearestNeighbors(RadiusSearcher):
    """Search for the nearest rows under a Bregman divergence.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or learner, default=None
        A divergence, its generator, its name as in :func:`bregnet.divergence`, or a learner such as
        :class:`bregnet.PBDL` or a grid search over one. A fitted learner is used as it is; of an unfitted one, `fit`
        fits a clone to X and y. ``clone``, and therefore ``GridSearchCV``, turns a fitted learner into an unfitted one,
        which is then fitted in each fold; in a ``sklearn.frozen.FrozenEstimator`` it stays fitted. None is squared
        Euclidean.
    n_neighbors : int, default=5
    radius : float, default=1.0
        The largest divergence in :meth:`radius_neighbors`.
    side : {"right", "left"}, default="right"
        "right" searches for the least D(query, row), "left" for the least D(row, query).
    kind : {"flat", "ivf"}, default="flat"
        Kind of :class:`bregnet.BregmanIndex`: "flat" is exact, "ivf" approximate and faster.
    n_cells : int, default=None
        Number of lists of kind "ivf"; about the square root of the number of rows by default.
    nprobe : int, default=8
        Lists of kind "ivf" that are searched for a query: more are slower and find more. ``index_.nprobe`` changes it
        without another fit.
    device : str or torch.device, default="auto"
        Where to search; "auto" takes CUDA when there is one.
    random_state : int, RandomState or None, default=None
        Seed of the lists of kind "ivf"; an integer gives the same answers for the same data.
    index : str
        The earlier name of `kind`.

        .. deprecated:: 0.2

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
    >>> from bregnet import BregmanNearestNeighbors
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
        kind: str = "flat",
        n_cells: int | None = None,
        nprobe: int = 8,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        index: str = "deprecated",
    ) -> None:
        settings: dict[str, Any] = {"n_cells": n_cells, "nprobe": nprobe, "device": device}
        super().__init__(divergence, side=side, kind=kind, **settings, random_state=random_state, index=index)
        self.n_neighbors, self.radius = n_neighbors, radius

    @check.all_or_nothing
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
        >>> from bregnet import BregmanNearestNeighbors
        >>> BregmanNearestNeighbors().fit([[0.0], [1.0]]).n_samples_fit_
        2
        """
        self._check_parameters()
        self._build(check.validate_data(self, to_numpy(X, "X"), dtype=PRECISIONS), to_numpy(y, "y"))
        return self


class BregmanKNeighborsClassifier(ClassifierMixin, WeightedNeighbors):
    """Classification by a vote of the nearest neighbors under a Bregman divergence.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or learner, default=None
        As in :class:`BregmanNearestNeighbors`; a learner learns from the class labels.
    n_neighbors : int, default=None
        Number of neighbors. None is the number that the learner has chosen, as :class:`bregnet.PBDLCV` does for
        ``scoring="accuracy"``, and 5 otherwise.
    weights : {"uniform", "distance", "softmax"} or callable, default="uniform"
        How much the vote of each neighbor counts: "uniform", all alike; "distance", 1 / D, where neighbors at D = 0
        outvote all others; "softmax", exp(-D), for divergences such as those of :class:`bregnet.BregmanNCA`, with
        `n_neighbors` of 50 or more; or a function from the divergences, an ndarray of shape (n_queries, n_neighbors),
        to weights of at least 0. For weights exp(-D / T) with another T than 1, pass ``1 / T * generator`` as the
        divergence.
    side : {"right", "left"}, default="right"
    kind : {"flat", "ivf"}, default="flat"
    n_cells : int, default=None
    nprobe : int, default=8
    device : str or torch.device, default="auto"
    random_state : int, RandomState or None, default=None
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
    >>> from bregnet import BregmanKNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BregmanKNeighborsClassifier(PBDL(temperature=0.3, tol=0.1)).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    @check.all_or_nothing
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
        >>> from bregnet import BregmanKNeighborsClassifier
        >>> BregmanKNeighborsClassifier().fit([[0.0], [1.0]], ["b", "a"]).classes_
        array(['a', 'b'], dtype='<U1')
        """
        self._check_parameters()
        features, labels = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), dtype=PRECISIONS)
        check.class_labels(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        self._build(features, labels)
        self.classes_, self._classes = classes, numbers
        return self

    def predict(self, X: Array | None) -> Array:
        """The class of each row of X: the one with most votes; of several, the first in `classes_`.

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
        >>> from bregnet import BregmanKNeighborsClassifier
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
        >>> from bregnet import BregmanKNeighborsClassifier
        >>> X, y = [[0.0], [1.0], [3.0]], ["a", "a", "b"]
        >>> model = BregmanKNeighborsClassifier(n_neighbors=2, weights="distance").fit(X, y)
        >>> model.predict_proba([[2.0]])  # rows 1 and 2, both at D = 1
        array([[0.5, 0.5]])
        """
        votes = self._votes(X)
        return _like(votes / votes.sum(1, keepdims=True), X)

    def _votes(self, X: Array | None) -> np.ndarray:
        """Sum of the weights of each class, (n_queries, n_classes)."""
        weights, ids = self._weighted_neighbors(X)
        return class_votes(self._classes[ids], len(self.classes_), weights)

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
        >>> from bregnet import BregmanKNeighborsClassifier
        >>> model = BregmanKNeighborsClassifier(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "a", "b"])
        >>> model.score([[0.4], [2.4]], ["a", "a"])
        0.5
        """
        return check.checked_score(super().score, X, y, sample_weight)


class BregmanKNeighborsRegressor(RegressorMixin, WeightedNeighbors):
    """Regression by the mean of the nearest neighbors under a Bregman divergence.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or learner, default=None
        As in :class:`BregmanNearestNeighbors`. A learner is fitted to the targets, so a learner of class labels, such
        as :class:`bregnet.PBDL`, needs targets that are classes; for other targets, fit the learner first.
    n_neighbors : int, default=None
        Number of neighbors; None is 5.
    weights : {"uniform", "distance", "softmax"} or callable, default="uniform"
    side : {"right", "left"}, default="right"
    kind : {"flat", "ivf"}, default="flat"
    n_cells : int, default=None
    nprobe : int, default=8
    device : str or torch.device, default="auto"
    random_state : int, RandomState or None, default=None
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
    >>> from bregnet import BregmanKNeighborsRegressor
    >>> model = BregmanKNeighborsRegressor("kl", n_neighbors=2).fit([[1.0], [2.0], [4.0]], [1.0, 2.0, 5.0])
    >>> model.predict([[1.2], [3.5]])
    array([1.5, 3.5])
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @check.all_or_nothing
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
        >>> from bregnet import BregmanKNeighborsRegressor
        >>> model = BregmanKNeighborsRegressor(n_neighbors=1).fit([[0.0], [1.0]], [[1.0, -1.0], [2.0, -2.0]])
        >>> model.predict([[0.1]])
        array([[ 1., -1.]])
        """
        self._check_parameters()
        features, targets = check.validate_data(
            self, to_numpy(X, "X"), to_numpy(y, "y"), dtype=PRECISIONS, multi_output=True
        )
        values = check_array(targets, ensure_2d=False, dtype=np.float64, input_name="y")
        self._build(features, targets)
        self._targets = values
        return self

    def predict(self, X: Array | None) -> Array:
        """The weighted mean of the neighbors' targets for each row of X.

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
        >>> from bregnet import BregmanKNeighborsRegressor
        >>> model = BregmanKNeighborsRegressor(n_neighbors=2, weights="distance").fit([[0.0], [3.0]], [0.0, 5.0])
        >>> model.predict([[1.0], [3.0]])  # weights 1 and 1/4; D = 0 outweighs all others
        array([1., 5.])
        """
        weights, ids = self._weighted_neighbors(X)
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
        >>> from bregnet import BregmanKNeighborsRegressor
        >>> model = BregmanKNeighborsRegressor(n_neighbors=1).fit([[0.0], [1.0]], [0.0, 4.0])
        >>> model.score([[0.1], [0.8]], [0.0, 4.0])
        1.0
        """
        return check.checked_score(super().score, X, y, sample_weight)


def _like(values: np.ndarray, X: Array | None) -> Array:
    """A torch tensor where X is one, on its device."""
    return torch.as_tensor(values, device=X.device) if isinstance(X, Tensor) else values
