import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from bregnet import PBDL, BregmanDivergence, ItakuraSaito, KullbackLeibler, SquaredEuclidean
from bregnet.clustering import BregmanKMeans, BregmanMixture
from bregnet.clustering import em as em_module
from bregnet.clustering.centered_points import CenteredPoints
from bregnet.clustering.em import Components, Concentration, em
from tests.clustering.test_centers import GENERATORS, every_generator, moved, rounding
from tests.clustering.test_kmeans import sparse_histograms


@parametrize_with_checks([BregmanMixture(), BregmanMixture(3), BregmanMixture(3, divergence=PBDL(tol=0.5))])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def blobs(n=400, k=3, d=3, seed=0):
    return make_blobs(n, d, centers=k, cluster_std=np.linspace(0.7, 2.5, k), random_state=seed)


def positive(n=60, d=3, seed=0):
    return np.random.default_rng(seed).uniform(0.05, 0.95, (n, d))


def by_definition(model, X):
    """log p(x), from the formula of the class."""
    beta, d = model.concentrations_, X.shape[1]
    D = model.divergence_.pairwise(X, model.means_)
    return logsumexp(np.log(model.weights_) + d / 2 * np.log(beta / np.pi) - beta * D, axis=1)


# --- the answer is right -------------------------------------------------------------------------------------------


def test_squared_euclidean_is_the_spherical_gaussian_mixture():
    X, _ = blobs()
    settings = {"tol": 1e-14, "max_iter": 5000}
    model = BregmanMixture(3, means_init=X[:3], weights_init=[1, 1, 2], min_dispersion=1e-9, **settings).fit(X)
    peer = GaussianMixture(
        3,
        covariance_type="spherical",
        means_init=model.means_,
        weights_init=model.weights_ / model.weights_.sum(),
        precisions_init=2 * model.concentrations_,
        reg_covar=0,
        **settings,
    ).fit(X)
    np.testing.assert_allclose(model.means_, peer.means_, rtol=1e-6)
    np.testing.assert_allclose(model.weights_, peer.weights_, rtol=1e-6)
    np.testing.assert_allclose(0.5 / model.concentrations_, peer.covariances_, rtol=1e-6)
    assert model.lower_bound_ == pytest.approx(peer.lower_bound_, rel=1e-10)
    new = X[::-1] + 0.5
    np.testing.assert_allclose(model.score_samples(new), peer.score_samples(new), rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(new), peer.predict_proba(new), atol=1e-5)
    np.testing.assert_array_equal(model.predict(new), peer.predict(new))
    assert model.bic(X) == pytest.approx(peer.bic(X), rel=1e-10)
    assert model.aic(X) == pytest.approx(peer.aic(X), rel=1e-10)


def test_digits_are_not_lost_far_from_zero():
    X, _ = blobs()
    X = np.round(X * 1024) / 1024  # exact after the shift
    near, far = (BregmanMixture(3, means_init=X[:3] + shift, tol=1e-9).fit(X + shift) for shift in (0.0, 2.0**20))
    np.testing.assert_allclose(far.means_ - 2.0**20, near.means_, atol=1e-6)
    np.testing.assert_allclose(far.concentrations_, near.concentrations_, rtol=1e-6)
    assert far.lower_bound_ == pytest.approx(near.lower_bound_, rel=1e-9)


