"""The figures of a report."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.metrics import mean_absolute_error, normalized_mutual_info_score, r2_score

from bregnet._core.version import __version__
from bregnet.clustering import BregmanKMeans
from bregnet.divergences import BregmanDivergence, DifferenceOfConvex, GeneratorSum, MaxAffine
from bregnet.plotting._retrieval import Curve, curve
from bregnet.plotting._shared import Measure, printable, shown_number
from bregnet.reporting.subject import Rows, Subject
from bregnet.retrieval import BregmanKNeighborsClassifier


def of_fit(subject: Subject) -> dict[str, Any]:
    """The figures of the fit and of the learned function."""
    fit, found = subject.fit, dict[str, Any](estimator=subject.name)
    if subject.result is not None:
        result = subject.result
        found["learner"] = type(fit).__name__
        found |= {name: getattr(result, name) for name in ("status", "converged", "gap", "objective", "dual_bound")}
        found |= {"iterations": result.n_iter, "interior_point_steps": result.n_interior, "seconds": result.seconds}
        for name in ("alpha", "temperature"):
            chosen = getattr(fit, f"{name}_", getattr(fit, name, None))
            if chosen is not None:
                found[name] = float(chosen)
        if hasattr(fit, "best_score_"):
            found |= {"cross_validation_score": float(fit.best_score_), "cross_validation_fits": int(fit.n_fits_)}
        found["features_used"] = n_used(subject.relevance)
    function = subject.by.divergence.generator if subject.by else getattr(subject.estimator, "function_", None)
    if function is not None:
        found["function"] = repr(function)
    if counts := piece_counts(getattr(fit, "function_", function)):
        found["pieces"] = sum(counts)
    if hasattr(fit, "threshold_"):
        found["threshold"] = float(fit.threshold_)
    found |= {"features": subject.rows.features.shape[1], "rows": subject.rows.n_given}
    if subject.known is not None:
        found["known_rows"] = subject.known.n_given
    if subject.class_names:
        found["classes"] = len(subject.class_names)
    found["versions"] = {
        "bregnet": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
    }
    return found


def piece_counts(function: Any) -> list[int]:
    """The number of affine pieces of each part of a function that has some: of a difference, of a sum, or itself."""
    if isinstance(function, DifferenceOfConvex):
        return piece_counts(function.convex) + piece_counts(function.concave)
    if isinstance(function, GeneratorSum):
        return [count for part in function.generators for count in piece_counts(part)]
    return [function.n_pieces] if isinstance(function, MaxAffine) else []


def n_used(bounds: Any) -> int:
    """How many features have a slope of more than 1% of the largest."""
    return int((np.asarray(bounds) > 0.01 * np.max(bounds)).sum())


@dataclass(frozen=True)
class Retrieval:
    """How a divergence retrieves."""

    curve: Curve  # of precision against recall
    right: np.ndarray  # whether the nearest neighbors name the class of each row, (n_rows,)
    distances: np.ndarray  # of the nearest neighbors of every row, (n_rows, k)
    ids: np.ndarray  # of these
    nmi: float  # normalized mutual information of the classes and as many clusters

    @property
    def accuracy(self) -> float:
        """Share of the rows whose nearest neighbors name their class."""
        return float(np.mean(self.right))

    @property
    def scores(self) -> dict[str, float]:
        """Of ranking, classification and clustering."""
        return {"mAP": self.curve.map, "accuracy": self.accuracy, "NMI": self.nmi}


def retrieval(by: Measure, rows: Rows, known: Rows | None) -> Retrieval:
    """Every row is a query against the known rows, or against all others."""
    others = None if known is None else (known.features, known.targets)
    found = rows if known is None else known
    k = min(5, len(found.features) - (known is None))
    if k < 1:
        raise ValueError(f"X must have at least 2 rows, got {len(rows.features)}")
    neighbors = BregmanKNeighborsClassifier(by.divergence, k, side=by.side, device="cpu")
    neighbors.fit(found.features, found.targets)
    queries = None if known is None else rows.features
    distances, ids = map(np.asarray, neighbors.kneighbors(queries))
    right = np.asarray(neighbors.predict(queries)) == rows.targets
    nmi = normalized_mutual_info_score(rows.targets, clusters(by.divergence, rows.features, rows.targets))
    return Retrieval(curve(by, rows.features, rows.targets, others), right, distances, ids, float(nmi))


def clusters(divergence: BregmanDivergence, X: np.ndarray, y: np.ndarray, seed: int = 0) -> np.ndarray:
    """Clusters of rows, found without their classes, of which there are as many."""
    # until nothing changes: the tolerance is in the units of X, and divergences in units of their own
    settled: dict[str, Any] = {"n_init": 5, "tol": 0.0, "random_state": seed, "device": "cpu"}
    return np.asarray(BregmanKMeans(len(np.unique(y)), divergence=divergence, **settled).fit_predict(X))


def of_predictions(targets: np.ndarray, found: np.ndarray) -> dict[str, Any]:
    """Scores of the predictions of a regressor; one row has no R^2."""
    r2 = float(r2_score(targets, found)) if len(targets) > 1 else None
    return {"r2": r2, "mean_absolute_error": float(mean_absolute_error(targets, found))}


@dataclass(frozen=True)
class Table:
    """A table to show: names of columns, and rows of cells, each a text and whether it is the best of its column."""

    columns: list[str]
    rows: list[tuple[str, list[tuple[str, bool]]]]


def table(given: Any) -> Table:
    """A table of a comparison: a dict of dicts, or a list of dicts that begin with a name.

    The best number of a column is marked: the largest, or the least of times, gaps and errors.
    """
    named = [(printable(name), values) for name, values in _named_rows(given)]
    columns = list(dict.fromkeys(column for _, values in named for column in values))
    rows: list[tuple[str, list[tuple[str, bool]]]] = [(name, []) for name, _ in named]  # names may be equal by now
    for column in columns:
        numbers = [values[column] for _, values in named if _is_number(values.get(column))]
        less = any(word in column.lower() for word in ("second", "time", "gap", "error", "loss", "memory"))
        best = (min if less else max)(numbers) if len(numbers) > 1 else None
        for (_, values), (_, cells) in zip(named, rows, strict=True):
            value = values.get(column)
            cells.append((shown(value), best is not None and _is_number(value) and value == best))
    return Table([printable(column) for column in columns], rows)


def _named_rows(given: Any) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(given, Mapping) and all(isinstance(row, Mapping) for row in given.values()):
        found = [(str(name), {str(column): value for column, value in row.items()}) for name, row in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(row, Mapping) for row in given):
        found = []
        for row in given:
            values = {str(column): value for column, value in row.items()}
            words = [column for column, value in values.items() if isinstance(value, str)]
            name = values.pop("name" if "name" in values else words[0]) if words else len(found) + 1
            found.append((str(name), values))
    else:
        raise TypeError(f"comparison must be a dict of dicts or a list of dicts, a row each, got {given!r}")
    if not found or len({name for name, _ in found}) < len(found):
        raise ValueError(f"comparison must have rows of different names, got {[name for name, _ in found]}")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))


def shown(value: Any) -> str:
    """A value as text."""
    if value is None:
        return "-"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, Real):
        number = float(value)
        return f"{number:.3f}" if 0.01 <= abs(number) <= 1 else shown_number(number)
    return printable(value)
