"""Retrieval and nearest neighbors under learned divergences, linear metrics and class probabilities.

    BREGNET_DATA=folder python -m benchmarks.metric_learning [--quick] [--json FILE] [--sets a,b]

Each set is cut into 60% training and 40% unseen rows, stratified, features scaled by the training part. Four protocols
are distinguished:

- **training**: unseen rows are the queries, training rows the items, in the folds of PBDLCV, too;
- **unseen**: every unseen row is a query against all other unseen rows;
- **classes**: labels of the first half of the classes are learned from, and rows of the other classes are retrieved
  among themselves (sets of four classes and more);
- **pairs**, **triplets**: two random pairs, half of them similar, or two triplets for each training row are all that
  is known. Retrieval is as in "unseen".

mAP is the mean average precision, tied items in random order. Accuracy is that of a vote of 5 neighbors; of the chosen
number for PBDLCV(scoring="accuracy"), of a soft vote of 50 for BregmanNCA, and of the classifier itself for class
probabilities. Both are means over splits, in percent; seconds are those of a fit, choices included, which PBDLCV makes
on all cores at once.

Class probabilities rank by sum_c p_c(query) p_c(item), the estimated probability of the same class. Where all classes
are known there is no better ranking for the same estimates: these rows are the ceiling of the protocols "training" and
"unseen", not another metric. In "classes" they are probabilities of the known classes, and no ceiling.

The last table has means over sets, and of our rows the sets on which a score is at least that of every metric
("ahead"), mAP not more than 3 below the best class probabilities, and accuracy not more than 1 below the SVC ("near").

glass, pima, seeds, sonar and banknote, marked by a star, and the sets of the paper had no part in settling defaults of
BregmanNCA; those with a star had no part in settling any default.
A row of a peer that fails on a set is left out, with a line that says so. So is, in "classes", the row that chooses by
classes held out, where fewer than four are known.
metric-learn comes with the extra `benchmarks`: `pip install 'bregnet[benchmarks]'`; its rows are left out without it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn.utils
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GroupKFold, StratifiedShuffleSplit
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.svm import SVC

from benchmarks.data import Split, class_set_options
from benchmarks.report import Table, machine, write_json
from bregnet import PBDL, PBDLCV, BregmanNCA
from bregnet.datasets import load
from bregnet.metrics import mean_average_precision
from bregnet.retrieval.base import WEIGHTS
from bregnet.retrieval.neighbors import class_votes

UNTOUCHED = ("glass", "seeds", "sonar", "pima", "banknote")
SETS = (
    *("iris", "glass", "wine", "seeds", "sonar", "wdbc", "balance_scale", "transfusion", "pima", "banknote"),
    *("vehicle", "vowel", "digits"),
)
N_SPLITS = 3
MOST_UNSEEN = 1000  # rows
SEARCH: dict[str, Any] = {"random_state": 0, "n_jobs": -1}
COLUMNS = {"protocol": "8", "set": "13", "method": "28", "mAP": ".1f", "accuracy": ".1f", "seconds": ".2f"}
COUNTS = {  # of sets on which a score is not so much below the best of a kind of methods, or that of one method
    "mAP ahead": ("mAP", "metric", 0.0),
    "mAP near": ("mAP", "ceiling", 3.0),
    "accuracy ahead": ("accuracy", "metric", 0.0),
    "accuracy near": ("accuracy", "SVC (ceiling)", 1.0),
}
SUMMARY = {name: COLUMNS[name] for name in COLUMNS if name != "set"} | dict.fromkeys(("sets", *COUNTS), "d")


class Ranking(NamedTuple):
    """What a method has learned: dissimilarities (n_queries, n_items), how neighbors vote, or classes by itself."""

    distances: Callable[[np.ndarray, np.ndarray], np.ndarray]
    n_neighbors: int = 5
    weights: str = "uniform"
    predict: Callable[[np.ndarray], np.ndarray] | None = None


class Method(NamedTuple):
    """A row of the table; `kind` is "metric", "ceiling" or "ours", `learn` takes rows and what is known of them."""

    name: str
    kind: str
    learn: Callable[..., Ranking]


def linear(transform: Callable[[np.ndarray], np.ndarray]) -> Ranking:
    """Squared Euclidean distances after a map."""
    return Ranking(lambda Q, X: euclidean_distances(transform(Q), transform(X), squared=True))


def probabilities(model: Any) -> Callable[..., Ranking]:
    def learn(X: np.ndarray, y: np.ndarray) -> Ranking:
        fitted = clone(model).fit(X, y)
        p = fitted.predict_proba
        return Ranking(lambda Q, X: 1 - p(Q) @ p(X).T, predict=fitted.predict)

    return learn


def ours(learner: Any, fit: str = "fit", **votes: Any) -> Callable[..., Ranking]:
    """The divergence of a learner, and the number of neighbors if it has chosen one."""

    def learn(*known: Any) -> Ranking:
        fitted = getattr(clone(learner), fit)(*known)
        chosen = {"n_neighbors": getattr(fitted, "n_neighbors_", None) or 5, **votes}
        return Ranking(lambda Q, X: np.asarray(fitted.divergence_.pairwise(Q, X)), **chosen)

    return learn


class TooFewClassesError(ValueError):
    """There are not enough classes to learn from for a method."""


def new_classes_left_out(X: np.ndarray, y: np.ndarray) -> Ranking:
    """What is chosen for classes that a fit has not seen: half of the known ones are held out in turn."""
    if len(np.unique(y)) < 4:
        raise TooFewClassesError("it takes four known classes")
    search = PBDLCV(cv=GroupKFold(2), temperatures=(0.2, 1.0, 3.0), **SEARCH).fit(X, y, groups=y)
    return Ranking(lambda Q, X: np.asarray(search.divergence_.pairwise(Q, X)))


def peer(name: str, **options: Any) -> Callable[..., Ranking]:
    """A learner of metric-learn 0.7, which calls scikit-learn's checks with an argument that has another name now."""

    def learn(X: np.ndarray, tuples: np.ndarray, *labels: np.ndarray) -> Ranking:
        import metric_learn

        for check in (sklearn.utils.check_array, sklearn.utils.check_X_y):
            setattr(metric_learn._util, check.__name__, partial(_with_old_name, check))
        learner = getattr(metric_learn, name)(preprocessor=X, random_state=0, **options)
        rows = tuples[:, [0, 1, 0, 2]] if name == "LSML" else tuples
        learner.fit(rows, *(np.where(similar, 1, -1) for similar in labels))
        return linear(lambda Q: Q @ learner.components_.T)

    return learn


