"""Mixtures of exponential families by their Bregman divergence: soft clustering by EM."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.base import DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.clustering.assignment import Assignment
from bregnet.clustering.base import DivergenceClusterer
from bregnet.clustering.centered_points import CenteredPoints
from bregnet.clustering.centers import lloyd, seeds, weighted_points
from bregnet.clustering.em import Components, Concentration, EMFit, em, hard_shares, log_densities, maximize
from bregnet.divergences import BregmanDivergence


class BregmanMixture(DensityMixin, DivergenceClusterer):
    r"""A mixture whose components fall off with a Bregman divergence from their means, fitted by EM.

    .. math:: p(x) = \sum_k \pi_k (\beta_k / \pi)^{d/2} \exp(-\beta_k D(x, \mu_k))

    With the squared Euclidean distance these are spherical Gaussians of variance 1 / (2 beta), as in scikit-learn's
    ``GaussianMixture(covariance_type="spherical")``, and the log-likelihood is exact. Under another divergence the
    components stand for the exponential family that belongs to it (Banerjee et al., 2005), and p is the saddle-point
    form of its density, without a factor that does not depend on the component: the log-likelihood is the extended
    quasi-likelihood of Nelder and Pregibon (1987). Under one divergence it is maximized, and serves to compare numbers
    of components. It is not a normalized density, and cannot be compared between divergences. Under "itakura-saito",
    points whose entries range from 1e-16 to 1 lose digits: scale or clip them.

    Parameters
    ----------
    n_components : int, default=1
    divergence : BregmanDivergence, str, Generator or learner, default="sqeuclidean"
        As in :class:`bregnet.BregmanKMeans`.
    concentration : {"component", "tied"} or float, default="component"
        The beta: "component", one for each component; "tied", one for all; or a number to use as it is.
    init_params : {"kmeans", "k-means++", "random_from_data"}, default="kmeans"
        Initial means: the centers of k-means, its seeds, or random points.
    n_init : int, default=1
        Number of starts; the result of the highest likelihood is returned.
    max_iter : int, default=100
        Iterations at most; a ``ConvergenceWarning`` says when they did not suffice.
    tol : float, default=1e-3
        EM stops when the mean log-likelihood gains no more than this.
    min_dispersion : float, default=1e-6
        The smallest 1 / (2 beta), as a share of that of all points around their mean: a component on a single point
        would be infinitely concentrated.
    means_init : array of shape (n_components, n_features), default=None
        Initial means.
    weights_init : array of shape (n_components,), default=None
        Initial weights, positive; they are scaled to a sum of 1.
    random_state : int, RandomState or None, default=None
        Seed of the means.
    device : str or torch.device, default="auto"
        Where to compute; "auto" takes CUDA when there is one.
    verbose : int, default=0
        1 prints a line for each start.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
        The means of the components; of mapped rows, where the divergence has a feature map that is not affine.
    concentrations_ : ndarray of shape (n_components,)
        The beta.
    converged_ : bool
    n_iter_ : int
    lower_bound_ : float
        Mean log-likelihood of the training points.
    lower_bounds_ : list of float
        The same at the start and after each iteration; it never decreases.
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
    >>> from bregnet import BregmanMixture
    >>> X = np.array([[1.0], [1.2], [0.8], [10.0], [14.0], [6.0]])
    >>> model = BregmanMixture(2, divergence="itakura-saito", random_state=0).fit(X)
    >>> np.sort(model.means_[:, 0]).round(1)
    array([ 1., 10.])
    """

    _centers_name = "means_"

    def __init__(
        self,
        n_components: int = 1,
        *,
        divergence: Any = "sqeuclidean",
        concentration: str | float = "component",
        init_params: str = "kmeans",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-3,
        min_dispersion: float = 1e-6,
        means_init: Array | None = None,
        weights_init: Array | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.divergence = divergence
        self.concentration = concentration
        self.init_params = init_params
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.min_dispersion = min_dispersion
        self.means_init = means_init
        self.weights_init = weights_init
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @check.all_or_nothing
    def fit(self, X: Array, y: Array | None = None) -> BregmanMixture:
        """Fit the components to the rows of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), default=None
            Labels from which a learner learns the divergence; not used otherwise.

        Returns
        -------
        self : BregmanMixture

        Examples
        --------
        >>> from bregnet import BregmanMixture
        >>> BregmanMixture().fit([[0.0], [2.0]]).concentrations_  # variance 1
        array([0.5])
        """
        features, points = self._training_points(X, least=2)
        n_init = self._check_parameters(len(features))
        seed = check_random_state(self.random_state)
        self._learn(features, y)
        best = self._best_of(n_init, *self._inside(points), seed)
        found = best.components
        self.weights_, self.means_, self.concentrations_ = (
            each.cpu().numpy() for each in (found.weights, found.means, found.concentrations)
        )
        free = {"component": self.n_components, "tied": 1}  # concentrations, for bic: the parameter may change later
        self._n_free = free[self.concentration] if isinstance(self.concentration, str) else 0
        self.converged_ = best.converged
        self.lower_bounds_ = list(best.lower_bounds)
        self.lower_bound_ = self.lower_bounds_[-1]
        self.n_iter_ = max(1, len(self.lower_bounds_) - 1)
        if not self.converged_:
            warnings.warn(f"BregmanMixture {best.status}", ConvergenceWarning, stacklevel=check.calls_inside() + 1)
        return self

    def _check_parameters(self, n_samples: int) -> int:
        """Check all parameters; returns the number of starts."""
        check.integer_at_least("n_components", self.n_components, 1)
        if self.n_components > n_samples:
            found = f"n_samples={n_samples}, got {self.n_components}"
            raise ValueError(f"n_components must be at most the number of rows of X, {found}")
        check.integer_at_least("max_iter", self.max_iter, 1)
        check.at_least_zero("tol", self.tol)
        check.positive("min_dispersion", self.min_dispersion)
        check.verbosity(self.verbose)
        check.one_of("init_params", self.init_params, ("kmeans", "k-means++", "random_from_data"))
        if isinstance(self.concentration, Real) and not isinstance(self.concentration, bool):
            check.positive("concentration", self.concentration)
        elif not (isinstance(self.concentration, str) and self.concentration in ("component", "tied")):
            raise ValueError(f"concentration must be 'component', 'tied' or a number, got {self.concentration!r}")
        n_init = check.integer_at_least("n_init", self.n_init, 1)
        return n_init if self.means_init is None else 1

    @torch.no_grad()
    def _best_of(self, n_init: int, divergence: BregmanDivergence, X: Tensor, seed: np.random.RandomState) -> EMFit:
        """The likeliest result of several starts."""
        points = weighted_points(divergence, X, None)
        rule = self._rule(points)

        def run(number: int) -> EMFit:
            found = em(points, self._start(divergence, points, rule, seed), rule, self.max_iter, self.tol)
            if check.verbosity(self.verbose):
                likelihood, n_iter = found.lower_bounds[-1], len(found.lower_bounds) - 1
                print(f"start {number} of {n_init}: mean log-likelihood {likelihood:g} after {n_iter} iterations")
            return found

        return max(map(run, range(1, n_init + 1)), key=lambda found: found.lower_bounds[-1])

    def _rule(self, points: CenteredPoints) -> Concentration:
        dispersion = points.values.double().mean().item() / points.x.shape[1]  # 1 / (2 beta) of one component
        most = 1e-8 * torch.finfo(points.x.dtype).max  # beta D is finite still
        smallest = self.min_dispersion * dispersion if dispersion > 0 else self.min_dispersion
        largest = min(0.5 / max(smallest, 0.5 / most), most)
        fixed = None if isinstance(self.concentration, str) else float(self.concentration)
        return Concentration(self.concentration == "tied", fixed, largest)

    def _start(
        self, divergence: BregmanDivergence, points: CenteredPoints, rule: Concentration, seed: np.random.RandomState
    ) -> Components:
        """Initial components: those of the points nearest to the initial means."""
        k = self.n_components
        if self.means_init is not None:
            given = arrays.to_torch("means_init", to_numpy(self.means_init, "means_init"))
            means = seeds(points, k, given, seed, name="means_init")
        elif self.init_params == "kmeans":
            means = lloyd(divergence, points.x, k, seed=seed).centers
        else:
            means = seeds(points, k, "random" if self.init_params == "random_from_data" else "k-means++", seed)
        shares = hard_shares(points, Assignment(points, means).labels, k)
        nothing = Components(torch.ones_like(means[:, 0]) / k, means, means.new_full((k,), min(1.0, rule.largest)))
        start = maximize(points, shares, rule, nothing)
        if self.means_init is not None:
            start = replace(start, means=means)
        if self.weights_init is not None:
            weights = arrays.parameter("weights_init", to_numpy(self.weights_init, "weights_init"))
            if weights.shape != (k,) or not (weights > 0).all():
                raise ValueError(f"weights_init must be positive, one for each of {k}, got {weights.tolist()}")
            start = replace(start, weights=(weights / weights.sum()).to(points.x))
        return start

    @torch.no_grad()
    def _joint(self, X: Array) -> Tensor:
        """log(pi_k p_k(x)) for the rows of X, (n, k)."""
        divergence, given, means = self._new_points(X)
        x, means = divergence._both(given, means)
        weights, concentrations = (torch.as_tensor(v).to(x) for v in (self.weights_, self.concentrations_))
        points = CenteredPoints(divergence.generator, x, origin=weights @ means)
        out = x.new_empty(len(x), len(means))
        for rows, logs in log_densities(points, Components(weights, means, concentrations)):
            out[rows] = logs
        return out

    def predict(self, X: Array) -> Array:
        """The most likely component of each row of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        labels : array of shape (n_samples,)
            A torch tensor where X is one.

        Examples
        --------
        >>> from bregnet import BregmanMixture
        >>> model = BregmanMixture(2, means_init=[[0.0], [9.0]]).fit([[0.0], [1.0], [8.0], [9.0]])
        >>> model.predict([[2.0], [7.0]])
        array([0, 1])
        """
        return arrays.like(self._joint(X).argmax(1), X)

    def fit_predict(self, X: Array, y: Array | None = None) -> Array:
        """Fit, and return the most likely component of each row of X; parameters as in :meth:`fit`.

        Examples
        --------
        >>> from bregnet import BregmanMixture
        >>> BregmanMixture(2, means_init=[[0.0], [9.0]]).fit_predict([[0.0], [1.0], [8.0], [9.0]])
        array([0, 0, 1, 1])
        """
        return self.fit(X, y).predict(X)

    def predict_proba(self, X: Array) -> Array:
        """Probability of each component for each row of X, (n_samples, n_components).

        Examples
        --------
        >>> from bregnet import BregmanMixture
        >>> model = BregmanMixture(2, means_init=[[0.0], [9.0]], concentration="tied")
        >>> model.fit([[0.0], [1.0], [8.0], [9.0]]).predict_proba([[4.5]]).round(3)
        array([[0.5, 0.5]])
        """
        logs = self._joint(X)
        shares = torch.softmax(logs, dim=1)
        if torch.isnan(shares).any():
            raise ValueError("X must not be so far from all means that its likelihood is 0 in every component")
        return arrays.like(shares, X)

    def score_samples(self, X: Array) -> Array:
        """Log-likelihood of each row of X, (n_samples,).

        Examples
        --------
        >>> from bregnet import BregmanMixture
        >>> BregmanMixture().fit([[-1.0], [1.0]]).score_samples([[0.0]]).round(4)  # log(1 / sqrt(2 pi))
        array([-0.9189])
        """
        return arrays.like(torch.logsumexp(self._joint(X), dim=1), X)

    def score(self, X: Array, y: Array | None = None) -> float:
        """Mean log-likelihood of the rows of X.

        Examples
        --------
        >>> from bregnet import BregmanMixture
        >>> round(BregmanMixture().fit([[-1.0], [1.0]]).score([[0.0], [0.0]]), 4)
        -0.9189

        Scores of different divergences must not be compared: see :meth:`bregnet.BregmanKMeans.score` for a search over
        the parameters of a learner.
        """
        return float(self.score_samples(X).mean())

    def bic(self, X: Array) -> float:
        """Bayesian information criterion on X; lower is better, between mixtures under one divergence.

        Examples
        --------
        >>> from bregnet import BregmanMixture
        >>> X = [[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]]
        >>> models = [BregmanMixture(k, random_state=0).fit(X) for k in (1, 2)]
        >>> models[1].bic(X) < models[0].bic(X)
        True
        """
        return -2 * self.score(X) * len(X) + self._n_parameters() * math.log(len(X))

    def aic(self, X: Array) -> float:
        """Akaike information criterion on X; lower is better, between mixtures under one divergence.

        Examples
        --------
        >>> from bregnet import BregmanMixture
        >>> X = [[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]]
        >>> models = [BregmanMixture(k, random_state=0).fit(X) for k in (1, 2)]
        >>> models[1].aic(X) < models[0].aic(X)
        True
        """
        return -2 * self.score(X) * len(X) + 2 * self._n_parameters()

    def _n_parameters(self) -> int:
        n_components, n_features = self.means_.shape
        return n_components * n_features + n_components - 1 + self._n_free
