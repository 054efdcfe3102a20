"""k-means under a learned divergence beside scikit-learn's, and what an iteration costs.

    [BREGNET_DATA=folder] python -m benchmarks.clustering [--quick] [--json FILE]

Quality: the paper's classification sets, or without BREGNET_DATA those three of them that scikit-learn has, in five
stratified folds, features scaled by the training part. PBDL learns a divergence from the labels of the training part,
by one rule for all sets (ALPHA and TEMPERATURE below, nothing is chosen by set). As many clusters as classes are then
found without labels, in two ways: in the unseen test part alone, and in the training part, test points going to the
nearest center. Both are scored on test points only: purity, normalized mutual information and the adjusted Rand index,
in percent, means over folds and seeds. scikit-learn's KMeans has the same points, in the same scale, and as many
starts. It has no labels to learn from: this is what learning a divergence adds, not a contest between clusterings.
"LDA" is k-means in discriminant coordinates, a linear metric learned from the same labels.

Time: an iteration as a ratio to scikit-learn's, both from the same centers, in turns in one process: the least time of
LONG iterations less that of SHORT ones, divided by their number. k-means under the squared Euclidean distance and under
divergences that PBDL has learned from 400 points ("learned", and "mapped" with feature_map="rbf+lda") is beside KMeans
(algorithm="lloyd") for the same points, which are mapped before for "mapped". BregmanMixture is beside
GaussianMixture(covariance_type="spherical"). The objective after LONG iterations is next to each time: inertia, or mean
log-likelihood. Under a learned divergence the two are not comparable.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline

from benchmarks.data import Split, class_folds, data_home, stratified_folds
from benchmarks.report import Table, machine, write_json
from bregnet import PBDL, BregmanDivergence, divergence
from bregnet.clustering import BregmanKMeans, BregmanMixture
from bregnet.metrics import purity

SETS = ("iris", "wine", "wdbc", "balance_scale", "transfusion")
OF_SCIKIT_LEARN = {"iris": load_iris, "wine": load_wine, "wdbc": load_breast_cancer}  # for want of BREGNET_DATA
ALPHA, TEMPERATURE = 0.01, 0.3
N_INIT = 10
SEEDS = range(3)
SHORT, LONG = 3, 13
REPEATS = 5
SIZES = tuple(product((20_000, 200_000), (16, 64), (10, 100)))  # points, features, clusters
KINDS = ("squared Euclid", "learned", "mapped", "mixture")
SLOW = ("learned", "mapped", "mixture")  # which have the smaller sizes only

QUALITY_COLUMNS = {
    "set": "13",
    "method": "16",
    "purity": ".1f",
    "NMI": ".1f",
    "Rand": ".1f",
    "tr. purity": ".1f",
    "tr. NMI": ".1f",
    "tr. Rand": ".1f",
    "seconds": ".3f",
}
TIME_COLUMNS = {
    "method": "14",
    "n": "d",
    "d": "d",
    "k": "d",
    "ms/iter": ".2f",
    "sklearn": ".2f",
    "ratio": ".2f",
    "objective": ".6g",
    "its objective": ".6g",
}


def scores(labels_true: np.ndarray, labels: np.ndarray) -> list[float]:
    measures = (purity, normalized_mutual_info_score, adjusted_rand_score)
    return [100 * float(measure(labels_true, labels)) for measure in measures]


def clusterers(split: Split) -> dict[str, Callable[[int], Any]]:
    """The methods of the table, learned from the training part where they learn; each takes a seed."""
    k = len(np.unique(split.y))
    learner = PBDL(ALPHA, temperature=TEMPERATURE, tol=0.05, max_iter=300, random_state=0)
    learned: BregmanDivergence = learner.fit(split.X, split.y).divergence_
    linear = LinearDiscriminantAnalysis().fit(split.X, split.y)
    return {
        "KMeans": lambda seed: KMeans(k, n_init=N_INIT, random_state=seed),
        "LDA": lambda seed: make_pipeline(_Fixed(linear), KMeans(k, n_init=N_INIT, random_state=seed)),
        "learned": lambda seed: BregmanKMeans(k, divergence=learned, n_init=N_INIT, random_state=seed),
    }


class _Fixed:
    """A transformer that stays as it was fitted."""

    def __init__(self, fitted: Any) -> None:
        self.fitted = fitted

    def fit(self, X: np.ndarray, y: np.ndarray | None = None) -> _Fixed:
        """Nothing to fit."""
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """As the fitted one does."""
        return self.fitted.transform(X)


def folds(name: str, home: Path | None) -> list[Split]:
    """Five folds of a set, from the folder or else from scikit-learn."""
    if home is not None:
        return class_folds(name, home)
    X, y = OF_SCIKIT_LEARN[name](return_X_y=True)
    return stratified_folds(X, y, 5)


def measure_quality(table: Table, name: str, home: Path | None) -> None:
    """A row for each method, over folds and seeds."""
    rows: dict[str, list[list[float]]] = {}
    for split in folds(name, home):
        for label, make in clusterers(split).items():
            for seed in SEEDS:
                began = time.perf_counter()
                of_test = make(seed).fit_predict(split.X_test)
                seconds = time.perf_counter() - began
                assigned = make(seed).fit(split.X).predict(split.X_test)
                both = scores(split.y_test, of_test) + scores(split.y_test, assigned)
                rows.setdefault(label, []).append([*both, seconds])
    columns = list(QUALITY_COLUMNS)[2:]
    for label, values in rows.items():
        means = np.mean(values, axis=0).tolist()
        table.add(set=name, method=label, **dict(zip(columns, means, strict=True)))


def learned(X: np.ndarray, feature_map: str | None) -> BregmanDivergence:
    """A divergence that tells points by the signs of two features, learned from some of them."""
    y = (X[:400, 0] > 0) + 2 * (X[:400, 1] > 0)
    return PBDL(temperature=TEMPERATURE, feature_map=feature_map, tol=0.5, random_state=0).fit(X[:400], y).divergence_


def measure_time(table: Table, kind: str, n: int, d: int, k: int) -> None:
    """A row of a size: points without clusters, so that the iteration goes on."""
    X = np.random.default_rng(0).standard_normal((n, d))
    maps = {"learned": None, "mapped": "rbf+lda"}
    D = learned(X, maps[kind]) if kind in maps else divergence("sqeuclidean")
    mapped = D._mapped("X", torch.as_tensor(X)).numpy()
    D = BregmanDivergence(D.generator)  # of mapped points: to map them again would take longer than the iterations
    start = mapped[:k].copy()
    means: dict[str, Any] = {
        "means_init": start,
        "weights_init": np.full(k, 1 / k),
        "init_params": "random_from_data",
        "tol": 0,
    }

    def ours(max_iter: int) -> Any:
        if kind == "mixture":
            return BregmanMixture(k, **means, max_iter=max_iter, device="cpu", random_state=0)
        return BregmanKMeans(k, divergence=D, init=start, max_iter=max_iter, tol=0, device="cpu")

    def theirs(max_iter: int) -> Any:
        if kind == "mixture":
            same = {"covariance_type": "spherical", "precisions_init": np.ones(k), "random_state": 0}
            return GaussianMixture(k, **means, **same, max_iter=max_iter)
        return KMeans(k, init=start, n_init=1, max_iter=max_iter, tol=0, algorithm="lloyd")

    seconds: dict[tuple[Callable, int], list[float]] = {}
    objectives: dict[Callable, float] = {}
    for _ in range(REPEATS):
        for make, max_iter in product((ours, theirs), (SHORT, LONG)):
            model = make(max_iter)
            began = time.perf_counter()
            model.fit(mapped)
            seconds.setdefault((make, max_iter), []).append(time.perf_counter() - began)
            objectives[make] = model.lower_bound_ if kind == "mixture" else model.inertia_
            if model.n_iter_ != max_iter:
                raise RuntimeError(f"the iteration must not end before {max_iter}, got {model.n_iter_}")
    each = [1e3 * (min(seconds[m, LONG]) - min(seconds[m, SHORT])) / (LONG - SHORT) for m in (ours, theirs)]
    size = {"method": kind, "n": n, "d": mapped.shape[1], "k": k}
    times = {"ms/iter": each[0], "sklearn": each[1], "ratio": each[0] / each[1]}
    table.add(**size, **times, objective=objectives[ours], **{"its objective": objectives[theirs]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the two smallest sets and 20,000 points")
    parser.add_argument("--only", choices=("quality", "time"), help="one of the two tables")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    home = data_home()
    sets = SETS if home is not None else tuple(OF_SCIKIT_LEARN)
    warnings.simplefilter("ignore", ConvergenceWarning)  # PBDL's gap does not matter, and KMeans stops early on purpose
    print(machine())
    if home is None:
        print(f"BREGNET_DATA is not set: {', '.join(sets)} are those of scikit-learn, the other sets are left out")

    rule = f"alpha={ALPHA:g}, temperature={TEMPERATURE:g}"
    title = f"clusters of unseen test points, and test points in clusters of the training part (tr.), percent; {rule}"
    tables = []
    if options.only != "time":
        tables.append(Table(title, QUALITY_COLUMNS))
        for name in sets[:2] if options.quick else sets:
            measure_quality(tables[-1], name, home)
    if options.only != "quality":
        tables.append(Table("an iteration beside scikit-learn's", TIME_COLUMNS))
        for kind, size in product(KINDS, SIZES):
            if size[0] == SIZES[0][0] or not (options.quick or kind in SLOW):
                measure_time(tables[-1], kind, *size)
    write_json(options.json, tables)


if __name__ == "__main__":
    main()