def _with_old_name(check: Callable, *given: Any, force_all_finite: Any = True, **options: Any) -> Any:
    return check(*given, ensure_all_finite=force_all_finite, **options)


def choices(**options: Any) -> list[Method]:
    """Searches by both scores."""
    rest = "".join(f", {name}={value!r}" for name, value in options.items())
    return [
        Method(f"PBDLCV(scoring={score!r}{rest})", "ours", ours(PBDLCV(scoring=score, **SEARCH, **options)))
        for score in ("map", "accuracy")
    ]


EUCLID = Method("Euclid", "metric", lambda *known: linear(lambda Q: Q))
LABELS = [
    EUCLID,
    Method("LDA", "metric", lambda X, y: linear(LinearDiscriminantAnalysis().fit(X, y).transform)),
    Method("NCA", "metric", lambda X, y: linear(NeighborhoodComponentsAnalysis(random_state=0).fit(X, y).transform)),
    Method("logistic regression", "ceiling", probabilities(LogisticRegression(max_iter=1000))),
    Method("SVC", "ceiling", probabilities(SVC(probability=True, random_state=0))),
    Method("PBDL()", "ours", ours(PBDL(random_state=0))),
    Method("PBDL(feature_map='rbf+lda')", "ours", ours(PBDL(feature_map="rbf+lda", random_state=0))),
    *choices(),
    Method("BregmanNCA()", "ours", ours(BregmanNCA(random_state=0), n_neighbors=50, weights="softmax")),
]
TRAINING = [*(method for method in LABELS if "PBDLCV" not in method.name), *choices(gallery="train")]
MIXED: dict[str, Any] = {"temperature": 1.0, "companion": "euclid", "companion_weight": 3.0}
CLASSES = [
    *(method for method in LABELS if "PBDLCV" not in method.name),
    Method("PBDL(temperature=1, companion='euclid', companion_weight=3)", "ours", ours(PBDL(random_state=0, **MIXED))),
    Method("PBDLCV(cv=GroupKFold(2)), groups=y", "ours", new_classes_left_out),
]
PAIRS = [EUCLID, Method("PBDL().fit_pairs", "ours", ours(PBDL(random_state=0), "fit_pairs"))]
TRIPLETS = [EUCLID, Method("PBDL().fit_triplets", "ours", ours(PBDL(random_state=0), "fit_triplets"))]
if find_spec("metric_learn") is not None:
    PAIRS[1:1] = [
        Method("ITML", "metric", peer("ITML")),
        Method("MMC(diagonal=True)", "metric", peer("MMC", diagonal=True)),  # a full matrix takes minutes
    ]
    TRIPLETS[1:1] = [Method(name, "metric", peer(name)) for name in ("LSML", "SCML")]


