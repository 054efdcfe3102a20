import pickle

import numpy as np
import pytest
import torch
from scipy.special import rel_entr
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import adjusted_rand_score, make_scorer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from bregnet import PBDL, BregmanDivergence, KullbackLeibler, MaxAffine, divergence
from bregnet.clustering import BregmanKMeans, BregmanMixture

NOT_OF_LEARNERS = ("check_sample_weight_equivalence_on_dense_data", "check_clustering")  # no weights; fits without y


def conventions():
    """Checks of scikit-learn, without the one that mini-batches of repeated rows are those of weighted ones."""
    full, batches = (BregmanKMeans(), BregmanKMeans(1)), BregmanKMeans(3, batch_size=20, max_iter=9)
    learner = PBDL(tol=0.5)
    for estimator, each in estimator_checks_generator(BregmanKMeans(3, divergence=learner)):
        if each.func.__name__ not in NOT_OF_LEARNERS:
            yield estimator, each
    yield from (pair for estimator in full for pair in estimator_checks_generator(estimator))
    for estimator, each in estimator_checks_generator(batches):
        if each.func.__name__ != "check_sample_weight_equivalence_on_dense_data":
            yield estimator, each


def named(value):
    return value.func.__name__ if hasattr(value, "func") else repr(value)


@pytest.mark.parametrize(("estimator", "check"), list(conventions()), ids=named)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:.*distinct clusters were found:sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def blobs(n=400, k=4, d=3, seed=0):
    return make_blobs(n, d, centers=k, cluster_std=1.0, random_state=seed)


def simplex(n=150, d=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(d), n)


# --- the answer is right -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_squared_euclidean_is_scikit_learns(weighted):
    X, _ = blobs()
    weights = np.random.default_rng(1).random(len(X)) if weighted else None
    model = BregmanKMeans(4, init=X[:4], tol=0).fit(X, sample_weight=weights)
    peer = KMeans(4, init=X[:4], n_init=1, tol=0).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(model.labels_, peer.labels_)
    np.testing.assert_allclose(model.cluster_centers_, peer.cluster_centers_, atol=1e-10)
    assert model.inertia_ == pytest.approx(peer.inertia_)
    new = X[::-1] + 0.5
    np.testing.assert_array_equal(model.predict(new), peer.predict(new))
    np.testing.assert_allclose(model.transform(new), peer.transform(new) ** 2, atol=1e-9)
    assert model.score(new, sample_weight=weights) == pytest.approx(peer.score(new, sample_weight=weights))


def test_seeds_are_as_good_as_scikit_learns():
    X, _ = make_blobs(1000, 5, centers=12, cluster_std=1.0, random_state=0)
    ours = [BregmanKMeans(12, random_state=s).fit(X).inertia_ for s in range(20)]
    theirs = [KMeans(12, n_init=1, random_state=s).fit(X).inertia_ for s in range(20)]
    assert np.mean(ours) <= 1.05 * np.mean(theirs)
    assert min(ours) == pytest.approx(min(theirs), rel=1e-6)


def test_kl_on_the_simplex_equals_brute_force():
    X, new = simplex(), simplex(seed=1)
    model = BregmanKMeans(5, divergence="kl", random_state=0, tol=0).fit(X)
    brute = rel_entr(new[:, None], model.cluster_centers_).sum(2)
    np.testing.assert_allclose(model.transform(new), brute, atol=1e-12)
    np.testing.assert_array_equal(model.predict(new), brute.argmin(1))
    np.testing.assert_array_equal(model.labels_, rel_entr(X[:, None], model.cluster_centers_).sum(2).argmin(1))
    means = [X[model.labels_ == k].mean(0) for k in range(5)]
    np.testing.assert_allclose(model.cluster_centers_, means, atol=1e-12)


