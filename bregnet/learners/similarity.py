"""What an estimator that has learned a divergence says of pairs of rows, and how well it ranks them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.divergences import BregmanDivergence
from bregnet.learners.calibration import similarity_threshold
from bregnet.retrieval.evaluation import retrieval_scores


class LearnedPairs(BaseEstimator):
    """Methods of estimators with a `divergence_` and a `threshold_`: distances of pairs, and a score of rankings."""

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

        A divergence is not symmetric, and neither is this: ``is_similar(Y, X)`` asks about D(y, x).

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
        similar : array of shape (n_pairs,), bool, or 1 and -1
        strategy : {"accuracy", "balanced_accuracy", "true_positive_rate", "false_positive_rate"}
            Classify most pairs correctly; most of both kinds; find at least `rate` of the similar pairs with as
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
        alike = check.booleans("similar", to_numpy(similar, "similar"), len(distances), signs=True)
        self.threshold_ = similarity_threshold(distances, alike, strategy=strategy, rate=rate)
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
            Between 0 and 1. Queries whose class has no other row do not count. Rows of a single class are an error,
            since every ranking of them is right: use stratified folds in cross-validation, such as
            ``cv=StratifiedKFold(3)``.

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
        try:
            n_classes = len(np.unique(labels))
        except TypeError as error:
            raise TypeError(f"y must hold labels that can be ordered, got an array where {error}") from error
        if n_classes < 2:
            advice = "in cross-validation take stratified folds, such as cv=StratifiedKFold(3)"
            raise ValueError(f"y must have at least 2 classes to score a ranking, got 1; {advice}")
        return float(np.nanmean(retrieval_scores(self.divergence_, features, labels)["map"]))
