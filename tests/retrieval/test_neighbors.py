import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import rel_entr
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_blobs
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import bregnet
from bregnet import PBDL, BregmanIndex, ConvexRegressor, KullbackLeibler, MaxAffine, SquaredEuclidean, divergence
from bregnet.retrieval import BregmanKNeighborsClassifier, BregmanKNeighborsRegressor, BregmanNearestNeighbors
from tests.support.search_at_random import brute_order, exact, learned

pytestmark = pytest.mark.filterwarnings("ignore:PBDL learned nothing")  # grids have large alphas

SIDES = pytest.mark.parametrize("side", ["right", "left"])
ALL = [BregmanNearestNeighbors, BregmanKNeighborsClassifier, BregmanKNeighborsRegressor]
EACH = pytest.mark.parametrize("estimator", ALL)
BRUTE = {"metric": "sqeuclidean", "algorithm": "brute"}


@parametrize_with_checks(
    [
        BregmanNearestNeighbors(),
        BregmanKNeighborsClassifier(),
        BregmanKNeighborsClassifier(PBDL(tol=0.5), weights="distance", side="left"),
        BregmanKNeighborsRegressor(),
        BregmanKNeighborsRegressor(weights="distance"),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def points(n=120, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def simplex(n=100, d=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(d), n)


# --- neighbours are right ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "sqeuclidean", SquaredEuclidean(), divergence("sqeuclidean")])
def test_squared_euclidean_neighbours_are_scikit_learns(given):
    X, Q = points(), points(20, seed=1)
    model, peer = BregmanNearestNeighbors(given, 4).fit(X), NearestNeighbors(n_neighbors=4, **BRUTE).fit(X)
    for queries in (Q, X, None):
        ours, theirs = model.kneighbors(queries), peer.kneighbors(queries)
        np.testing.assert_allclose(ours[0], theirs[0], atol=1e-12)
        np.testing.assert_array_equal(ours[1], theirs[1])
        np.testing.assert_array_equal(
            model.kneighbors(queries, 7, return_distance=False), peer.kneighbors(queries, 7)[1]
        )
    assert model.n_samples_fit_ == peer.n_samples_fit_


@pytest.mark.parametrize("radius", [0.0, 0.3, 2.0, 1e9])
def test_squared_euclidean_within_a_radius_is_scikit_learns(radius):
    X, Q = np.vstack([points(), points()[:5]]), np.vstack([points(20, seed=1), points()[:3]])
    model = BregmanNearestNeighbors(radius=radius).fit(X)
    peer = NearestNeighbors(radius=radius, metric="sqeuclidean", algorithm="brute").fit(X)
    for queries in (Q, None):
        ours, theirs = model.radius_neighbors(queries), peer.radius_neighbors(queries, sort_results=True)
        assert ours[1].dtype == theirs[1].dtype == object
        for one, other in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
            np.testing.assert_allclose(one[0], other[0], atol=1e-12)
            assert sorted(one[1]) == sorted(other[1])
        alone = model.radius_neighbors(queries, return_distance=False)
        assert all(map(np.array_equal, alone, ours[1]))


@pytest.mark.parametrize("mode", ["connectivity", "distance"])
def test_graphs_are_scikit_learns(mode):
    X, Q = points(), points(20, seed=1)
    model, peer = BregmanNearestNeighbors().fit(X), NearestNeighbors(**BRUTE).fit(X)
    for queries in (Q, None):
        for ours, theirs in (
            (model.kneighbors_graph(queries, mode=mode), peer.kneighbors_graph(queries, mode=mode)),
            (model.kneighbors_graph(queries, 2, mode), peer.kneighbors_graph(queries, 2, mode)),
            (model.radius_neighbors_graph(queries, mode=mode), peer.radius_neighbors_graph(queries, mode=mode)),
            (model.radius_neighbors_graph(queries, 0.1, mode), peer.radius_neighbors_graph(queries, 0.1, mode)),
        ):
            assert isinstance(ours, csr_array)
            assert ours.shape == theirs.shape
            assert ours.nnz == theirs.nnz
            np.testing.assert_allclose(ours.toarray(), theirs.toarray(), atol=1e-12)


def test_neighbours_at_divergence_zero_stay_in_the_graph():
    X = np.array([[0.0], [0.0], [5.0]])
    model = BregmanNearestNeighbors(n_neighbors=1).fit(X)
    for graph in (model.kneighbors_graph([[0.0]], 2, mode="distance"), model.radius_neighbors_graph([[0.0]], 0.0)):
        assert graph.indices.tolist() == [0, 1]
    assert model.kneighbors_graph(mode="distance").indices.tolist() == [1, 0, 0]


@SIDES
def test_kl_on_the_simplex_equals_brute_force(side):
    X, Q = simplex(), simplex(30, seed=1)
    model = BregmanNearestNeighbors("kl", 6, 0.2, side=side).fit(X)
    pairs = (Q[:, None], X) if side == "right" else (X, Q[:, None])
    brute = rel_entr(*pairs).sum(2)
    values, ids = model.kneighbors(Q)
    np.testing.assert_array_equal(ids, brute.argsort(1)[:, :6])
    np.testing.assert_allclose(values, np.sort(brute, 1)[:, :6], atol=1e-12)
    for row, (values, ids) in enumerate(zip(*model.radius_neighbors(Q), strict=True)):
        near = brute[row].argsort()[: (brute[row] <= 0.2).sum()]
        np.testing.assert_array_equal(ids, near)
        np.testing.assert_allclose(values, brute[row, near], atol=1e-12)


@SIDES
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_learned_divergences_equal_brute_force_with_ties(side, temperature):
    X, Q = points(150), points(40, seed=1)
    X = np.vstack([X, X[::10]])  # duplicates
    D = learned(temperature)
    model = BregmanNearestNeighbors(D, 12, 0.5, side=side).fit(X)
    brute = exact(D, Q, X, side)
    order = brute_order(brute, Q, X)
    values, ids = model.kneighbors(Q)
    np.testing.assert_array_equal(ids, order[:, :12])
    np.testing.assert_allclose(values, np.take_along_axis(brute, order, 1)[:, :12], atol=1e-12)
    for row, found in enumerate(model.radius_neighbors(Q, return_distance=False)):
        np.testing.assert_array_equal(found, order[row, : (brute[row] <= 0.5).sum()])
    if temperature == 0:
        assert (values[:, 5] == 0).any()  # ties were put to the test


@SIDES
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_training_rows_leave_themselves_out(side, temperature):
    X = points(60)
    X = np.vstack([X, X[:7], np.repeat(X[:1], 9, 0)])  # row 0 has ten duplicates, more than neighbours
    D = learned(temperature)
    model = BregmanNearestNeighbors(D, 4, 0.1, side=side).fit(X)
    brute = exact(D, X, X, side)
    order = brute_order(brute, X, X)
    others = np.array([row[row != number] for number, row in enumerate(order)])
    values, ids = model.kneighbors()
    np.testing.assert_array_equal(ids, others[:, :4])
    np.testing.assert_allclose(values, np.take_along_axis(brute, others[:, :4], 1), atol=1e-12)
    for row, found in enumerate(model.radius_neighbors(return_distance=False)):
        np.testing.assert_array_equal(found, others[row, : (brute[row] <= 0.1).sum() - 1])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=12),
    st.integers(1, 11),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from(["right", "left"]),
)
def test_no_row_is_its_own_neighbour_whatever_the_ties(rows, k, temperature, side):
    X, k = np.array(rows, dtype=float), min(k, len(rows) - 1)
    D = learned(temperature, d=2, n_pieces=3)
    model = BregmanNearestNeighbors(D, k, side=side).fit(X)
    values, ids = model.kneighbors()
    order = brute_order(exact(D, X, X, side), X, X)
    for number in range(len(X)):
        assert ids[number].tolist() == [other for other in order[number] if other != number][:k]
    assert (np.diff(values, axis=1) >= 0).all()
    near = model.radius_neighbors(radius=0.0, return_distance=False)
    assert not any(number in found for number, found in enumerate(near))


@SIDES
def test_cells_that_are_all_searched_answer_exactly(side):
    pytest.importorskip("faiss")
    X, Q = points(400), points(30, seed=1)
    flat = BregmanNearestNeighbors(learned(0.3), side=side).fit(X)
    cells = BregmanNearestNeighbors(learned(0.3), side=side, kind="ivf", random_state=0).fit(X)
    cells.index_.nprobe = 400
    for queries in (Q, None):
        np.testing.assert_array_equal(cells.kneighbors(queries)[1], flat.kneighbors(queries)[1])
    cells.index_.nprobe = 2
    again = clone(cells).fit(X)
    again.index_.nprobe = 2
    np.testing.assert_array_equal(again.kneighbors(Q)[1], cells.kneighbors(Q)[1])  # the same cells
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(cells)).kneighbors(Q)[1], cells.kneighbors(Q)[1])


