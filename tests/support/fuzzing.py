"""Every public entry as a row of a table, odd arguments for it, and what it may do with them.

A row names an entry, the arrays and the other arguments that it takes, with plain values for all of them, and how it is
called. An outcome is what came of a call: numbers, or the error that was raised.
"""

from __future__ import annotations

import copy
import inspect
import os
import random
import re
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError, UndefinedMetricWarning

import bregnet
from bregnet import distributed, metrics
from bregnet.divergences.maps import PointMap
from bregnet.io import kinds as file_kinds
from bregnet.retrieval.inner_product import InnerProductForm
from bregnet.solver.partition import Merged

SECONDS = 300  # beyond, a call hangs
REFUSALS = (ValueError, TypeError, MemoryError, NotFittedError)
REFUSALS += (NotADirectoryError, IsADirectoryError, FileNotFoundError)
DOCUMENTED = (ConvergenceWarning, UndefinedMetricWarning, DataConversionWarning)
DOCUMENTED += (PendingDeprecationWarning,)  # of np.matrix
WARNED = re.compile(  # documented too: of a search, of PBDL where it can learn nothing, of a name of earlier versions
    r"scores that are not numbers|PBDL(CV)? learned nothing|is below one a class|^index is now called kind"
)

# Whole eighths are the same numbers in every floating-point type, from half precision to long double, and lie in the
# domain of every divergence.
_RNG = np.random.default_rng(0)
X = _RNG.integers(1, 8, size=(12, 2)) / 8
Q = _RNG.integers(1, 8, size=(5, 2)) / 8
LABELS = np.arange(12) % 2
TARGETS = _RNG.integers(-8, 9, size=12) / 8
PLAIN: dict[str, np.ndarray] = {
    "points": X,
    "queries": Q,
    "labels": LABELS,
    "query_labels": np.arange(5) % 2,
    "targets": TARGETS,
    "query_targets": np.arange(5) / 8,
    "pairs": np.array([[0, 1], [2, 3], [4, 6], [1, 5]]),
    "similar": np.array([True, False, True, False]),
    "triplets": np.array([[0, 1, 2], [3, 4, 5]]),
    "weights": np.arange(1, 13) / 8,
    "query_weights": np.arange(1, 6) / 8,
    "feature_weights": np.array([0.5, 2.0]),
    "slopes": np.array([[1.0, 0.0], [-1.0, 0.5], [0.0, -1.0]]),
    "intercepts": np.array([0.0, 0.25, -0.5]),
    "matrix": np.array([[2.0, 0.5], [0.5, 1.0]]),
    "ids": np.array([10, 4, 7, 20, 30]),
    "known_ids": np.array([0, 3]),
    "radii": np.array([0.5, 0.25, 0.125, 1.0, 0.5]),
    "divergences": _RNG.integers(0, 8, size=(4, 6)) / 8,
    "relevant": np.arange(24).reshape(4, 6) % 3 == 0,
    "mask": np.arange(12) % 4 == 0,
    "groups": np.arange(12) // 3,
    "shares": np.array([0.25, 0.75]),
    "mixing": np.array([[0.5, 0.25], [0.25, 0.5]]),  # keeps points in the domain of every divergence
    "shift": np.array([0.125, 0.0625]),
    "reversed_points": X[::-1].copy(),
}


@dataclass(frozen=True)
class Entry:
    """A public entry.

    Attributes
    ----------
    name : str
        As in "PBDL.fit".
    call : callable
        With the arrays and options by their names.
    arrays : dict
        From the names of array arguments to those of their plain values in PLAIN.
    options : dict
        From the names of other arguments to plain values.
    called : dict
        What errors call an argument, where it has another name there.
    slow : bool
        Whether it runs the solver.
    """

    name: str
    call: Callable[..., Any]
    arrays: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    called: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slow: bool = False

    def __str__(self) -> str:
        return self.name

    def plain(self) -> dict[str, Any]:
        """Fresh copies of plain arguments."""
        return {**{name: PLAIN[kind].copy() for name, kind in self.arrays.items()}, **self.options}


