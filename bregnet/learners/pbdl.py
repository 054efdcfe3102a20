"""Learning a Bregman divergence from labels, pairs or triplets."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet._core.chunks import CACHE, blocks
from bregnet.distributed import Ranks, current
from bregnet.divergences import BregmanDivergence, Generator, MaxAffine
from bregnet.learners.base import SolverEstimator
from bregnet.learners.calibration import similarity_threshold
from bregnet.learners.companions import companion_generator
from bregnet.learners.supervision import class_histograms, given_pairs, given_triplets, in_groups, majority
from bregnet.metrics import mean_average_precision
from bregnet.solver.bregman import BregmanLearning, Labels, Pairs, Supervision, Triplets
from bregnet.solver.checkpoints import Checkpoint
from bregnet.solver.geometry import Geometry
from bregnet.solver.partition import merge_duplicates
from bregnet.solver.penalty import Penalty
from bregnet.solver.points import MemoryNeed, Points, Standardisation, all_pairs_need
from bregnet.solver.result import Check
from bregnet.solver.solve import solve

CALIBRATION_ROWS = 500  # with as many others, at most, to set the threshold by


@dataclass(frozen=True)
class _Told:
    """What the user told, in terms of the rows of X.

    Attributes
    ----------
    supervise : callable
        From the geometry and the points it is made of to the supervision of the program.
    tangents, points, similar : ndarray of shape (m,)
        Pairs of rows to set the threshold by.
    seed : int, RandomState or None
        Of everything that is drawn.
    classes : ndarray or None
        The class of each row, where labels were given.
    """

    supervise: Callable[[Geometry, Points], Supervision]
    tangents: np.ndarray
    points: np.ndarray
    similar: np.ndarray
    seed: Any
    classes: np.ndarray | None = None


class LearnedPairs(BaseEstimator):
    """What an estimator with a `divergence_` and a `threshold_` says of pairs of rows, and how it ranks them."""

    divergence_: BregmanDivergence
    threshold_: float

    def _checked(self, name: str, X: Array) -> Array:
        """Rows to look at after the fit; torch tensors are checked by the divergence."""
        check_is_fitted(self, "divergence_")
        return X if isinstance(X, Tensor) else check.rows_of(self, name, to_numpy(X, name), dtype=np.float64)

    def pair_distance(self, X: Array, Y: Array) -> Array:
        """Divergences D(x, y) between the rows of X and the same rows of Y.

        Parameters
        ----------
        X : array of shape (n_pairs, n_features)
        Y : array of shape (n_pairs, n_features)
            The tangent points.

        Returns
        -------
        distance : array of shape (n_pairs,)

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import PBDL
        >>> X = np.array([[0.0], [0.1], [1.0], [1.2]])
        >>> model = PBDL(alpha=0.001).fit(X, [0, 0, 1, 1])
        >>> near, far = model.pair_distance(X[[0, 0]], X[[1, 3]])
        >>> bool(near < far)
        True
        """
        first = self._checked("X", X)
        return self.divergence_.paired(first, self._checked("Y", Y))

    def pair_score(self, X: Array, Y: Array) -> Array:
        """Similarity of the rows of X and the same rows of Y: minus their divergence, so higher is more similar.

        Parameters
        ----------
        X, Y : array of shape (n_pairs, n_features)

        Returns
        -------
        score : array of shape (n_pairs,)

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import PBDL
        >>> X = np.array([[0.0], [0.1], [1.0], [1.2]])
        >>> model = PBDL(alpha=0.001).fit(X, [0, 0, 1, 1])
        >>> bool(model.pair_score(X[:1], X[1:2]) > model.pair_score(X[:1], X[2:3]))
        True
        """
        return -self.pair_distance(X, Y)

    def is_similar(self, X: Array, Y: Array) -> Array:
        """Whether the rows of X and the same rows of Y are similar: at a divergence of at most `threshold_`.

        A divergence is not symmetric, and so is this: ``is_similar(Y, X)`` asks about D(y, x).

        Parameters
        ----------
        X, Y : array of shape (n_pairs, n_features)

        Returns
        -------
        similar : array of shape (n_pairs,), bool

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import PBDL
        >>> X = np.array([[0.0], [0.1], [1.0], [1.2]])
        >>> model = PBDL(alpha=0.001).fit(X, [0, 0, 1, 1])
        >>> model.is_similar(X[[0, 0]], X[[1, 3]])
        array([ True, False])
        """
        return self.pair_distance(X, Y) <= self.threshold_

    def calibrate(
        self, X: Array, Y: Array, similar: Array, *, strategy: str = "accuracy", rate: float | None = None
    ) -> Any:
        """Set `threshold_` by pairs that are known to be similar or not.

        Parameters
        ----------
        X, Y : array of shape (n_pairs, n_features)
            The pairs, row by row.
        similar : array of shape (n_pairs,), bool
        strategy : {"accuracy", "balanced_accuracy", "true_positive_rate", "false_positive_rate"}
            Tell most pairs right; tell most of both kinds right; find at least `rate` of the similar pairs with as
            few others as possible; let at most `rate` of the dissimilar pairs through and find as many similar ones
            as possible.
        rate : float, default=None
            Between 0 and 1, for the last two.

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bregnet import PBDL
        >>> X, y = load_iris(return_X_y=True)
        >>> model = PBDL(tol=0.1).fit(X, y)
        >>> Y, similar = X[::-1], y == y[::-1]
        >>> model = model.calibrate(X, Y, similar, strategy="false_positive_rate", rate=0.0)
        >>> bool(similar[model.is_similar(X, Y)].all())
        True
        """
        distances = np.asarray(to_numpy(self.pair_distance(X, Y)))
        alike = check.booleans("similar", to_numpy(similar, "similar"), len(distances))
        self.threshold_ = similarity_threshold(distances, alike, strategy, rate)
        return self

    def score(self, X: Array, y: Array) -> float:
        """Mean average precision when every row in turn is a query against all others.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Class labels; rows of the query's class are relevant.

        Returns
        -------
        score : float
            Between 0 and 1. Queries whose class has no other row do not count.

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import PBDL
        >>> X = np.array([[0.0], [0.1], [1.0], [1.2]])
        >>> model = PBDL(alpha=0.001).fit(X, [0, 0, 1, 1])
        >>> model.score(X, [0, 0, 1, 1])
        1.0
        """
        check_is_fitted(self, "divergence_")
        features, labels = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), dtype=np.float64, reset=False)
        precisions = []
        for rows, divergences in self.divergence_.pairwise_blocks(features):
            block = np.asarray(divergences)
            relevant = labels[rows, None] == labels
            np.fill_diagonal(block[:, rows], np.inf)
            np.fill_diagonal(relevant[:, rows], False)
            precisions.append(mean_average_precision(block, relevant, per_query=True))
        per_query = np.concatenate(precisions)
        counted = ~np.isnan(per_query)
        if not counted.any():
            raise ValueError("y must have a class with at least 2 rows, got none")
        return float(per_query[counted].mean())


class PBDL(LearnedPairs, SolverEstimator):
    r"""Piecewise Bregman Divergence Learning (paper, program 7): a divergence that fits what is similar.

    Learns a max-affine convex function f such that, for its divergence D, similar points are near each other and
    dissimilar ones at least 2 apart:

    .. math:: \min_f \sum_{ij} P_{ij} D(x_j, x_i) + M_{ij} \max(0, 2 - D(x_j, x_i)) + \alpha \sum_l \max_k |a_{kl}|

    with weights P on similar and M on dissimilar pairs. The paper's program is that of ``n_pieces=None,
    balanced=False, temperature=0, strictness=0``. Every fit is certified: `gap_` bounds how far from the optimum of
    its program the learned function can be, before it is smoothed or given a companion.

    Parameters
    ----------
    alpha : float, default=0.01
        Weight of the penalty on the slopes, which switches features off (the paper's lambda, for the mean loss).
    n_pieces : int, "auto" or None, default="auto"
        Affine pieces: None gives every point its own, an integer cuts the points into that many cells (inside each
        class where labels are given), "auto" takes None up to 1500 distinct points and 400 cells beyond.
    balanced : bool, default=True
        Whether similar and dissimilar pairs weigh one half each in total; otherwise every pair weighs the same.
    temperature : float, default=0.0
        Smoothing of the learned function, in the units of D. It breaks the ties of a plain maximum and often
        improves retrieval: 0.1 to 0.3 for ranking, more for classification by nearest neighbours.
    strictness : float, default=0.0
        Curvature added to the learned function, for features of unit variance (or as they are, without
        `standardize`): D(x, y) = 0 only for x = y.
    companion : None, "within", "nca" or Generator, default=None
        A generator added to the learned one. "within" is the Mahalanobis distance of the within-class covariance,
        "nca" that of neighbourhood components analysis (labels only); both are scaled so that dissimilar training
        pairs are 2 apart on average, as PBDL wants them. It mends nearest-neighbour accuracy where a linear metric
        does well.
    companion_weight : float, default=1.0
        Its weight.
    standardize : bool, default=True
        Whether alpha refers to features of unit variance. Otherwise it refers to the data as given.
    tol : float, default=0.01
        Certified relative gap at which the fit stops.
    max_iter : int, default=5000
        Iterations after which it stops all the same, with a ``ConvergenceWarning``.
    warm_start : bool, default=False
        Go on from the previous fit when the rows of X are the same, for instance along alpha.
    checkpoint : path, Checkpoint or None, default=None
        A folder in which a long fit keeps its state, and from which it goes on after an interruption; see
        :class:`bregnet.Checkpoint`.
    device : str or torch.device, default="auto"
        Where to compute; "auto" takes CUDA when there is one.
    verbose : int, default=0
        1 shows a progress bar.
    callback : callable, default=None
        Called with each :class:`bregnet.Check`; returning True stops the fit.
    random_state : int, RandomState or None, default=None
        Seed of the cells, of the pairs that set the threshold, and of the "nca" companion.

    Attributes
    ----------
    function_ : MaxAffine
        The learned function, in the original coordinates, smoothed as asked for.
    divergence_ : BregmanDivergence
        Its divergence, companion included.
    threshold_ : float
        Pairs up to this divergence count as similar; chosen for the best (balanced, if `balanced`) accuracy on
        training pairs, and set anew by :meth:`calibrate`.
    feature_bounds_ : ndarray of shape (n_features,)
        L_l, the largest absolute slope of each feature, for features of unit variance if `standardize`: how much
        each matters. 0 for a feature that is not used.
    classes_ : ndarray
        The classes, after :meth:`fit`.
    result_ : Result
        Status, objective, bound, gap, history and time.
    gap_ : float
        The certified relative gap of the program, ``result_.gap``, that of the plain maximum: temperature,
        strictness and companion come on top.
    n_iter_ : int
    n_features_in_ : int

    References
    ----------
    Siahkamari et al., "Faster Algorithms for Learning Convex Functions", ICML 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bregnet import PBDL
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PBDL(alpha=0.01, temperature=0.1, tol=0.1).fit(X, y)
    >>> model.divergence_.pairwise(X[:2], X[-3:]).shape
    (2, 3)
    >>> model.score(X, y) > 0.95
    True
    >>> model.is_similar(X[:2], X[[1, -1]])
    array([ True, False])
    """

    function_: MaxAffine

    _own_piece_points = 1500
    _auto_cells = 400
    _shares_points = True

    def __init__(
        self,
        alpha: float = 1e-2,
        *,
        n_pieces: int | str | None = "auto",
        balanced: bool = True,
        temperature: float = 0.0,
        strictness: float = 0.0,
        companion: str | Generator | None = None,
        companion_weight: float = 1.0,
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        warm_start: bool = False,
        checkpoint: str | os.PathLike | Checkpoint | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
        callback: Callable[[Check], bool | None] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alpha = alpha
        self.n_pieces = n_pieces
        self.balanced = balanced
        self.temperature = temperature
        self.strictness = strictness
        self.companion = companion
        self.companion_weight = companion_weight
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.device = device
        self.verbose = verbose
        self.callback = callback
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @check.all_or_nothing
    def fit(self, X: Array, y: Array) -> PBDL:
        """Learn from class labels: points of the same class are similar.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Class labels, numbers or strings.

        Returns
        -------
        self : PBDL

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import PBDL
        >>> X = np.array([[0.0], [0.1], [1.0], [1.2]])
        >>> PBDL(alpha=0.001).fit(X, ["low", "low", "high", "high"]).classes_
        array(['high', 'low'], dtype='<U4')
        """
        kind = "numeric" if isinstance(X, np.memmap) else np.float64
        features, labels = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), dtype=kind)
        self._seen = None
        return self._fit(features, labels)

    @check.all_or_nothing
    def partial_fit(self, X: Array, y: Array) -> PBDL:
        """Learn from the rows and class labels of all calls since the first, or since the last :meth:`fit`.

        A fit to more rows goes on from the one before: the state of the rows that are known is kept, and so are the
        cells, and the units of the first call. A class may appear late.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)

        Returns
        -------
        self : PBDL

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bregnet import PBDL
        >>> X, y = load_iris(return_X_y=True)
        >>> model = PBDL(tol=0.2).partial_fit(X[::2], y[::2]).partial_fit(X[1::2], y[1::2])
        >>> model.score(X, y) > 0.9
        True
        """
        checks = {"dtype": np.float64, "reset": self._seen is None}
        features, labels = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), **checks)
        check.class_labels(labels)
        return self._fit_more(features, labels)

    def _units(self, features: np.ndarray, targets: np.ndarray) -> Standardisation:
        return Standardisation.of(features)

    def _fit(self, features: np.ndarray, labels: np.ndarray, units: Standardisation | None = None) -> PBDL:
        check.class_labels(labels)
        known, classes = np.unique(labels, return_inverse=True)
        if len(known) < 2:
            raise ValueError("y must have at least 2 classes, got 1 class")
        counts = np.bincount(classes).astype(float)
        if counts.max() < 2:
            raise ValueError("y must have a class with at least 2 rows, got only classes of one row")
        n_similar, n_pairs = np.square(counts).sum(), counts.sum() ** 2
        pull, push = self._weights(n_similar, n_pairs - n_similar)

        def supervise(geometry: Geometry, points: Points) -> Supervision:
            histograms, sizes = class_histograms(classes, points.merged.inverse, len(points))
            here = _within(sizes, points.share)
            present = here > 0
            there = torch.as_tensor(histograms[present], device=points.device)
            return Labels(geometry, there, torch.as_tensor(here[present], device=points.device), pull, push)

        seed = self._seed()
        tangents, points = _sampled_pairs(classes, seed)
        told = _Told(supervise, tangents, points, classes[tangents] == classes[points], seed, classes)
        self._learn(features, told, units)
        self.classes_ = known
        return self

    @check.all_or_nothing
    def fit_pairs(self, X: Array, pairs: Array, similar: Array) -> PBDL:
        """Learn from pairs of rows that are similar or not; both directions of a pair count alike.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        pairs : array of shape (n_pairs, 2)
            Row numbers.
        similar : array of shape (n_pairs,), bool
            Whether the rows of a pair are similar.

        Returns
        -------
        self : PBDL

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import PBDL
        >>> X = np.array([[0.0], [0.1], [1.0], [1.2]])
        >>> model = PBDL(alpha=0.001).fit_pairs(X, [[0, 1], [2, 3], [0, 2], [1, 3]], [True, True, False, False])
        >>> model.is_similar([[0.05]], [[0.0]])
        array([ True])
        """
        features = check.validate_data(self, to_numpy(X, "X"), dtype=np.float64, ensure_min_samples=2)
        self._seen = None
        ends, alike = given_pairs(to_numpy(pairs, "pairs"), to_numpy(similar, "similar"), len(features))
        if alike.all() or not alike.any():
            kind = "similar" if alike.any() else "dissimilar"
            raise ValueError(f"similar must mark pairs of both kinds, got only {kind} ones")
        tangents, points = np.concatenate([ends, ends[:, ::-1]]).T
        both = np.concatenate([alike, alike])
        pull, push = self._weights(float(both.sum()), float((~both).sum()))

        def supervise(geometry: Geometry, there: Points) -> Supervision:
            place, device = there.merged.inverse, there.device
            at = (torch.as_tensor(place[rows], device=device) for rows in (tangents, points))
            weights = (torch.as_tensor(w, device=device) for w in (pull * both, push * ~both))
            return Pairs(geometry, *at, *weights)

        return self._learn(features, _Told(supervise, tangents, points, both, self.random_state))

    @check.all_or_nothing
    def fit_triplets(self, X: Array, triplets: Array) -> PBDL:
        """Learn from triplets: an anchor that is nearer to a positive than to a negative row.

        Minimises the mean of max(0, 1 + D(positive, anchor) - D(negative, anchor)) beside the penalty.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        triplets : array of shape (n_triplets, 3)
            Row numbers of anchor, positive and negative.

        Returns
        -------
        self : PBDL

        Examples
        --------
        >>> import numpy as np
        >>> from bregnet import PBDL
        >>> X = np.array([[0.0], [0.1], [1.0], [1.2]])
        >>> model = PBDL(alpha=0.001).fit_triplets(X, [[0, 1, 2], [1, 0, 3], [2, 3, 0], [3, 2, 1]])
        >>> bool(model.pair_distance(X[:1], X[1:2]) < model.pair_distance(X[:1], X[2:3]))
        True
        """
        features = check.validate_data(self, to_numpy(X, "X"), dtype=np.float64, ensure_min_samples=2)
        self._seen = None
        rows = given_triplets(to_numpy(triplets, "triplets"), len(features))

        def supervise(geometry: Geometry, points: Points) -> Supervision:
            there = torch.as_tensor(points.merged.inverse[rows], device=points.device)
            return Triplets(geometry, there, geometry.lifted.new_full((len(rows),), 1 / len(rows)))

        tangents, points = np.concatenate([rows[:, [0, 1]], rows[:, [0, 2]]]).T
        nearer = np.arange(2 * len(rows)) < len(rows)
        return self._learn(features, _Told(supervise, tangents, points, nearer, self.random_state))

    def _weights(self, n_similar: float, n_dissimilar: float) -> tuple[float, float]:
        """Weight of a similar and of a dissimilar pair."""
        if check.boolean("balanced", self.balanced):
            return 0.5 / n_similar, 0.5 / n_dissimilar
        return (1 / (n_similar + n_dissimilar),) * 2

    def _need(self, n: int, n_features: int, n_pieces: int, ranks: Ranks) -> MemoryNeed:
        share = ranks.share(n)
        here = share.stop - share.start
        return all_pairs_need(here, n_features, n_pieces, fine=self._fine, own_piece=n_pieces >= here)

    def _learn(self, features: np.ndarray, told: _Told, units: Standardisation | None = None) -> PBDL:
        """Build the program, solve it, store what was learned."""
        options, keeper = self._options(), self._keeper()
        check.pieces(self.n_pieces, len(features))
        temperature = check.at_least_zero("temperature", self.temperature)
        strictness = check.at_least_zero("strictness", self.strictness)
        if current().size > 1 and told.classes is None:
            raise ValueError("pairs and triplets must be learned by one process, got several that share the points")
        units = units or Standardisation.of(features)
        merged = merge_duplicates(features, units.points)
        classes = None
        if told.classes is not None:
            merged = in_groups(merged, told.classes)
            classes = majority(merged, told.classes)
        points = self._points(features, units, merged)
        level = self._penalty_level(units, points.device)
        companion = self._companion(features, units, told)
        geometry, state = self._geometry(points, told.seed, classes, keeper)
        supervision = told.supervise(geometry, points)
        if state is not None and not state.suits(supervision.entries):
            state = None
        problem = BregmanLearning(geometry, Penalty(level), supervision)
        scale = units.unit if self.standardize else np.ones_like(units.unit)

        def view(pieces: Tensor, temperature: float) -> PBDL:
            """What this learner were, had it learned these pieces."""
            seen = copy(self)
            slopes, intercepts = units.original(pieces[0].cpu().numpy(), level=0.0)
            curvature = strictness / scale / scale
            function = MaxAffine(slopes, intercepts, temperature=temperature, strictness=curvature)
            seen.function_, seen.temperature = function, temperature
            seen.divergence_ = BregmanDivergence(function if companion is None else function + companion)
            return seen

        solution = solve(problem, self._watched(options, view), start=state, keeper=keeper)
        self._keep_state(geometry, solution)
        found, result = solution.pieces, solution.result
        del solution, state  # their memory is needed again
        seen = view(found, temperature)
        function, learned = seen.function_, seen.divergence_
        slopes, intercepts = units.original(found[0].cpu().numpy(), level=0.0)
        objective = _original_objective(problem, points, slopes, intercepts)
        if not np.isclose(objective, result.objective, rtol=1e-9):  # ties that rounding has broken another way
            result = result.restated(objective, options.tol)
        strategy = "balanced_accuracy" if self.balanced else "accuracy"
        threshold = similarity_threshold(_told_distances(learned, features, told), told.similar, strategy)

        if hasattr(self, "classes_"):  # of an earlier fit to labels
            del self.classes_
        self.function_, self.divergence_, self.threshold_ = function, learned, threshold
        self.feature_bounds_ = np.abs(slopes).max(0) * scale
        self._record(result)
        return self

    def _companion(self, features: np.ndarray, units: Standardisation, told: _Told) -> Generator | None:
        weight = check.at_least_zero("companion_weight", self.companion_weight)
        if self.companion is None:
            return None
        features = np.asarray(features, dtype=np.float64)  # a companion is learned in memory
        if isinstance(self.companion, Generator):
            known, n_features = self.companion.n_features, features.shape[1]
            if known not in (None, n_features):
                raise ValueError(f"companion must be for the {n_features} features of X, got one for {known}")
            self.companion._points("X", features, tangent=True)  # in its domain?
            return weight * self.companion
        pairs = np.stack([told.tangents, told.points], axis=1)
        return weight * companion_generator(
            self.companion, units.points(features), units.unit, pairs, told.similar, told.classes, told.seed
        )


def _sampled_pairs(classes: np.ndarray, random_state: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of different rows, as many at most as CALIBRATION_ROWS have, with some of both kinds.

    All pairs, or all of some rows with some others, drawn at random: divergences of these are a matrix.
    """
    n = len(classes)
    if n <= CALIBRATION_ROWS:
        tangents, points = np.nonzero(~np.eye(n, dtype=bool))
        return tangents, points
    seed = check_random_state(random_state)
    rows, others = (seed.choice(n, CALIBRATION_ROWS, replace=False) for _ in range(2))
    tangents, points = np.repeat(rows, len(others)), np.tile(others, len(rows))
    tangents, points = tangents[tangents != points], points[tangents != points]
    order = np.argsort(classes, kind="stable")
    together = classes[order[:-1]] == classes[order[1:]]
    for kind in (True, False):
        if not ((classes[tangents] == classes[points]) == kind).any():
            at = np.flatnonzero(together == kind)[:CALIBRATION_ROWS]
            tangents, points = np.append(tangents, order[at]), np.append(points, order[at + 1])
    return tangents, points