@EACH
def test_cells_are_set_from_the_constructor(estimator):
    X, y, Q = points(400), np.arange(400) % 3, points(30, seed=1)
    for settings_ in ({"random_state": 0}, {"n_cells": 15, "nprobe": 2, "random_state": 3}):
        model = clone(estimator(learned(0.3), kind="ivf", **settings_)).fit(X, y)
        index = BregmanIndex(learned(0.3), kind="ivf", **settings_)
        index.add(X)
        assert (model.index_.n_cells, model.index_.nprobe) == (index.n_cells, index.nprobe)
        for ours, theirs in zip(model.kneighbors(Q, 5), index.search(Q, 5), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_grid_search_over_cells():
    X = points(400)
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    model = BregmanKNeighborsClassifier(learned(0.3), kind="ivf", random_state=0, n_cells=20)
    search = GridSearchCV(model, {"nprobe": [1, 20]}, cv=3).fit(X, y)
    flat = GridSearchCV(BregmanKNeighborsClassifier(learned(0.3)), {"n_neighbors": [5]}, cv=3).fit(X, y)
    assert search.cv_results_["mean_test_score"][1] == pytest.approx(flat.best_score_)  # all cells are searched
    assert search.best_estimator_.index_.nprobe == search.best_params_["nprobe"]


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)], ids=str)
def test_a_pickled_model_makes_the_same_cells_of_any_seed(random_state):
    X, Q = points(400), points(30, seed=1)
    model = BregmanNearestNeighbors(learned(0.3), kind="ivf", nprobe=1, random_state=random_state).fit(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).kneighbors(Q)[1], model.kneighbors(Q)[1])


