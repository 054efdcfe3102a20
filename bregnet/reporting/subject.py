"""The subject of a report: the estimator with its divergence and its fit, the rows, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet.divergences import BregmanDivergence, Generator, SquaredEuclidean, divergence
from bregnet.divergences.resolve import best_of
from bregnet.plotting._fits import feature_names_of, fit_with_result
from bregnet.plotting._regression import predicted_by, targets_of
from bregnet.plotting._shared import (
    Measure,
    labels_of,
    measure,
    printable,
    rows_of,
    same_columns,
    shown_rows,
)
from bregnet.solver.result import Result

EUCLID = "Euclid"  # of features of unit variance, here as on the command line


@dataclass(frozen=True)
class Rows:
    """Rows with their class numbers or targets."""

    features: np.ndarray  # (n, n_features)
    targets: np.ndarray  # class numbers, or targets of a regression, (n,)
    numbers: np.ndarray  # row numbers in the given array, (n,)
    n_given: int  # how many rows were given
    names: list[str]  # what the page calls them: as the index of a data frame does, or else by their numbers

    @classmethod
    def some(cls, features: np.ndarray, targets: np.ndarray, most: int, *, by_class: bool, index: Any = None) -> Rows:
        """All of these, or evenly spaced ones, in the order of their classes or of the rows."""
        chosen = np.sort(shown_rows(targets if by_class else None, len(features), most))
        called = chosen if index is None else [index[number] for number in chosen]
        names = [f"row {name}" if isinstance(name, int | np.integer) else printable(name) for name in called]
        return cls(features[chosen], targets[chosen], chosen, len(features), names)


@dataclass(frozen=True)
class Subject:
    """The estimator and the data of a report."""

    estimator: Any  # the last step of a pipeline, the best estimator of a search
    name: str  # of its class
    fit: Any  # the learner with a `result_`, or None
    by: Measure | None  # the divergence, with the side that is searched; None for regressions
    rows: Rows  # the queries, or the rows to predict
    known: Rows | None  # the rows to search, if not the queries; of a regression, those that rivals learn from
    class_names: list[str]
    feature_names: list[str]
    predicted: np.ndarray | None = None  # what a regressor predicts for the rows

    @property
    def result(self) -> Result | None:
        """How the fit went."""
        return None if self.fit is None else self.fit.result_

    @property
    def scales(self) -> np.ndarray | None:
        """Factors that make slopes comparable: the standard deviations, where slopes are in the units of the data."""
        return None if self.predicted is None else self.rows.features.std(0)

    @property
    def relevance(self) -> np.ndarray:
        """The largest slope in each feature, for features of unit variance where the fit has these."""
        return np.asarray(self.fit.feature_bounds_) * (1.0 if self.scales is None else self.scales)


def subject_of(
    estimator: Any,
    X: Array,
    y: Array,
    X_known: Array | None,
    y_known: Array | None,
    feature_names: Sequence[str] | None,
    class_names: Sequence[str] | Mapping[Any, str] | None,
) -> Subject:
    """The subject of a report from its arguments, which are checked."""
    if (X_known is None) != (y_known is None):
        raise ValueError("X_known and y_known must be given together, got one of them")
    same_columns("X_known", X_known, X)
    if feature_names is None and hasattr(X, "columns"):
        feature_names = [str(name) for name in X.columns]
    index, index_known = getattr(X, "index", None), getattr(X_known, "index", None)
    index, index_known = (None if callable(each) else each for each in (index, index_known))  # a list has a method
    estimator, X, X_known, feature_names = _last_step(estimator, X, X_known, feature_names)
    regression = isinstance(estimator, BaseEstimator) and is_regressor(estimator)
    if regression:
        check_is_fitted(estimator)
    by = None if regression else measure(estimator, "estimator")
    fit = fit_with_result(estimator)
    n_features = getattr(estimator, "n_features_in_", None) if by is None else by.divergence.n_features
    features = rows_of("X", X, n_features, estimator)
    names: list[str] = []
    predicted = None
    others = None if X_known is None else rows_of("X_known", X_known, features.shape[1], estimator)
    if regression:
        rows = Rows.some(features, targets_of(y, len(features)), 10_000, by_class=False, index=index)
        predicted = predicted_by("estimator", estimator, X, len(features))[rows.numbers]
        known = None
        if others is not None:
            assert y_known is not None
            targets = targets_of(y_known, len(others), "y_known")
            known = Rows.some(others, targets, 10_000, by_class=False, index=index_known)
    else:
        before = getattr(fit, "classes_", None)
        rows, known, names = _labeled(features, y, others, y_known, class_names, before, (index, index_known))
    named = fit if hasattr(fit, "feature_names_in_") else estimator
    texts = feature_names_of(named, feature_names, features.shape[1])
    names, texts = ([printable(name) for name in each] for each in (names, texts))
    return Subject(estimator, _kind(estimator), fit, by, rows, known, names, texts, predicted)


def _kind(estimator: Any) -> str:
    if isinstance(estimator, str):
        return estimator
    return "BregmanDivergence" if isinstance(estimator, Generator) else type(estimator).__name__


def _last_step(estimator: Any, X: Array, X_known: Array | None, names: Any) -> tuple[Any, Array, Array | None, Any]:
    """The last step of a pipeline with its input; the best estimator of a search."""
    estimator = best_of(estimator)
    if not isinstance(estimator, Pipeline):
        return estimator, X, X_known, names
    if len(estimator) > 1:
        before = estimator[:-1]
        X, X_known = before.transform(X), None if X_known is None else before.transform(X_known)
        if hasattr(X, "columns"):
            names = [str(name) for name in X.columns]
        elif names is not None and len(names) != X.shape[1]:
            names = None  # they are of other features
    return _last_step(estimator[-1], X, X_known, names)


def _labeled(
    features: np.ndarray,
    y: Array,
    others: np.ndarray | None,
    y_known: Array | None,
    class_names: Sequence[str] | Mapping[Any, str] | None,
    classes_before: np.ndarray | None,
    indexes: tuple[Any, Any],
) -> tuple[Rows, Rows | None, list[str]]:
    """Rows with numbered classes, and the names of the classes."""
    labels = [labels_of("y", y, len(features))]
    if others is not None:
        labels.append(check.same_kind("y_known", labels_of("y_known", y_known, len(others)), labels[0]))
    if classes_before is not None and classes_before.dtype.kind == labels[0].dtype.kind:
        labels.append(classes_before)  # a class may be missing here, and still has its name
    classes, numbers = np.unique(np.concatenate(labels), return_inverse=True)
    rows = Rows.some(features, numbers[: len(features)], 3000, by_class=True, index=indexes[0])
    known = None
    if others is not None:
        targets = numbers[len(features) :][: len(others)]
        known = Rows.some(others, targets, 10_000, by_class=True, index=indexes[1])
    return rows, known, _class_names(class_names, classes)


def _class_names(given: Sequence[str] | Mapping[Any, str] | None, classes: np.ndarray) -> list[str]:
    if given is None:
        return [str(label) for label in classes]
    if isinstance(given, Mapping):
        return [str(given.get(label, label)) for label in classes.tolist()]
    if isinstance(given, str) or len(given) != len(classes):
        raise ValueError(f"class_names must have one entry for each of {len(classes)} classes, got {given!r}")
    return [str(name) for name in given]


def baselines_of(given: Any, subject: Subject) -> dict[str, Measure]:
    """The divergences to compare with, by name; none where the baseline is the subject itself.

    "Euclid" is the squared Euclidean distance of features of unit variance: otherwise a learner that standardizes would
    be better by that alone. Where features have different scales, it is also compared for the features as they are.
    """
    if given is None:
        return {}
    if not (isinstance(given, str) and given == "sqeuclidean"):
        by, own = measure(given, "baseline"), subject.by
        assert own is not None
        same_function = by.divergence.generator is own.divergence.generator and by.side == own.side
        if given == subject.estimator if isinstance(given, str) else same_function:
            return {}
        name = printable(_name(given))
        return {f"{name}, baseline" if name == subject.name else name: by}
    rows = (subject.known or subject.rows).features
    found = {EUCLID: Measure(unit_variance_euclid(rows))}
    spread = rows.std(0)
    used = spread[spread > 0]
    if len(used) and used.max() > 2 * used.min():
        found[f"{EUCLID}, raw features"] = Measure(divergence("sqeuclidean"))
    return found


def unit_variance_euclid(X: np.ndarray) -> BregmanDivergence:
    """Squared Euclidean distance of features that have unit variance in X; constant ones stay as they are."""
    variances = X.var(0)
    return BregmanDivergence(
        SquaredEuclidean(np.divide(1.0, variances, out=np.ones_like(variances), where=variances > 0))
    )


def _name(given: Any) -> str:
    if isinstance(given, BregmanDivergence):
        given = given.generator
    return repr(given) if isinstance(given, Generator) else _kind(given)
