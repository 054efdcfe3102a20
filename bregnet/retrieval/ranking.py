"""Ranking the items of a collection by a Bregman divergence as a scikit-learn estimator."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.retrieval.base import PRECISIONS, DivergenceSearcher
from bregnet.retrieval.evaluation import retrieval_scores


class BregmanRanker(DivergenceSearcher):
    """Ranks the items of a collection by their divergence from a query, nearest first.

    Parameters
    ----------
    divergence : BregmanDivergence, Generator, str or learner, default=None
        As in :class:`bregnet.BregmanNearestNeighbors`.
    side : {"right", "left"}, default="right"
        "right" ranks by D(query, item), "left" by D(item, query).
    kind : {"flat", "ivf"}, default="flat"
        Kind of :class:`bregnet.BregmanIndex` that :meth:`rank` asks: "flat" is exact, "ivf" approximate and faster.
    n_cells : int, default=None
        Number of lists of kind "ivf"; about the square root of the number of items by default.
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
        The items, by their row numbers.
    classes_ : ndarray of shape (n_classes,)
        The classes of the items, where `fit` had y.
    n_samples_fit_ : int
        Number of items.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet import BregmanRanker
    >>> items = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    >>> ranker = BregmanRanker("kl").fit(items, ["even", "uneven", "uneven"])
    >>> ids, divergences = ranker.rank([[0.6, 0.4]])
    >>> ids
    array([[0, 1, 2]])
    >>> divergences.round(2)
    array([[0.02, 0.31, 0.38]])
    >>> ranker.score([[0.6, 0.4]], ["even"])
    1.0
    """

    @check.all_or_nothing
    def fit(self, X: Array, y: Array | None = None) -> BregmanRanker:
        """Take the items, and learn the divergence where a learner was given.

        Parameters
        ----------
        X : array of shape (n_items, n_features)
        y : array of shape (n_items,), default=None
            Class labels of the items, which a learner learns from and :meth:`score` needs.

        Returns
        -------
        self : BregmanRanker

        Examples
        --------
        >>> from bregnet import BregmanRanker
        >>> BregmanRanker().fit([[0.0], [1.0]], ["a", "b"]).classes_
        array(['a', 'b'], dtype='<U1')
        """
        self._check_parameters()
        if y is None:
            features, labels = check.validate_data(self, to_numpy(X, "X"), dtype=PRECISIONS), None
        else:
            features, labels = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), dtype=PRECISIONS)
            check.class_labels(labels)
        self._build(features, labels)
        self.__dict__.pop("classes_", None)  # of an earlier fit
        if labels is not None:
            self.classes_, self._classes = np.unique(labels, return_inverse=True)
        return self

    def rank(self, Q: Array, k: int | None = None) -> tuple[Array, Array]:
        """The items of each query, nearest first.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        k : int, default=None
            How many of the nearest; all items by default.

        Returns
        -------
        ids : array of shape (n_queries, k), int
            Row numbers of the items: by divergence, then squared Euclidean distance, then number.
        divergences : array of shape (n_queries, k), double precision
            Torch tensors where Q is one, as the ids.

        Examples
        --------
        >>> from bregnet import BregmanRanker
        >>> BregmanRanker().fit([[0.0], [1.0], [3.0]]).rank([[2.5]], k=2)
        (array([[2, 1]]), array([[0.25, 2.25]]))
        """
        queries = self._queries("Q", Q)
        divergences, ids = self.index_.search(queries, len(self.index_) if k is None else k)
        return ids, divergences

    def score(self, Q: Array, y: Array) -> float:
        """Mean average precision: how near the items of a query's class are among all.

        It is :func:`bregnet.metrics.mean_average_precision` of the divergences of :meth:`rank`, exact for
        ``kind="ivf"`` too: the expected value when items at the same divergence come in random order. Every item
        counts, also one that equals the query.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        y : array of shape (n_queries,)
            Class labels of the queries; items of the same class are relevant.

        Returns
        -------
        score : float
            Between 0 and 1. Queries of a class that no item has do not count.

        Examples
        --------
        >>> from bregnet import BregmanRanker
        >>> ranker = BregmanRanker().fit([[0.0], [1.0], [3.0]], ["a", "b", "a"])
        >>> round(ranker.score([[0.2]], ["a"]), 4)  # places 1 and 3: (1 + 2/3) / 2
        0.8333
        """
        check_is_fitted(self, "index_")
        if not hasattr(self, "classes_"):
            raise ValueError("score needs the classes of the items, and fit was called without y")
        if Q is None:
            raise ValueError(f"Q must have shape (n_queries, {self.n_features_in_}), got None")
        features, labels = check.validate_data(self, to_numpy(Q, "Q"), to_numpy(y, "y"), dtype=PRECISIONS, reset=False)
        queries = self._queries("Q", torch.as_tensor(features))
        known = self._items, self.classes_[self._classes]
        mapped = self.divergence_._mapped("Q", arrays.to_torch("Q", queries))
        scores = retrieval_scores(self.divergence_.base, mapped, labels, known, side=self.index_.side)
        return float(np.nanmean(scores["map"]))
