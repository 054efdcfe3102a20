"""k-means under a Bregman divergence as a scikit-learn clusterer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.clustering.base import DivergenceClusterer
from bregnet.clustering.centers import Clusters, lloyd, nearest_centers, seeds, weighted_points
from bregnet.clustering.minibatch import RunningMeans, mini_batch
from bregnet.divergences import BregmanDivergence


class BregmanKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, DivergenceClusterer):
    """k-means under a Bregman divergence.

    Minimizes ``sum_i w_i D(x_i, c_label(i))`` over centers and labels by Lloyd's iteration: the mean is the best
    center of its points under every Bregman divergence. With ``divergence="sqeuclidean"`` this is k-means as in
    scikit-learn. Histograms may have zeros under "kl": a bin that is empty in a whole cluster is tiny but positive in
    its center, which is then very far from points with mass in that bin. "itakura-saito" needs positive X.

    Parameters
    ----------
    n_clusters : int, default=8
    divergence : BregmanDivergence, str, Generator or learner, default="sqeuclidean"
        A divergence, its name as in :func:`bregnet.divergence`, its generator, or a learner such as
        :class:`bregnet.PBDL`. A fitted learner is used as it is; of an unfitted one, `fit` fits a clone to X and y.
        ``clone`` turns a fitted learner into an unfitted one, unless it is in a ``sklearn.frozen.FrozenEstimator``.
    init : {"k-means++", "random"}, callable or array of shape (n_clusters, n_features), default="k-means++"
        Initial centers: points far from each other by D, random points, what ``init(X, n_clusters, random_state=...)``
        returns, or the rows of an array.
    n_init : int or "auto", default="auto"
        Number of starts; the result of least inertia is returned. "auto" is 1 for "k-means++" and 10 for "random" and
        callables. With an array there is one start.
    max_iter : int, default=300
        Iterations at most.
    tol : float, default=1e-4
        The iteration stops when the squared shift of all centers together is at most this share of the mean variance
        of the features. Not used with batches.
    batch_size : int, default=None
        Number of points in a mini-batch, for large sets; None takes all points in every iteration. Centers are then
        running means of random batches, until the smoothed objective has not decreased for ten batches; up to ten
        iterations over all points follow. `max_iter` then counts passes over the points.
    verbose : int, default=0
        1 prints a line for each start.
    device : str or torch.device, default="auto"
        Where to compute; "auto" takes CUDA when there is one.
    random_state : int, RandomState or None, default=None
        Seed of the centers and the batches.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The centers, each the mean of the rows of its cluster, or of the mapped rows where the divergence has a feature
        map that is not affine.
    labels_ : ndarray of shape (n_samples,)
        Number of the nearest center for each row; between centers on the same piece of a max-affine function the
        squared Euclidean distance decides.
    inertia_ : float
        Weighted sum of the divergences of the points from their centers.
    history_ : tuple of float
        The objective at the start and after each iteration, which never increases; with batches, the smoothed mean
        divergence after each of them.
    n_iter_ : int
    divergence_ : BregmanDivergence
    learner_ : estimator or None
        The fitted learner, where the divergence was learned.
    n_features_in_ : int

    References
    ----------
    Banerjee et al., "Clustering with Bregman Divergences", JMLR 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet import BregmanKMeans
    >>> X = np.array([[0.1, 0.9], [0.2, 0.8], [0.8, 0.2], [0.9, 0.1]])  # distributions
    >>> model = BregmanKMeans(2, divergence="kl", random_state=0).fit(X)
    >>> model.cluster_centers_[model.predict([[0.05, 0.95]])].round(2)
    array([[0.15, 0.85]])
    """

    _centers_name = "cluster_centers_"

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        divergence: Any = "sqeuclidean",
        init: str | Array | Callable = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        batch_size: int | None = None,
        verbose: int = 0,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.divergence = divergence
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.verbose = verbose
        self.device = device
        self.random_state = random_state

    @check.all_or_nothing
    def fit(self, X: Array, y: Array | None = None, sample_weight: Array | None = None) -> BregmanKMeans:
        """Find the clusters of the rows of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), default=None
            Class labels from which a learner learns the divergence; not used otherwise.
        sample_weight : array of shape (n_samples,), default=None
            Weight of each row in the means and in the inertia, at least 0; 1 by default.

        Returns
        -------
        self : BregmanKMeans

        Examples
        --------
        >>> from bregnet import BregmanKMeans
        >>> model = BregmanKMeans(1).fit([[0.0], [4.0]], sample_weight=[3.0, 1.0])
        >>> model.cluster_centers_, model.inertia_
        (array([[1.]]), 12.0)
        """
        features, points = self._training_points(X)
        weights = check.sample_weights(sample_weight, len(features))
        runs = self._runs()
        seed = check_random_state(self.random_state)
        self._learn(features, y)
        found = self._best_of(runs, *self._inside(points), weights, seed)

        self.cluster_centers_, self.labels_ = found.centers.cpu().numpy(), found.labels.cpu().numpy()
        self.inertia_, self.history_, self.n_iter_ = found.inertia, found.history, found.n_iter
        weight = np.bincount(self.labels_, weights, minlength=self.n_clusters)
        self._running = RunningMeans(found.centers, torch.as_tensor(weight, dtype=torch.float64, device=points.device))
        self._seed = seed
        if len(np.unique(self.labels_)) < self.n_clusters:
            message = f"{len(np.unique(self.labels_))} distinct clusters were found, fewer than n_clusters"
            message += f"={self.n_clusters}; X may have duplicate rows"
            warnings.warn(message, ConvergenceWarning, stacklevel=check.calls_inside() + 1)
        return self

    def _best_of(
        self, runs: int, divergence: BregmanDivergence, points: Tensor, weights: Array | None, seed: Any
    ) -> Clusters:
        """The clusters of least inertia of several starts."""
        clusters = lloyd if self.batch_size is None else partial(mini_batch, batch_size=self.batch_size)
        settings: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol, "weights": weights, "seed": seed}

        def run(number: int) -> Clusters:
            found = clusters(divergence, points, self.n_clusters, init=self._start(points, seed), **settings)
            if check.verbosity(self.verbose):
                print(f"start {number} of {runs}: inertia {found.inertia:g} after {found.n_iter} iterations")
            return found

        return min(map(run, range(1, runs + 1)), key=lambda found: found.inertia)

    def _runs(self) -> int:
        """Checked parameters, and the number of starts."""
        check.integer_at_least("n_clusters", self.n_clusters, 1)
        check.integer_at_least("max_iter", self.max_iter, 1)
        check.at_least_zero("tol", self.tol)
        check.verbosity(self.verbose)
        if self.batch_size is not None:
            check.integer_at_least("batch_size", self.batch_size, 1)
        if self.init is None or (isinstance(self.init, str) and self.init not in ("k-means++", "random")):
            raise ValueError(f"init must be 'k-means++', 'random', a callable or an array, got {self.init!r}")
        drawn = callable(self.init) or isinstance(self.init, str)
        if isinstance(self.n_init, str):
            if self.n_init != "auto":
                raise ValueError(f"n_init must be 'auto' or an integer, got {self.n_init!r}")
            return 10 if drawn and not (isinstance(self.init, str) and self.init == "k-means++") else 1
        n_init = check.integer_at_least("n_init", self.n_init, 1)
        return n_init if drawn else 1

    def _start(self, points: Tensor, seed: np.random.RandomState) -> str | Tensor:
        """Where a run starts: a method of `seeds`, or centers."""
        if isinstance(self.init, str):
            return self.init
        init = self.init
        if callable(init):
            init = init(points.cpu().numpy(), self.n_clusters, random_state=seed)
        return arrays.to_torch("init", to_numpy(init, "init")).to(points)

    @torch.no_grad()
    @check.all_or_nothing
    def partial_fit(self, X: Array, y: Array | None = None, sample_weight: Array | None = None) -> BregmanKMeans:
        """Update the centers by a batch; the first batch initializes them, unless :meth:`fit` has.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            At least `n_clusters` rows where it initializes the centers.
        y : array of shape (n_samples,), default=None
            Labels from which a learner learns the divergence, at the first batch only.
        sample_weight : array of shape (n_samples,), default=None
            Weight of each row.

        Returns
        -------
        self : BregmanKMeans
            `labels_` and `inertia_` are those of the batch, `history_` the mean divergences of the batches since
            :meth:`fit`, each before its update of the centers.

        Examples
        --------
        >>> from bregnet import BregmanKMeans
        >>> model = BregmanKMeans(2, random_state=0)
        >>> for batch in ([[0.0], [9.0]], [[1.0], [11.0]], [[2.0], [10.0]]):
        ...     model = model.partial_fit(batch)
        >>> sorted(model.cluster_centers_[:, 0].tolist())
        [1.0, 10.0]
        """
        running: RunningMeans | None = getattr(self, "_running", None)
        features, points = self._training_points(X, reset=running is None)
        weights = check.sample_weights(sample_weight, len(features))
        self._runs()
        if running is not None and len(running.centers) != self.n_clusters:
            n_before = len(running.centers)
            raise ValueError(f"n_clusters must stay {n_before} after the first fit, got {self.n_clusters}; fit anew")
        if running is not None:
            self._check_same_divergence()
        else:
            self._learn(features, y)
            self._seed = check_random_state(self.random_state)
        divergence, points = self._inside(points)
        batch = weighted_points(divergence, points, weights)
        if running is None:
            start = seeds(batch, self.n_clusters, self._start(batch.x, self._seed), self._seed)
            running = RunningMeans.starting_at(start)
        running.absorb(batch, self._seed)
        labels, divergences = nearest_centers(divergence, batch.x, running.centers)
        self.cluster_centers_ = running.centers.cpu().numpy()
        self.labels_, self.inertia_ = labels.cpu().numpy(), batch.unit * batch.total(divergences)
        self.history_, self.n_iter_ = tuple(running.history), len(running.history)
        self._running = running
        return self

    def predict(self, X: Array) -> Array:
        """Number of the nearest center by D(x, c) for each row of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        labels : array of shape (n_samples,)
            A torch tensor where X is one.

        Examples
        --------
        >>> from bregnet import BregmanKMeans
        >>> model = BregmanKMeans(2, init=[[0.0], [9.0]]).fit([[0.0], [1.0], [9.0]])
        >>> model.predict([[2.0], [8.0]])
        array([0, 1])
        """
        labels, _ = nearest_centers(*self._new_points(X))
        return arrays.like(labels, X)

    def fit_predict(self, X: Array, y: Array | None = None, sample_weight: Array | None = None) -> Array:
        """Fit, and return the label of each row of X; parameters as in :meth:`fit`.

        Examples
        --------
        >>> from bregnet import BregmanKMeans
        >>> BregmanKMeans(2, init=[[0.0], [9.0]]).fit_predict([[0.0], [1.0], [9.0]])
        array([0, 0, 1])
        """
        labels = self.fit(X, y, sample_weight=sample_weight).labels_
        return torch.as_tensor(labels, device=X.device) if isinstance(X, Tensor) else labels

    def transform(self, X: Array) -> Array:
        """Divergences D(x, c) of the rows of X from all centers.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        D : array of shape (n_samples, n_clusters)
            A torch tensor where X is one.

        Examples
        --------
        >>> from bregnet import BregmanKMeans
        >>> model = BregmanKMeans(2, init=[[0.0], [9.0]]).fit([[0.0], [1.0], [9.0]])
        >>> model.transform([[2.5]])
        array([[ 4.  , 42.25]])
        """
        divergence, points, centers = self._new_points(X)
        return arrays.like(torch.as_tensor(divergence.pairwise(points, centers)), X)

    def score(self, X: Array, y: Array | None = None, sample_weight: Array | None = None) -> float:
        """Minus the weighted sum of the divergences of the rows of X from their nearest centers.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : ignored
        sample_weight : array of shape (n_samples,), default=None

        Returns
        -------
        score : float

        Examples
        --------
        >>> from bregnet import BregmanKMeans
        >>> BregmanKMeans(1).fit([[0.0], [2.0]]).score([[1.0], [4.0]])
        -9.0

        Scores of different divergences must not be compared: a divergence that is nearly 0 everywhere would win. A
        search over the parameters of a learner needs another measure, such as the agreement with class labels:

        >>> from sklearn.datasets import load_iris
        >>> from sklearn.metrics import adjusted_rand_score, make_scorer
        >>> from sklearn.model_selection import GridSearchCV, StratifiedKFold
        >>> from bregnet import PBDL
        >>> X, y = load_iris(return_X_y=True)
        >>> model = BregmanKMeans(3, divergence=PBDL(temperature=0.3, tol=0.5), random_state=0)
        >>> grid = {"divergence__alpha": [0.01, 0.1]}
        >>> agreement = make_scorer(adjusted_rand_score)
        >>> search = GridSearchCV(model, grid, scoring=agreement, cv=StratifiedKFold(2)).fit(X, y)
        >>> bool(search.best_score_ > 0.7)
        True
        """
        _, divergences = nearest_centers(*self._new_points(X))
        values = divergences.double().cpu().numpy()
        weights = check.sample_weights(sample_weight, len(values))
        return -float(np.sum(values if weights is None else values * weights))

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)