# --- predictions are right -----------------------------------------------------------------------------------------


WEIGHTS = pytest.mark.parametrize(
    "weights", ["uniform", "distance", lambda D: np.exp(-D)], ids=["uniform", "distance", "exponential"]
)


def labelled(seed=0):
    """Classes that overlap, with duplicates of both."""
    X, y = make_blobs(150, 3, centers=3, cluster_std=4.0, random_state=seed)
    return np.vstack([X, X[:20]]), np.append(y, (y[:20] + 1) % 3)


@WEIGHTS
@pytest.mark.parametrize("n_neighbors", [1, 4, 9])
def test_squared_euclidean_classification_is_scikit_learns(weights, n_neighbors):
    X, y = labelled()
    Q = np.vstack([labelled(1)[0], X[20:60]])  # some queries are at D = 0 from a row
    names = np.array(["pear", "apple", "plum"])[y]
    model = BregmanKNeighborsClassifier(None, n_neighbors, weights=weights).fit(X, names)
    peer = KNeighborsClassifier(n_neighbors, weights=weights, **BRUTE).fit(X, names)
    np.testing.assert_array_equal(model.classes_, peer.classes_)
    np.testing.assert_allclose(model.predict_proba(Q), peer.predict_proba(Q), atol=1e-9)
    np.testing.assert_array_equal(model.predict(Q), peer.predict(Q))
    assert model.score(Q, peer.predict(Q)) == 1
    once = slice(20, 150)  # rows without a duplicate: scikit-learn rounds the divergence of some duplicates up from 0
    share = np.random.default_rng(0).random(130)
    assert model.score(X[once], names[once], share) == pytest.approx(peer.score(X[once], names[once], share))
    np.testing.assert_array_equal(model.kneighbors_graph(Q).toarray(), peer.kneighbors_graph(Q).toarray())


@WEIGHTS
def test_training_rows_are_predicted_from_the_others(weights):
    X, y = labelled()
    X, y = X[20:], y[20:]  # without duplicates, whose order is not scikit-learn's
    model = BregmanKNeighborsClassifier(weights=weights).fit(X, y)
    peer = KNeighborsClassifier(weights=weights, **BRUTE).fit(X, y)
    np.testing.assert_array_equal(model.predict(None), peer.predict(None))
    assert model.score(None, y) == pytest.approx(peer.score(None, y))
    model = BregmanKNeighborsRegressor(weights=weights).fit(X, X)
    peer = KNeighborsRegressor(weights=weights, **BRUTE).fit(X, X)
    np.testing.assert_allclose(model.predict(None), peer.predict(None), atol=1e-9)
    assert model.score(None, X) == pytest.approx(peer.score(None, X))


@WEIGHTS
@pytest.mark.parametrize("n_outputs", [None, 1, 3])
def test_squared_euclidean_regression_is_scikit_learns(weights, n_outputs):
    X, y = load_diabetes(return_X_y=True)
    y = y if n_outputs is None else np.column_stack([y, -y, X[:, 0]])[:, :n_outputs]
    training, Q = slice(0, 300), slice(280, None)  # some queries are at D = 0 from a row
    model = BregmanKNeighborsRegressor(None, 7, weights=weights).fit(X[training], y[training])
    peer = KNeighborsRegressor(7, weights=weights, **BRUTE).fit(X[training], y[training])
    np.testing.assert_allclose(model.predict(X[Q]), peer.predict(X[Q]), atol=1e-9)
    assert model.predict(X[Q]).shape == y[Q].shape
    assert model.score(X[Q], y[Q]) == pytest.approx(r2_score(y[Q], peer.predict(X[Q])))


