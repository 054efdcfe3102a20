"""Means of several fits, each with a seed and features of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bregnet.divergences import DifferenceOfConvex, Generator, GeneratorSum, MaxAffine


class Member(NamedTuple):
    """One of several fits to the same rows."""

    seed: int | None = None  # of its cells; None is the estimator's own
    columns: np.ndarray | None = None  # numbers of the features that it sees; None is all

    def features(self, X: np.ndarray) -> np.ndarray:
        """The features that it sees."""
        return X if self.columns is None else np.ascontiguousarray(X[:, self.columns])

    def widened(self, function: Any, n_features: int) -> Any:
        """A function of the features that it sees as one of all, which does not depend on the others."""
        if self.columns is None:
            return function
        if isinstance(function, DifferenceOfConvex):
            parts = (self.widened(part, n_features) for part in (function.convex, function.concave))
            return DifferenceOfConvex(*parts)
        slopes = np.zeros((function.n_pieces, n_features))
        slopes[:, self.columns] = function.slopes
        return MaxAffine(slopes, function.intercepts, temperature=function.temperature)


def drawn(n_members: int, n_columns: int, n_features: int, seed: int) -> tuple[Member, ...]:
    """Members with `n_columns` features each, drawn at random; the first has the seed itself."""
    random = np.random.RandomState(seed)
    members = []
    for number in range(n_members):
        own = int(random.randint(2**31 - 1))
        columns = np.sort(random.permutation(n_features)[:n_columns]) if n_columns < n_features else None
        members.append(Member(own if number else seed, columns))
    return tuple(members)


def weighted(functions: Sequence[Any], weights: Sequence[float]) -> Any:
    """The weighted sum of generators, or of differences of two."""
    if isinstance(functions[0], DifferenceOfConvex):
        convex: Generator = weighted([f.convex for f in functions], weights)
        return DifferenceOfConvex(convex, weighted([f.concave for f in functions], weights))
    return GeneratorSum(functions, weights)


def mean_function(functions: Sequence[Any]) -> Any:
    """The mean of some functions."""
    return functions[0] if len(functions) == 1 else weighted(functions, [1 / len(functions)] * len(functions))
