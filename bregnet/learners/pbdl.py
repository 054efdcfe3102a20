"""Learning a Bregman divergence from labels, pairs or triplets."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.utils import Tags
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.distributed import Ranks, current
from bregnet.divergences import BregmanDivergence, Generator, MaxAffine
from bregnet.divergences.mapped import before_map
from bregnet.divergences.maps import PointMap
from bregnet.learners.base import Monitor, SolverEstimator
from bregnet.learners.calibration import similarity_threshold
from bregnet.learners.companions import companion_for
from bregnet.learners.feature_maps import map_for, steepest
from bregnet.learners.similarity import LearnedPairs
from bregnet.learners.supervision import Labels, Pairs, Supervision, Triplets, rows_apart
from bregnet.solver.bregman import BregmanLearning
from bregnet.solver.checkpoints import Checkpoint
from bregnet.solver.partition import CELLS_A_CLASS, merge_duplicates
from bregnet.solver.penalty import Penalty
from bregnet.solver.points import MemoryNeed, Points, Standardization, all_pairs_need
from bregnet.solver.result import Check

# n_pieces="auto" with labels. Held-out mAP (rows among rows, two splits, alpha 0.01, temperature 0.2) of 10 a class and
# at least 50, and of these: cancer 95.9 and 96.4, make_classification with 5 classes 63.8 and 66.7, with 3 77.3 and
# 78.5, vehicle 71.6 and 71.9, transfusion 67.9 and 68.2, digits 92.5 and 92.9, vowel 45.8 and 46.0, wine 95.9 and 95.8,
# balance_scale 87.7 and 87.2.
PIECES_A_CLASS = 20
PIECES_IN_ALL = (100, 400)
NOTHING = 1e-6  # slopes that differ by no more, for features of unit variance, are the same


@dataclass(frozen=True)
class _DivergenceFromPieces:
    """From pieces in the solver's coordinates to the function of mapped points, and the divergence of the data."""

    units: Standardization
    strictness: np.ndarray
    companion: Generator | None
    companion_of: Callable[[str | Generator], Generator]  # from the name of a companion
    feature_map: PointMap | None

    def function(self, pieces: Tensor, temperature: float) -> MaxAffine:
        """The learned function, smoothed."""
        slopes, intercepts = self.units.original(pieces[0].cpu().numpy(), level=0.0)
        return MaxAffine(slopes, intercepts, temperature=temperature, strictness=self.strictness)

    def divergence_of(self, function: MaxAffine) -> BregmanDivergence:
        """Its divergence, companion included."""
        return BregmanDivergence(function if self.companion is None else function + self.companion)

    def divergence(self, pieces: Tensor, temperature: float, only: str | Generator | None = None) -> BregmanDivergence:
        """That of pieces, for points before the feature map; with `only` that of a companion alone."""
        if only is not None:
            return before_map(BregmanDivergence(self.companion_of(only)), self.feature_map)
        return before_map(self.divergence_of(self.function(pieces, temperature)), self.feature_map)


