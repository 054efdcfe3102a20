"""The `divergence` of an estimator: one that is at hand, or a learner that is fitted first."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from bregnet.divergences import BregmanDivergence, divergence
from bregnet.generators import Generator


def fitted_divergence(given: Any, X: np.ndarray, y: np.ndarray | None) -> tuple[BregmanDivergence, Any]:
    """The divergence to use, and the learner it comes from, or None.

    Parameters
    ----------
    given : None, str, Generator, BregmanDivergence or learner
        None is squared Euclidean. A learner, such as ``PBDL()``, is an estimator that has a `divergence_` once it is
        fitted; it is cloned and fitted to X and y.
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,) or None
        What the learner learns from.
    """
    if given is None:
        given = "sqeuclidean"
    if isinstance(given, str | Generator | BregmanDivergence):
        found: Any = divergence(given)
        learner = None
    elif hasattr(given, "fit") and hasattr(given, "get_params") and not isinstance(given, type):
        learner = clone(given).fit(X, y)
        found = getattr(learner, "divergence_", None)
        if not isinstance(found, BregmanDivergence):
            raise TypeError(f"divergence must be a learner with a divergence_ once it is fitted, got {given!r}")
    else:
        raise TypeError(
            f"divergence must be a BregmanDivergence, its name, a generator or a learner such as PBDL(), got {given!r}"
        )
    if found.n_features not in (None, X.shape[1]):
        raise ValueError(f"divergence must be for the {X.shape[1]} features of X, got one for {found.n_features}")
    return found, learner
