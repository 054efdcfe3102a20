"""Writes the model files that are kept in tests/data/models: ``python -m tests.support.make_model_files``.

There is a folder for each version of the library, and one in tests/data/indexes for the folders of indexes. Files that
are there stay as they are, for later versions must read what earlier ones wrote; only those of new kinds are added.
`expected.json` has the answers of the objects that were written.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import bregnet
from bregnet import (
    PBDL,
    PBDLCV,
    BregmanDivergence,
    BregmanIndex,
    BregmanKMeans,
    BregmanKNeighborsClassifier,
    BregmanKNeighborsRegressor,
    BregmanMixture,
    BregmanNCA,
    BregmanNearestNeighbors,
    BregmanRanker,
    ConvexRegressor,
    ConvexRegressorCV,
    DCRegressor,
    DCRegressorCV,
    DifferenceOfConvex,
    FeatureMap,
    ItakuraSaito,
    KullbackLeibler,
    Logistic,
    MappedDivergence,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
)
from bregnet.retrieval.inner_product import InnerProductForm

FOLDER = Path(__file__).parents[1] / "data" / "models"
EXPECTED = "expected.json"
RELEASE = bregnet.__version__.partition(".dev")[0]
RNG = np.random.default_rng(0)
ROWS = RNG.uniform(0.1, 0.9, (24, 2)).round(4)
FRAME = pd.DataFrame(ROWS, columns=["width", "height"])
LABELS = np.where(ROWS[:, 0] > 0.5, "high", "low")
TARGETS = (np.square(ROWS).sum(1) + 0.1 * RNG.standard_normal(24)).round(4)
TABLE = pd.DataFrame({"width": ROWS[:, 0], "kind": ["a", "b", "c"] * 8, "size": ["small", "large"] * 12}, dtype=object)
TABLE = TABLE.assign(
    width=TABLE["width"].astype(float).where(TABLE.index != 3), kind=TABLE["kind"].where(TABLE.index != 1)
)
QUERIES = RNG.uniform(0.1, 0.9, (4, 2)).round(4)
SLOPES = np.array([[1.0, 0.5], [-0.5, 2.0], [0.25, -1.5]])
SMOOTH = MaxAffine(SLOPES, [0.0, 0.5, -0.25], temperature=0.1, strictness=0.2)
SHARP = MaxAffine(SLOPES, [0.0, 0.5, -0.25])
SMALL = {"n_pieces": 4, "tol": 0.5, "random_state": 0}


def models():
    """An object of every kind, and some of their variants, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return {**_functions(), **_solved(), **_searching(), **_indexes(), **_clusters(), **_tables()}


def _functions():
    return {
        "MaxAffine": SMOOTH,
        "Quadratic": Quadratic([[2.0, 0.5], [0.5, 1.0]]),
        "SquaredEuclidean": SquaredEuclidean([1.0, 2.0]),
        "KullbackLeibler": KullbackLeibler(),
        "ItakuraSaito": ItakuraSaito(),
        "Logistic": Logistic(),
        "GeneratorSum": SHARP + 0.5 * SquaredEuclidean() + 2.0 * KullbackLeibler(),
        "DifferenceOfConvex": DifferenceOfConvex(SMOOTH, SHARP),
        "BregmanDivergence": BregmanDivergence(SMOOTH),
        "MappedDivergence": MappedDivergence(SMOOTH, FeatureMap("rbf", n_components=2).fit(ROWS).point_map_),
        "Composed": KullbackLeibler().compose([[1.0, 1.0], [0.0, 1.0], [2.0, 0.5]], 0.1),
        "GeneratorSum-affine": SquaredEuclidean().compose([[1.0, 1.0]], 2.0),
    }


def _solved():
    search = {"alphas": (0.1, 0.01), "cv": 2, "refinements": 0, "n_pieces": 4, "random_state": 0}
    return {
        "ConvexRegressor": ConvexRegressor(0.05, monotone=[1, 0], clip=True, **SMALL).fit(FRAME, TARGETS),
        "DCRegressor": DCRegressor(0.05, temperature=0.1, **SMALL).fit(ROWS, TARGETS),
        "PBDL-map": PBDL(0.05, feature_map=FeatureMap("rbf", n_components=6), **SMALL).fit(ROWS, LABELS),
        "PBDL": PBDL(0.05, temperature=0.1, companion="within", **SMALL).fit(FRAME, LABELS),
        "ConvexRegressorCV": ConvexRegressorCV(**search).fit(ROWS, TARGETS),
        "ConvexRegressorCV-ensemble": ConvexRegressorCV(ensemble=True, **search).fit(FRAME, TARGETS),
        "DCRegressorCV": DCRegressorCV(ensemble=True, **search).fit(ROWS, TARGETS),
        "PBDLCV": PBDLCV(**search).fit(FRAME, LABELS),
        "BregmanNCA": BregmanNCA(max_iter=3, random_state=0).fit(FRAME, LABELS),
    }


