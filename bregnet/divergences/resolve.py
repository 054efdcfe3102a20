"""Which divergence an object has: a given one, that of a fitted estimator, or of a learner to be fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags

from bregnet._core import validation as check
from bregnet.divergences.bregman_divergence import NAMED, BregmanDivergence, advice, divergence
from bregnet.divergences.generators import Generator
from bregnet.divergences.mapped import before_map
from bregnet.divergences.maps import point_map

LEARNERS = "a learner with a divergence_ once it is fitted, such as PBDL(), or a search or a pipeline that ends in one"


def divergence_of(given: Any, name: str = "divergence") -> BregmanDivergence:
    """The divergence of an object.

    Parameters
    ----------
    given : object
        A BregmanDivergence; its generator; its name as in :func:`bregnet.divergence`; a fitted estimator with a
        `divergence_`, or a fitted search whose `best_estimator_` has one; a fitted pipeline that ends in one of these,
        for points before its first step; what has a `divergence` and is no estimator,
        such as a :class:`bregnet.BregmanIndex`; a :class:`bregnet.nn.LearnableMaxAffine`, with the parameters that it
        has now.
    name : str, default="divergence"
        What errors call it.

    Returns
    -------
    divergence : BregmanDivergence

    Examples
    --------
    >>> from bregnet import PBDL, BregmanIndex
    >>> from bregnet.divergences.resolve import divergence_of
    >>> divergence_of(BregmanIndex("kl"))
    BregmanDivergence(KullbackLeibler())
    >>> learner = PBDL(tol=0.1).fit([[0.0], [0.1], [1.0], [1.2]], [0, 0, 1, 1])
    >>> divergence_of(learner) is learner.divergence_
    True
    """
    if isinstance(given, str) and given not in NAMED:
        names = ", ".join(map(repr, NAMED))
        raise ValueError(f"{name} must be one of {names} where it is a name, got {given!r}{advice(given)}")
    if isinstance(given, str | Generator | BregmanDivergence):
        return divergence(given)
    if hasattr(given, "to_generator") and not isinstance(given, type):
        return BregmanDivergence(given.to_generator())
    best = best_of(given)
    if isinstance(best, Pipeline):
        check.fitted_if_estimator(best)
        return before_map(divergence_of(best[-1], name), point_map(best[:-1]))
    found = getattr(best, "divergence_", None)
    if found is None and not hasattr(given, "fit"):
        found = getattr(given, "divergence", None)
    if isinstance(found, BregmanDivergence):
        return found
    if hasattr(found, "to_generator"):
        return divergence_of(found)
    check.fitted_if_estimator(given)
    raise TypeError(
        f"{name} must be a BregmanDivergence, its name, a generator, a LearnableMaxAffine or a fitted estimator with a"
        f" divergence_, got {given!r}"
    )


def side_of(given: Any) -> str:
    """The side that an estimator or an index searches; "right" for all that have none."""
    best = best_of(given)
    side = getattr(getattr(best, "index_", best), "side", "right")
    return side if side in ("right", "left") else "right"


def best_of(given: Any) -> Any:
    """The best estimator of a fitted search that has not taken over what it has learned; anything else is itself."""
    if hasattr(given, "divergence_") or hasattr(given, "function_"):
        return given
    return getattr(given, "best_estimator_", given)


class LearnedDivergenceMixin:
    """For estimators with a parameter `divergence`: a target is required where a learner needs one."""

    divergence: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required |= needs_target(self.divergence)
        return tags


def needs_target(given: Any) -> bool:
    """Whether it is a learner that needs y: one that is still to be fitted."""
    learner = _searched(given)
    is_learner = isinstance(learner, BaseEstimator) and not _has_learned(given)
    return is_learner and get_tags(learner).target_tags.required


def last_learner(given: Any) -> Any:
    """The fitted learner that a search has found best, or that a pipeline ends in; anything else is itself."""
    last = best_of(given)
    return best_of(last[-1]) if isinstance(last, Pipeline) else last


def _has_learned(given: Any) -> bool:
    """Whether it is a fitted learner."""
    return isinstance(getattr(last_learner(given), "divergence_", None), BregmanDivergence)


def fitted_divergence(given: Any, X: np.ndarray, y: np.ndarray | None) -> tuple[BregmanDivergence, Any]:
    """What the parameter `divergence` of an estimator stands for, and the learner it comes from, or None.

    Parameters
    ----------
    given : object
        None is squared Euclidean. A learner, such as ``PBDL()``, is an estimator that has a divergence once it is
        fitted. One that is fitted is used as it is; of any other a clone is fitted to X and y. All else is for
        :func:`divergence_of`.
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,) or None
        What the learner learns from.
    """
    learner = None
    if hasattr(given, "fit") and hasattr(given, "get_params") and not isinstance(given, type):
        learner = given if _has_learned(given) else _fitted(given, X, y)
        if not _has_learned(learner):
            raise TypeError(f"divergence must be {LEARNERS}, got {learner!r}")
        if isinstance(learner, FrozenEstimator):
            learner = learner.estimator
    found = divergence_of("sqeuclidean" if given is None else given if learner is None else learner)
    if found.n_features not in (None, X.shape[1]):
        raise ValueError(f"divergence must be for the {X.shape[1]} features of X, got one for {found.n_features}")
    return found, learner


def _searched(given: Any) -> Any:
    """The estimator whose parameters are searched, where it is a search."""
    return getattr(given, "estimator", given)


def _fitted(given: Any, X: np.ndarray, y: np.ndarray | None) -> Any:
    """A clone of a learner, fitted; what is known to fail is refused before it costs time."""
    name = type(given).__name__
    if y is None and needs_target(given):
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    try:
        return clone(given).fit(X, y)
    except ValueError as error:
        if "Unknown label type" not in str(error):
            raise
        raise ValueError(
            f"divergence must not be a learner of class labels where y has none, got {name} and targets that are no"
            " classes (Unknown label type); fit the learner to class labels first, or pass its divergence_"
        ) from error
