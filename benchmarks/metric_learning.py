"""Retrieval and 5 nearest neighbours under learned divergences, beside linear metrics.

    BREGNET_DATA=folder python -m benchmarks.metric_learning [--quick] [--json FILE] [--sets a,b]

The paper's classification sets in five stratified folds, features scaled by the training part. Each test point is a
query, against the training points and ("held") against the other test points, ordered by D(query, item); ties are
broken by the squared Euclidean distance, then by number. Accuracy is that of a plain vote of 5; mAP and AUC (of ROC,
items of the query's class being relevant) are means over queries. All are percentages, means over the folds.

"PBDL, one alpha" has a piece per point, alpha and temperature chosen inside each training part by 5-fold
cross-validation. The other rows take the mean of three fits along alpha, which varies less from sample to sample, with
a piece per point, with 10 pieces, or of both; which, the temperature, and for "PBDL + linear" whether LDA's or NCA's
metric is added and with what weight, are chosen in the same way, in both galleries: for mAP, or for accuracy. A single
vote moves the latter by almost a percent on small sets, so for it choices are compared by accuracy, the share of right
neighbours among the 5, and mAP together.
Fits stop at a gap of 5% or after 300 iterations: what is measured here settles long before the gap closes. "seconds"
is what all fits of a fold take, "choosing" the cross-validation before, "gap" the mean certified one of a piece per
point.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import product
from operator import add
from typing import NamedTuple, TypeAlias

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from benchmarks.data import Split, class_folds, class_set_options, stratified_folds
from benchmarks.report import Table, machine, write_json
from bregnet import PBDL, BregmanDivergence, MaxAffine, Quadratic, divergence
from bregnet.divergences import Generator

SETS = ("iris", "wine", "wdbc", "balance_scale", "transfusion")
ALPHAS = (0.03, 0.01, 0.003)
FEW = 10
FAMILIES: tuple[tuple[int | None, ...], ...] = ((None,), (FEW,), (None, FEW))  # numbers of pieces
TEMPERATURES = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
COMPANIONS = ("LDA", "NCA")
WEIGHTS = (0.1, 0.3, 1.0, 3.0, 10.0)
INNER_FOLDS = 5
N_NEIGHBORS = 5
MARGIN = 2.0
DECIMALS = 10  # divergences that differ less are tied
COLUMNS = {
    "set": "13",
    "method": "27",
    "accuracy": ".1f",
    "mAP": ".1f",
    "AUC": ".1f",
    "held acc.": ".1f",
    "held mAP": ".1f",
    "held AUC": ".1f",
    "seconds": ".2f",
    "choosing": ".1f",
    "gap": ".1%",
}


class Scores(NamedTuple):
    """Means over queries."""

    accuracy: float
    precision: float
    mean_average_precision: float
    auc: float


class Choice(NamedTuple):
    """What cross-validation chooses: fits with these pieces and alphas, their smoothing, and what is added to them."""

    pieces: tuple[int | None, ...]
    alphas: tuple[float, ...]
    temperature: float
    companion: str | None = None
    weight: float = 0.0


Functions: TypeAlias = dict[tuple[int | None, float], MaxAffine]  # by pieces and alpha


class Learned(NamedTuple):
    """All fits of a training part."""

    functions: Functions
    seconds: float
    gap: float


class Linear(NamedTuple):
    """A linear metric, scaled so that dissimilar training points are the margin apart on average, as PBDL's are."""

    generator: Generator
    seconds: float


class Method(NamedTuple):
    """A way to choose PBDL's divergence."""

    name: str
    criterion: Callable[[Scores], float]
    allows: Callable[[Choice], bool]


def for_map(scores: Scores) -> float:
    return scores.mean_average_precision


def for_accuracy(scores: Scores) -> float:
    return scores.accuracy + scores.precision + scores.mean_average_precision


