"""What each choice does to the accuracy of nearest neighbors under one learned divergence, one choice at a time.

    BREGNET_DATA=folder python -m benchmarks.variants [--quick] [--json FILE] [--sets a,b]

The classification sets of table 4 in five stratified folds. The reference is a vote of 5 by D(query, item), under a
divergence of alpha 0.01 with as many pieces as `PBDL` takes by default, smoothed by a temperature of 0.3. Each row
changes one thing, or the two it names. All are measured on the test rows: the table says what matters, and is not
a way to choose. Fits stop at a gap of 5% or after 300 iterations. In percent, means of five folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.data import Split, class_folds, class_set_options
from benchmarks.report import Table, machine, write_json
from bregnet import PBDL, BregmanDivergence, BregmanKNeighborsClassifier, MaxAffine

SETS = ("iris", "wine", "transfusion", "wdbc", "balance_scale", "abalone")
ALPHA, TEMPERATURE, N_NEIGHBORS = 0.01, 0.3, 5
FIT: dict[str, Any] = {"tol": 0.05, "max_iter": 300, "random_state": 0}


class Smoothing(NamedTuple):
    """What is done to the pieces of a fit."""

    temperature: float = TEMPERATURE
    strictness: float = 0.0


REFERENCE = Smoothing()


def smoothed(function: MaxAffine, smoothing: Smoothing) -> MaxAffine:
    return MaxAffine(function.slopes, function.intercepts, **smoothing._asdict())


def accuracy(split: Split, function: MaxAffine, smoothing: Smoothing = REFERENCE, **options: Any) -> float:
    """Of a vote by the divergence of the smoothed function."""
    options = {"n_neighbors": N_NEIGHBORS, **options}
    model = BregmanKNeighborsClassifier(smoothed(function, smoothing), **options).fit(split.X, split.y)
    return float(model.score(split.X_test, split.y_test))


def symmetrized(split: Split, function: MaxAffine) -> float:
    """Accuracy of a vote by D(query, item) + D(item, query)."""
    metric = BregmanDivergence(smoothed(function, REFERENCE))
    to_items = np.asarray(metric.pairwise(split.X_test, split.X)) + np.asarray(metric.pairwise(split.X, split.X_test)).T
    model = KNeighborsClassifier(N_NEIGHBORS, metric="precomputed").fit(np.zeros((len(split.X),) * 2), split.y)
    return float(model.score(to_items, split.y_test))


def learn(split: Split, alpha: float = ALPHA, **options: Any) -> MaxAffine:
    return PBDL(alpha, **FIT, **options).fit(split.X, split.y).function_


def of_the_reference_fit(split: Split) -> Iterator[tuple[str, float]]:
    """Choices that need no new fit."""
    function = learn(split)
    yield "reference", accuracy(split, function)
    for temperature in (0.0, 0.1, 1.0):
        yield f"temperature {temperature:g}", accuracy(split, function, Smoothing(temperature))
    for strictness in (0.001, 0.01, 0.1):
        yield f"strictness {strictness:g}", accuracy(split, function, Smoothing(strictness=strictness))
    for strictness in (0.001, 0.01, 0.1):
        name = f"temperature 0, strictness {strictness:g}"
        yield name, accuracy(split, function, Smoothing(0.0, strictness))
    for n_neighbors in (1, 15, 31):
        yield f"{n_neighbors} neighbor{'s' * (n_neighbors > 1)}", accuracy(split, function, n_neighbors=n_neighbors)
    yield "weights by divergence", accuracy(split, function, weights="distance")
    yield "D(item, query)", accuracy(split, function, side="left")
    yield "symmetrized", symmetrized(split, function)


def of_other_fits(split: Split) -> Iterator[tuple[str, float]]:
    for alpha in (0.1, 0.03, 0.003, 0.001):
        yield f"alpha {alpha:g}", accuracy(split, learn(split, alpha))
    for pieces in (10, 50):
        yield f"{pieces} pieces", accuracy(split, learn(split, n_pieces=pieces))
    yield "not standardized", accuracy(split, learn(split, standardize=False))
    yield "not balanced", accuracy(split, learn(split, balanced=False))
    companion = PBDL(ALPHA, temperature=TEMPERATURE, companion="within", **FIT).fit(split.X, split.y)
    model = BregmanKNeighborsClassifier(companion.divergence_, N_NEIGHBORS).fit(split.X, split.y)
    yield "with within-class metric", float(model.score(split.X_test, split.y_test))


def measure(folds: list[Split]) -> dict[str, float]:
    """Percentages by the name of the choice."""
    found: dict[str, list[float]] = {}
    for split in folds:
        for choices in (of_the_reference_fit, of_other_fits):
            for name, score in choices(split):
                found.setdefault(name, []).append(score)
    return {name: 100 * float(np.mean(scores)) for name, scores in found.items()}


def main() -> None:
    options, names, home = class_set_options(__doc__, SETS)
    warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations are enough here
    print(machine())
    by_set = {}
    for name in names:
        by_set[name] = measure(class_folds(name, home))
        print(f"{name}: measured", flush=True)
    table = Table("accuracy of nearest neighbors, one choice at a time", {"choice": "29"} | dict.fromkeys(names, ".1f"))
    for choice in next(iter(by_set.values())):
        table.add(choice=choice, **{name: found[choice] for name, found in by_set.items()})
    write_json(options.json, [table])


if __name__ == "__main__":
    main()