class PBDL(LearnedPairs, SolverEstimator):
    r"""Piecewise Bregman Divergence Learning (paper, program 7): a divergence learned from what is similar.

    Learns a max-affine convex function f such that, for its divergence D, similar points are near each other and
    dissimilar ones at least 2 apart:

    .. math:: \min_f \sum_{ij} P_{ij} D(x_j, x_i) + M_{ij} \max(0, 2 - D(x_j, x_i)) + \alpha \sum_l \max_k |a_{kl}|

    with weights P on similar and M on dissimilar pairs. The paper's program, with nothing added, is ``PBDL(alpha,
    n_pieces=None, balanced=False, temperature=0, tol=0.01)``. Every fit is certified: `gap_` bounds how far from the
    optimum of its program the learned function can be, before it is smoothed or given a companion.

    Parameters
    ----------
    alpha : float, default=0.01
        Weight of the penalty on the slopes, which switches features off (the paper's lambda, for the mean loss).
    n_pieces : int, "auto" or None, default="auto"
        Affine pieces: None gives every point its own, an integer cuts the points into that many cells. With labels
        these lie inside the classes, and "auto" takes 20 per class, at least 100 and at most 400, but never fewer than
        2 per class. With pairs or triplets "auto" takes 100 cells, or gives every point its own if there are fewer.
    balanced : bool, default=True
        Whether similar and dissimilar pairs weigh one half each in total; otherwise every pair weighs the same.
    temperature : float, default=0.2
        Smoothing of the learned function, in the units of D. It breaks the ties of a plain maximum, 0, and improves
        the ranking of rows that were not learned from: 0.1 to 0.3 for ranking, more for nearest neighbors.
    strictness : float, default=0.0
        Curvature added to the learned function, for features of unit variance (or as they are, without
        `standardize`): D(x, y) = 0 only for x = y.
    companion : None, "euclid", "within", "nca" or Generator, default=None
        A generator added to the learned one. "euclid" is the squared Euclidean distance of features of unit variance,
        "within" the Mahalanobis distance of the within-class covariance, "nca" that of neighborhood components analysis
        (labels only); all are scaled so that dissimilar training pairs are 2 apart on average, which is the margin of
        the loss. It improves the accuracy of nearest neighbors where a linear metric does well.
    companion_weight : float, default=1.0
        Its weight.
    feature_map : "auto", None, "lda", "rbf", "rbf+lda" or transformer, default="auto"
        A map that is fitted first. The function is learned from mapped points; the divergence takes points as they are.
        "auto" is "lda" for labels and 100 features or more, such as embeddings, unless rows lie in a file or come by
        `partial_fit`, and None otherwise. "rbf" are 300 features of a Gaussian kernel, with which regions of classes
        need not be convex, "lda" are discriminant coordinates, and "rbf+lda" are those of kernel features: see
        :class:`bregnet.FeatureMap`, which has the width of the kernel. A copy of any other transformer is fitted, with
        labels if there are any, and with weights of rows where its `fit` takes them; one in scikit-learn's
        ``FrozenEstimator`` is taken as it is.
    standardize : bool, default=True
        Whether alpha refers to features of unit variance. Otherwise it refers to the data as given.
    tol : float, default=0.1
        Certified relative gap at which the fit stops. Retrieval settles before; for the objective itself take 0.01.
    max_iter : int, default=5000
        The largest number of iterations; a fit that has not reached `tol` by then gives a ``ConvergenceWarning``.
    warm_start : bool, default=False
        Go on from the previous fit when the rows of X are the same, for instance along alpha. Kernel features are the
        same only with a number as `random_state`.
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
        Seed of the cells, of the landmarks of kernel features, of the pairs that set the threshold, and of the "nca"
        companion.

    Attributes
    ----------
    function_ : MaxAffine
        The learned function, in the original coordinates, smoothed as asked for. An affine feature map is part of it
        (and makes a sum with a quadratic function of it where there is strictness); with any other it is a function
        of mapped points.
    divergence_ : BregmanDivergence
        Its divergence, companion included, for points as they are: a :class:`bregnet.MappedDivergence` where there is
        a feature map that is not affine.
    feature_map_ : PointMap
        The fitted feature map, where there is one.
    threshold_ : float
        Pairs up to this divergence count as similar; chosen for the best (balanced, if `balanced`) accuracy on
        training pairs, and set anew by :meth:`calibrate`.
    feature_bounds_ : ndarray of shape (n_features,)
        L_l, the largest absolute slope of each feature, for features of unit variance if `standardize`: how much
        each matters. 0 for a feature that is not used. After a feature map that is not affine, the largest
        derivative at some of the training rows.
    classes_ : ndarray
        The classes, after :meth:`fit`.
    result_ : Result
        Status, objective, bound, gap, history and time.
    gap_ : float
        The certified relative gap of the program, ``result_.gap``, that of the plain maximum, before temperature,
        strictness and companion. With a feature map it is the program of mapped points.
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
    >>> model = PBDL(random_state=0).fit(X, y)
    >>> model.divergence_.pairwise(X[:2], X[-3:]).shape
    (2, 3)
    >>> model.score(X, y) > 0.95
    True
    >>> model.is_similar(X[:2], X[[1, -1]])
    array([ True, False])
    """

    balanced: bool
    temperature: float
    strictness: float
    companion: str | Generator | None
    companion_weight: float
    feature_map: Any
    function_: MaxAffine
    feature_map_: PointMap

    _predicts = False
    _nothing = False  # whether all pieces of the fit are the same
    # For pairs and triplets. Held-out mAP with a piece per point and with 100, one split, two pairs or a triplet a row:
    # pairs wine 94.6 and 94.9, cancer 95.4 and 96.7, vehicle 63.7 and 68.1, vowel 38.8 and 42.0; triplets 92.7 and
    # 93.3, 92.7 and 91.9, 43.2 and 47.1, 30.8 and 31.4. A fit takes a third to a seventh of the time from 300 rows on.
    _own_piece_points = _auto_cells = 100
    _shares_points = True

    def __init__(
        self,
        alpha: float = 1e-2,
        *,
        n_pieces: int | str | None = "auto",
        balanced: bool = True,
        temperature: float = 0.2,
        strictness: float = 0.0,
        companion: str | Generator | None = None,
        companion_weight: float = 1.0,
        feature_map: Any = "auto",
        standardize: bool = True,
        tol: float = 0.1,
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
        self.feature_map = feature_map
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
    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> PBDL:
        """Learn from class labels: points of the same class are similar.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Class labels, numbers or strings.
        sample_weight : array of shape (n_samples,), default=None
            Weights of the rows in the program: a pair counts by the product of two. A row of weight 2 counts as two
            rows, one of weight 0 not at all. The same holds in companions (except "nca"), in feature maps whose `fit`
            takes weights, and for `threshold_`.

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
        features, labels = self._validated(X, y)
        self._seen = None
        return self._fit_weighted(features, labels, sample_weight)

    def _fit(
        self,
        features: np.ndarray,
        labels: np.ndarray,
        monitor: Monitor | None = None,
        weights: np.ndarray | None = None,
    ) -> PBDL:
        seed = self._seed()
        supervision = Labels(labels, balanced=self.balanced, random_state=seed, weights=weights)
        self._learn(features, supervision, seed, monitor)
        self.classes_ = supervision.names
        return self

    @check.all_or_nothing
    def fit_pairs(self, X: Array, pairs: Array | None = None, similar: Array | None = None) -> PBDL:
        """Learn from pairs of rows that are similar or not; both directions of a pair count alike.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_pairs, 2, n_features)
            Rows; or the pairs themselves, as metric-learn has them, and then `pairs` are left out.
        pairs : array of shape (n_pairs, 2), default=None
            Row numbers.
        similar : array of shape (n_pairs,), bool
            Whether the rows of a pair are similar; 1 and -1 are accepted, too.

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
        >>> same = PBDL(alpha=0.001).fit_pairs(X[[[0, 1], [2, 3], [0, 2], [1, 3]]], similar=[1, 1, -1, -1])
        >>> same.is_similar([[0.05]], [[0.0]])
        array([ True])
        """
        rows, numbers = rows_apart("pairs", 2, to_numpy(X, "X"), to_numpy(pairs, "pairs"))
        features = check.validate_data(self, rows, dtype=np.float64, ensure_min_samples=2)
        supervision = Pairs(numbers, to_numpy(similar, "similar"), len(features), balanced=self.balanced)
        self._seen = None
        return self._learn(features, supervision, self.random_state)

    @check.all_or_nothing
    def fit_triplets(self, X: Array, triplets: Array | None = None) -> PBDL:
        """Learn from triplets: an anchor that is nearer to a positive than to a negative row.

        Minimizes the mean of max(0, 1 + D(positive, anchor) - D(negative, anchor)) plus the penalty.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_triplets, 3, n_features)
            Rows; or the triplets themselves, as metric-learn has them, and then `triplets` are left out.
        triplets : array of shape (n_triplets, 3), default=None
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
        rows, numbers = rows_apart("triplets", 3, to_numpy(X, "X"), to_numpy(triplets, "triplets"))
        features = check.validate_data(self, rows, dtype=np.float64, ensure_min_samples=2)
        supervision = Triplets(numbers, len(features))
        self._seen = None
        return self._learn(features, supervision, self.random_state)

    def _piece_count(self, n_points: int, n_classes: int | None = None) -> int:
        if self.n_pieces != "auto" or n_classes is None:
            return super()._piece_count(n_points)
        few, many = PIECES_IN_ALL
        wanted = min(max(PIECES_A_CLASS * n_classes, few), many)
        return min(n_points, max(wanted, CELLS_A_CLASS * n_classes))

    def _need(self, n: int, n_features: int, n_pieces: int, ranks: Ranks) -> MemoryNeed:
        share = ranks.share(n)
        here = share.stop - share.start
        return all_pairs_need(here, n_features, n_pieces, fine=self._fine, own_piece=n_pieces >= here)

    def _learn(self, features: np.ndarray, supervision: Supervision, seed: Any, monitor: Monitor | None = None) -> PBDL:
        """Validate the parameters, build the program, solve it, store what was learned."""
        options = self._options(len(features))
        temperature = check.at_least_zero("temperature", self.temperature)
        strictness = check.at_least_zero("strictness", self.strictness)
        if current().size > 1 and supervision.classes is None:
            raise ValueError("pairs and triplets must be learned by one process, got several that share the points")

        given, feature_map = features, self._mapping(features, supervision, seed)
        features = given if feature_map is None else feature_map(np.asarray(given, dtype=np.float64))
        units = self._units(features, weights=supervision.weights)
        scale = units.unit if self.standardize else np.ones_like(units.unit)
        merged = merge_duplicates(features, units.points).weighted(supervision.weights)
        merged, classes = supervision.arranged(merged)
        points = self._points(features, units, merged)
        penalty = Penalty(self._penalty_level(units, points.device))
        weight = check.at_least_zero("companion_weight", self.companion_weight)
        companion_of = cache(lambda name: companion_for(name, features, units, supervision, seed))
        companion = None if self.companion is None else weight * companion_of(self.companion)
        learned = _DivergenceFromPieces(units, strictness / scale / scale, companion, companion_of, feature_map)
        self._warn_of_blind_cells(classes)
        start = self._start(points, seed, classes)
        problem = BregmanLearning(start.geometry, penalty, supervision.loss(start.geometry, points))
        if start.state is not None and not start.state.suits(problem.entries):
            start = start._replace(state=None)

        pieces, result = self._solve(problem, start, options, learned.divergence, monitor)
        del start  # its memory is needed again

        if hasattr(self, "classes_"):  # of an earlier fit to labels
            del self.classes_
        function = learned.function(pieces, temperature)
        divergence = learned.divergence_of(function)
        self._store(function, divergence, feature_map, given, scale)
        strategy = "balanced_accuracy" if self.balanced else "accuracy"
        distances = supervision.known.divergences(divergence, features)
        self.threshold_ = similarity_threshold(distances, *supervision.known[2:], strategy=strategy)
        objective = _original_objective(problem, points, function)
        if not np.isclose(objective, result.objective, rtol=1e-9):  # ties that rounding has broken another way
            result = result.restated(objective, options.tol)
        self._record(result, monitored=monitor is not None)
        self._nothing = not (np.ptp(function.slopes, axis=0) * scale > NOTHING).any()
        if monitor is None:
            self._warn_of_nothing(type(self).__name__)
        return self

    def _warn_of_nothing(self, name: str) -> None:
        """Warn where all pieces of the fit are the same."""
        if self._nothing:
            message = f"{name} learned nothing: all pieces are the same at alpha={self.alpha}, so the divergence is 0"
            advice = "throughout, or that of the companion alone; lower alpha, or map the features"
            warnings.warn(f"{message} {advice}", UserWarning, stacklevel=check.calls_inside() + 1)

    def _warn_of_blind_cells(self, classes: np.ndarray | None) -> None:
        """Warn where there are too few pieces to cut each class for itself."""
        n_classes = 0 if classes is None else int(classes.max()) + 1
        if isinstance(self.n_pieces, Integral) and self.n_pieces < n_classes:
            advice = f"give {CELLS_A_CLASS * n_classes} or more"
            message = f"n_pieces={self.n_pieces} is below one a class, so the cells ignore the classes; {advice}"
            warnings.warn(f"{type(self).__name__}: {message}", UserWarning, stacklevel=check.calls_inside() + 1)

    def _mapping(self, features: np.ndarray, supervision: Supervision, seed: Any) -> PointMap | None:
        """The feature map, fitted."""
        given = self.feature_map
        if self._seen is not None and isinstance(given, str) and given == "auto":
            given = None
        if given is not None and self._seen is not None:
            raise ValueError("feature_map must be None for partial_fit, or its map would change with every call")
        if seed is None and self.checkpoint is not None:
            seed = 0  # an interrupted fit goes on with the same map
        return map_for(given, features, supervision.classes, seed, supervision.weights)

    def _store(
        self,
        function: MaxAffine,
        divergence: BregmanDivergence,
        feature_map: PointMap | None,
        original: np.ndarray,
        scale: np.ndarray,
    ) -> None:
        """Set what was learned of mapped points, for points as they were given."""
        self.function_, self.divergence_ = function, before_map(divergence, feature_map)
        if feature_map is None:
            self.feature_bounds_ = np.abs(function.slopes).max(0) * scale
            if hasattr(self, "feature_map_"):  # of an earlier fit
                del self.feature_map_
            return
        self.feature_map_ = feature_map
        spread = Standardization.from_rows(original).unit if self.standardize else np.ones(original.shape[1])
        if feature_map.is_affine:
            plain: Any = before_map(BregmanDivergence(function), feature_map).generator
            self.function_ = plain
            pieces = plain if isinstance(plain, MaxAffine) else plain.generators[0]
            self.feature_bounds_ = np.abs(pieces.slopes).max(0) * spread
        else:
            self.feature_bounds_ = steepest(function, feature_map, original, spread)


def _original_objective(problem: BregmanLearning, points: Points, function: MaxAffine) -> float:
    """The objective of the function as it is returned, at the points as they were given."""
    n_features = points.features.shape[1]
    as_given = Standardization(np.zeros(n_features), np.ones(n_features))
    geometry = replace(problem.geometry, lifted=points.lifted(as_given))
    device = geometry.lifted.device
    pieces = torch.as_tensor(np.column_stack([function.slopes, function.intercepts]), device=device)
    unit = torch.as_tensor(points.units.unit, device=device)
    return problem.objective(geometry, pieces, Penalty(problem.penalty.level * unit))