def test_softmax_weights_are_exponentials_of_divergences_however_large_these_are():
    X, y = labelled()
    Q = labelled(1)[0]
    soft, plain = (
        BregmanKNeighborsClassifier(None, 9, weights=weights).fit(X, y) for weights in ("softmax", lambda D: np.exp(-D))
    )
    np.testing.assert_allclose(soft.predict_proba(Q / 4), plain.predict_proba(Q / 4))
    far = soft.predict_proba(Q + 1e4)  # where exp(-D) is 0 for all rows
    np.testing.assert_allclose(far.sum(1), 1)
    at_half = BregmanKNeighborsClassifier(2.0 * SquaredEuclidean(), 9, weights="softmax").fit(X, y)  # T = 1/2
    sharper = BregmanKNeighborsClassifier(None, 9, weights=lambda D: np.exp(-2 * D)).fit(X, y)
    np.testing.assert_allclose(at_half.predict_proba(Q / 4), sharper.predict_proba(Q / 4))


@SIDES
def test_kl_weights_are_inverse_divergences(side):
    X, Q = simplex(), simplex(30, seed=1)
    y = np.random.default_rng(2).standard_normal(len(X))
    brute = rel_entr(*((Q[:, None], X) if side == "right" else (X, Q[:, None]))).sum(2)
    ids = brute.argsort(1)[:, :5]
    weights = 1 / np.take_along_axis(brute, ids, 1)
    model = BregmanKNeighborsRegressor("kl", weights="distance", side=side).fit(X, y)
    np.testing.assert_allclose(model.predict(Q), (weights * y[ids]).sum(1) / weights.sum(1))
    votes = np.stack([(weights * (y[ids] > 0)).sum(1), (weights * (y[ids] <= 0)).sum(1)], 1)[:, ::-1]
    model = BregmanKNeighborsClassifier("kl", weights="distance", side=side).fit(X, y > 0)
    np.testing.assert_allclose(model.predict_proba(Q), votes / votes.sum(1, keepdims=True))


def test_tied_votes_go_to_the_class_that_sorts_first():
    X = np.array([[-1.0], [1.0], [-3.0], [3.0]])
    for y in (["b", "a", "b", "a"], ["a", "b", "a", "b"]):
        for weights in ("uniform", "distance"):
            model = BregmanKNeighborsClassifier(n_neighbors=4, weights=weights).fit(X, y)
            np.testing.assert_array_equal(model.predict_proba([[0.0]]), [[0.5, 0.5]])
            assert model.predict([[0.0]]).tolist() == ["a"]


def test_very_small_divergences_outvote_without_overflow():
    X = np.array([[1e-160], [2.0], [3.0]])  # D = 1e-320, of which the inverse is infinite
    model = BregmanKNeighborsRegressor(n_neighbors=3, weights="distance").fit(X, [1.0, 7.0, 7.0])
    np.testing.assert_allclose(model.predict([[0.0]]), [1.0])
    everywhere = MaxAffine([[0.0]], [0.0])  # D = 0 for all: all vote
    model = BregmanKNeighborsRegressor(everywhere, n_neighbors=3, weights="distance").fit(X, [1.0, 7.0, 7.0])
    np.testing.assert_allclose(model.predict([[0.0]]), [5.0])


def test_weights_may_change_after_the_fit():
    X, y = labelled()
    model = BregmanKNeighborsClassifier().fit(X, y).set_params(weights="distance", n_neighbors=3)
    peer = BregmanKNeighborsClassifier(n_neighbors=3, weights="distance").fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), peer.predict_proba(X))


# --- learners ------------------------------------------------------------------------------------------------------


@SIDES
def test_a_learner_is_cloned_and_fitted_to_the_labels(side):
    X, y = load_iris(return_X_y=True)
    given = PBDL(alpha=0.05, temperature=0.2, tol=0.2)
    X, y, Q = X[::3], y[::3], X[1::3]
    alone = clone(given).fit(X, y)
    brute = exact(alone.divergence_, Q, X, side).argsort(1)[:, :5]
    votes = np.stack([(y[brute] == label).sum(1) for label in range(3)], 1)
    for estimator in ALL:
        model = estimator(given, side=side).fit(X, y)
        assert not hasattr(given, "divergence_")
        assert isinstance(model.learner_, PBDL)
        assert model.divergence_ is model.learner_.divergence_
        np.testing.assert_array_equal(model.kneighbors(Q)[1], brute)
        if estimator is BregmanKNeighborsClassifier:
            np.testing.assert_array_equal(model.predict(Q), votes.argmax(1))
        assert model.set_params(divergence="kl").fit(X, y).learner_ is None