@pytest.mark.parametrize("given", ["kl", KullbackLeibler(), BregmanDivergence(KullbackLeibler())])
def test_a_name_a_generator_and_a_divergence_are_the_same(given):
    X = simplex()
    model = BregmanKMeans(3, divergence=given, random_state=0).fit(X)
    expected = BregmanKMeans(3, divergence="kl", random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert model.learner_ is None


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_labels_are_predictions_also_where_centers_are_tied(temperature):
    rng = np.random.default_rng(0)
    D = BregmanDivergence(MaxAffine(rng.standard_normal((4, 3)), rng.standard_normal(4), temperature=temperature))
    X, _ = blobs()
    model = BregmanKMeans(9, divergence=D, random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    np.testing.assert_array_equal(model.labels_, model.fit_predict(X))
    assert len(np.unique(model.labels_)) == 9
    assert (np.diff(model.history_) <= 0).all()
    assert model.inertia_ == pytest.approx(D.pairwise(X, model.cluster_centers_).min(1).sum(), abs=1e-9)


# --- starts --------------------------------------------------------------------------------------------------------


def test_more_starts_are_at_least_as_good():
    X, _ = blobs(k=12)
    one, many = (BregmanKMeans(12, init="random", n_init=n, random_state=0).fit(X).inertia_ for n in (1, 20))
    assert many < one
    auto = BregmanKMeans(12, init="random", random_state=0).fit(X).inertia_
    assert auto == BregmanKMeans(12, init="random", n_init=10, random_state=0).fit(X).inertia_


def test_starts_that_are_called_for_and_shown(capsys):
    X, _ = blobs()
    calls = []

    def init(X, n_clusters, random_state):
        calls.append(random_state.randint(100))
        return X[:n_clusters]

    model = BregmanKMeans(4, init=init, n_init=3, verbose=1, random_state=0).fit(X)
    expected = np.random.RandomState(0).randint(100, size=3)
    assert calls == expected.tolist()
    assert model.inertia_ == BregmanKMeans(4, init=X[:4]).fit(X).inertia_
    assert capsys.readouterr().out.count(f"inertia {model.inertia_:g} after {model.n_iter_} iterations\n") == 3


def test_an_array_is_started_from_once_and_stays_as_it_is():
    X, _ = blobs()
    start = X[:4].copy()
    model = BregmanKMeans(4, init=start, n_init=5).fit(X)
    np.testing.assert_array_equal(start, X[:4])
    assert model.init is start


def test_duplicates_are_told():
    X = np.array([[0.0], [1.0]]).repeat(5, 0)
    with pytest.warns(ConvergenceWarning, match="2 distinct clusters were found, fewer than n_clusters=4"):
        model = BregmanKMeans(4, random_state=0).fit(X)
    assert model.inertia_ == 0


# --- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["sqeuclidean", "kl"])
def test_batches_come_close_to_all_points(name, weighted):
    X, _ = make_blobs(6000, 4, centers=6, cluster_std=1.0, random_state=0)
    X = X - X.min() + 1
    weights = np.random.default_rng(0).integers(0, 3, len(X)) if weighted else None
    full = BregmanKMeans(6, divergence=name, n_init=3, random_state=0).fit(X, sample_weight=weights)
    some = BregmanKMeans(6, divergence=name, n_init=3, batch_size=200, random_state=0).fit(X, sample_weight=weights)
    assert full.inertia_ <= some.inertia_ * (1 + 1e-9)
    assert some.inertia_ <= 1.02 * full.inertia_
    assert some.n_iter_ < 20
    np.testing.assert_array_equal(some.labels_, some.predict(X))
    assert some.inertia_ == pytest.approx(-some.score(X, sample_weight=weights))


def test_batches_find_clusters_that_no_center_started_in():
    X, _ = make_blobs(3000, 2, centers=[[0, 0], [100, 0], [0, 100]], cluster_std=0.5, random_state=0)
    start = np.array([[0.0, 0.0], [-900.0, -900.0], [-950.0, -950.0]])
    for seed in range(5):
        model = BregmanKMeans(3, init=start, batch_size=100, random_state=seed).fit(X)
        assert model.inertia_ == pytest.approx(BregmanKMeans(3, random_state=0).fit(X).inertia_, rel=1e-6)


def test_partial_fits_are_running_means():
    X, _ = blobs(k=2)
    batches = np.split(X, 8)
    model = BregmanKMeans(2, init=X[[0, 5]])
    sums, weights, centers = np.zeros((2, 3)), np.zeros(2), X[[0, 5]]
    for batch in batches:
        model.partial_fit(batch)
        labels = ((batch[:, None] - centers) ** 2).sum(2).argmin(1)
        np.add.at(sums, labels, batch)
        weights += np.bincount(labels, minlength=2)
        centers = np.where(weights[:, None] > 0, sums / np.maximum(weights, 1)[:, None], centers)
    np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-10)
    assert model.n_iter_ == len(model.history_) == 8
    np.testing.assert_array_equal(model.labels_, model.predict(batches[-1]))
    assert model.inertia_ == pytest.approx(-model.score(batches[-1]))


def test_a_partial_fit_goes_on_from_a_fit():
    X, _ = blobs(k=2)
    model = BregmanKMeans(2, init=X[:2]).fit(X)
    before, sizes = model.cluster_centers_, np.bincount(model.labels_)
    point = before[:1] + 1.0
    model.partial_fit(point, sample_weight=[2.0])
    np.testing.assert_allclose(model.cluster_centers_[0], (sizes[0] * before[0] + 2 * point[0]) / (sizes[0] + 2))
    np.testing.assert_array_equal(model.cluster_centers_[1], before[1])
    assert model.history_ == pytest.approx((3.0,))
    assert model.n_iter_ == 1


def test_a_partial_fit_goes_on_with_the_same_parameters():
    X, y = blobs(k=2)
    model = BregmanKMeans(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="n_clusters must stay 2 after the first fit, got 3; fit anew"):
        model.set_params(n_clusters=3).partial_fit(X)
    with pytest.raises(ValueError, match="divergence must stay what it was at the first fit, 'sqeuclidean', got 'kl'"):
        model.set_params(n_clusters=2, divergence="kl").partial_fit(X)
    model.set_params(divergence="sqeuclidean").partial_fit(X)
    assert model.n_iter_ == 1
    learned = BregmanKMeans(2, divergence=PBDL(n_pieces=2, tol=0.5), random_state=0).partial_fit(X, y)
    pickle.loads(pickle.dumps(learned)).partial_fit(X)
    with pytest.raises(ValueError, match="divergence must stay what it was at the first fit"):
        learned.set_params(divergence__alpha=0.5).partial_fit(X)


def test_centers_of_batches_are_means_of_their_points():
    X, _ = make_blobs(3000, 3, centers=5, cluster_std=0.5, random_state=1)
    model = BregmanKMeans(5, batch_size=100, random_state=0).fit(X)
    means = [X[model.labels_ == k].mean(0) for k in range(5)]
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-10)