def _searching():
    learner = PBDL(0.05, **SMALL)
    chosen = PBDLCV((0.1, 0.01), cv=2, refinements=0, n_pieces=4, random_state=0)
    neighbors = BregmanNearestNeighbors("kl", 3, 0.05, side="left").fit(FRAME)
    classifier = BregmanKNeighborsClassifier(learner, 3, weights="distance").fit(FRAME, LABELS)
    ranker = BregmanRanker(SMOOTH).fit(FRAME, LABELS)
    classifier.predict(FRAME)  # so that what searches has been made
    ranker.rank(FRAME, 3)
    return {
        "BregmanNearestNeighbors": neighbors,
        "BregmanKNeighborsClassifier": classifier,
        "BregmanKNeighborsClassifier-search": BregmanKNeighborsClassifier(chosen, 3).fit(ROWS, LABELS == "low"),
        "BregmanKNeighborsRegressor": BregmanKNeighborsRegressor(
            "itakura-saito", 3, kind="ivf", n_cells=3, random_state=0
        ).fit(FRAME, np.column_stack([TARGETS, -TARGETS])),
        "BregmanRanker": ranker,
        "BregmanRanker-items": BregmanRanker(BregmanDivergence(SMOOTH), side="left").fit(ROWS),
    }


def _indexes():
    flat = BregmanIndex("kl")
    lists = BregmanIndex(SHARP, side="left")
    cells = BregmanIndex(SMOOTH, kind="ivf", n_cells=3, nprobe=2, random_state=0)
    for index in (flat, lists, cells):
        index.add(ROWS[:16], ids=np.arange(100, 116))
        index.search(QUERIES, 12)
        index.add(ROWS[16:])
        index.remove([101, 116])
    named = BregmanIndex(SMOOTH)
    named.add(ROWS, ids=[f"row {number}" for number in range(len(ROWS))])
    return {
        "BregmanIndex": flat,
        "BregmanIndex-pieces": lists,
        "BregmanIndex-cells": cells,
        "BregmanIndex-empty": BregmanIndex("itakura-saito", side="left"),
        "BregmanIndex-names": named,
        "InnerProductForm": flat.to_inner_product(),
        "InnerProductForm-symmetric": cells.to_inner_product(symmetric=True),
    }


def _clusters():
    learner = PBDL(0.05, temperature=0.1, **SMALL)
    return {
        "BregmanKMeans": BregmanKMeans(3, divergence="kl", random_state=0).fit(FRAME),
        "BregmanMixture": BregmanMixture(2, divergence=learner, random_state=0).fit(FRAME, LABELS),
    }


def _tables():
    def table():
        kinds = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False))
        sizes = OrdinalEncoder(categories=[["small", "large"]])
        parts = [("numbers", SimpleImputer(strategy="median"), ["width"]), ("kinds", kinds, ["kind"])]
        made = ColumnTransformer([*parts, ("sizes", sizes, ["size"])], verbose_feature_names_out=False)
        return made.set_output(transform="pandas")

    return {
        "ColumnTransformer": table().fit(TABLE),
        "StandardScaler": StandardScaler().fit(ROWS),
        "Pipeline": Pipeline([("table", table()), ("model", PBDL(0.05, **SMALL))]).fit(TABLE, LABELS),
        "Pipeline-regression": Pipeline([("table", table()), ("model", DCRegressor(0.05, **SMALL))]).fit(
            TABLE, TARGETS
        ),
    }


def answers(obj, points=QUERIES):
    """What an object says of some points, by the names of its methods."""
    if isinstance(obj, BregmanIndex):
        if len(obj) == 0:
            return {"len": 0}
        divergences, ids = obj.search(points, min(5, len(obj)))
        within = obj.search_radius(points, float(np.median(divergences)))[1]
        return {"divergences": divergences, "ids": ids, "within": np.concatenate(within)}
    if isinstance(obj, InnerProductForm):
        scores = obj.encode(points) @ obj.items.T
        return {"scores": scores, "divergences": obj.divergences(points, scores), "ids": obj.ids}
    if isinstance(obj, BregmanDivergence):
        return {"pairwise": obj.pairwise(points), "paired": obj.paired(points, points[::-1])}
    if isinstance(obj, bregnet.Generator | DifferenceOfConvex):
        return {"values": obj(points), "gradient": obj.gradient(points)}
    if isinstance(obj, Pipeline | ColumnTransformer):
        given = TABLE[: len(points)]
    else:
        given = pd.DataFrame(points, columns=obj.feature_names_in_) if hasattr(obj, "feature_names_in_") else points
    found = {}
    for method in ("predict", "predict_proba", "transform", "score_samples", "kneighbors", "rank"):
        if hasattr(obj, method):
            answer = getattr(obj, method)(given)
            several = isinstance(answer, tuple)
            found |= {f"{method}{i}": part for i, part in enumerate(answer)} if several else {method: answer}
    if isinstance(obj, PBDL | PBDLCV):
        back = given[::-1]
        found |= {"pair_distance": obj.pair_distance(given, back), "is_similar": obj.is_similar(given, back)}
    if isinstance(obj, BregmanNearestNeighbors):
        found["radius_neighbors"] = np.concatenate(obj.radius_neighbors(given, return_distance=False))
    return found


def main():
    """Write the files of this version that are not there yet."""
    folder = FOLDER / RELEASE
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / EXPECTED
    expected = json.loads(known.read_text()) if known.exists() else {}
    for name, obj in models().items():
        path = folder / f"{name}.bregnet"
        if not path.exists():
            bregnet.save(obj, path)
            expected[name] = {method: np.asarray(answer).tolist() for method, answer in answers(obj).items()}
            print(f"{path.stat().st_size:6} bytes  {path.relative_to(FOLDER)}")
            if isinstance(obj, BregmanIndex):
                indexes = FOLDER.parent / "indexes" / RELEASE
                indexes.mkdir(parents=True, exist_ok=True)
                obj.save(indexes / name)
    known.write_text(json.dumps(dict(sorted(expected.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
