"""Files of indexes, of estimators with an index, and of clusters."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import bregnet
from bregnet import (
    PBDL,
    BregmanDivergence,
    BregmanIndex,
    BregmanKMeans,
    BregmanKNeighborsClassifier,
    BregmanKNeighborsRegressor,
    BregmanMixture,
    BregmanNearestNeighbors,
    BregmanRanker,
    ConvexRegressor,
    Generator,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
    UnreadableFileError,
)

RNG = np.random.default_rng(0)
X, Q = RNG.uniform(0.1, 0.9, (60, 3)), RNG.uniform(0.1, 0.9, (8, 3))
LABELS = np.where(X[:, 0] > 0.5, "high", "low")
TARGETS = np.column_stack([X.sum(1), X.prod(1)])
SHARP = MaxAffine(RNG.standard_normal((5, 3)), RNG.standard_normal(5))
SMOOTH = MaxAffine(SHARP.slopes, SHARP.intercepts, temperature=0.2, strictness=0.1)
LEARNER = PBDL(0.05, n_pieces=5, tol=0.5, temperature=0.1, random_state=0)
DIVERGENCES = ["kl", "sqeuclidean", SMOOTH, SHARP, 2.0 * SHARP, SHARP + Quadratic(np.eye(3)), BregmanDivergence(SMOOTH)]


def again(obj, folder):
    """What is left of an object after a file."""
    bregnet.save(obj, folder / "saved.bregnet")
    assert [each.name for each in folder.iterdir()] == ["saved.bregnet"]
    found = bregnet.load(folder / "saved.bregnet")
    assert type(found) is type(obj)
    return found


def assert_same(found, expected):
    """Arrays, and tuples of them, to the last bit."""
    assert type(found) is type(expected)
    if isinstance(expected, tuple | list):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray) and expected.dtype == object and isinstance(expected[0], np.ndarray):
        assert_same(list(found), list(expected))
    else:
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)
        np.testing.assert_array_equal(found, expected)


def assert_same_search(found, index, queries=Q, *, k=7):
    assert len(found) == len(index)
    assert_same(found.ids, index.ids)
    for part in (queries, queries.astype(np.float32), torch.as_tensor(queries)):
        assert_same(found.search(part, k), index.search(part, k))
    radius = float(np.median(index.search(queries, k)[0]))
    assert_same(found.search_radius(queries, radius), index.search_radius(queries, radius))
    assert found.method == index.method


class TestIndexes:
    @pytest.mark.parametrize("kind", ["flat", "ivf"])
    @pytest.mark.parametrize("side", ["right", "left"])
    @pytest.mark.parametrize("divergence", DIVERGENCES, ids=str)
    def test_items_come_and_go_as_before(self, tmp_path, divergence, side, kind):
        index = BregmanIndex(divergence, side=side, kind=kind, n_cells=5, nprobe=2, random_state=3)
        index.add(X[:40])
        index.search(Q, 30)
        index.add(X[40:50], ids=np.arange(100, 110))
        index.remove([3, 105])
        found = again(index, tmp_path)
        assert_same_search(found, index)
        assert vars(found).keys() == vars(index).keys()
        for name in ("side", "kind", "n_cells", "nprobe", "random_state", "device"):
            assert getattr(found, name) == getattr(index, name)
        for each in (found, index):
            each.add(X[50:])
            each.remove([7, 104, 111])
        assert found.ids.max() == 119
        assert_same_search(found, index)

    @pytest.mark.parametrize("kind", ["flat", "ivf"])
    @pytest.mark.parametrize("searched", [False, True])
    def test_made_anew_when_they_are_many_more(self, tmp_path, kind, searched):
        index = BregmanIndex("kl", kind=kind)  # cells at random
        index.add(X[:6])
        if searched:
            index.search(Q, 2)
        found = again(index, tmp_path)
        assert_same_search(found, index, k=2)
        found.random_state = index.random_state = 0
        for each in (found, index):
            each.add(X[6:])
        assert_same_search(found, index)

    def test_a_file_is_small_before_the_first_search(self, tmp_path):
        index = BregmanIndex("sqeuclidean")
        index.add(RNG.standard_normal((1000, 10)))
        bregnet.save(index, tmp_path / "before")
        index.search(np.zeros((1, 10)), 1)
        bregnet.save(index, tmp_path / "after")
        assert (tmp_path / "before").stat().st_size < 91_000
        assert_same(bregnet.load(tmp_path / "before").search(Q @ np.ones((3, 10))), index.search(Q @ np.ones((3, 10))))

    def test_single_precision(self, tmp_path):
        index = BregmanIndex(SMOOTH)
        index.add(X.astype(np.float32))
        index.search(Q, 3)
        found = again(index, tmp_path)
        assert_same_search(found, index)
        assert found._collection.gallery().points.dtype == torch.float32

    def test_without_items(self, tmp_path):
        empty = again(BregmanIndex("kl", side="left"), tmp_path)
        assert len(empty) == 0
        assert empty.n_features is None
        index = BregmanIndex("kl")
        index.add(X[:4])
        index.remove([0, 1, 2, 3])
        found = again(index, tmp_path)
        assert len(found) == 0
        assert found.n_features == 3
        found.add(X[:1])
        assert found.ids.tolist() == [4]

    def test_a_mapped_index(self, tmp_path):
        index = BregmanIndex(SMOOTH, kind="ivf", n_cells=4, random_state=0)
        index.add(X)
        index.save(tmp_path / "items")
        mapped = BregmanIndex.load(tmp_path / "items", mmap=True)
        bregnet.save(mapped, tmp_path / "saved")
        assert_same_search(bregnet.load(tmp_path / "saved"), mapped)

    def test_pickled_after_a_file(self, tmp_path):
        index = BregmanIndex(SMOOTH)
        index.add(X)
        assert_same_search(pickle.loads(pickle.dumps(again(index, tmp_path))), index)

    @pytest.mark.parametrize("symmetric", [False, True])
    @pytest.mark.parametrize("side", ["right", "left"])
    @pytest.mark.parametrize("divergence", ["kl", SMOOTH, SHARP])
    def test_vectors_for_stores(self, tmp_path, divergence, side, symmetric):
        index = BregmanIndex(divergence, side=side)
        index.add(X, ids=np.arange(7, 67))
        form = index.to_inner_product(symmetric=symmetric)
        found = again(form, tmp_path)
        assert repr(found) == repr(form)
        assert_same((found.items, found.ids, found.encode(Q)), (form.items, form.ids, form.encode(Q)))
        scores = form.encode(Q) @ form.items.T
        assert_same(found.divergences(Q, scores), form.divergences(Q, scores))


MODELS = {
    "neighbours": BregmanNearestNeighbors(SMOOTH, 4, 0.3),
    "neighbours-left": BregmanNearestNeighbors("kl", 4, side="left", random_state=None),
    "classifier": BregmanKNeighborsClassifier("kl", 3, weights="distance"),
    "classifier-pieces": BregmanKNeighborsClassifier(BregmanDivergence(SHARP)),
    "classifier-learned": BregmanKNeighborsClassifier(LEARNER, 3),
    "classifier-cells": BregmanKNeighborsClassifier(SMOOTH, 3, kind="ivf", random_state=0, n_cells=4, nprobe=2),
    "regressor": BregmanKNeighborsRegressor(2.0 * SMOOTH, device=torch.device("cpu")),
    "ranker": BregmanRanker(SMOOTH),
    "ranker-cells": BregmanRanker("kl", side="left", kind="ivf", random_state=0, n_cells=3),
    "k-means": BregmanKMeans(3, divergence="kl", init=X[:3], random_state=0),
    "k-means-learned": BregmanKMeans(3, divergence=LEARNER, random_state=np.random.RandomState(0)),
    "k-means-batches": BregmanKMeans(3, divergence=SMOOTH, batch_size=20, init=torch.as_tensor(X[:3]), random_state=0),
    "mixture": BregmanMixture(2, divergence=SMOOTH, concentration=2.5, max_iter=500, random_state=0),
    "mixture-learned": BregmanMixture(2, divergence=LEARNER, max_iter=500, random_state=0),
}


def fitted(name, rows=X):
    model = clone(MODELS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows, TARGETS if "regressor" in name else LABELS)


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return fitted(request.param)


def answers(model, points):
    """All that a model says of points."""
    names = ("predict", "predict_proba", "transform", "score_samples", "kneighbors", "radius_neighbors", "rank")
    return {name: getattr(model, name)(points) for name in names if hasattr(model, name)}


def assert_same_answers(found, model):
    for points in (Q, Q.astype(np.float32), torch.as_tensor(Q)):
        expected = answers(model, points)
        assert expected
        for name, answer in answers(found, points).items():
            assert_same(answer, expected[name])
    if hasattr(model, "kneighbors"):
        assert_same(found.kneighbors(), model.kneighbors())
    if isinstance(model, BregmanKNeighborsRegressor):
        assert found.score(X, TARGETS) == model.score(X, TARGETS)
    elif not isinstance(model, BregmanNearestNeighbors):
        assert found.score(X, LABELS) == model.score(X, LABELS)
    if isinstance(model, BregmanMixture):
        assert (found.bic(X), found.aic(X)) == (model.bic(X), model.aic(X))


class TestEstimators:
    def test_the_same_answers(self, tmp_path, model):
        found = again(model, tmp_path)
        assert_same_answers(found, model)
        assert_same_answers(again(found, tmp_path), model)
        assert_same_answers(pickle.loads(pickle.dumps(found)), model)

    def test_the_same_attributes(self, tmp_path, model):
        found = again(model, tmp_path)
        assert vars(found).keys() == vars(model).keys()
        for name in {name for name in vars(model) if name.endswith("_")} - {"learner_", "divergence_", "index_"}:
            assert_same(getattr(found, name), getattr(model, name))
        assert repr(found.divergence_) == repr(model.divergence_)
        assert repr(found.learner_) == repr(model.learner_)
        if hasattr(model, "index_"):
            assert found.index_.divergence is found.divergence_

    def test_parameters_and_clones(self, tmp_path, model):
        found = again(model, tmp_path)
        assert found.get_params().keys() == model.get_params().keys()
        assert repr(clone(found).get_params()) == repr(found.get_params())
        kept = {name: value for name, value in model.get_params().items() if name != "random_state"}
        assert repr({name: found.get_params()[name] for name in kept}) == repr(kept)

    @pytest.mark.parametrize("name", ["classifier-learned", "regressor", "ranker", "k-means", "mixture"])
    def test_a_clone_of_a_loaded_estimator_fits_the_same(self, tmp_path, name):
        model = fitted(name)
        found = clone(again(model, tmp_path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found.fit(X, TARGETS if name == "regressor" else LABELS)
        assert_same_answers(found, model)

    @pytest.mark.parametrize("name", ["neighbours", "classifier", "regressor", "ranker", "k-means", "mixture"])
    def test_feature_names(self, tmp_path, name):
        frame = pd.DataFrame(X, columns=["a", "b", "ü"])
        found = again(fitted(name, frame), tmp_path)
        expected = answers(fitted(name, frame), frame)
        assert list(found.feature_names_in_) == ["a", "b", "ü"]
        for method in expected:
            assert_same(getattr(found, method)(frame), expected[method])
            for other in (frame[["b", "a", "ü"]], frame.rename(columns={"a": "x"}), frame[["a", "b"]]):
                with pytest.raises(ValueError, match="feature names should match"):
                    getattr(found, method)(other)

    def test_labels_of_other_kinds(self, tmp_path):
        for labels in (LABELS == "low", LABELS.astype(object), np.where(LABELS == "low", -3, 2).astype(np.int8)):
            model = BregmanKNeighborsClassifier().fit(X, labels)
            assert_same(again(model, tmp_path).predict(Q), model.predict(Q))

    def test_a_ranker_without_classes(self, tmp_path):
        ranker = BregmanRanker("kl").fit(X, LABELS).fit(X)
        found = again(ranker, tmp_path)
        assert_same(found.rank(Q), ranker.rank(Q))
        with pytest.raises(ValueError, match="fit was called without y"):
            found.score(Q, LABELS[:8])

    def test_one_target(self, tmp_path):
        model = BregmanKNeighborsRegressor("kl", weights="distance").fit(X, TARGETS[:, 0])
        assert_same(again(model, tmp_path).predict(Q), model.predict(Q))

    def test_a_fitted_learner_as_a_parameter(self, tmp_path):
        learner = clone(LEARNER).fit(X, LABELS)
        model = BregmanKNeighborsClassifier(learner, 3).fit(X, LABELS)
        found = again(model, tmp_path)
        assert_same(found.divergence.pair_distance(X, X[::-1]), learner.pair_distance(X, X[::-1]))
        assert found.get_params()["divergence__alpha"] == 0.05
        assert_same(found.predict(Q), model.predict(Q))

    def test_output_as_frames(self, tmp_path):
        model = fitted("k-means").set_output(transform="pandas")
        pd.testing.assert_frame_equal(again(model, tmp_path).transform(Q), model.transform(Q))


class TestGoingOn:
    @pytest.mark.parametrize("name", ["k-means", "k-means-learned", "k-means-batches"])
    def test_batches_move_the_centres_as_before(self, tmp_path, name):
        model = fitted(name)
        found = again(model, tmp_path)
        for batch in (X[:20], X[20:25] + 0.05, X[40:]):
            found, model = again(found, tmp_path).partial_fit(batch), model.partial_fit(batch)
            assert_same(found.cluster_centers_, model.cluster_centers_)
            assert (found.inertia_, found.history_, found.n_iter_) == (model.inertia_, model.history_, model.n_iter_)
        assert found._seed.rand() == model._seed.rand()

    def test_on_a_device_of_another_machine(self, tmp_path):
        model = fitted("k-means")
        found = again(model.set_params(device="cuda:7"), tmp_path).set_params(device="cpu")
        assert_same(
            found.partial_fit(X).cluster_centers_, model.set_params(device="cpu").partial_fit(X).cluster_centers_
        )

    def test_numpys_own_seed(self, tmp_path):
        model = BregmanKMeans(2).partial_fit(X)
        state = model._seed.get_state()
        found = again(model, tmp_path).partial_fit(X[:3])
        np.testing.assert_array_equal(state[1], model._seed.get_state()[1])  # a file does not set it
        assert found._seed is model._seed

    def test_another_divergence_begins_anew(self, tmp_path):
        model = fitted("k-means").set_params(divergence="sqeuclidean", init="k-means++")
        with pytest.raises(ValueError, match="divergence must stay"):
            model.partial_fit(X)
        found = again(model, tmp_path)
        assert_same(found.predict(Q), model.predict(Q))
        assert_same(found.partial_fit(X).cluster_centers_, clone(model).partial_fit(X).cluster_centers_)
        found = again(fitted("k-means"), tmp_path).set_params(divergence="sqeuclidean")
        with pytest.raises(ValueError, match="divergence must stay"):
            found.partial_fit(X)

    def test_the_solvers_estimators_begin_anew(self, tmp_path):
        small = {"n_pieces": 5, "tol": 0.1, "random_state": 0}
        model = ConvexRegressor(0.05, **small).partial_fit(X[:30], TARGETS[:30, 0])
        found = again(model, tmp_path).partial_fit(X[30:], TARGETS[30:, 0])
        fresh = ConvexRegressor(0.05, **small).partial_fit(X[30:], TARGETS[30:, 0])
        assert_same(found.predict(Q), fresh.predict(Q))
        model = ConvexRegressor(0.05, warm_start=True, **{**small, "tol": 1e-3}).fit(X, TARGETS[:, 0])
        found = again(model, tmp_path).fit(X, TARGETS[:, 0])
        assert found.warm_start
        before, after = model.result_.history, model.fit(X, TARGETS[:, 0]).result_.history
        assert found.result_.history == before != after


class Cubed(Generator):
    def _values(self, x):
        return (x**3).sum(1)

    def _gradients(self, x):
        return 3 * x**2


@pytest.mark.parametrize(
    "model",
    [
        BregmanKNeighborsClassifier(Cubed()),
        BregmanRanker(BregmanDivergence(Cubed())),
        BregmanKMeans(2, divergence=SMOOTH + Cubed(), random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_generators_of_ones_own(tmp_path, model):
    model.fit(X, LABELS)
    found = again(model, tmp_path)
    assert repr(found) == repr(model)
    asked = "rank" if isinstance(model, BregmanRanker) else "predict"
    assert_same(getattr(found, asked)(Q), getattr(model, asked)(Q))


class TestWhatCannotBeSaved:
    @pytest.mark.parametrize(
        ("model", "message"),
        [
            (
                BregmanKNeighborsClassifier(weights=lambda d: 1 / d),
                "weights of a BregmanKNeighborsClassifier cannot be",
            ),
            (
                BregmanKNeighborsClassifier(GridSearchCV(PBDL(tol=0.5, n_pieces=3), {"alpha": [0.1]}, cv=2)),
                "BregmanNCA, FrozenEstimator can be saved, got GridSearchCV; fit with the divergence_",
            ),
            (BregmanKMeans(3, init=pd.DataFrame(X[:3])), "init of a BregmanKMeans cannot be saved"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_code_and_others(self, tmp_path, model, message):
        model.fit(X, LABELS)
        with pytest.raises(TypeError, match=message):
            bregnet.save(model, tmp_path / "saved")
        assert not list(tmp_path.iterdir())

    def test_what_can_be_saved_is_told(self, tmp_path):
        model = BregmanKNeighborsClassifier(weights=np.exp).fit(X, LABELS)
        with pytest.raises(
            TypeError, match="parameters must be None, numbers, text, devices, arrays, lists and tuples"
        ):
            bregnet.save(model, tmp_path / "saved")

    def test_what_only_another_fit_would_look_at(self, tmp_path):
        model = BregmanKMeans(2, init=lambda points, count, random_state: points[:count], n_init=1).fit(X)
        assert again(model, tmp_path).init == "k-means++"

    def test_parameters_that_would_fail(self, tmp_path):
        model = fitted("classifier").set_params(n_neighbors=0)
        with pytest.raises(ValueError, match="n_neighbors must be at least 1, got 0"):
            bregnet.save(model, tmp_path / "saved")
        model = fitted("classifier")
        model.index_.add(X[:1])  # a row without a class
        with pytest.raises(ValueError, match="index_ must have rows of the fit"):
            bregnet.save(model, tmp_path / "saved")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("name", ["classifier", "ranker", "k-means", "mixture"])
    def test_bad_places(self, tmp_path, name, monkeypatch):
        model = fitted(name)
        with pytest.raises(IsADirectoryError, match="path must be a file"):
            bregnet.save(model, tmp_path)
        with pytest.raises(FileNotFoundError, match="path must lie in a folder that exists"):
            bregnet.save(model, tmp_path / "no" / "such")
        bregnet.save(model, tmp_path / "saved")
        before = (tmp_path / "saved").read_bytes()
        monkeypatch.setattr(
            "bregnet._core.files.save_file", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "no space"))
        )
        with pytest.raises(OSError, match="no space"):
            bregnet.save(model, tmp_path / "saved")
        assert [each.name for each in tmp_path.iterdir()] == ["saved"]
        assert (tmp_path / "saved").read_bytes() == before

    def test_not_files(self, tmp_path):
        with pytest.raises(UnreadableFileError, match="/dev/null is not a file"):
            bregnet.load("/dev/null")


class TestParameters:
    def test_numbers_that_are_not_finite(self, tmp_path):
        found = again(BregmanKMeans(2, tol=0.0, random_state=0).fit(X).set_params(tol=np.inf), tmp_path)
        assert found.tol == np.inf

    def test_arrays_of_other_orders(self, tmp_path):
        start = np.asfortranarray(X[:2].astype(">f8"))
        found = again(BregmanKMeans(init=start, n_clusters=2).fit(X), tmp_path)
        np.testing.assert_array_equal(found.init, start)

    def test_a_generator_that_is_many_times_in_a_sum(self, tmp_path):
        large = SquaredEuclidean(RNG.random(30_000))
        found = again(BregmanDivergence(sum([large] * 150, start=0.5 * large)), tmp_path)
        assert (tmp_path / "saved.bregnet").stat().st_size < 8 * 8 * 30_000
        np.testing.assert_allclose(
            found.paired(np.ones((1, 30_000)), np.zeros((1, 30_000))), 150.5 * large.weights.sum()
        )

    def test_a_generator_that_is_one_tensor_for_all(self, tmp_path):
        weights = SquaredEuclidean(RNG.random(20_000))
        model = BregmanNearestNeighbors(weights, 1).fit(RNG.random((2, 20_000)))
        bregnet.save(model, tmp_path / "saved")
        assert (tmp_path / "saved").stat().st_size < 4 * 8 * 20_000