FAST: dict[str, Any] = {"alpha": 0.1, "tol": 0.5, "max_iter": 20, "random_state": 0}
FAST_SEARCH: dict[str, Any] = {
    "alphas": [0.1],
    "cv": 2,
    "temperatures": [0.1],
    "refinements": 0,
    "tol": 0.5,
    "max_iter": 20,
    "random_state": 0,
}
REGRESSORS = [each.__name__ for each in file_kinds.REGRESSORS]
MAKERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {  # settings, and the arguments of fit
    "PBDL": ({**FAST, "alpha": 0.03}, ("points", "labels")),  # at 0.1 all pieces are the same
    "BregmanNCA": ({"max_iter": 3, "random_state": 0}, ("points", "labels")),
    **dict.fromkeys(REGRESSORS, (FAST, ("points", "targets"))),
    "PBDLCV": (FAST_SEARCH, ("points", "labels")),
    "ConvexRegressorCV": (FAST_SEARCH, ("points", "targets")),
    "DCRegressorCV": (FAST_SEARCH, ("points", "targets")),
    "BregmanNearestNeighbors": ({"divergence": "kl", "n_neighbors": 3}, ("points",)),
    "BregmanKNeighborsClassifier": ({"divergence": "kl", "n_neighbors": 3}, ("points", "labels")),
    "BregmanKNeighborsRegressor": ({"divergence": "kl", "n_neighbors": 3}, ("points", "targets")),
    "BregmanRanker": ({"divergence": "kl"}, ("points", "labels")),
    "BregmanKMeans": ({"n_clusters": 2, "divergence": "kl", "random_state": 0}, ("points",)),
    "BregmanMixture": ({"n_components": 2, "divergence": "kl", "random_state": 0}, ("points",)),
}
SOLVED = {"PBDL", *REGRESSORS, "PBDLCV", "ConvexRegressorCV", "DCRegressorCV"}


def made(name: str, **parameters: Any) -> Any:
    """An unfitted estimator that is quick to fit."""
    return getattr(bregnet, name)(**{**MAKERS[name][0], **parameters})