def some_pairs(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two distinct pairs for each row, half of them similar."""
    rng = np.random.default_rng(0)
    first, second = np.triu_indices(len(y), 1)
    similar = y[first] == y[second]
    chosen = np.concatenate(
        [rng.choice(kind, min(len(y), len(kind)), replace=False) for kind in map(np.flatnonzero, (similar, ~similar))]
    )
    return np.column_stack([first, second])[chosen], similar[chosen]


def some_triplets(y: np.ndarray) -> tuple[np.ndarray]:
    """Two triplets for each row whose class has others."""
    rng = np.random.default_rng(0)
    anchors = np.repeat(np.flatnonzero(np.isin(y, [c for c in y if (y == c).sum() > 1])), 2)
    positives = [rng.choice(np.setdiff1d(np.flatnonzero(y == y[a]), a)) for a in anchors]
    negatives = [rng.choice(np.flatnonzero(y != y[a])) for a in anchors]
    return (np.column_stack([anchors, positives, negatives]),)


def closed(split: Split) -> Split:
    return split


def open_classes(split: Split) -> Split | None:
    """Rows of the first half of the classes to learn from, and the unseen rows of the others; None for few classes."""
    classes = np.unique(split.y)
    known = classes[: len(classes) // 2]
    train, new = np.isin(split.y, known), ~np.isin(split.y_test, known)
    return Split(split.X[train], split.y[train], split.X_test[new], split.y_test[new]) if len(known) > 1 else None


class Protocol(NamedTuple):
    """What is learned from, by which methods, and whether training rows are the items or the other unseen rows."""

    methods: list[Method]
    among_training: bool = False
    part: Callable[[Split], Split | None] = closed
    known: Callable[[np.ndarray], tuple] = lambda y: (y,)


PROTOCOLS = {
    "training": Protocol(TRAINING, among_training=True),
    "unseen": Protocol(LABELS),
    "classes": Protocol(CLASSES, part=open_classes),
    "pairs": Protocol(PAIRS, known=some_pairs),
    "triplets": Protocol(TRIPLETS, known=some_triplets),
}


def splits(name: str, home: Path, n_splits: int) -> Iterator[Split]:
    found = load(name, data_home=home if (home / f"{name}.csv.gz").exists() else home.parent / "more")
    y = np.unique(found.target, return_inverse=True)[1]
    for _, rows in StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=0).split(found.data, y):
        split = Split.scaled(found.data, y, np.isin(np.arange(len(y)), rows))
        yield split._replace(X_test=split.X_test[:MOST_UNSEEN], y_test=split.y_test[:MOST_UNSEEN])


def scores(ranking: Ranking, split: Split, protocol: Protocol) -> dict[str, float]:
    """mAP and accuracy of the unseen rows."""
    items, labels = (split.X, split.y) if protocol.among_training else (split.X_test, split.y_test)
    distances = ranking.distances(split.X_test, items)
    if not protocol.among_training:  # a query is not its own neighbor
        others = ~np.eye(len(items), dtype=bool)
        distances = distances[others].reshape(len(items), -1)
        labels = np.broadcast_to(labels, others.shape)[others].reshape(distances.shape)
    labels = np.broadcast_to(labels, distances.shape)
    if ranking.predict is not None and protocol.part is closed:
        predicted = ranking.predict(split.X_test)
    else:
        predicted = voted(distances, labels, ranking)
    precision = mean_average_precision(distances, labels == split.y_test[:, None])
    return {"mAP": 100 * precision, "accuracy": 100 * float(np.mean(predicted == split.y_test))}


def voted(distances: np.ndarray, labels: np.ndarray, ranking: Ranking) -> np.ndarray:
    """The class with most votes among the nearest items of each query."""
    order = np.argsort(distances, axis=1, kind="stable")[:, : ranking.n_neighbors]
    near, found = (np.take_along_axis(each, order, 1) for each in (distances, labels))
    return class_votes(found, labels.max() + 1, WEIGHTS[ranking.weights](near)).argmax(1)


def measure(table: Table, name: str, parts: list[Split]) -> None:
    """A row for each protocol and method."""
    learned: dict[tuple, tuple[Ranking, float]] = {}
    for title, protocol in PROTOCOLS.items():
        for method in protocol.methods:
            found: list[dict[str, float]] = []
            for number, whole in enumerate(parts):
                if (split := protocol.part(whole)) is None:
                    continue
                key = protocol.part, protocol.known, method.name, number
                try:
                    if key not in learned:
                        began = time.perf_counter()
                        ranking = method.learn(split.X, *protocol.known(split.y))
                        learned[key] = ranking, time.perf_counter() - began
                    ranking, seconds = learned[key]
                    found.append({**scores(ranking, split, protocol), "seconds": seconds})
                except Exception as error:  # of a peer
                    if method.kind != "metric" and not isinstance(error, TooFewClassesError):
                        raise
                    print(f"{method.name} fails on {name}: {error}")
                    found.clear()
                    break
            if found:
                means = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
                star = "*" if name in UNTOUCHED else ""
                shown = f"{method.name} (ceiling)" if method.kind == "ceiling" and title != "classes" else method.name
                table.add(protocol=title, set=name + star, method=shown, kind=method.kind, **means)


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over sets, and on how many of them ours is ahead of every metric, and near to class probabilities."""
    best: dict[tuple, float] = {}
    for row, score in product(rows, ("mAP", "accuracy")):
        for kind in {row["kind"], row["method"]}:
            key = row["protocol"], row["set"], kind, score
            best[key] = max(best.get(key, -np.inf), row[score])
    found = []
    for protocol, method in dict.fromkeys((row["protocol"], row["method"]) for row in rows):
        own = [row for row in rows if (row["protocol"], row["method"]) == (protocol, method)]
        line: dict[str, Any] = {"protocol": protocol, "method": method, "sets": len(own)}
        for name in ("mAP", "accuracy", "seconds"):
            line[name] = None if own[0].get(name) is None else float(np.mean([row[name] for row in own]))
        for name, (score, kind, less) in COUNTS.items() if own[0]["kind"] == "ours" else ():
            keys = [(protocol, row["set"], kind, score) for row in own]
            if best.keys() >= set(keys) and (protocol, kind) != ("classes", "ceiling"):
                line[name] = sum(row[score] >= best[key] - less for row, key in zip(own, keys, strict=True))
        found.append(line)
    return found


def main() -> None:
    options, names, home = class_set_options(__doc__, SETS)
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", FutureWarning)
    warnings.filterwarnings("ignore", module="metric_learn")
    print(machine())
    PBDLCV([0.1], cv=2, **SEARCH).fit(*make_classification(60, random_state=0))  # compiled, and workers started, before
    table = Table("retrieval and nearest neighbors, in percent, means over splits", COLUMNS)
    for name in names:
        measure(table, name, list(splits(name, home, 1 if options.quick else N_SPLITS)))
    means = Table("means over sets", SUMMARY)
    for row in summary(table.rows):
        means.add(**row)
    write_json(options.json, [table, means])


if __name__ == "__main__":
    main()