METHODS = (
    Method("PBDL, one alpha, for mAP", for_map, lambda choice: choice.alphas != ALPHAS),
    Method("PBDL, for mAP", for_map, lambda choice: choice.alphas == ALPHAS and choice.companion is None),
    Method("PBDL, for accuracy", for_accuracy, lambda choice: choice.alphas == ALPHAS and choice.companion is None),
    Method("PBDL + linear, for accuracy", for_accuracy, lambda choice: choice.alphas == ALPHAS),
)


def by_gallery(metric: BregmanDivergence, split: Split) -> list[np.ndarray]:
    """Divergences of the test points to the training points, and to each other."""
    return [np.asarray(metric.pairwise(split.X_test, split.X)), np.asarray(metric.pairwise(split.X_test))]


class Queries:
    """The test part of a split, to be scored in both galleries."""

    def __init__(self, split: Split) -> None:
        self._ties = [np.round(d, DECIMALS) for d in by_gallery(divergence("sqeuclidean"), split)]
        self._labels = [split.y, split.y_test]
        self._queries = split.y_test

    def score(self, divergences: list[np.ndarray]) -> list[Scores]:
        """Scores in each gallery."""
        nearest = [np.lexsort((ties, np.round(d, DECIMALS))) for ties, d in zip(self._ties, divergences, strict=True)]
        itself = nearest[1] == np.arange(len(self._queries))[:, None]
        nearest[1] = nearest[1][~itself].reshape(len(self._queries), -1)
        return [self._scores(labels[order]) for labels, order in zip(self._labels, nearest, strict=True)]

    def _scores(self, found: np.ndarray) -> Scores:
        """From the labels of the items, nearest first."""
        hits = found == self._queries[:, None]
        classes = np.unique(found)
        counts = (found[:, :N_NEIGHBORS, None] == classes).sum(1)
        place = np.arange(1, hits.shape[1] + 1)
        n_hits, n_others = hits.sum(1), (~hits).sum(1)
        average = (hits * np.cumsum(hits, 1) / place).sum(1) / n_hits
        misplaced = (hits * place).sum(1) - n_hits * (n_hits + 1) / 2  # pairs of a hit and an item before it
        return Scores(
            float(np.mean(classes[counts.argmax(1)] == self._queries)),
            float(hits[:, :N_NEIGHBORS].mean()),
            float(average.mean()),
            float(np.mean(1 - misplaced / (n_hits * n_others))),
        )


def learn(split: Split) -> Learned:
    models = {
        (pieces, alpha): PBDL(alpha, n_pieces=pieces, tol=0.05, max_iter=300, random_state=0).fit(split.X, split.y)
        for pieces, alpha in product((None, FEW), ALPHAS)
    }
    seconds = sum(model.result_.seconds for model in models.values())
    gap = float(np.mean([model.gap_ for (pieces, _), model in models.items() if pieces is None]))
    return Learned({which: model.function_ for which, model in models.items()}, seconds, gap)


def learn_linear(split: Split) -> dict[str, Linear]:
    """The linear metrics of the table by name."""
    metrics = {}
    for name, map_of in (("Euclid", euclid), ("LDA", discriminants), ("NCA", neighbourhood_components)):
        began = time.perf_counter()
        directions = map_of(split.X, split.y)
        seconds = time.perf_counter() - began
        generator = Quadratic(directions @ directions.T)
        apart = np.asarray(BregmanDivergence(generator).pairwise(split.X))[split.y[:, None] != split.y]
        metrics[name] = Linear(MARGIN / apart.mean() * generator, seconds)
    return metrics