@pytest.mark.parametrize("name", ["sqeuclidean", "kl", "itakura-saito", "kl + sqeuclidean"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_digits_are_not_lost_far_from_zero_in_any_precision(name, dtype):
    generators = {"sqeuclidean": SquaredEuclidean(), "kl": KullbackLeibler(), "itakura-saito": ItakuraSaito()}
    D = sum(generators[part] for part in name.split(" + "))
    X = (np.random.default_rng(0).normal(size=(2000, 8)) + 1050).astype(dtype)
    model = BregmanMixture(1, divergence=D).fit(X)
    exact = BregmanDivergence(D).paired(X.astype(float), np.broadcast_to(X.mean(0, dtype=float), X.shape))
    beta = 8 / 2 / exact.mean()
    assert model.concentrations_[0] == pytest.approx(beta, rel=1e-4)
    assert model.lower_bound_ == pytest.approx(4 * np.log(beta / np.pi) - 4, abs=1e-3)
    other = BregmanMixture(3, divergence=D, random_state=0, tol=1e-5, max_iter=1000).fit(X)
    assert other.lower_bound_ == pytest.approx(model.lower_bound_, abs=0.1)  # there are no clusters to be found
    assert other.lower_bound_ == pytest.approx(by_definition_in_double(other, X), abs=0.02)


def by_definition_in_double(model, X):
    """Mean log p(x), from divergences with all their digits."""
    beta, d = model.concentrations_.astype(float), X.shape[1]
    means = model.means_.astype(float)
    D = np.stack([model.divergence_.paired(X.astype(float), np.broadcast_to(m, X.shape)) for m in means], axis=1)
    with np.errstate(divide="ignore"):  # a component may have no weight
        logs = np.log(model.weights_) + d / 2 * np.log(beta / np.pi) - beta * D
    return logsumexp(logs, axis=1).mean()


@pytest.mark.parametrize("concentration", ["component", "tied"])
def test_sparse_histograms(concentration):
    X = sparse_histograms(300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BregmanMixture(3, divergence="kl", concentration=concentration, random_state=0, max_iter=500).fit(X)
    assert (np.diff(model.lower_bounds_) >= 0).all()
    assert model.lower_bound_ == pytest.approx(by_definition_in_double(model, X), abs=1e-8)
    shares = model.predict_proba(X)
    np.testing.assert_allclose(model.means_, (shares.T @ X) / shares.sum(0)[:, None], atol=1e-2)


def test_the_spread_of_a_tight_component_has_its_digits():
    rng = np.random.default_rng(0)
    X = np.r_[1e-3 * rng.standard_normal((50, 2)), 1e3 + 1e-3 * rng.standard_normal((50, 2))]
    model = BregmanMixture(2, min_dispersion=1e-30, random_state=0).fit(X)
    near = model.means_[:, 0].argmin()
    exact = 0.5 / ((X[:50] - X[:50].mean(0)) ** 2).mean()
    assert model.concentrations_[near] == pytest.approx(exact, rel=1e-9)  # 1e-12 of the squares from the middle


def test_a_drop_beyond_rounding_has_not_converged(monkeypatch):
    X = positive()
    points = CenteredPoints(SquaredEuclidean(), torch.as_tensor(X))
    rule = Concentration(False, None, 1e6)
    start = Components(torch.tensor([1.0]).double(), torch.as_tensor(X[:1]), torch.tensor([1.0]).double())
    assert em(points, start, rule, 10, 0.0).converged
    moving = lambda points, shares, rule, before: replace(before, means=before.means + 1)  # noqa: E731
    monkeypatch.setattr(em_module, "maximize", moving)
    found = em(points, start, rule, 10, 0.0)
    assert not found.converged
    assert "fell by" in found.status
    assert len(found.lower_bounds) == 1


def test_points_too_large_are_told():
    for D in ("sqeuclidean", "kl"):
        with pytest.raises(ValueError, match="X must not be so large, or spread so widely, that float64 overflows"):
            BregmanMixture(2, divergence=D).fit(1e200 * positive())


def test_divergences_next_to_nothing_in_single_precision():
    X = np.random.default_rng(0).random((40, 2)).astype(np.float32)
    model = BregmanMixture(2, divergence=1e-36 * SquaredEuclidean(), random_state=0, max_iter=500).fit(X)
    plain = BregmanMixture(2, concentration=float(model.concentrations_.min() * 1e-36)).fit(X)
    assert np.isfinite([model.lower_bound_, plain.lower_bound_]).all()
    assert np.isfinite(model.concentrations_).all()


def test_a_target_is_required_where_the_learner_needs_one():
    assert get_tags(BregmanMixture(divergence=PBDL())).target_tags.required
    assert get_tags(BregmanKMeans(divergence=PBDL())).target_tags.required
    assert not get_tags(BregmanMixture()).target_tags.required
    assert not get_tags(BregmanKMeans(divergence="kl")).target_tags.required


def test_bic_is_that_of_the_fit():
    X, _ = blobs()
    model = BregmanMixture(3, random_state=0).fit(X)
    before = model.bic(X)
    assert model.set_params(concentration="tied").bic(X) == before
    assert model.set_params(concentration=2.0).aic(X) == pytest.approx(-2 * len(X) * model.score(X) + 2 * (9 + 2 + 3))


def test_each_step_is_scikit_learns():
    X, _ = blobs()
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=1 iterations"):
        start = BregmanMixture(3, means_init=X[:3], max_iter=1, tol=0).fit(X)
    with pytest.warns(ConvergenceWarning):
        model = BregmanMixture(3, means_init=X[:3], max_iter=8, tol=0).fit(X)
    # after one iteration parameters are a maximum given the shares: take up from there
    with pytest.warns(ConvergenceWarning):
        peer = GaussianMixture(
            3,
            covariance_type="spherical",
            means_init=start.means_,
            weights_init=start.weights_,
            precisions_init=2 * start.concentrations_,
            reg_covar=0,
            max_iter=7,
            tol=0,
        ).fit(X)
    np.testing.assert_allclose(model.means_, peer.means_, atol=1e-8)
    np.testing.assert_allclose(0.5 / model.concentrations_, peer.covariances_, rtol=1e-8)
    assert model.n_iter_ == 8
    assert len(model.lower_bounds_) == 9


@pytest.mark.parametrize("concentration", ["component", "tied", 7.0])
def test_the_fit_is_a_maximum_of_the_likelihood(concentration):
    X = positive(150)
    model = BregmanMixture(2, divergence="kl", concentration=concentration, tol=1e-12, max_iter=5000, random_state=0)
    model.fit(X)
    np.testing.assert_allclose(model.score_samples(X), by_definition(model, X), atol=1e-9)
    assert model.lower_bound_ == pytest.approx(by_definition(model, X).mean(), abs=1e-10)
    assert {"component": 2, "tied": 1, 7.0: 1}[concentration] == len(set(model.concentrations_))
    fixed, tied = isinstance(concentration, float), concentration == "tied"

    def loss(free):  # all parameters, in a form without constraints
        other = clone(model)
        other.divergence_ = model.divergence_
        other.means_ = np.exp(free[:6].reshape(2, 3))
        other.weights_ = np.array([1, np.exp(free[6])]) / (1 + np.exp(free[6]))
        beta = np.exp(free[7:9])
        other.concentrations_ = np.full(2, 7.0) if fixed else np.full(2, beta[0]) if tied else beta
        return -by_definition(other, X).mean()

    share = np.log(model.weights_[1] / model.weights_[0])
    here = np.r_[np.log(model.means_).ravel(), share, np.log(model.concentrations_)]
    assert loss(here) == pytest.approx(-model.lower_bound_, abs=1e-10)
    better = minimize(loss, here, method="BFGS")
    assert better.fun >= -model.lower_bound_ - 1e-6


@every_generator
@settings(max_examples=20, deadline=None)
def test_the_likelihood_never_decreases(name, seed):
    rng = np.random.default_rng(seed)
    D, X = BregmanDivergence(GENERATORS[name](rng)), moved(name, positive(seed=seed), seed)
    X[:10] = X[10:20]
    k, rule = 1 + seed % 5, ["component", "tied", 3.0][seed % 3]
    bounds, sizes = [], []
    for n_iter in (1, 2, 4, 8, 400):
        there = D.to(torch.as_tensor(X).dtype)
        model = BregmanMixture(k, divergence=there, concentration=rule, tol=0, max_iter=n_iter, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X)
        model.divergence_ = D
        bounds.append(by_definition_in_double(model, X))  # not EM's own account
        there, each = torch.as_tensor(X).double(), torch.full((len(X),), 1 / len(X)).double()
        relative = 1 + float(model.concentrations_.max()) * rounding(D, there, each)
        sizes.append(100 * float(np.finfo(X.dtype).eps) * relative)
        assert bounds[-1] == pytest.approx(model.lower_bound_, abs=sizes[-1])
        assert (np.diff(model.lower_bounds_) >= 0).all()
    assert (np.diff(bounds) >= -np.maximum(sizes[1:], sizes[:-1])).all()
    assert model.converged_ or model.n_iter_ == 400
    assert model.weights_.sum() == pytest.approx(1, rel=1e-5)


def test_number_of_components_by_bic():
    rng = np.random.default_rng(0)
    means = np.array([[1.0, 1.0], [10.0, 1.0], [4.0, 12.0]])
    X = rng.gamma(20.0, means[rng.integers(0, 3, 600)] / 20)  # Itakura-Saito's family
    fits = {k: BregmanMixture(k, divergence="itakura-saito", n_init=3, random_state=0).fit(X) for k in (1, 2, 3, 4, 5)}
    assert min(fits, key=lambda k: fits[k].bic(X)) == 3
    order = np.argsort(fits[3].means_[:, 0])
    np.testing.assert_allclose(fits[3].means_[order], means[[0, 2, 1]], rtol=0.1)
    np.testing.assert_allclose(fits[3].concentrations_, 20, rtol=0.2)  # a gamma's density falls with its shape times D


# --- degenerate points ---------------------------------------------------------------------------------------------


def test_a_component_on_one_point_stays_finite():
    X = np.r_[np.random.default_rng(0).standard_normal((30, 2)), [[50.0, 50.0]]]
    model = BregmanMixture(2, random_state=0, tol=1e-10, max_iter=1000).fit(X)
    assert model.weights_.min() == pytest.approx(1 / 31)
    spread = ((X - X.mean(0)) ** 2).mean()
    assert model.concentrations_.max() == pytest.approx(0.5 / (1e-6 * spread), rel=1e-9)
    assert np.isfinite(model.lower_bound_)


def test_equal_points():
    model = BregmanMixture(2, random_state=0).fit(np.full((6, 2), 3.0))
    np.testing.assert_allclose(model.means_, 3.0)
    assert np.isfinite(model.score_samples([[3.0, 3.0], [4.0, 3.0]])).all()


@pytest.mark.parametrize("init_params", ["kmeans", "k-means++", "random_from_data"])
def test_all_starts_find_clusters_that_are_far_apart(init_params):
    X, y = make_blobs(300, 2, centers=[[0, 0], [30, 0], [0, 30]], random_state=0)
    model = BregmanMixture(3, init_params=init_params, n_init=10, random_state=0, max_iter=300).fit(X)
    assert adjusted_rand_score(y, model.predict(X)) == 1


def test_more_starts_are_at_least_as_good(capsys):
    X, _ = blobs(k=8)
    shared = {"init_params": "random_from_data", "random_state": 0, "max_iter": 500}
    one = BregmanMixture(8, **shared).fit(X)
    many = BregmanMixture(8, n_init=5, verbose=1, **shared).fit(X)
    assert many.lower_bound_ > one.lower_bound_
    shown = capsys.readouterr().out
    assert shown.count("mean log-likelihood") == 5
    assert f"{many.lower_bound_:g}" in shown


# --- learning the divergence, arrays in and out --------------------------------------------------------------------


def test_a_learner_is_fitted_in_a_search():
    X, y = load_iris(return_X_y=True)
    model = BregmanMixture(3, divergence=PBDL(temperature=0.3, tol=0.1), random_state=0, max_iter=500)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model),
        {"bregmanmixture__divergence__alpha": [0.01, 0.03]},
        scoring=lambda model, X, y: adjusted_rand_score(y, model.predict(X)),
        cv=[(np.arange(0, 150, 2), np.arange(1, 150, 2))],
    )
    search.fit(X, y)
    assert search.best_score_ > 0.75
    assert search.best_estimator_[-1].learner_.alpha == search.best_params_["bregmanmixture__divergence__alpha"]


def test_tensors_in_tensors_out():
    X, _ = blobs()
    model = BregmanMixture(3, random_state=0).fit(X)
    there = torch.as_tensor(X)
    np.testing.assert_array_equal(BregmanMixture(3, random_state=0).fit(there).means_, model.means_)
    for method in ("predict", "predict_proba", "score_samples", "fit_predict"):
        out = getattr(model, method)(there)
        assert isinstance(out, torch.Tensor)
        np.testing.assert_array_equal(out, getattr(model, method)(X))
    assert model.score(there) == pytest.approx(model.score(X))
    assert model.bic(there) == pytest.approx(model.bic(X))


def test_copies():
    X = positive()
    model = BregmanMixture(2, divergence=KullbackLeibler(), random_state=0).fit(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(clone(model).fit(X).means_, model.means_)


@given(weight=st.floats(1e-6, 1e6))
@settings(max_examples=20, deadline=None)
def test_scaling_the_divergence_scales_the_concentrations(weight):
    X = positive(40)
    one, other = (
        BregmanMixture(2, divergence=c * SquaredEuclidean(), means_init=X[:2], max_iter=500).fit(X) for c in (1, weight)
    )
    np.testing.assert_allclose(other.concentrations_ * weight, one.concentrations_, rtol=1e-6)
    np.testing.assert_allclose(other.predict_proba(X), one.predict_proba(X), atol=1e-6)


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_components": 0}, ValueError, "n_components must be at least 1, got 0"),
        ({"n_components": 7}, ValueError, "n_components must be at most the number of rows of X, n_samples=6, got 7"),
        ({"divergence": "kl"}, ValueError, "X must be at least 0 for KullbackLeibler, got -1"),
        ({"concentration": None}, ValueError, "concentration must be 'component', 'tied' or a number, got None"),
        ({"init_params": np.zeros((3, 2))}, ValueError, "init_params must be one of 'kmeans', .* got array"),
        ({"concentration": "full"}, ValueError, "concentration must be 'component', 'tied' or a number, got 'full'"),
        ({"concentration": -1.0}, ValueError, "concentration must be positive and finite, got -1.0"),
        ({"init_params": "far"}, ValueError, "init_params must be one of 'kmeans', .* got 'far'"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1, got 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1, got 0"),
        ({"tol": -1.0}, ValueError, "tol must be at least 0 and finite, got -1.0"),
        ({"min_dispersion": 0.0}, ValueError, "min_dispersion must be positive and finite, got 0.0"),
        ({"means_init": np.zeros((2, 2))}, ValueError, "means_init must have one row for each of 3 .*, got 2"),
        ({"weights_init": [1.0, 2.0]}, ValueError, "weights_init must be positive, one for each of 3"),
        ({"weights_init": [1.0, 2.0, 0.0]}, ValueError, "weights_init must be positive, one for each of 3"),
        ({"verbose": -1}, ValueError, "verbose must be at least 0, got -1"),
    ],
)
def test_parameters_are_checked(parameters, error, message):
    X = np.array([[0.0, 1.0], [2.0, 3.0], [-1.0, 5.0], [3.0, 0.0], [4.0, 4.0], [9.0, 1.0]])
    with pytest.raises(error, match=message):
        BregmanMixture(**{"n_components": 3} | parameters).fit(X)


def test_not_fitted():
    with pytest.raises(NotFittedError):
        BregmanMixture().score([[0.0]])