@cache
def _fitted(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made(name).fit(*(PLAIN[kind] for kind in MAKERS[name][1]))


def fitted(name: str) -> Any:
    """A fitted estimator of one's own."""
    return copy.deepcopy(_fitted(name))


def an_index(**settings: Any) -> bregnet.BregmanIndex:
    """An index with the plain points in it."""
    index = bregnet.BregmanIndex(**{"divergence": "kl", "random_state": 0, **settings})
    index.add(X)
    return index


def changed(thing: Any, method: str, **arguments: Any) -> Any:
    """What a method made of an object that it changes."""
    getattr(thing, method)(**arguments)
    return thing


GENERATORS: dict[str, Callable[[], Any]] = {
    "SquaredEuclidean": bregnet.SquaredEuclidean,
    "Quadratic": lambda: bregnet.Quadratic(PLAIN["matrix"]),
    "KullbackLeibler": bregnet.KullbackLeibler,
    "ItakuraSaito": bregnet.ItakuraSaito,
    "Logistic": bregnet.Logistic,
    "MaxAffine": lambda: bregnet.MaxAffine(PLAIN["slopes"], PLAIN["intercepts"], temperature=0.1),
    "GeneratorSum": lambda: bregnet.MaxAffine(PLAIN["slopes"], PLAIN["intercepts"]) + 0.5 * bregnet.SquaredEuclidean(),
    "DifferenceOfConvex": lambda: bregnet.DifferenceOfConvex(
        bregnet.MaxAffine(PLAIN["slopes"], PLAIN["intercepts"]), bregnet.Quadratic(PLAIN["matrix"])
    ),
}


def _generator_rows() -> Iterator[Entry]:
    for name, make in GENERATORS.items():
        yield Entry(f"{name}.__call__", lambda X, make=make: make()(X), {"X": "points"})
        yield Entry(f"{name}.gradient", lambda X, make=make: make().gradient(X), {"X": "points"})
        yield Entry(f"{name}.to", lambda target, make=make: make().to(target), options={"target": "cpu"})
        if name != "DifferenceOfConvex":
            call = lambda make=make, **given: make().compose(**given)  # noqa: E731
            yield Entry(f"{name}.compose", call, {"matrix": "mixing", "offset": "shift"})
            yield Entry(f"{name}.compose", call, {"matrix": "mixing"}, {"offset": 0.125})
    yield Entry("MaxAffine.active", lambda X: GENERATORS["MaxAffine"]().active(X), {"X": "points"})
    yield Entry(
        "MaxAffine",
        bregnet.MaxAffine,
        {"slopes": "slopes", "intercepts": "intercepts"},
        {"temperature": 0.1, "strictness": 0.5},
    )
    yield Entry(
        "MaxAffine", bregnet.MaxAffine, {n: n for n in ("slopes", "intercepts")} | {"strictness": "feature_weights"}
    )
    yield Entry("SquaredEuclidean", bregnet.SquaredEuclidean, {"weights": "feature_weights"})
    yield Entry("Quadratic", bregnet.Quadratic, {"matrix": "matrix"})
    for name in ("KullbackLeibler", "ItakuraSaito", "Logistic"):
        yield Entry(name, getattr(bregnet, name))
    parts = {"convex": GENERATORS["MaxAffine"](), "concave": GENERATORS["Quadratic"]()}
    yield Entry("DifferenceOfConvex", bregnet.DifferenceOfConvex, options=parts)
    yield Entry(
        "GeneratorSum",
        lambda generators, weights: bregnet.GeneratorSum(generators, weights),
        options={"generators": [bregnet.SquaredEuclidean(), bregnet.Logistic()], "weights": [1.0, 2.0]},
        called={"generators": ("generator",), "weights": ("weight",)},
    )


def _divergence_rows() -> Iterator[Entry]:
    mapped = bregnet.MappedDivergence(bregnet.SquaredEuclidean(), a_map().point_map_)
    plain = [bregnet.BregmanDivergence(GENERATORS[name]()) for name in ("KullbackLeibler", "MaxAffine", "GeneratorSum")]
    for D in (*plain, mapped):
        kind = type(D).__name__
        for method in ("pairwise", "pairwise_blocks", "paired", "lift_items", "lift_queries", "lift_offsets"):
            signature = inspect.signature(getattr(D, method)).parameters
            arrays = {key: "points" for key in signature if key in ("X", "Y", "Q")}
            options = {key: {"side": "left", "batch_size": 5}[key] for key in signature if key not in arrays}
            call = getattr(D, method)
            if method == "pairwise_blocks":
                call = lambda call=call, **given: [block for _, block in call(**given)]  # noqa: E731
            yield Entry(f"{kind}.{method}", call, arrays, options)
        for points in ("points", "feature_weights"):
            given, called = {"x": points, "y": points}, {"x": ("X",), "y": ("Y",)}
            yield Entry(f"{kind}.__call__", lambda D=D, **given: D(**given), given, called=called)
    yield Entry("BregmanDivergence", bregnet.BregmanDivergence, options={"generator": bregnet.KullbackLeibler()})
    yield Entry("BregmanDivergence.to", bregnet.divergence("kl").to, options={"target": torch.float32})
    parts = {"generator": mapped.generator, "feature_map": mapped.feature_map}
    yield Entry("MappedDivergence", bregnet.MappedDivergence, options=parts)
    yield Entry("MappedDivergence.to", mapped.to, options={"target": torch.float32})
    yield Entry("divergence", bregnet.divergence, options={"name": "kl"}, called={"name": ("divergence",)})
    yield Entry("divergence", lambda matrix: bregnet.divergence("mahalanobis", matrix=matrix), {"matrix": "matrix"})
    yield Entry(
        "divergence", lambda weights: bregnet.divergence("sqeuclidean", weights=weights), {"weights": "feature_weights"}
    )


def a_map(kind: str = "rbf+lda", **settings: Any) -> bregnet.FeatureMap:
    """A fitted map of features."""
    return bregnet.FeatureMap(kind, **{"n_components": 5, "random_state": 0, **settings}).fit(X, LABELS)


def _map_rows() -> Iterator[Entry]:
    options = {"kind": "rbf+lda", "width": 1.0, "n_components": 5, "random_state": 0}
    yield Entry("FeatureMap", a_map, options=options)
    for kind, given in (("rbf", {"X": "points"}), ("lda", {"X": "points", "y": "labels"})):
        for method in ("fit", "fit_transform"):
            empty = bregnet.FeatureMap(kind, random_state=0)
            call = lambda empty=empty, method=method, **given: getattr(clone(empty), method)(**given)  # noqa: E731
            yield Entry(f"FeatureMap.{method}", call, given)
        yield Entry("FeatureMap.transform", a_map(kind).transform, {"X": "queries"})
    yield Entry("FeatureMap.get_feature_names_out", lambda: a_map().get_feature_names_out())


def _index_rows() -> Iterator[Entry]:
    settings = {"divergence": "kl", "side": "left", "kind": "flat", "n_cells": 3, "nprobe": 2, "device": "cpu"}
    yield Entry("BregmanIndex", an_index, options={**settings, "random_state": 0})
    yield Entry("BregmanIndex", an_index, options={"kind": "ivf", "n_cells": 3, "nprobe": 2, "random_state": 0})
    yield Entry("BregmanIndex.add", lambda **given: changed(an_index(), "add", **given), {"X": "queries"})
    yield Entry(
        "BregmanIndex.add",
        lambda **given: changed(bregnet.BregmanIndex("kl"), "add", **given),
        {"X": "queries", "ids": "ids"},
    )
    yield Entry("BregmanIndex.reset", lambda: changed(an_index(), "reset"))
    yield Entry("BregmanIndex.reconstruct", an_index().reconstruct, {"ids": "known_ids"})
    yield Entry("BregmanIndex.reconstruct", an_index().reconstruct, options={"ids": 3})
    yield Entry("BregmanIndex.remove", lambda ids: changed(an_index(), "remove", ids=ids), {"ids": "known_ids"})
    sharp = bregnet.MaxAffine(PLAIN["slopes"], PLAIN["intercepts"])
    for kind in ({}, {"kind": "ivf"}, {"divergence": sharp}, {"divergence": "itakura-saito", "side": "left"}):
        index = an_index(**kind)
        yield Entry("BregmanIndex.search", index.search, {"Q": "queries"}, {"k": 3, "progress": False})
        yield Entry("BregmanIndex.search_radius", index.search_radius, {"Q": "queries", "radius": "radii"})
    yield Entry("BregmanIndex.search_radius", index.search_radius, {"Q": "queries"}, {"radius": 0.5, "progress": False})
    yield Entry("BregmanIndex.recall", index.recall, {"Q": "queries"}, {"k": 3})
    yield Entry("BregmanIndex.to_inner_product", index.to_inner_product, options={"symmetric": True})
    yield Entry("BregmanIndex.save", _saved_index, options={"path": "items"})
    yield Entry("BregmanIndex.load", _loaded_index, options={"mmap": True, "device": "cpu"})
    for name in ("ids", "nbytes", "bytes_per_item", "method", "n_features", "nprobe"):
        yield Entry(f"BregmanIndex.{name}", lambda name=name: getattr(index, name))


def _saved_index(path: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / path if isinstance(path, str) else path
        an_index().save(there)
        return bregnet.BregmanIndex.load(there)


def _loaded_index(**given: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        an_index().save(Path(folder) / "items")
        return bregnet.BregmanIndex.load(**{"path": Path(folder) / "items", **given}).search(Q, 2)


def _estimator_rows() -> Iterator[Entry]:
    for name, (_, kinds) in MAKERS.items():
        slow = name in SOLVED
        given = dict(zip(("X", "y"), kinds, strict=False))
        defaults = inspect.signature(getattr(bregnet, name)).parameters
        options = {key: value.default for key, value in defaults.items() if value.default != "deprecated"}
        options |= MAKERS[name][0]

        def construct(name: str = name, kinds: tuple = kinds, **parameters: Any) -> Any:
            model = made(name, **parameters).fit(*(PLAIN[kind] for kind in kinds))
            return _used(model)

        yield Entry(name, construct, options=options, slow=slow)
        yield Entry(f"{name}.fit", lambda name=name, **given: made(name).fit(**given), given, slow=slow)
        for method in ("partial_fit", "fit_predict", "fit_transform"):
            if hasattr(getattr(bregnet, name), method):
                call = lambda name=name, method=method, **given: getattr(made(name), method)(**given)  # noqa: E731
                yield Entry(f"{name}.{method}", call, given, slow=slow)
        if hasattr(getattr(bregnet, name), "memory_needed"):
            needed = made(name).memory_needed
            yield Entry(f"{name}.memory_needed", needed, options={"n_samples": 100, "n_features": 3})
            yield Entry(
                f"{name}.fit_blocks",
                _fit_blocks(name),
                given,
                slow=slow,
                called={"X": ("blocks", "X"), "y": ("blocks", "y")},
            )
        yield from _method_rows(name)
    for name in ("PBDLCV", "ConvexRegressorCV", "DCRegressorCV"):
        given = dict(zip(("X", "y"), MAKERS[name][1], strict=True)) | {"groups": "groups"}
        yield Entry(f"{name}.fit", lambda name=name, **given: made(name, cv=_by_group()).fit(**given), given, slow=True)
    pairs = {"X": "points", "pairs": "pairs", "similar": "similar"}
    yield Entry("PBDL.fit_pairs", lambda **given: made("PBDL").fit_pairs(**given), pairs, slow=True)
    triplets = {"X": "points", "triplets": "triplets"}
    yield Entry("PBDL.fit_triplets", lambda **given: made("PBDL").fit_triplets(**given), triplets, slow=True)
    weighted = {"X": "points", "sample_weight": "weights"}
    for method in ("fit", "partial_fit", "fit_predict"):
        call = lambda method=method, **given: getattr(made("BregmanKMeans"), method)(**given)  # noqa: E731
        yield Entry(f"BregmanKMeans.{method}", call, weighted)
    former = lambda index: _used(made("BregmanNearestNeighbors", index=index).fit(X))  # noqa: E731
    yield Entry("BregmanNearestNeighbors", former, options={"index": "flat"})  # the earlier name of kind
    from_pbdl = lambda **given: made("BregmanNCA", init="pbdl").fit(**given)  # noqa: E731
    yield Entry("BregmanNCA.fit", from_pbdl, {"X": "points", "y": "labels"}, slow=True)
    start = lambda init: made("BregmanKMeans", init=init).fit(X)  # noqa: E731
    yield Entry("BregmanKMeans", start, {"init": "matrix"})
    yield Entry(
        "BregmanMixture",
        lambda means_init: made("BregmanMixture", means_init=means_init).fit(X),
        {"means_init": "matrix"},
    )
    shares = lambda weights_init: made("BregmanMixture", weights_init=weights_init).fit(X)  # noqa: E731
    yield Entry("BregmanMixture", shares, {"weights_init": "shares"})


def _by_group() -> Any:
    from sklearn.model_selection import GroupKFold

    return GroupKFold(2)


def _fit_blocks(name: str) -> Callable[..., Any]:
    def call(X: Any, y: Any) -> Any:
        return made(name).fit_blocks([(X, y), (X, y)])

    return call


def _used(model: Any) -> Any:
    """A fitted estimator after each of its methods that takes new rows was used: some parameters only matter then."""
    for method in ("predict", "predict_proba", "rank", "kneighbors", "transform", "score_samples"):
        if hasattr(model, method):
            getattr(model, method)(Q)
    return model


def _method_rows(name: str) -> Iterator[Entry]:
    """Methods of a fitted estimator."""
    kind = getattr(bregnet, name)
    labelled = "query_targets" if "targets" in MAKERS[name][1] else "query_labels"
    tables: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
        "predict": ({"X": "queries"}, {}),
        "predict_proba": ({"X": "queries"}, {}),
        "score_samples": ({"X": "queries"}, {}),
        "transform": ({"X": "queries"}, {}),
        "aic": ({"X": "queries"}, {}),
        "bic": ({"X": "queries"}, {}),
        "pair_distance": ({"X": "queries", "Y": "queries"}, {}),
        "pair_score": ({"X": "queries", "Y": "queries"}, {}),
        "is_similar": ({"X": "queries", "Y": "queries"}, {}),
        "kneighbors": ({"X": "queries"}, {"n_neighbors": 2, "return_distance": True}),
        "kneighbors_graph": ({"X": "queries"}, {"n_neighbors": 2, "mode": "distance"}),
        "radius_neighbors": ({"X": "queries"}, {"radius": 0.5, "return_distance": True}),
        "radius_neighbors_graph": ({"X": "queries"}, {"radius": 0.5, "mode": "distance"}),
        "rank": ({"Q": "queries"}, {"k": 3}),
    }
    for method, (arrays, options) in tables.items():
        if hasattr(kind, method):
            call = lambda method=method, **given: getattr(fitted(name), method)(**given)  # noqa: E731
            yield Entry(f"{name}.{method}", call, arrays, options)
    if hasattr(kind, "calibrate"):
        call = lambda **given: fitted(name).calibrate(**given)  # noqa: E731
        given = {"X": "points", "Y": "reversed_points", "similar": "mask"}
        yield Entry(f"{name}.calibrate", call, given, {"strategy": "true_positive_rate", "rate": 0.5})
    if hasattr(kind, "score"):
        parameters = inspect.signature(kind.score).parameters
        arrays = {"Q" if "Q" in parameters else "X": "queries"}
        if name not in ("BregmanKMeans", "BregmanMixture"):
            arrays["y"] = labelled
        if "sample_weight" in parameters:
            arrays["sample_weight"] = "query_weights"
        yield Entry(f"{name}.score", lambda **given: fitted(name).score(**given), arrays)
    if hasattr(kind, "get_feature_names_out"):
        yield Entry(f"{name}.get_feature_names_out", lambda: fitted(name).get_feature_names_out())


def _metric_rows() -> Iterator[Entry]:
    both = {"divergences": "divergences", "relevant": "relevant"}
    for name in ("mean_average_precision", "map_at_r", "r_precision", "retrieval_auc"):
        yield Entry(f"metrics.{name}", getattr(metrics, name), both, {"per_query": True, "n_jobs": 2})
    for name in ("precision_at_k", "recall_at_k"):
        yield Entry(f"metrics.{name}", getattr(metrics, name), both, {"k": 2, "per_query": False, "n_jobs": 1})
    yield Entry("metrics.purity", metrics.purity, {"labels_true": "labels", "labels_pred": "labels"})


def _other_rows() -> Iterator[Entry]:
    yield Entry("datasets.load", bregnet.datasets.load, options={"name": "iris", "data_home": None})
    folds = bregnet.datasets.paper_folds
    yield Entry("datasets.paper_folds", folds, options={"name": "iris", "target": 0, "data_home": None})
    fold = bregnet.datasets.Fold
    yield Entry("datasets.Fold.scaled", fold.scaled, {"X": "points", "y": "targets", "test": "mask"})
    kept = {"path": "kept", "seconds": 1.0, "resume": True}
    yield Entry("Checkpoint", _checkpointed, options=kept, slow=True)
    yield Entry("to_onnx", _exported, options={"model": _fitted("ConvexRegressor"), "path": "kept", "dtype": "float32"})
    yield Entry("distributed.current", bregnet.distributed.current)
    yield Entry("distributed.joined", _joined)


def _checkpointed(path: Any, seconds: Any, resume: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / path if isinstance(path, str) else path
        kept = bregnet.Checkpoint(there, seconds, resume)
        return made("ConvexRegressor", checkpoint=kept).fit(X, TARGETS)


def _exported(model: Any, path: Any, dtype: Any) -> Any:
    from onnx.reference import ReferenceEvaluator

    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / path if isinstance(path, str) else path
        made = bregnet.to_onnx(model, there, dtype=dtype)
        assert there is None or there.read_bytes() == made.SerializeToString()
        kind = np.float64 if made.graph.input[0].type.tensor_type.elem_type == 11 else np.float32
        return ReferenceEvaluator(made).run(None, {"X": X.astype(kind)})


def _joined() -> int:
    with distributed.joined() as ranks:
        return ranks.size


def entries() -> list[Entry]:
    """All rows of the table."""
    parts = (_generator_rows, _divergence_rows, _map_rows, _index_rows, _estimator_rows, _metric_rows, _other_rows)
    return [row for part in parts for row in part()]


# What came of a call --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Numbers, or an error."""

    numbers: tuple[np.ndarray, ...] | None
    error: BaseException | None

    def same(self, other: Outcome, rtol: float) -> bool:
        """Whether both are numbers that agree."""
        if self.numbers is None or other.numbers is None or len(self.numbers) != len(other.numbers):
            return False
        pairs = zip(self.numbers, other.numbers, strict=True)
        return all(a.shape == b.shape and np.allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True) for a, b in pairs)


def numbers_in(result: Any) -> Iterator[np.ndarray]:
    """All numbers in a result, those that a fitted thing computes included."""
    if isinstance(result, bregnet.BregmanDivergence):
        yield from numbers_in(result.paired(X, X[::-1]))
    elif isinstance(result, (bregnet.Generator, bregnet.DifferenceOfConvex)):
        yield from numbers_in(result(X))
    elif isinstance(result, bregnet.BregmanIndex):
        yield from numbers_in(result.search(Q, min(3, len(result))) if len(result) else ())
    elif isinstance(result, InnerProductForm):
        yield from numbers_in((result.items, result.ids, result.encode(Q)))
    elif isinstance(result, PointMap):
        yield from numbers_in(result(X))
    elif isinstance(result, BaseEstimator):
        names = ("function_", "divergence_", "threshold_", "gap_", "labels_", "cluster_centers_", "means_", "weights_")
        names += ("index_", "point_map_", "log_likelihoods_", "feature_bounds_", "inertia_", "best_score_", "alpha_")
        if hasattr(result, "feature_map_"):  # then the function is one of mapped points; the divergence maps by itself
            names = names[1:]
        yield from numbers_in([getattr(result, name) for name in names if hasattr(result, name)])
    elif isinstance(result, torch.Tensor):
        yield result.detach().cpu().numpy()
    elif sparse.issparse(result):
        yield result.toarray()
    elif isinstance(result, np.ndarray) and result.dtype == object:
        yield from numbers_in(list(result))
    elif isinstance(result, (np.ndarray, np.generic, bool, int, float)):
        yield np.asarray(result)
    elif isinstance(result, Mapping):
        yield from numbers_in(list(result.values()))
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from numbers_in(part)


def fingerprint(value: Any) -> Any:
    """What must stay the same of an argument."""
    if isinstance(value, torch.Tensor):
        return None if value.is_sparse or value.device.type == "meta" else repr(value.tolist())
    if isinstance(value, np.ndarray):
        return repr(value.tolist()) if value.dtype == object else value.tobytes()
    if isinstance(value, (list, dict, set)):
        return repr(value)
    return None


@contextmanager
def limited(seconds: int = SECONDS) -> Iterator[None]:
    """An error where the block takes longer; only the main thread can tell."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(*_: object) -> None:
        raise AssertionError(f"still running after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def global_state(*, numpy_seed: bool = True) -> dict[str, Any]:
    """What a library has no business to change."""
    state = {
        "the seed of random": random.getstate(),
        "the seed of torch": torch.get_rng_state().numpy().tobytes(),
        "torch's default precision": torch.get_default_dtype(),
        "torch's threads": torch.get_num_threads(),
        "whether torch records gradients": torch.is_grad_enabled(),
        "what numpy does about errors": np.geterr(),
        "how numpy prints": np.get_printoptions(),
        "the environment": dict(os.environ),
        "the folder": str(Path.cwd()),
        "filters of warnings": list(warnings.filters),
    }
    if numpy_seed:
        kind, words, *rest = np.random.get_state()  # noqa: NPY002
        state["the seed of numpy"] = kind, words.tobytes(), rest
    if "faiss" in sys.modules:
        state["faiss's threads"] = sys.modules["faiss"].omp_get_max_threads()
    if "matplotlib" in sys.modules:
        state["matplotlib's parameters"] = dict.copy(sys.modules["matplotlib"].rcParams)
    return state


def outcome(entry: Entry, arguments: Mapping[str, Any]) -> Outcome:
    """Call the entry; whatever is not allowed of it is an assertion error here."""
    before = {name: fingerprint(value) for name, value in arguments.items()}
    drawn = "random_state" in arguments and arguments["random_state"] is None  # from numpy's own, as scikit-learn does
    with warnings.catch_warnings(record=True) as caught, limited():
        warnings.simplefilter("always")
        around = global_state(numpy_seed=not drawn)
        try:
            result = entry.call(**arguments)
            found = Outcome(tuple(numbers_in(result)), None)
        except REFUSALS as error:
            found = Outcome(None, error)
        after = global_state(numpy_seed=not drawn)
    for what, value in around.items():
        assert after[what] == value, f"{entry}: changed {what}"
    for name, value in arguments.items():
        assert fingerprint(value) == before[name], f"{entry}: {name} was changed"
    others = [str(each.message) for each in caught if not issubclass(each.category, DOCUMENTED)]
    others = [each for each in others if WARNED.search(each) is None]
    assert not others, f"{entry}: warned {others[0]}"
    return found


# Arrays in other forms, and other arrays ------------------------------------------------------------------------------


def _strided(a: np.ndarray) -> np.ndarray:
    room = np.zeros(tuple(2 * size for size in a.shape), dtype=a.dtype)
    room[tuple(slice(None, None, 2) for _ in a.shape)] = a
    return room[tuple(slice(None, None, 2) for _ in a.shape)]


def _backwards(a: np.ndarray) -> np.ndarray:
    turned = tuple(slice(None, None, -1) for _ in a.shape)
    return a[turned].copy()[turned]


def _read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


def _objects(a: np.ndarray) -> np.ndarray:
    out = np.empty(a.shape, dtype=object)
    out[...] = a
    return out


def _floats(kind: Any) -> Callable[[np.ndarray], Any]:
    return lambda a: a.astype(kind) if a.dtype.kind == "f" else a


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "read-only": _read_only,
    "Fortran": lambda a: np.asfortranarray(a.copy()),
    "strided": _strided,
    "backwards": _backwards,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "long double": _floats(np.longdouble),
    "single": _floats(np.float32),
    "half": _floats(np.float16),
    "small integers": lambda a: a.astype(np.int8) if a.dtype.kind == "i" else a,
    "unsigned": lambda a: a.astype(np.uint64) if a.dtype.kind == "i" and (a >= 0).all() else a,
    "objects": _objects,
    "memoryview": lambda a: memoryview(np.ascontiguousarray(a)),
    "nothing masked": lambda a: np.ma.MaskedArray(a.copy()),
    "tensor": lambda a: torch.as_tensor(a.copy()),
    "transposed tensor": lambda a: torch.as_tensor(a.T.copy()).T if a.ndim == 2 else torch.as_tensor(a.copy()),
    "tensor with gradient": lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f"),
    "single tensor": lambda a: torch.as_tensor(_floats(np.float32)(a)),
    "bfloat16 tensor": lambda a: torch.as_tensor(a).bfloat16() if a.dtype.kind == "f" else torch.as_tensor(a),
    "subclass": lambda a: a.copy().view(_Subclass),
    "matrix": lambda a: np.asmatrix(a.copy()) if a.ndim == 2 else a,
    "memory map": lambda a: _memory_map(a),
}
MAY_REFUSE = {"objects", "memoryview", "matrix"}  # not every entry takes these
COARSE = {"single", "half", "single tensor", "bfloat16 tensor"}  # computed with as few digits
REFUSED_FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "csr": lambda a: sparse.csr_array(np.atleast_2d(a)),
    "csr matrix": lambda a: sparse.csr_matrix(np.atleast_2d(a)),
    "masked": lambda a: np.ma.MaskedArray(a.copy(), mask=np.arange(a.size).reshape(a.shape) % 3 == 0),
    "complex": lambda a: a.astype(complex),
    "complex tensor": lambda a: torch.as_tensor(a).to(torch.complex64),
    "sparse tensor": lambda a: torch.as_tensor(a).to_sparse(),
    "times": lambda a: np.full(a.shape, np.datetime64("2020-01-01")),
    "spans": lambda a: np.full(a.shape, np.timedelta64(1, "s")),
    "words": lambda a: np.full(a.shape, "word"),
    "bytes": lambda a: np.full(a.shape, b"word"),
    "record": lambda a: np.zeros(a.shape, dtype=[("x", float), ("y", int)]),
    "nones": lambda a: np.full(a.shape, None),
    "objects at all": lambda a: np.full(a.shape, object()),
    "ragged": lambda a: [[1.0], [1.0, 2.0], 3.0],
    "more ragged": lambda a: [[1.0], [1.0, 2.0]],
    "scalar": lambda a: 1.0,
    "zero-dimensional": lambda a: np.array(0.5),
    "truth": lambda a: True,
    "object": lambda a: object(),
    "dict": lambda a: {"a": 1},
    "set": lambda a: {1, 2},
    "generator": lambda a: (row for row in a),
    "word": lambda a: "word",
    "empty word": lambda a: "",
    "type": lambda a: float,
    "function": lambda a: len,
    "three-dimensional": lambda a: (
        np.broadcast_to(a[None, None], (1, 1, *a.shape))[0] if a.ndim == 2 else a[None, :, None]
    ),
    "empty list": lambda a: [],
    "list of empty": lambda a: [[]],
    "no rows": lambda a: a[:0],
    "no columns": lambda a: a[..., :0],
    "one more column": lambda a: np.concatenate([a, a], axis=-1),
    "one row less": lambda a: a[:-1],
    "flat": lambda a: a.ravel(),
    "column": lambda a: a.reshape(-1, 1),
    "row": lambda a: a.reshape(1, -1),
    "meta tensor": lambda a: torch.as_tensor(a).to("meta"),
}
MUST_REFUSE = {"csr", "csr matrix", "masked", "complex", "complex tensor", "sparse tensor", "meta tensor", "times"}
MUST_REFUSE |= {"spans", "ragged", "more ragged"}
VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NaN": lambda a: _with(a, np.nan),
    "infinity": lambda a: _with(a, np.inf),
    "minus infinity": lambda a: _with(a, -np.inf),
    "only NaN": lambda a: np.full(a.shape, np.nan),
    "one huge": lambda a: _with(a, 1e300),
    "one hugely negative": lambda a: _with(a, -1e300),
    "largest": lambda a: _with(a, np.finfo(float).max),
    "huge": lambda a: a * 1e300,
    "large": lambda a: a * 1e150,
    "huge and signed": lambda a: (a - np.mean(a)) * 1e300,
    "tiny": lambda a: a * 1e-300,
    "one tiny": lambda a: _with(a, 1e-300),
    "denormal": lambda a: a * 40 * 5e-324,
    "one denormal": lambda a: _with(a, 5e-324),
    "zero": np.zeros_like,
    "minus zero": lambda a: np.full(a.shape, -0.0),
    "one": lambda a: np.ones(a.shape),
    "negative": lambda a: -1 * a,
    "one zero": lambda a: _with(a, 0.0),
    "constant column": lambda a: np.concatenate([a[..., :1] * 0 + 0.5, a[..., 1:]], axis=-1) if a.ndim == 2 else a,
    "same rows": lambda a: np.broadcast_to(a[:1], a.shape).copy(),
    "few rows": lambda a: a[np.arange(len(a)) % 2],
    "one row": lambda a: a[:1],
    "two rows": lambda a: a[:2],
    "huge integers": lambda a: np.full(a.shape, 2**62),
    "negative integers": lambda a: np.full(a.shape, -1),
    "truths": lambda a: np.ones(a.shape, dtype=bool),
    "wide range": lambda a: a * np.logspace(-150, 150, a.size).reshape(a.shape),
    "far from zero": lambda a: a + 1e12,
}


class _Subclass(np.ndarray):
    """As any array."""


def _with(a: np.ndarray, value: float) -> np.ndarray:
    out = a.astype(float)
    out.flat[a.size // 2] = value
    return out


def _memory_map(a: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        file.write(np.ascontiguousarray(a).tobytes())
        file.flush()
        return np.memmap(file, dtype=a.dtype, mode="r", shape=a.shape)


# What scikit-learn says where it checks an argument for us.
_OF_SCIKIT_LEARN = re.compile(
    r"Found array with|Expected 2D array|inconsistent numbers of samples|could not convert|float\(\) argument must be"
    r"|setting an array element|Complex data not supported|[Ss]eed|Cannot cast array|Sparse data|Unknown label type"
    r"|Input contains|Sample weights must|at least 1 dimension|must be an array-like|np.matrix is not supported"
    r"|object too deep|Cannot have number of splits|The number of distinct|Supported target types are|Cannot compare"
    r"|n_splits|values to unpack|the least populated class|Classification metrics can't handle|[Uu]nsupported"
    r"|valid number of dimensions"
)


def odd(make: Callable[[np.ndarray], Any], plain: np.ndarray) -> Any:
    """Something odd made of a plain array, in silence."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return make(plain)


def names_an_argument(entry: Entry, error: BaseException) -> bool:
    """Whether a message says which argument is wrong, in our words or in scikit-learn's."""
    names = {*entry.arrays, *entry.options, "X", "Q", "blocks", "index"}
    names |= {other for others in entry.called.values() for other in others}
    words = set(re.findall(r"[A-Za-z_]+", str(error)))
    return bool(names & words) or _OF_SCIKIT_LEARN.search(str(error)) is not None


BAD_OPTIONS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    -5,
    10**9,
    10**30,
    0.0,
    0.5,
    1.0,
    -0.5,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e-320,
    1e300,
    1 + 0j,
    "",
    "word",
    b"word",
    [],
    [1],
    ["word"],
    (0.5, 0.5),
    {},
    {"a": 1},
    object(),
    int,
    len,
    np.nan,
    np.int64(2),
    np.float32(0.5),
    np.bool_(True),
    np.array(1.0),
    np.array([1.0]),
    np.array([[1.0]]),
    np.array([np.nan, 1.0]),
    np.datetime64("2020-01-01"),
    torch.tensor(1.0),
    torch.tensor([1, 2]),
    torch.float16,
    torch.device("meta"),
    Merged,
)

_CALLED = {"init", "weights", "callback", "scoring", "cv"}  # where a function is called, and its errors are its own


def is_quick(argument: str, value: Any) -> bool:
    """Whether a call with this value ends soon: what is asked for must not be endless work, or printed to a test."""
    endless = argument in ("n_init", "refinements") and isinstance(value, int) and value > 1000
    named = argument == "checkpoint" and isinstance(value, str)  # a folder, of which there may be one
    return not endless and not named and argument != "verbose" and not (callable(value) and argument in _CALLED)
