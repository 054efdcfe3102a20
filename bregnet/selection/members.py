"""Means of several fits, each with a seed and features of its own."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from bregnet.divergences import DifferenceOfConvex, Generator, GeneratorSum, MaxAffine


class Member(NamedTuple):
    """One of several fits to the same rows."""

    seed: int | None = None  # of its cells; None is the estimator's own
    columns: np.ndarray | None = None  # numbers of the features that it sees; None is all

    def of(self, X: np.ndarray) -> np.ndarray:
        """The features that it sees."""
        return X if self.columns is None else np.ascontiguousarray(X[:, self.columns])

    def widened(self, fitted: Any, n_features: int) -> Any:
        """An estimator of all features from one that was fitted to those it sees."""
        if self.columns is None:
            return fitted
        whole = copy(fitted)
        whole.function_ = wide(fitted.function_, self.columns, n_features)
        whole.feature_bounds_ = np.zeros(n_features)
        whole.feature_bounds_[self.columns] = fitted.feature_bounds_
        whole.n_features_in_ = n_features
        return whole


def drawn(n_members: int, n_columns: int, n_features: int, seed: int) -> tuple[Member, ...]:
    """Members with `n_columns` features each, drawn at random; the first has the seed itself."""
    random = np.random.RandomState(seed)
    members = []
    for number in range(n_members):
        own = int(random.randint(2**31 - 1))
        columns = np.sort(random.permutation(n_features)[:n_columns]) if n_columns < n_features else None
        members.append(Member(own if number else seed, columns))
    return tuple(members)


def wide(function: Any, columns: np.ndarray, n_features: int) -> Any:
    """A function of some features, in `columns`, as one of all that does not depend on the others."""
    if isinstance(function, DifferenceOfConvex):
        return DifferenceOfConvex(*(wide(part, columns, n_features) for part in (function.convex, function.concave)))
    slopes = np.zeros((function.n_pieces, n_features))
    slopes[:, columns] = function.slopes
    return MaxAffine(slopes, function.intercepts, temperature=function.temperature)


def weighted(functions: Sequence[Any], weights: Sequence[float]) -> Any:
    """The weighted sum of generators, or of differences of two."""
    if isinstance(functions[0], DifferenceOfConvex):
        convex: Generator = weighted([f.convex for f in functions], weights)
        return DifferenceOfConvex(convex, weighted([f.concave for f in functions], weights))
    return GeneratorSum(functions, weights)


def averaged(fits: Sequence[Any]) -> Any:
    """The first of some fitted estimators with the mean of all functions, and of the bounds on their slopes."""
    if len(fits) == 1:
        return fits[0]
    whole, share = copy(fits[0]), 1 / len(fits)
    whole.function_ = weighted([each.function_ for each in fits], [share] * len(fits))
    whole.feature_bounds_ = np.mean([each.feature_bounds_ for each in fits], axis=0)
    return whole