@EACH
def test_a_search_over_a_learner_gives_its_best_divergence(estimator):
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    search = GridSearchCV(PBDL(temperature=0.3, tol=0.2), {"alpha": [1e-2, 10.0]}, cv=2)
    model = estimator(search).fit(X, y)
    assert model.learner_.best_params_ == {"alpha": 1e-2}
    alone = estimator(PBDL(alpha=1e-2, temperature=0.3, tol=0.2)).fit(X, y)
    np.testing.assert_array_equal(model.kneighbors(X)[1], alone.kneighbors(X)[1])
    assert get_tags(model).target_tags.required
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        estimator(search).fit(X, None)


@EACH
def test_learners_without_a_divergence_are_refused(estimator):
    X, y = load_iris(return_X_y=True)
    pipeline = Pipeline([("scale", StandardScaler()), ("learn", KNeighborsClassifier())])
    accepted = r"divergence must be a learner with a divergence_ once it is fitted, such as PBDL\(\), or a search"
    for learner, found in (
        (pipeline, "Pipeline"),
        (GridSearchCV(pipeline, {"learn__n_neighbors": [1]}), "GridSearchCV"),
        (StandardScaler(), "StandardScaler"),
        (GridSearchCV(PBDL(tol=0.5), {"alpha": [1.0]}, refit=False, cv=2), "GridSearchCV"),
        (GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1]}), "GridSearchCV"),
    ):
        with pytest.raises(TypeError, match=f"{accepted}.* got {found}"):
            estimator(learner).fit(X, y)


def test_a_learner_of_classes_is_refused_for_other_targets():
    X, y = load_diabetes(return_X_y=True)
    y = y + 0.5
    search = GridSearchCV(PBDL(), {"alpha": [1.0, 2.0]}, cv=2)
    message = "must not be a learner of class labels where y has none, got {}.* pass its divergence_"
    for estimator in (BregmanKNeighborsRegressor, BregmanNearestNeighbors):
        for learner, name in ((PBDL(), "PBDL"), (search, "GridSearchCV")):
            with pytest.raises(ValueError, match=message.format(name)):
                estimator(learner).fit(X[:60], y[:60])
    learner = PBDL(tol=0.5)
    with pytest.raises(ValueError, match="alpha must be positive"):  # another error stays as it is
        BregmanKNeighborsRegressor(clone(learner).set_params(alpha=-1.0)).fit(X[:60], np.arange(60) % 3)
    first = learner.fit(X[:60], y[:60] > 100)
    model = BregmanKNeighborsRegressor(first.divergence_).fit(X[:60], y[:60])
    assert model.divergence_ is first.divergence_


def test_a_grid_search_over_neighbours_and_the_learners_alpha():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    knn = BregmanKNeighborsClassifier(PBDL(temperature=0.3, tol=0.1))
    pipeline = Pipeline([("scale", StandardScaler()), ("knn", knn)])
    grid = {"knn__n_neighbors": [1, 5], "knn__divergence__alpha": [1e-2, 10.0]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_params_["knn__divergence__alpha"] == 1e-2  # 10 leaves no slope, and so no divergence
    best = search.best_estimator_["knn"]
    assert best.learner_.alpha == 1e-2
    assert best.n_neighbors == search.best_params_["knn__n_neighbors"]
    by_hand = clone(pipeline).set_params(**search.best_params_).fit(X, y)
    np.testing.assert_array_equal(search.predict(X), by_hand.predict(X))
    assert search.best_score_ > 0.9


# --- it behaves as scikit-learn and torch users expect -------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_torch_in_torch_out(dtype):
    X, y = labelled()
    given, Q = torch.as_tensor(X, dtype=dtype), torch.as_tensor(labelled(1)[0], dtype=dtype)
    same, queries = given.double().numpy(), Q.double().numpy()
    model = BregmanKNeighborsClassifier(weights="distance").fit(given, torch.as_tensor(y))
    peer = BregmanKNeighborsClassifier(weights="distance").fit(same, y)
    for ours, theirs in (
        (model.kneighbors(Q)[0], peer.kneighbors(queries)[0]),
        (model.kneighbors(Q)[1], peer.kneighbors(queries)[1]),
        (model.predict(Q), peer.predict(queries)),
        (model.predict_proba(Q), peer.predict_proba(queries)),
    ):
        assert isinstance(ours, torch.Tensor)
        assert ours.device == Q.device
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-4 if dtype == torch.float32 else 1e-12)
    assert model.predict(Q).dtype == torch.int64
    assert model.score(Q, torch.as_tensor(peer.predict(queries))) == 1
    assert isinstance(model.kneighbors()[1], np.ndarray)
    assert (model.kneighbors_graph(Q) != peer.kneighbors_graph(queries)).nnz == 0
    names = BregmanKNeighborsClassifier().fit(given, np.array(["a", "b", "c"])[y])
    assert isinstance(names.predict(Q), np.ndarray)

    regressor = BregmanKNeighborsRegressor().fit(given, given)
    predicted = regressor.predict(Q)
    assert isinstance(predicted, torch.Tensor)
    np.testing.assert_allclose(predicted, BregmanKNeighborsRegressor().fit(same, same).predict(queries), atol=1e-4)
    assert regressor.score(Q, predicted) == 1