def euclid(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.eye(X.shape[1])


def discriminants(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    model = LinearDiscriminantAnalysis().fit(X, y)
    return model.scalings_[:, : len(model.classes_) - 1]


def neighbourhood_components(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return NeighborhoodComponentsAnalysis(random_state=0).fit(X, y).components_.T


def smoothed(functions: Functions, choice: Choice) -> Generator:
    """The mean of the chosen functions."""
    chosen = [functions[which] for which in product(choice.pieces, choice.alphas)]
    soft = [MaxAffine(f.slopes, f.intercepts, temperature=choice.temperature) for f in chosen]
    return 1 / len(soft) * reduce(add, soft[1:], soft[0])


def chosen_generator(choice: Choice, functions: Functions, linear: dict[str, Linear]) -> Generator:
    generator = smoothed(functions, choice)
    return generator if choice.companion is None else generator + choice.weight * linear[choice.companion].generator


def all_choices(
    split: Split, functions: Functions, linear: dict[str, Linear]
) -> Iterator[tuple[Choice, list[np.ndarray]]]:
    """Each choice and its divergences, from the parts': D_(f + g) = D_f + D_g."""
    companions = {name: by_gallery(BregmanDivergence(linear[name].generator), split) for name in COMPANIONS}
    for alpha, temperature in product(ALPHAS, TEMPERATURES):
        choice = Choice((None,), (alpha,), temperature)
        yield choice, by_gallery(BregmanDivergence(smoothed(functions, choice)), split)
    for pieces, temperature in product(FAMILIES, TEMPERATURES):
        choice = Choice(pieces, ALPHAS, temperature)
        alone = by_gallery(BregmanDivergence(smoothed(functions, choice)), split)
        yield choice, alone
        for (name, companion), weight in product(companions.items(), WEIGHTS):
            both = [d + weight * c for d, c in zip(alone, companion, strict=True)]
            yield choice._replace(companion=name, weight=weight), both


class Selection:
    """Cross-validation of all choices inside a training part."""

    def __init__(self, split: Split) -> None:
        began = time.perf_counter()
        self._scores: dict[Choice, list[list[Scores]]] = {}
        for inner in stratified_folds(split.X, split.y, INNER_FOLDS):
            queries = Queries(inner)
            for choice, divergences in all_choices(inner, learn(inner).functions, learn_linear(inner)):
                self._scores.setdefault(choice, []).append(queries.score(divergences))
        self.seconds = time.perf_counter() - began

    def best(self, method: Method) -> Choice:
        """The choice of the highest mean; the first, so the simplest, of equal ones."""
        means = {
            choice: np.mean([[method.criterion(scores) for scores in galleries] for galleries in folds])
            for choice, folds in self._scores.items()
            if method.allows(choice)
        }
        return max(means, key=lambda choice: means[choice])


def measure(table: Table, name: str, folds: list[Split]) -> None:
    """A row for each method, over the folds."""
    rows: dict[str, list[dict[str, float]]] = {}
    for split in folds:
        queries, linear, learned = Queries(split), learn_linear(split), learn(split)
        for label, metric in linear.items():
            scores = queries.score(by_gallery(BregmanDivergence(metric.generator), split))
            rows.setdefault(label, []).append(row_of(scores) | {"seconds": metric.seconds})
        selection = Selection(split)
        for method in METHODS:
            generator = chosen_generator(selection.best(method), learned.functions, linear)
            scores = queries.score(by_gallery(BregmanDivergence(generator), split))
            costs = {"seconds": learned.seconds, "choosing": selection.seconds, "gap": learned.gap}
            rows.setdefault(method.name, []).append(row_of(scores) | costs)
    for label, values in rows.items():
        table.add(set=name, method=label, **{key: float(np.mean([v[key] for v in values])) for key in values[0]})


def row_of(scores: list[Scores]) -> dict[str, float]:
    training, held = scores
    return {
        "accuracy": 100 * training.accuracy,
        "mAP": 100 * training.mean_average_precision,
        "AUC": 100 * training.auc,
        "held acc.": 100 * held.accuracy,
        "held mAP": 100 * held.mean_average_precision,
        "held AUC": 100 * held.auc,
    }


def main() -> None:
    options, names, home = class_set_options(__doc__, SETS)
    warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is in the table
    print(machine())
    table = Table("neighbours and retrieval, in percent, means of five folds", COLUMNS)
    for name in names:
        measure(table, name, class_folds(name, home))
    write_json(options.json, [table])


if __name__ == "__main__":
    main()
