"""Small seeded fits and searches, to compare a refactored library with what it was.

``python -m tests.support.pinned_results --write FILE`` before, ``--compare FILE`` after. Results are compared bit for
bit, so both must run on the same machine, with the same number of threads; that is why no file of them is kept.
"""

import argparse
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bregnet import (
    PBDL,
    PBDLCV,
    BregmanIndex,
    BregmanKMeans,
    BregmanKNeighborsClassifier,
    BregmanKNeighborsRegressor,
    BregmanMixture,
    BregmanNearestNeighbors,
    BregmanRanker,
    ConvexRegressor,
    ConvexRegressorCV,
    DCRegressor,
    MaxAffine,
    Quadratic,
    metrics,
)

RNG = np.random.default_rng(7)
X = RNG.uniform(0.1, 0.9, (60, 3))
QUERIES = RNG.uniform(0.1, 0.9, (9, 3))
LABELS = (X[:, 0] + X[:, 1] > 1).astype(int) + (X[:, 2] > 0.6)
TARGETS = np.abs(X - 0.5).sum(1) - X[:, 0] ** 2
SMALL = {"n_pieces": 8, "tol": 0.05, "random_state": 0}
SHARP = MaxAffine(RNG.standard_normal((6, 3)), RNG.standard_normal(6))
SMOOTH = MaxAffine(SHARP.slopes, SHARP.intercepts, temperature=0.2, strictness=0.1)
TRIPLES = RNG.integers(0, 30, (200, 3)).tolist()
GENERATORS = {"kl": "kl", "sharp": SHARP, "smooth": SMOOTH, "sum": SMOOTH + Quadratic(np.eye(3))}