# --- zeros, weights of all sizes -----------------------------------------------------------------------------------


def sparse_histograms(n=120, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d)) * (rng.random((n, d)) < 0.5)
    X[:, 3] = 0  # a bin that is always empty
    X[:, 0] += 0.1
    return X / X.sum(1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("batch_size", [None, 40])
@pytest.mark.parametrize("init", ["k-means++", "random", "rows"])
def test_kl_clusters_sparse_histograms(init, batch_size, dtype):
    X = sparse_histograms().astype(dtype)
    start = X[:4] if init == "rows" else init
    model = BregmanKMeans(4, divergence="kl", init=start, batch_size=batch_size, random_state=0, tol=0).fit(X)
    means = np.stack([X[model.labels_ == k].mean(0, dtype=float) for k in range(4)])
    np.testing.assert_allclose(model.cluster_centers_, means, atol=1e-6 if dtype == np.float32 else 1e-15)
    brute = rel_entr(X[:, None].astype(float), means).sum(2)  # inf where a mean lacks a bin
    np.testing.assert_array_equal(model.labels_, brute.argmin(1))
    assert model.inertia_ == pytest.approx(brute.min(1).sum(), rel=1e-5 if dtype == np.float32 else 1e-10)
    if batch_size is None:
        assert (np.diff(model.history_) <= 0).all()
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_zeros_and_ones_under_the_logistic_divergence():
    X = (np.random.default_rng(0).random((80, 6)) < 0.3).astype(float)
    model = BregmanKMeans(5, divergence="logistic", random_state=0, tol=0).fit(X)
    means = np.stack([X[model.labels_ == k].mean(0) for k in range(5)])
    np.testing.assert_allclose(model.cluster_centers_, means, atol=1e-15)
    brute = (rel_entr(X[:, None], means) + rel_entr(1 - X[:, None], 1 - means)).sum(2)
    np.testing.assert_allclose(brute.min(1)[:, None], brute[np.arange(80), model.labels_][:, None], atol=1e-12)
    assert model.inertia_ == pytest.approx(brute.min(1).sum(), rel=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-50, 1e300, 1e305])
def test_weights_of_any_size(scale, dtype):
    X = (blobs()[0] / 100).astype(dtype)
    weights = np.random.default_rng(0).random(len(X))
    one = BregmanKMeans(4, random_state=0).fit(X, sample_weight=weights)
    other = BregmanKMeans(4, random_state=0).fit(X, sample_weight=scale * weights)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert other.inertia_ == pytest.approx(scale * one.inertia_, rel=1e-5)
    huge = BregmanKMeans(4, random_state=0).fit(X, sample_weight=np.full(len(X), 1e308))  # their sum overflows
    np.testing.assert_array_equal(huge.labels_, BregmanKMeans(4, random_state=0).fit(X).labels_)