def _told_distances(learned: BregmanDivergence, features: np.ndarray, told: _Told) -> np.ndarray:
    """Divergences of the pairs that set the threshold.

    Entries of a matrix where most of it is needed; else some at a time, for with many features they are large.
    """
    (rows, place), (others, other) = (np.unique(ends, return_inverse=True) for ends in (told.points, told.tangents))
    if len(rows) * len(others) <= 4 * len(told.points):  # so many in a matrix are cheaper than one pair
        return np.asarray(learned.pairwise(_rows(features, rows), _rows(features, others)))[place, other]
    pairs = (
        (_rows(features, told.points[part]), _rows(features, told.tangents[part]))
        for part in blocks(len(told.points), features.shape[1], budget=4 * CACHE)
    )
    return np.concatenate([learned.paired(*pair) for pair in pairs])


def _rows(features: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Some rows in double precision; the features may lie in a file."""
    return np.asarray(features[numbers], dtype=np.float64)


def _original_objective(problem: BregmanLearning, points: Points, slopes: np.ndarray, intercepts: np.ndarray) -> float:
    """The objective of the function as it is returned, at the points as they were given."""
    n_features = slopes.shape[1]
    there = replace(problem.geometry, lifted=points.lifted(Standardisation(np.zeros(n_features), np.ones(n_features))))
    device = there.lifted.device
    pieces = torch.as_tensor(np.column_stack([slopes, intercepts]), device=device)
    unit = torch.as_tensor(points.units.unit, device=device)
    return problem.objective(there, pieces, Penalty(problem.penalty.level * unit))


def _within(sizes: np.ndarray, share: slice) -> np.ndarray:
    """How many points of each group, which lie one after the other, are in a share of them."""
    ends = np.cumsum(sizes)
    return (np.minimum(ends, share.stop) - np.maximum(ends - sizes, share.start)).clip(0)
