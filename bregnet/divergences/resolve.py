"""The `divergence` of an estimator: one that is at hand, or a learner that is fitted first."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags

from bregnet.divergences.bregman_divergence import BregmanDivergence, divergence
from bregnet.divergences.generators import Generator

LEARNERS = "a learner with a divergence_ once it is fitted, such as PBDL(), or a search such as GridSearchCV over one"


class LearnedDivergenceMixin:
    """For estimators with a parameter `divergence`: a target is required where a learner needs one."""

    divergence: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required |= needs_target(self.divergence)
        return tags


def needs_target(given: Any) -> bool:
    """Whether it is a learner that needs y."""
    learner = _searched(given)
    return isinstance(learner, BaseEstimator) and get_tags(learner).target_tags.required


def fitted_divergence(given: Any, X: np.ndarray, y: np.ndarray | None) -> tuple[BregmanDivergence, Any]:
    """The divergence to use, and the learner it comes from, or None.

    Parameters
    ----------
    given : None, str, Generator, BregmanDivergence or learner
        None is squared Euclidean. A learner, such as ``PBDL()``, is an estimator that has a `divergence_` once it is
        fitted, or a search that has a `best_estimator_` with one; it is cloned and fitted to X and y.
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,) or None
        What the learner learns from.
    """
    if given is None:
        given = "sqeuclidean"
    learner = None
    if isinstance(given, str | Generator | BregmanDivergence):
        found = divergence(given)
    elif hasattr(given, "fit") and hasattr(given, "get_params") and not isinstance(given, type):
        learner = _fitted(given, X, y)
        found = _divergence_of(learner)
    else:
        raise TypeError(f"divergence must be a BregmanDivergence, its name, a generator or {LEARNERS}, got {given!r}")
    if found.n_features not in (None, X.shape[1]):
        raise ValueError(f"divergence must be for the {X.shape[1]} features of X, got one for {found.n_features}")
    return found, learner


def _searched(given: Any) -> Any:
    """The estimator whose parameters are searched, where it is a search."""
    return getattr(given, "estimator", given)


def _fitted(given: Any, X: np.ndarray, y: np.ndarray | None) -> Any:
    """A clone of a learner, fitted; what is known to fail is refused before it costs time."""
    name = type(given).__name__
    if isinstance(_searched(given), Pipeline):
        found = "a Pipeline" if isinstance(given, Pipeline) else f"{name} of a Pipeline"
        raise TypeError(
            f"divergence must be {LEARNERS}, got {found}: its divergence would be for other features"
            " than those of X; put the other steps before this estimator, in a pipeline with it"
        )
    if y is None and needs_target(given):
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    try:
        return clone(given).fit(X, y)
    except ValueError as error:
        if "Unknown label type" not in str(error):
            raise
        raise ValueError(
            f"divergence must not be a learner of class labels where y has none, got {name} and targets that are no"
            " classes (Unknown label type); learn the divergence from class labels first, and pass its divergence_"
        ) from error


def _divergence_of(learner: Any) -> BregmanDivergence:
    """What a fitted learner has learned, or the best one of a search."""
    best = learner if hasattr(learner, "divergence_") else getattr(learner, "best_estimator_", learner)
    found = getattr(best, "divergence_", None)
    if not isinstance(found, BregmanDivergence):
        raise TypeError(f"divergence must be {LEARNERS}, got {learner!r}")
    return found