def test_points_too_large_are_told():
    X = blobs()[0]
    for model in (BregmanKMeans(3), BregmanKMeans(3, batch_size=50)):
        with pytest.raises(ValueError, match="X must not be so large, or spread so widely, that float64 overflows"):
            model.fit(1e200 * X)


# --- learning the divergence ---------------------------------------------------------------------------------------


def test_a_learner_is_cloned_and_fitted():
    X, y = load_iris(return_X_y=True)
    learner = PBDL(0.01, temperature=0.3, tol=0.1, random_state=0)
    model = BregmanKMeans(3, divergence=learner, random_state=0).fit(X, y)
    assert not hasattr(learner, "divergence_")
    expected = clone(learner).fit(X, y).divergence_
    np.testing.assert_allclose(model.transform(X), expected.pairwise(X, model.cluster_centers_), atol=1e-10)
    assert model.divergence_ is model.learner_.divergence_
    euclid = KMeans(3, random_state=0, n_init=10).fit(X)
    assert adjusted_rand_score(y, model.labels_) > adjusted_rand_score(y, euclid.labels_) + 0.1
    np.testing.assert_array_equal(model.fit_predict(X, y), model.labels_)
    with pytest.raises(ValueError, match="requires y to be passed"):
        model.fit(X)


@pytest.mark.parametrize("clusterer", [BregmanKMeans, BregmanMixture])
def test_a_fitted_learner_is_used_as_it_is(clusterer, monkeypatch):
    X, y = load_iris(return_X_y=True)
    learner = PBDL(0.01, temperature=0.3, tol=0.1).fit(X[::2], y[::2])
    by_hand = clusterer(3, divergence=learner.divergence_, random_state=0).fit(X)
    monkeypatch.setattr(PBDL, "fit", lambda *_: pytest.fail("fitted again"))
    for given in (learner, FrozenEstimator(learner)):
        model = clusterer(3, divergence=given, random_state=0).fit(X)
        assert model.learner_ is learner
        np.testing.assert_array_equal(model.predict(X), by_hand.predict(X))
    if clusterer is BregmanKMeans:
        model.partial_fit(X[:10])  # the divergence is still that of the learner


def test_alpha_of_the_learner_is_searched_in_a_pipeline():
    X, y = load_iris(return_X_y=True)
    model = BregmanKMeans(3, divergence=PBDL(temperature=0.3, tol=0.1), random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model),
        {"bregmankmeans__divergence__alpha": [0.01, 0.3], "bregmankmeans__n_clusters": [2, 3]},
        scoring=make_scorer(adjusted_rand_score),
        cv=StratifiedKFold(2, shuffle=True, random_state=0),
    )
    search.fit(X, y)
    assert search.best_params_["bregmankmeans__n_clusters"] == 3
    assert search.best_score_ > 0.7
    assert len(set(search.cv_results_["mean_test_score"])) == 4


# --- arrays in and out ---------------------------------------------------------------------------------------------


def test_tensors_in_tensors_out():
    X, _ = blobs()
    model = BregmanKMeans(4, random_state=0).fit(X)
    there = torch.as_tensor(X)
    for given in (there, there.clone().requires_grad_()):
        same = BregmanKMeans(4, random_state=0).fit(given, sample_weight=torch.ones(len(X)))
        np.testing.assert_array_equal(same.labels_, model.labels_)
        assert isinstance(same.cluster_centers_, np.ndarray)
    for method in ("predict", "transform", "fit_predict", "fit_transform"):
        out = getattr(model, method)(there)
        assert isinstance(out, torch.Tensor)
        np.testing.assert_array_equal(out, getattr(model, method)(X))
    assert model.predict(there.float()).dtype == torch.int64
    assert model.transform(X.astype(np.float32)).shape == (len(X), 4)


def test_weights_that_must_not_be_written():
    X, weights = blobs()[0], np.arange(400.0)
    weights.flags.writeable = False
    model = BregmanKMeans(4, random_state=0).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(model.labels_, BregmanKMeans(4, random_state=0).fit(X, None, weights.copy()).labels_)


def test_single_precision_of_tensors_stays():
    X = torch.as_tensor(blobs()[0])
    for dtype, expected in ((torch.float32, np.float32), (torch.float16, np.float32), (torch.float64, np.float64)):
        assert BregmanKMeans(4, random_state=0).fit(X.to(dtype)).cluster_centers_.dtype == expected


