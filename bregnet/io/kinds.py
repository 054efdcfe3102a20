"""The types of objects that can be saved, and how each is written and read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from bregnet import learners
from bregnet._core import validation as check
from bregnet._core.state import (
    Field,
    Tensors,
    mapping,
    numbers,
    plain,
    read_labels,
    real,
    text,
    whole,
    write_labels,
)
from bregnet.clustering import BregmanKMeans, BregmanMixture
from bregnet.clustering.minibatch import RunningMeans
from bregnet.divergences import BregmanDivergence, DifferenceOfConvex, Generator, MappedDivergence, MaxAffine
from bregnet.divergences.maps import PointMap
from bregnet.divergences.state import (
    NotPlainError,
    read_divergence,
    read_function,
    read_map,
    write_divergence,
    write_function,
    write_map,
)
from bregnet.io import fields
from bregnet.io.fitted import Attributes, Fitted, expect_features
from bregnet.io.parameters import read_parameters, write_parameters
from bregnet.io.preprocessing import read_transformer, write_transformer
from bregnet.io.transformers import TRANSFORMERS
from bregnet.learners import PBDL, BregmanNCA, FeatureMap
from bregnet.learners.regressors import FunctionRegressor
from bregnet.retrieval import (
    BregmanIndex,
    BregmanKNeighborsClassifier,
    BregmanKNeighborsRegressor,
    BregmanNearestNeighbors,
    BregmanRanker,
)
from bregnet.retrieval.inner_product import InnerProductForm
from bregnet.retrieval.state import read_form, read_index, write_form, write_index
from bregnet.selection import PBDLCV, ConvexRegressorCV, DCRegressorCV

_function = Field(write_function, read_function)
_labels = Field(write_labels, read_labels)
_divergence = Field(write_divergence, read_divergence)
_index = Field(write_index, partial(read_index, BregmanIndex))


def write_any(name: str, value: Any, tensors: Tensors) -> dict[str, Any]:
    """An object as plain values, with its type."""
    field = _function if isinstance(value, Generator) else (KINDS | TRANSFORMERS).get(type(value))
    if field is None:
        accepted = ", ".join(sorted(each.__name__ for each in KINDS))
        raise TypeError(f"only generators and these types can be saved: {accepted}; got a {type(value).__name__}")
    return {"type": type(value).__name__, **field.write(name, value, tensors)}


def read_any(name: str, state: Any, tensors: Tensors) -> Any:
    """Read what `write_any` wrote."""
    found = text("type", mapping(name, state)["type"])
    field = next((field for each, field in (KINDS | TRANSFORMERS).items() if each.__name__ == found), _function)
    return field.read(name, state, tensors)


def _write_learner(name: str, value: Any, tensors: Tensors) -> Any:
    """The parameters of a learner that another estimator has, or has fitted, and its attributes if it has any."""
    if isinstance(value, FrozenEstimator):
        if type(value.estimator) not in LEARNERS:
            raise NotPlainError(f"{name} can be saved in a FrozenEstimator where it is a learner, got {value!r}")
        return {"type": "FrozenEstimator", "estimator": _write_learner(name, value.estimator, tensors)}
    if value is None or hasattr(value, "divergence_"):
        return None if value is None else write_any(name, value, tensors)
    return {"type": type(value).__name__, "parameters": write_parameters(name, value, tensors, _parts)}


def _read_learner(name: str, state: Any, tensors: Tensors) -> Any:
    if state is None:
        return None
    if mapping(name, state)["type"] == "FrozenEstimator":
        return FrozenEstimator(_read_learner(name, state["estimator"], tensors))
    fitted = {each.__name__: each for each in LEARNERS}.get(mapping(name, state)["type"])
    if fitted is None:
        raise ValueError(f"{name} must be one of {_names_of(LEARNERS)}, got {state['type']!r}")
    kind = KINDS[fitted]
    assert isinstance(kind, Fitted)
    return (kind.read if "fitted" in state else kind.unfitted)(name, state, tensors)


def _names_of(classes: Iterable[type]) -> str:
    return ", ".join(each.__name__ for each in classes)


def _write_configured(name: str, value: FeatureMap, tensors: Tensors) -> Any:
    return {"type": type(value).__name__, "parameters": write_parameters(name, value, tensors, {})}


def _read_configured(name: str, state: Any, tensors: Tensors) -> FeatureMap:
    return FeatureMap(**read_parameters(name, mapping("parameters", state["parameters"]), tensors, {}))


REGRESSORS: list[Any] = [
    each for name in learners.__all__ if issubclass(each := getattr(learners, name), FunctionRegressor)
]
_learner = Field(_write_learner, _read_learner)
LEARNERS: dict[type, Field] = dict.fromkeys((PBDL, PBDLCV, BregmanNCA, FrozenEstimator), _learner)
_parts = LEARNERS | {FeatureMap: Field(_write_configured, _read_configured)}


def _expect_solved(estimator: Any, *, learns: type) -> None:
    """Check that the fitted attributes fit each other, and the type of `function_`."""
    function: Any = estimator.function_
    feature_map: PointMap | None = getattr(estimator, "feature_map_", None)
    if not issubclass(type(function), learns if feature_map is None else Generator):
        raise ValueError(f"function_ of a {type(estimator).__name__} cannot be {function!r}")
    expect_features(estimator, feature_bounds_=len(estimator.feature_bounds_))
    if feature_map is None or feature_map.is_affine:
        expect_features(estimator, function_=function.n_features or 0)
    if feature_map is not None:
        expect_features(estimator, feature_map_=feature_map.n_features)
    if hasattr(estimator, "divergence_"):
        expect_features(estimator, divergence_=estimator.divergence_.n_features or 0)
    if hasattr(estimator, "best_estimator_"):
        if type(estimator.best_estimator_) is not estimator._searched:
            raise ValueError(f"best_estimator_ cannot be {estimator.best_estimator_!r}")
        expect_features(estimator, best_estimator_=estimator.best_estimator_.n_features_in_)
        if estimator.best_index_ >= len(estimator.cv_results_["params"]):
            raise ValueError(f"best_index_ must be a row of cv_results_, got {estimator.best_index_}")


def _expect_descended(estimator: BregmanNCA) -> None:
    if not isinstance(estimator.function_, MaxAffine):
        raise ValueError(f"function_ of a BregmanNCA cannot be {estimator.function_!r}")
    expect_features(estimator, function_=estimator.function_.n_features, divergence_=estimator.divergence_.n_features)


def _expect_learned(estimator: Any) -> None:
    learner = estimator.learner_
    if learner is not None and type(learner) not in LEARNERS:
        found = f"only those of {_names_of(LEARNERS)} can be saved, got {type(learner).__name__}"
        raise TypeError(f"{found}; fit with the divergence_ that it has learned instead")
    expect_features(estimator, divergence_=estimator.divergence_.n_features)
    if learner is not None:
        expect_features(estimator, learner_=learner.n_features_in_)


def _expect_items(estimator: Any) -> None:
    """Check that there are as many labels or targets as items."""
    _expect_learned(estimator)
    index, count = estimator.index_, estimator.n_samples_fit_
    expect_features(estimator, index_=index.n_features)
    if len(index) == 0:
        raise ValueError("index_ must have items, got none")
    labeled = hasattr(estimator, "classes_")
    known = estimator._classes if labeled else getattr(estimator, "_targets", None)
    if known is not None and not (len(known) == count and 0 <= index.ids.min() <= index.ids.max() < count):
        raise ValueError(f"index_ must have rows of the fit, which are {count}, got others")
    if labeled:
        classes = estimator._classes
        if not 0 <= classes.min() <= classes.max() < len(estimator.classes_):
            raise ValueError(f"classes must be numbered below {len(estimator.classes_)}, got {classes.max()}")


def _expect_clusters(estimator: BregmanKMeans) -> None:
    _expect_learned(estimator)
    centers, labels = estimator.cluster_centers_, estimator.labels_
    _expect_centers(estimator, "cluster_centers_", centers)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(centers):
        raise ValueError(f"labels_ must be from 0 to {len(centers) - 1}, got {labels.min()} to {labels.max()}")
    running: RunningMeans | None = getattr(estimator, "_running", None)
    if running is not None:
        _expect_centers(estimator, "_running", running.centers)
        if len(running.centers) != len(centers) or not isinstance(estimator._seed, np.random.RandomState):
            raise ValueError(f"_running must have {len(centers)} centers and a seed, got {len(running.centers)}")


def _expect_components(estimator: BregmanMixture) -> None:
    _expect_learned(estimator)
    means, weights, betas = estimator.means_, estimator.weights_, estimator.concentrations_
    _expect_centers(estimator, "means_", means)
    if not len(means) == len(weights) == len(betas):
        raise ValueError(f"weights_ and concentrations_ must be {len(means)}, got {len(weights)} and {len(betas)}")
    if not ((weights >= 0).all() and abs(weights.sum(dtype=float) - 1) <= 1e-3 and (betas > 0).all()):
        raise ValueError("weights_ must sum to 1, and concentrations_ must be positive")


def _expect_centers(estimator: Any, name: str, centers: Any) -> None:
    if len(centers) == 0:
        raise ValueError(f"{name} must have at least one row, got none")
    base, given = estimator.divergence_.base, centers.shape[1]
    if base is estimator.divergence_:
        expect_features(estimator, **{name: given})
    elif base.n_features not in (None, given):
        raise ValueError(f"{name} must have {base.n_features} features after the feature map, got {given}")
    estimator.divergence_.generator._check_domain(name, torch.as_tensor(centers), True)


def _no_classes(estimator: BregmanRanker) -> tuple[str, ...]:
    """The class numbers of an earlier fit, where the last had no classes."""
    return () if hasattr(estimator, "classes_") else ("_classes",)


def _stale_running_means(estimator: BregmanKMeans) -> tuple[str, ...]:
    """The state of `partial_fit`, where the divergence has changed and `partial_fit` would not use it."""
    try:
        estimator._check_same_divergence()
    except ValueError:
        return ("_running", "_seed")
    return ()


def _with_divergence(estimator: Any) -> None:
    estimator.divergence_ = estimator.index_.divergence


def _with_description(estimator: Any) -> None:
    """Set what `partial_fit` compares the divergence with, and move its centers to the device."""
    estimator._learned_from = estimator._description()
    running = getattr(estimator, "_running", None)
    if running is not None:
        try:
            device = check.resolve_device(estimator.device)
        except ValueError:  # of another machine
            return
        running.centers, running.weights = running.centers.to(device), running.weights.to(device)


def _read_best(name: str, state: Any, tensors: Tensors) -> Any:
    """The best estimator of a search, which is not a search itself."""
    solvers = _names_of((*REGRESSORS, PBDL))
    if mapping(name, state)["type"] not in solvers.split(", "):
        raise ValueError(f"{name} must be one of {solvers}, got {state['type']!r}")
    return read_any(name, state, tensors)


def _solvers() -> list[Fitted]:
    """The estimators on the solver, and the searches over them."""
    solved: Attributes = {
        "n_features_in_": whole(1),
        "function_": _function,
        "feature_bounds_": numbers(),
        "result_": fields.result,
        "gap_": real(),
        "n_iter_": whole(1),
    }
    chosen: Attributes = {
        "alpha_": real(finite=True),
        "temperature_": real(finite=True),
        "best_score_": real(),
        "best_index_": whole(0),
        "n_splits_": whole(1),
        "n_fits_": whole(1),
        "cv_results_": fields.search_table,
        "best_estimator_": Field(write_any, _read_best),
    }
    regressor = {**solved, "target_range_": fields.value_range}
    pairs = {**solved, "divergence_": _divergence, "threshold_": real()}
    classes: Attributes = {"classes_": _labels}
    mapped: Attributes = {"feature_map_": Field(write_map, read_map)}
    shared = {each: pairs[each] for each in ("n_features_in_", "function_", "n_iter_", "divergence_", "threshold_")}
    descended = {**shared, **classes, "log_likelihoods_": numbers()}
    pieces, convex, difference = (
        partial(_expect_solved, learns=each) for each in (MaxAffine, Generator, DifferenceOfConvex)
    )
    estimator = partial(Fitted, parts=_parts)
    level: Attributes = {"alpha_": real(finite=True)}  # not in files of 0.1.0
    return [
        *(estimator(each, regressor, pieces if len(each._signs) == 1 else difference, level) for each in REGRESSORS),
        estimator(PBDL, pairs, pieces, classes | mapped),
        estimator(ConvexRegressorCV, regressor | chosen, convex),  # an ensemble is a sum
        estimator(DCRegressorCV, regressor | chosen, difference),
        estimator(PBDLCV, pairs | chosen, pieces, classes | mapped),
        estimator(BregmanNCA, descended, _expect_descended),
    ]


def _searchers() -> list[Fitted]:
    """The estimators with their rows in an index."""
    items: Attributes = {
        "n_features_in_": whole(1),
        "learner_": _learner,
        "index_": _index,
        "n_samples_fit_": whole(1),
    }
    labeled: Attributes = {"classes_": _labels, "_classes": numbers(kinds="i")}
    searcher = partial(Fitted, expect=_expect_items, complete=_with_divergence, parts=_parts)
    return [
        searcher(BregmanNearestNeighbors, items),
        searcher(BregmanKNeighborsClassifier, items | labeled),
        searcher(BregmanKNeighborsRegressor, items | {"_targets": fields.targets}),
        searcher(BregmanRanker, items, optional=labeled, skipped=_no_classes),
    ]


def _clusterers() -> list[Fitted]:
    shared: Attributes = {
        "n_features_in_": whole(1),
        "divergence_": _divergence,
        "learner_": _learner,
        "n_iter_": whole(0),
    }
    clusters: Attributes = {
        "cluster_centers_": numbers(2),
        "labels_": numbers(kinds="i"),
        "inertia_": real(),
        "history_": fields.sequence(tuple),
    }
    optional: Attributes = {
        "_running": fields.running_means,
        "_seed": fields.seed,
        "_sklearn_output_config": fields.output_container,
    }
    components: Attributes = {
        "weights_": numbers(),
        "means_": numbers(2),
        "concentrations_": numbers(),
        "converged_": plain(bool, check.boolean),
        "lower_bound_": real(finite=True),
        "lower_bounds_": fields.sequence(list),
        "_n_free": whole(0),
    }
    estimator = partial(Fitted, complete=_with_description, parts=_parts)
    return [
        estimator(BregmanKMeans, shared | clusters, _expect_clusters, optional, _stale_running_means),
        estimator(BregmanMixture, shared | components, _expect_components),
    ]


def _write_pipeline(name: str, value: Pipeline, tensors: Tensors) -> dict[str, Any]:
    _expect_steps(name, [type(step).__name__ for _, step in value.steps])
    return {"steps": [[each, write_any(f"{name}.{each}", step, tensors)] for each, step in value.steps]}


def _read_pipeline(name: str, state: Any, tensors: Tensors) -> Pipeline:
    _expect_steps(name, [mapping(name, step)["type"] for _, step in state["steps"]])
    steps = [(text(name, each), read_any(f"{name}.{each}", step, tensors)) for each, step in state["steps"]]
    for (_, before), (_, after) in pairwise(steps):
        made = before.get_feature_names_out()
        expect_features(after, table=len(made))
        if hasattr(after, "feature_names_in_") and list(made) != list(after.feature_names_in_):
            raise ValueError(f"{name} must make the features {list(after.feature_names_in_)}, got {list(made)}")
    return Pipeline(steps)


def _expect_steps(name: str, kinds: list[str]) -> None:
    """Raise an error for a pipeline that is not of known transformers with an estimator after them."""
    before = {each.__name__ for each in (ColumnTransformer, *TRANSFORMERS)}
    estimators = {each.__name__ for each, kind in KINDS.items() if isinstance(kind, Fitted)}
    if len(kinds) < 2 or not set(kinds[:-1]) <= before or kinds[-1] not in estimators:
        wanted = f"some of {', '.join(sorted(before))}, and an estimator of this library after them"
        raise TypeError(f"{name} must be a pipeline of {wanted} to be saved, got {', '.join(kinds)}")


# a new kind of object is a new entry here; generators register themselves, regressors are those that `learners` lists,
# and `transformers` has steps of pipelines
KINDS: dict[type, Field | Fitted] = {
    DifferenceOfConvex: _function,
    BregmanDivergence: _divergence,
    MappedDivergence: _divergence,
    BregmanIndex: _index,
    InnerProductForm: Field(write_form, read_form),
    Pipeline: Field(_write_pipeline, _read_pipeline),
    ColumnTransformer: Field(write_transformer, read_transformer),
    **{each.cls: each for each in (*_solvers(), *_searchers(), *_clusterers())},
}