def test_neighbours_within_a_radius_of_tensors():
    X, Q = points(), points(9, seed=1)
    model = BregmanNearestNeighbors().fit(torch.as_tensor(X))
    ours, theirs = model.radius_neighbors(torch.as_tensor(Q)), model.radius_neighbors(Q)
    for tensors, arrays in zip(ours, theirs, strict=True):
        assert all(isinstance(each, torch.Tensor) for each in tensors)
        assert all(map(np.array_equal, tensors, arrays))
    graph = model.radius_neighbors_graph(torch.as_tensor(Q), mode="distance")
    np.testing.assert_array_equal(graph.toarray(), model.radius_neighbors_graph(Q, mode="distance").toarray())
    assert model.radius_neighbors_graph(torch.empty(0, 3)).shape == (0, 120)


@EACH
def test_feature_names_are_checked(estimator):
    X, y = labelled()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = estimator().fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.kneighbors(frame)[1], estimator().fit(X, y).kneighbors(X)[1])
    assert model.kneighbors()[1].shape == (170, 5)  # no warning about names of the training rows
    with pytest.raises(ValueError, match="feature names should match"):
        model.kneighbors(frame[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.kneighbors(X)


@EACH
@pytest.mark.parametrize("D", ["kl", learned(0.0), learned(0.3)], ids=str)
def test_copies_answer_alike(estimator, D):
    X, y, Q = simplex(d=3), np.arange(100) % 4, simplex(20, d=3, seed=1)
    model = estimator(D).fit(X, y)
    wanted = model.kneighbors(Q)  # the index is now busy with what cannot be pickled
    for same in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), clone(model).fit(X, y)):
        for ours, theirs in zip(same.kneighbors(Q), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        if hasattr(model, "predict"):
            np.testing.assert_array_equal(same.predict(Q), model.predict(Q))


@EACH
def test_nothing_given_is_changed_or_looked_at_again(estimator):
    X, y = labelled()
    before, Q = X.copy(), labelled(1)[0]
    model = estimator().fit(X, y)
    wanted, others = model.kneighbors(Q)[1], model.kneighbors()[1]
    np.testing.assert_array_equal(X, before)
    X[:] = 0.0
    np.testing.assert_array_equal(model.kneighbors(Q)[1], wanted)
    np.testing.assert_array_equal(model.kneighbors()[1], others)
    assert model.get_params() == estimator().get_params()


def test_tags():
    assert get_tags(BregmanKNeighborsClassifier()).estimator_type == "classifier"
    assert not get_tags(BregmanKNeighborsClassifier()).target_tags.multi_output
    assert get_tags(BregmanKNeighborsRegressor()).estimator_type == "regressor"
    assert get_tags(BregmanKNeighborsRegressor()).target_tags.multi_output
    assert not get_tags(BregmanNearestNeighbors()).target_tags.required
    assert get_tags(BregmanNearestNeighbors(PBDL())).target_tags.required
    assert not get_tags(BregmanNearestNeighbors(GridSearchCV(StandardScaler(), {}))).target_tags.required
    assert not get_tags(BregmanNearestNeighbors()).input_tags.sparse


# --- bad input -----------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1, got 0"),
        ({"n_neighbors": 2.0}, TypeError, "n_neighbors must be an integer, got 2.0"),
        ({"side": "up"}, ValueError, "side must be one of 'right', 'left', got 'up'"),
        ({"kind": "hnsw"}, ValueError, "kind must be one of 'flat', 'ivf', got 'hnsw'"),
        ({"n_cells": 0}, ValueError, "n_cells must be at least 1, got 0"),
        ({"nprobe": 1.5}, TypeError, "nprobe must be an integer, got 1.5"),
        ({"random_state": "one"}, ValueError, "'one' cannot be used to seed"),
        ({"device": "nowhere"}, ValueError, "device must be one of .* got 'nowhere'"),
        ({"divergence": "cosine"}, ValueError, "divergence must be one of .* got 'cosine'"),
        ({"divergence": 3}, TypeError, "divergence must be a BregmanDivergence, .* got 3"),
        ({"divergence": PBDL}, TypeError, "divergence must be a BregmanDivergence, .* got <class"),
        ({"divergence": ConvexRegressor(tol=0.5)}, TypeError, "a learner with a divergence_ once it is fitted"),
        ({"divergence": learned(d=2)}, ValueError, "divergence must be for the 3 features of X, got one for 2"),
        ({"divergence": KullbackLeibler()}, ValueError, "X must be positive .* got -.* in row"),
    ],
)
def test_bad_parameters_are_named(estimator, parameters, error, message):
    with pytest.raises(error, match=message):
        estimator(**parameters).fit(*labelled())