def results():
    """All results, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = {**_learners(), **_selection(), **_retrieval(), **_clustering()}
    return {name: np.asarray(value) for name, value in found.items()}


def _learners():
    first, second = np.triu_indices(12, 1)
    same = LABELS[first] == LABELS[second]
    triplets = [(i, j, k) for i, j, k in TRIPLES if i != j and LABELS[i] == LABELS[j] and LABELS[i] != LABELS[k]]
    fits = {
        "PBDL": PBDL(0.01, temperature=0.0, **SMALL).fit(X, LABELS),
        "PBDL-all": PBDL(0.01, temperature=0.0, tol=0.05, max_iter=300).fit(X[:30], LABELS[:30]),
        "PBDL-companion": PBDL(0.01, temperature=0.1, companion="within", **SMALL).fit(X, LABELS),
        "PBDL-pairs": PBDL(0.01, temperature=0.0, **SMALL).fit_pairs(X, np.column_stack([first, second]), same),
        "PBDL-triplets": PBDL(0.01, temperature=0.0, **SMALL).fit_triplets(X, np.array(triplets)),
    }
    found = {f"{name} {part}": value for name, fit in fits.items() for part, value in _learned(fit).items()}
    found["PBDL score"] = fits["PBDL"].score(X, LABELS)
    found["PBDL is_similar"] = fits["PBDL"].is_similar(X[:9], QUERIES)
    for name, model in {
        "ConvexRegressor": ConvexRegressor(0.01, **SMALL),
        "ConvexRegressor-all": ConvexRegressor(0.01, tol=0.05, monotone=[0, 1, 0]),
        "DCRegressor": DCRegressor(0.01, temperature=0.05, **SMALL),
    }.items():
        model.fit(X, TARGETS)
        found |= {
            f"{name} predictions": model.predict(QUERIES),
            f"{name} result": [model.result_.objective, model.result_.dual_bound, model.result_.n_iter],
        }
    return found


def _learned(model):
    result = model.result_
    return {
        "divergences": model.divergence_.pairwise(QUERIES, X),
        "result": [result.objective, result.dual_bound, result.n_iter],
    }


def _selection():
    search = {"alphas": (0.1, 0.01), "cv": 2, "refinements": 1, "n_pieces": 6, "random_state": 0}
    known = {"temperatures": (0.0, 0.1, 0.3, 1.0), "companion": None, "gallery": "train", "early_stopping": True}
    chosen = PBDLCV(**search, **known, feature_map=None, tol=0.01).fit(X, LABELS)
    averaged = ConvexRegressorCV(ensemble=True, **search).fit(X, TARGETS)
    return {
        "PBDLCV alpha": chosen.alpha_,
        "PBDLCV score": chosen.best_score_,
        "PBDLCV divergences": chosen.divergence_.pairwise(QUERIES, X),
        "ConvexRegressorCV alpha": averaged.alpha_,
        "ConvexRegressorCV predictions": averaged.predict(QUERIES),
    }


def _retrieval():
    found = {}
    for name, generator in GENERATORS.items():
        for side in ("right", "left"):
            for kind in ("flat", "ivf"):
                options = {"n_cells": 5, "nprobe": 3} if kind == "ivf" else {}
                index = BregmanIndex(generator, kind=kind, side=side, random_state=0, **options)
                index.add(X[:50])
                found |= _searched(f"BregmanIndex {name} {side} {kind}", index)
                index.add(X[50:])
                index.remove([3, 5, 7])
                found |= _searched(f"BregmanIndex {name} {side} {kind} changed", index)
    index = BregmanIndex("kl")
    index.add(X)
    form = index.to_inner_product()
    found |= {"InnerProductForm items": form.items, "InnerProductForm queries": form.encode(QUERIES)}
    neighbors = BregmanNearestNeighbors("kl", 4).fit(X)
    classifier = BregmanKNeighborsClassifier(PBDL(0.01, temperature=0.0, **SMALL), 5, weights="distance").fit(X, LABELS)
    regressor = BregmanKNeighborsRegressor(SHARP, 5).fit(X, TARGETS)
    ranker = BregmanRanker(SHARP).fit(X, LABELS)
    matrix = classifier.divergence_.pairwise(X, X)
    return found | {
        "BregmanNearestNeighbors": neighbors.kneighbors()[1],
        "BregmanKNeighborsClassifier": classifier.predict_proba(QUERIES),
        "BregmanKNeighborsRegressor": regressor.predict(QUERIES),
        "BregmanRanker": ranker.rank(QUERIES, 6)[1],
        "BregmanRanker score": ranker.score(X[:20], LABELS[:20]),
        "mean_average_precision": metrics.mean_average_precision(matrix, LABELS[:, None] == LABELS),
    }


def _searched(name, index):
    divergences, ids = index.search(QUERIES, 7)
    near, within = index.search_radius(QUERIES, float(np.median(divergences)))
    return {
        f"{name} divergences": divergences,
        f"{name} ids": ids,
        f"{name} within": np.concatenate(within),
        f"{name} near": np.concatenate(near),
    }


def _clustering():
    kmeans = BregmanKMeans(3, divergence="kl", random_state=0).fit(X)
    batches = BregmanKMeans(3, divergence=SMOOTH, batch_size=16, random_state=0).fit(X)
    mixture = BregmanMixture(2, divergence="kl", random_state=0).fit(X)
    return {
        "BregmanKMeans centres": kmeans.cluster_centers_,
        "BregmanKMeans labels": kmeans.labels_,
        "BregmanKMeans in batches": batches.cluster_centers_,
        "BregmanMixture means": mixture.means_,
        "BregmanMixture shares": mixture.predict_proba(QUERIES),
    }


def differences(found, expected):
    """What differs between two sets of results, one line each."""
    lines = [f"{name}: only in one of them" for name in sorted(found.keys() ^ expected.keys())]
    for name in sorted(found.keys() & expected.keys()):
        one, other = found[name], expected[name]
        if one.dtype != other.dtype or one.shape != other.shape:
            lines.append(f"{name}: {one.dtype} {one.shape}, was {other.dtype} {other.shape}")
        elif one.tobytes() != other.tobytes():
            lines.append(f"{name}: {np.count_nonzero(one != other)} of {one.size} values differ")
    return lines


def main(arguments=None):
    """Write the results to a file, or compare them with those of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", metavar="FILE")
    what.add_argument("--compare", metavar="FILE")
    given = parser.parse_args(arguments)
    found = results()
    if given.write:
        np.savez(given.write, **found)
        print(f"{len(found)} results written to {given.write}")
        return 0
    with np.load(given.compare) as stored:
        lines = differences(found, dict(stored))
    print("\n".join(lines) or f"{len(found)} results are the same, bit for bit")
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