def test_single_precision_stays():
    X = blobs()[0].astype(np.float32)
    model = BregmanKMeans(4, init=X[:4]).fit(X)
    assert model.cluster_centers_.dtype == model.transform(X).dtype == np.float32
    np.testing.assert_allclose(
        model.cluster_centers_, KMeans(4, init=X[:4], n_init=1).fit(X).cluster_centers_, rtol=1e-4
    )


@pytest.mark.parametrize("batch_size", [None, 50])
def test_copies_and_feature_names(batch_size):
    X = simplex()
    model = BregmanKMeans(3, divergence=KullbackLeibler(), batch_size=batch_size, random_state=0).fit(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    again.partial_fit(X)
    model_again = clone(model).fit(X).partial_fit(X)
    np.testing.assert_array_equal(again.cluster_centers_, model_again.cluster_centers_)
    assert not hasattr(clone(model), "cluster_centers_")
    np.testing.assert_array_equal(clone(model).fit(X).labels_, model.labels_)
    assert model.get_feature_names_out().tolist() == ["bregmankmeans0", "bregmankmeans1", "bregmankmeans2"]


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_clusters": 0}, ValueError, "n_clusters must be at least 1, got 0"),
        ({"n_clusters": 2.5}, TypeError, "n_clusters must be an integer, got 2.5"),
        ({"n_clusters": 7}, ValueError, "n_clusters must be at most the number of rows of X, n_samples=6, got 7"),
        ({"divergence": "far"}, ValueError, "divergence must be one of .* got 'far'"),
        ({"divergence": 3}, TypeError, "divergence must be a BregmanDivergence, its name, .* got 3"),
        ({"divergence": "kl"}, ValueError, "X must be at least 0 for KullbackLeibler, got -1"),
        ({"divergence": "itakura-saito"}, ValueError, "X must be positive for ItakuraSaito, got 0"),
        ({"divergence": divergence("mahalanobis", matrix=np.eye(3))}, ValueError, "for the 2 features of X, got .* 3"),
        ({"init": "far"}, ValueError, r"init must be 'k-means\+\+', 'random', a callable or an array, got 'far'"),
        ({"init": None}, ValueError, r"init must be 'k-means\+\+', 'random', a callable or an array, got None"),
        ({"init": np.zeros((7, 2)), "n_clusters": 7}, ValueError, "n_clusters must be at most the number of rows of X"),
        ({"init": np.zeros((2, 2))}, ValueError, "init must have one row for each of 3 clusters, got 2"),
        ({"init": np.zeros((3, 1))}, ValueError, r"init must have shape \(n_points, 2\), got \(3, 1\)"),
        ({"init": [["a", "b"]] * 3}, TypeError, "init must hold real numbers"),
        ({"n_init": "many"}, ValueError, "n_init must be 'auto' or an integer, got 'many'"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1, got 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1, got 0"),
        ({"tol": -1.0}, ValueError, "tol must be at least 0 and finite, got -1.0"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"device": "moon"}, ValueError, "device must be one of 'auto', 'cpu'.* got 'moon'"),
        ({"verbose": -1}, ValueError, "verbose must be at least 0, got -1"),
    ],
)
def test_parameters_are_checked(parameters, error, message):
    X = np.array([[0.0, 1.0], [2.0, 3.0], [-1.0, 5.0], [3.0, 0.0], [4.0, 4.0], [9.0, 1.0]])
    with pytest.raises(error, match=message):
        BregmanKMeans(**{"n_clusters": 3} | parameters).fit(X)


def test_inputs_are_checked():
    X, _ = blobs()
    model = BregmanKMeans(2)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(400,\), got \(3,\)"):
        model.fit(X, sample_weight=[1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="sample_weight must hold real numbers, got dtype <U1"):
        model.fit(X, sample_weight=["a"] * 400)
    with pytest.raises(
        ValueError, match="sample_weight must be finite, at least 0 and not all zero, got from -1 to -1"
    ):
        model.fit(X, sample_weight=-np.ones(400))
    model.fit(X)
    with pytest.raises(ValueError, match=r"X must have shape \(n_points, 3\), got \(1, 2\)"):
        model.predict(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="X must be finite"):
        model.predict(torch.full((1, 3), torch.nan))
    with pytest.raises(ValueError, match="has 2 features"):
        model.partial_fit(X[:, :2])