@pytest.mark.parametrize("estimator", ALL[1:])
def test_bad_weights_are_named(estimator):
    X, y = labelled()
    for bad in ("near", None, 2):
        with pytest.raises(ValueError, match="weights must be 'uniform', 'distance', 'softmax' or a callable, got"):
            estimator(weights=bad).fit(X, y)
    for weights, message in (
        (lambda D: D[:, :2], r"weights must return an array of shape \(170, 5\), got \(170, 2\)"),
        (lambda D: -D, "weights must return finite numbers of at least 0, got -"),
        (lambda D: np.full_like(D, np.nan), "weights must return finite numbers of at least 0, got nan"),
        (lambda D: 0 * D, "weights must return a positive number for each query, got zeros for query 0"),
    ):
        with pytest.raises(ValueError, match=message):
            estimator(weights=weights).fit(X, y).predict(X)


def test_bad_radii_and_modes_are_named():
    with pytest.raises(ValueError, match="radius must be at least 0 and finite, got -1"):
        BregmanNearestNeighbors(radius=-1).fit(points())
    model = BregmanNearestNeighbors().fit(points())
    with pytest.raises(TypeError, match="radius must be a number, got 'far'"):
        model.radius_neighbors(radius="far")
    for graph in (model.kneighbors_graph, model.radius_neighbors_graph):
        with pytest.raises(ValueError, match="mode must be one of 'connectivity', 'distance', got 'both'"):
            graph(mode="both")


@EACH
def test_too_many_neighbours(estimator):
    X, y = labelled()
    model = estimator(n_neighbors=5).fit(X[:5], y[:5])
    np.testing.assert_array_equal(np.sort(model.kneighbors(X[:2])[1], 1), [np.arange(5)] * 2)
    assert model.kneighbors(n_neighbors=4)[1].shape == (5, 4)
    with pytest.raises(ValueError, match=r"n_neighbors must be below the number of training rows \(5\), got 5"):
        model.kneighbors()
    with pytest.raises(ValueError, match=r"n_neighbors must be at most the number of training rows \(5\), got 6"):
        model.kneighbors(X, 6)
    with pytest.raises(TypeError, match="n_neighbors must be an integer, got '3'"):
        model.kneighbors(X, "3")
    with pytest.raises(TypeError, match="return_distance must be True or False, got 'no'"):
        model.kneighbors(X, return_distance="no")


@EACH
def test_bad_queries_are_refused(estimator):
    X, y = simplex(), np.arange(100) % 4
    for ask in (lambda m: m.kneighbors(X), lambda m: m.kneighbors(), lambda m: m.kneighbors_graph()):
        with pytest.raises(NotFittedError):
            ask(estimator())
    model = estimator("kl").fit(X, y)
    with pytest.raises(ValueError, match=r"3 features, but .* is expecting 4"):
        model.kneighbors(X[:, :3])
    with pytest.raises(ValueError, match=r"X must have shape \(n_points, 4\), got \(100, 3\)"):
        model.kneighbors(torch.as_tensor(X[:, :3]))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.kneighbors(X * np.nan)
    with pytest.raises(ValueError, match="X must be finite"):
        model.kneighbors(torch.as_tensor(X * np.nan))
    with pytest.raises(ValueError, match=r"X must be at least 0 .* got -.* in row 0"):
        model.kneighbors(-X)
    with pytest.raises(TypeError, match="must be dense, got a sparse"):
        model.kneighbors(csr_array(X))
    with pytest.raises(TypeError, match="must be dense, got a sparse"):
        estimator().fit(csr_array(X), y)


@EACH
def test_a_fit_that_fails_leaves_the_model_as_it_was(estimator):
    X, y = simplex(), np.arange(100) % 4
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = estimator("kl").fit(frame, y)
    before, wanted = dict(vars(model)), model.kneighbors(frame)
    for bad, message in ((-X[:, :3], "X must be positive"), (X[:, :3] * np.nan, "contains NaN")):
        with pytest.raises(ValueError, match=message):
            model.fit(bad, y)
        assert vars(model) == before
        for ours, theirs in zip(model.kneighbors(frame), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    new = estimator("kl")
    with pytest.raises(ValueError, match="X must be positive"):
        new.fit(-X, y)
    with pytest.raises(NotFittedError):
        new.kneighbors(X)


def test_bad_targets_are_refused():
    X, y = labelled()
    with pytest.raises(ValueError, match="y should be a 1d array"):
        BregmanKNeighborsClassifier().fit(X, np.column_stack([y, y]))
    with pytest.warns(DataConversionWarning):
        BregmanKNeighborsClassifier().fit(X, y[:, None])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        BregmanKNeighborsClassifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="could not convert string"):
        BregmanKNeighborsRegressor().fit(X, np.array(["a", "b", "c"])[y])
    with pytest.raises(TypeError, match="y must be dense, got a sparse"):
        BregmanKNeighborsRegressor().fit(X, csr_array(X))
    for estimator in ALL[1:]:
        with pytest.raises(ValueError, match="requires y to be passed"):
            estimator().fit(X, None)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            estimator().fit(X, y[1:])
    with pytest.raises(ValueError, match="PBDL estimator requires y to be passed"):
        BregmanNearestNeighbors(PBDL()).fit(X)


@EACH
def test_a_fitted_learner_is_used_as_it_is(estimator, monkeypatch):
    X, y = load_iris(return_X_y=True)
    learner = PBDL(alpha=0.05, temperature=0.2, tol=0.2).fit(X[::3], y[::3])
    expected = exact(learner.divergence_, X[1::3], X[2::3], "right").argsort(1)[:, :5]
    search = GridSearchCV(clone(learner), {"alpha": [0.05]}, cv=2).fit(X[::3], y[::3])
    monkeypatch.setattr(PBDL, "fit", lambda *_: pytest.fail("fitted again"))
    for fitted in (learner, FrozenEstimator(learner), clone(FrozenEstimator(learner)), search):
        model = estimator(fitted)
        needs_y = estimator is not BregmanNearestNeighbors
        assert get_tags(model).target_tags.required == needs_y
        model.fit(X[2::3], y[2::3] if needs_y else None)
        assert type(model.learner_) is type(search if fitted is search else learner)
        assert fitted is search or model.divergence_ is learner.divergence_
        np.testing.assert_array_equal(model.kneighbors(X[1::3])[1], expected)
    with pytest.raises(ValueError, match="must be for the 3 features of X, got one for 4"):
        estimator(learner).fit(X[:, :3], y)


def test_clones_of_a_fitted_learner_learn_again(tmp_path):
    X, y = load_iris(return_X_y=True)
    learner = PBDL(alpha=0.05, tol=0.2).fit(X[::3], y[::3])
    plain, frozen = (BregmanKNeighborsClassifier(each) for each in (learner, FrozenEstimator(learner)))
    assert not hasattr(clone(plain).divergence, "divergence_")
    again = clone(plain).fit(X[1::3], y[1::3])
    assert again.divergence_ is not learner.divergence_
    assert clone(frozen).fit(X[1::3], y[1::3]).divergence_ is learner.divergence_
    for model in (plain, frozen):
        bregnet.save(model.fit(X[1::3], y[1::3]), tmp_path / "model")
        same = bregnet.load(tmp_path / "model")
        assert type(same.divergence) is type(model.divergence)
        assert same.fit(X[2::3], y[2::3]).learner_.gap_ == learner.gap_  # still used as it is
        np.testing.assert_array_equal(same.predict(X), model.fit(X[2::3], y[2::3]).predict(X))


def test_a_fitted_learner_of_classes_serves_a_regression():
    X, y = load_diabetes(return_X_y=True)
    learner = PBDL(n_pieces=5, tol=0.5).fit(X[:100], y[:100] > 100)
    model = BregmanKNeighborsRegressor(learner).fit(X, y + 0.5)
    by_hand = BregmanKNeighborsRegressor(learner.divergence_).fit(X, y + 0.5)
    np.testing.assert_array_equal(model.predict(X[:20]), by_hand.predict(X[:20]))
