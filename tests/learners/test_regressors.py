import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks.peers import clarabel_program
from bregnet import Check, ConvexRegressor, DCRegressor
from tests.support.threads import in_threads

BOTH = pytest.mark.parametrize("kind", [ConvexRegressor, DCRegressor])


@parametrize_with_checks([ConvexRegressor(), DCRegressor()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def paraboloid(n=60, d=2, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.square(X).sum(1) + noise * rng.standard_normal(n)


def value(model, X, y, alpha):
    """The objective of the fitted function, from its definition."""
    functions = (
        [model.function_] if isinstance(model, ConvexRegressor) else [model.function_.convex, model.function_.concave]
    )
    penalty = sum(np.abs(f.slopes).max(0).sum() for f in functions)
    return np.mean((model.predict(X) - y) ** 2) + alpha * penalty


# --- the answer is right -------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("duplicates", [False, True])
def test_the_objective_is_that_of_the_returned_function_in_original_units(kind, duplicates):
    X, y = paraboloid()
    X, y = 3 * X + 100, 50 * y - 7
    if duplicates:  # with other targets: the spread is a loss that no function avoids
        X, y = np.vstack([X, X[:20]]), np.r_[y, y[:20] + 5]
    model = kind(alpha=0.7, standardize=False, tol=1e-4).fit(X, y)
    assert model.result_.objective == pytest.approx(value(model, X, y, 0.7), rel=1e-9)
    signs = (1,) if kind is ConvexRegressor else (1, -1)
    optimum = clarabel_program.solve(clarabel_program.Program(X - X.mean(0), y, np.full(2, 0.7), signs=signs)).value
    assert model.result_.dual_bound <= optimum * (1 + 1e-7)
    assert optimum <= model.result_.objective * (1 + 1e-7)
    assert model.result_.objective == pytest.approx(optimum, rel=1e-4)


def test_standardizing_refers_alpha_to_unit_variance():
    X, y = paraboloid()
    units_x, units_y = X.std(0), y.std()
    model = ConvexRegressor(alpha=0.05, tol=1e-4).fit(X, y)
    standard = ConvexRegressor(alpha=0.05, tol=1e-4, standardize=False).fit(
        (X - X.mean(0)) / units_x, (y - y.mean()) / units_y
    )
    assert model.result_.objective == pytest.approx(standard.result_.objective, rel=1e-3)
    expected = standard.predict((X - X.mean(0)) / units_x) * units_y + y.mean()
    np.testing.assert_allclose(model.predict(X), expected, atol=0.02 * units_y)


@BOTH
def test_prediction_is_the_function_and_bounds_are_its_slopes(kind):
    X, y = paraboloid()
    model = kind(alpha=0.01).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.function_(X))
    assert model.feature_bounds_.shape == (2,)
    probes = np.random.default_rng(1).standard_normal((200, 2)) * 3
    assert (np.abs(model.function_.gradient(probes)).max(0) <= model.feature_bounds_ + 1e-12).all()
    assert model.gap_ == model.result_.gap <= 0.01


def test_convex_data_without_noise_is_interpolated():
    X, y = paraboloid(n=80, noise=0.0)
    model = ConvexRegressor(alpha=1e-6, tol=1e-3).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-3 * y.std())


@BOTH
def test_a_large_penalty_leaves_the_mean(kind):
    X, y = paraboloid()
    model = kind(alpha=100.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y.mean(), atol=1e-8)
    assert (model.feature_bounds_ < 1e-8).all()


def test_affine_data_gives_one_effective_piece():
    X, _ = paraboloid(n=100, d=3)
    y = X @ [1.0, -2.0, 0.5] + 3
    model = ConvexRegressor(alpha=1e-4, tol=1e-5, max_iter=20_000).fit(X, y)
    # inside the hull of the data; outside, pieces that are nowhere active there may take over
    rng = np.random.default_rng(1)
    inside = np.stack([rng.dirichlet(np.ones(8)) @ X[rng.choice(100, 8)] for _ in range(300)])
    assert np.ptp(model.function_.gradient(inside), axis=0).max() < 0.02
    np.testing.assert_allclose(model.predict(inside), inside @ [1.0, -2.0, 0.5] + 3, atol=0.01)


@given(seed=st.integers(0, 1000), signs=st.lists(st.sampled_from([-1, 0, 1]), min_size=2, max_size=2))
@settings(max_examples=10, deadline=None)
def test_monotone_functions_are_monotone(seed, signs):
    X, y = paraboloid(n=40, seed=seed)
    model = ConvexRegressor(alpha=0.01, monotone=signs, tol=0.05).fit(X, y)
    slopes = model.function_.slopes
    assert (slopes * np.array(signs) >= -1e-9).all()


@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_the_fit_is_convex(seed):
    X, y = paraboloid(n=40, seed=seed)
    model = ConvexRegressor(alpha=0.01, tol=0.05).fit(X, y)
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 100, 2)) * 3
    t = rng.random((100, 1))
    blend = model.predict(t * a + (1 - t) * b)
    assert (blend <= t[:, 0] * model.predict(a) + (1 - t[:, 0]) * model.predict(b) + 1e-9).all()


def test_dc_fits_what_convex_cannot():
    x = np.linspace(-3, 3, 120)[:, None]
    y = np.sin(2 * x[:, 0])
    assert DCRegressor(alpha=1e-3).fit(x, y).score(x, y) > 0.99
    assert ConvexRegressor(alpha=1e-3).fit(x, y).score(x, y) < 0.5


def test_cells_come_close_to_a_piece_per_point():
    X, y = paraboloid(n=400)
    whole = ConvexRegressor(alpha=1e-3, n_pieces=None, tol=0.03).fit(X, y)
    cells = ConvexRegressor(alpha=1e-3, n_pieces=60, random_state=0).fit(X, y)
    assert cells.function_.n_pieces <= 60
    assert 60 < whole.function_.n_pieces <= 400
    assert cells.score(X, y) > whole.score(X, y) - 0.02


# --- it behaves as scikit-learn users expect -----------------------------------------------------------------------


@BOTH
def test_pickle_clone_grid_search_and_pipelines(kind):
    X, y = paraboloid(n=45)
    model = kind(alpha=0.05, tol=0.05).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.result_ == model.result_
    assert clone(model).get_params() == model.get_params()
    pipeline = make_pipeline(StandardScaler(), kind(tol=0.05))
    name = kind.__name__.lower()
    search = GridSearchCV(pipeline, {f"{name}__alpha": [0.01, 10.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {f"{name}__alpha": 0.01}


def test_tensors_in_tensors_out():
    X, y = paraboloid()
    model = ConvexRegressor(tol=0.05).fit(torch.as_tensor(X), torch.as_tensor(y))
    predicted = model.predict(torch.as_tensor(X))
    assert isinstance(predicted, torch.Tensor)
    np.testing.assert_array_equal(predicted.numpy(), model.predict(X))


def test_warm_start_along_alpha_takes_fewer_iterations_to_the_same_gap():
    X, y = paraboloid(n=250, d=3)
    warm = ConvexRegressor(warm_start=True)
    for alpha in (0.1, 0.05, 0.03):
        warm.set_params(alpha=alpha).fit(X, y)
        cold = ConvexRegressor(alpha=alpha).fit(X, y)
        assert warm.gap_ <= 0.01
        assert warm.result_.objective == pytest.approx(cold.result_.objective, rel=0.01)
    assert warm.n_iter_ < cold.n_iter_
    assert warm.fit(X[:50], y[:50]).gap_ <= 0.01  # other rows: starts afresh
    assert pickle.loads(pickle.dumps(warm))._warm is None


def test_warm_start_heeds_new_weights_and_numbers_of_pieces():
    x, values = np.arange(-3.0, 4.0), np.array([3, 1, -2, 4, 0, 2, 9.0])
    first = np.full(7, 4)
    second = first + np.array([1, -3, 3, -2, 3, -3, 1])  # the same mean and variance
    warm = ConvexRegressor(warm_start=True, standardize=False, tol=1e-6)
    warm.fit(np.repeat(x, first)[:, None], np.repeat(values, first))
    X, y = np.repeat(x, second)[:, None], np.repeat(values, second)
    cold = ConvexRegressor(standardize=False, tol=1e-6).fit(X, y)
    assert warm.fit(X, y).result_.objective == pytest.approx(cold.result_.objective, rel=1e-5)
    X, y = paraboloid(n=150)
    warm = ConvexRegressor(warm_start=True, n_pieces=10, random_state=0, tol=0.05).fit(X, y)
    assert 10 < warm.set_params(n_pieces=40).fit(X, y).function_.n_pieces <= 40


def test_random_state_makes_cells_repeatable():
    X, y = paraboloid(n=200)
    first, second = (DCRegressor(n_pieces=12, random_state=3, tol=0.05).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_callback_sees_the_certificate_and_can_stop():
    X, y = paraboloid(n=150)
    seen = []

    def stop(check):
        seen.append(check)
        return len(seen) == 2

    model = ConvexRegressor(alpha=1e-3, tol=1e-9, callback=stop).fit(X, y)  # stopping on request is no warning
    assert all(isinstance(check, Check) for check in seen)
    assert len(model.result_.history) == 2
    assert model.n_iter_ == seen[-1].iteration


def test_progress_shows_iterations_and_the_gap(capsys):
    X, y = paraboloid(n=150)
    ConvexRegressor(alpha=1e-3, verbose=1).fit(X, y)
    shown = capsys.readouterr().err
    assert "gap" in shown
    assert "it/s" in shown or "s/it" in shown
    ConvexRegressor(alpha=1e-3, verbose=True).fit(X, y)
    assert "gap" in capsys.readouterr().err
    ConvexRegressor(alpha=1e-3, verbose=False).fit(X, y)
    assert capsys.readouterr() == ("", "")


def test_not_converging_warns_with_the_gap_reached():
    X, y = paraboloid(n=100)
    with pytest.warns(ConvergenceWarning, match=r"not converged to 1e-08: certified gap .*% after 30 iterations"):
        model = ConvexRegressor(alpha=1e-3, tol=1e-8, max_iter=30).fit(X, y)
    assert not model.result_.converged


def _fit_in_worker(seed):
    X, y = paraboloid(n=220, seed=seed)
    return ConvexRegressor(alpha=0.05, tol=0.05).fit(X, y).predict(X)


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_fits_run_in_parallel(backend):
    expected = [_fit_in_worker(seed) for seed in range(3)]  # compiled passes were used before any fork
    with warnings.catch_warnings():
        # the test runner itself has threads; a fork is what is tried here
        warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
        found = Parallel(n_jobs=2, backend=backend)(delayed(_fit_in_worker)(seed) for seed in range(3))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a, b, atol=0.1)


def test_predict_from_many_threads():
    X, y = paraboloid()
    model = DCRegressor(tol=0.05).fit(X, y)
    expected = model.predict(X)
    assert all((found == expected).all() for found in in_threads(lambda: model.predict(X), 8))


def test_it_beats_a_linear_model_where_the_truth_is_convex():
    X, y = paraboloid(n=300, d=4, noise=0.5)
    model = ConvexRegressor(alpha=0.01, tol=0.03).fit(X[:200], y[:200])
    linear = LinearRegression().fit(X[:200], y[:200])
    quadratic = make_pipeline(PolynomialFeatures(2), LinearRegression()).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > linear.score(X[200:], y[200:]) + 0.3
    assert quadratic.score(X[200:], y[200:]) > 0.9  # the data are learnable


def test_real_data_of_several_features():
    X, y = load_diabetes(return_X_y=True)
    model = DCRegressor(alpha=0.05).fit(X[:300], y[:300])
    assert model.gap_ <= 0.01
    assert model.score(X[300:], y[300:]) > 0.4


# --- bad and odd input ---------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[np.nan], [1.0]], [0.0, 1.0], "NaN"),
        ([[np.inf], [1.0]], [0.0, 1.0], "infinity"),
        ([[0.0], [1.0]], [np.nan, 1.0], "NaN"),
        ([["a"], ["b"]], [0.0, 1.0], "could not convert string"),
        ([1.0, 2.0], [0.0, 1.0], "Expected 2D array"),
        ([[0.0], [1.0]], [0.0, 1.0, 2.0], "inconsistent numbers of samples"),
        (np.empty((0, 1)), [], "minimum of 1 is required"),
    ],
)
def test_bad_arrays_are_refused(kind, X, y, message):
    with pytest.raises(ValueError, match=message):
        kind().fit(X, y)


@BOTH
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"alpha": 0}, ValueError, "alpha must be positive and finite, got 0"),
        ({"alpha": -1.0}, ValueError, "alpha must be positive and finite, got -1.0"),
        ({"alpha": "big"}, TypeError, "alpha must be a number, got 'big'"),
        ({"tol": 0.0}, ValueError, "tol must be positive and finite, got 0.0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1, got 0"),
        ({"max_iter": 1.5}, TypeError, "max_iter must be an integer, got 1.5"),
        ({"n_pieces": 0}, ValueError, "n_pieces must be at least 1, got 0"),
        ({"n_pieces": 61}, ValueError, r"n_pieces must be at most the number of rows of X \(60\), got 61"),
        ({"n_pieces": "many"}, ValueError, "n_pieces must be 'auto', None or an integer, got 'many'"),
        ({"verbose": "x"}, TypeError, "verbose must be an integer, got 'x'"),
        ({"standardize": "no"}, TypeError, "standardize must be True or False, got 'no'"),
        ({"random_state": "x"}, ValueError, "cannot be used to seed"),
        ({"callback": 3}, TypeError, "callback must be None or callable, got 3"),
        ({"device": "nowhere"}, ValueError, "device must be one of .* got 'nowhere'"),
        ({"device": "meta"}, ValueError, "device must hold data, got 'meta'"),
    ],
)
def test_bad_parameters_are_named(kind, parameters, error, message):
    X, y = paraboloid()
    with pytest.raises(error, match=message):
        kind(**parameters).fit(X, y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there():
    X, y = paraboloid()
    with pytest.raises(
        ValueError, match="device must be one of 'auto', 'cpu' or a device torch can use here, got 'cuda'"
    ):
        ConvexRegressor(device="cuda").fit(X, y)


@pytest.mark.parametrize("monotone", [[1], [1, 2], [[1, 0]], "up", [1, np.nan]])
def test_wrong_monotone(monotone):
    X, y = paraboloid()
    with pytest.raises(ValueError, match="monotone must"):
        ConvexRegressor(monotone=monotone).fit(X, y)


def test_predicting_too_early_or_with_other_features():
    X, y = paraboloid()
    with pytest.raises(NotFittedError):
        ConvexRegressor().predict(X)
    model = ConvexRegressor(tol=0.1).fit(X, y)
    with pytest.raises(ValueError, match="3 features, but ConvexRegressor is expecting 2"):
        model.predict(np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"X must have shape \(n_points, 2\), got \(1, 3\)"):
        model.predict(torch.zeros((1, 3)))
    with pytest.raises(ValueError, match="X must be finite, got NaN or infinity"):
        model.predict(torch.full((1, 2), torch.nan))


@BOTH
def test_one_row_and_constant_targets_give_the_constant(kind):
    np.testing.assert_allclose(kind().fit([[1.0, 2.0]], [3.0]).predict([[5.0, 5.0]]), [3.0])
    X, _ = paraboloid()
    model = kind().fit(X, np.full(60, 7.5))
    np.testing.assert_allclose(model.predict(X), 7.5)
    assert model.gap_ == 0


@BOTH
def test_a_constant_column_is_not_used(kind):
    X, y = paraboloid()
    with_constant = np.column_stack([X, np.full(60, 1e6)])
    model = kind(alpha=0.01, tol=1e-5).fit(with_constant, y)
    assert model.feature_bounds_[2] == 0
    without = kind(alpha=0.01, tol=1e-5).fit(X, y)
    np.testing.assert_allclose(model.predict(with_constant), without.predict(X), atol=1e-2)
    assert model.result_.objective == pytest.approx(without.result_.objective, rel=1e-4)


@BOTH
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scales_of_features_and_targets_do_not_matter(kind, scale):
    X, y = paraboloid()
    expected = kind(alpha=0.02, tol=1e-3).fit(X, y).predict(X)
    model = kind(alpha=0.02, tol=1e-3).fit(X * [scale, 1 / scale], y * scale)
    np.testing.assert_allclose(model.predict(X * [scale, 1 / scale]) / scale, expected, atol=0.02 * y.std())


@BOTH
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_scales_do_not_overflow(kind, scale):
    X, y = paraboloid(n=30)
    expected = kind(alpha=0.02).fit(X, y).predict(X)
    np.testing.assert_allclose(kind(alpha=0.02).fit(X * scale, y).predict(X * scale), expected, atol=0.02 * y.std())
    np.testing.assert_allclose(kind(alpha=0.02).fit(X, y * scale).predict(X) / scale, expected, atol=0.02 * y.std())
    with pytest.raises(ValueError, match="X must have finite means and deviations"):
        kind().fit([[1.7e308], [-1.7e308], [1.7e308]], [0.0, 1.0, 2.0])


@BOTH
def test_targets_too_small_to_be_smoothed_are_refused(kind):
    X, y = paraboloid(n=30)
    with pytest.raises(ValueError, match=r"y must have a standard deviation of at least 1\.5e-153 for temperature=0"):
        kind(temperature=0.1).fit(X, 1e-300 * y)


@pytest.mark.parametrize("seed", [7, 8])
def test_near_duplicates_and_tiny_penalties_do_not_break_the_second_stage(seed):
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_normal((12, 3))) + 1e-9 * rng.standard_normal((12, 3))
    y = np.round(np.square(X).sum(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ConvexRegressor(alpha=1e-6, tol=1e-6, max_iter=1500).fit(X, y)
    assert 0 <= model.result_.dual_bound <= model.result_.objective
    np.testing.assert_allclose(model.predict(X), y, atol=1e-2)


def test_low_precision_targets_are_taken_as_they_are():
    X, y = paraboloid()
    y = (y + 100).astype(np.float16)
    model = ConvexRegressor(alpha=0.1, standardize=False, tol=1e-3).fit(X, y)
    assert model.result_.objective == pytest.approx(value(model, X, y.astype(float), 0.1), rel=1e-9)
    tensor = torch.as_tensor(y.astype(np.float32)).bfloat16()
    assert ConvexRegressor(tol=0.1).fit(torch.as_tensor(X), tensor).gap_ <= 0.1


def test_a_feature_that_varies_by_rounding_only_is_constant():
    X, y = paraboloid()
    X = np.column_stack([X, 1e16 + 2.0 * np.arange(60)])
    assert ConvexRegressor(alpha=0.01).fit(X, y).feature_bounds_[2] == 0


@BOTH
def test_conflicting_duplicates_are_averaged(kind):
    X, y = paraboloid(noise=0.0)
    X3, y3 = np.vstack([X, X, X]), np.r_[y - 1, y + 1, y]
    model = kind(alpha=0.01, tol=1e-3).fit(X3, y3)
    np.testing.assert_allclose(model.predict(X), kind(alpha=0.01, tol=1e-3).fit(X3, np.tile(y, 3)).predict(X), atol=0.1)
    only = kind().fit([[1.0], [1.0], [1.0]], [0.0, 1.0, 5.0])
    np.testing.assert_allclose(only.predict([[1.0]]), [2.0])
    assert only.gap_ == 0


def test_input_is_left_alone():
    X, y = paraboloid()
    X.flags.writeable = y.flags.writeable = False
    before = X.copy(), y.copy()
    state = np.random.mtrand._rand.get_state()[1].copy()
    torch_state = torch.get_rng_state()
    ConvexRegressor(n_pieces=7, tol=0.1, random_state=0).fit(np.asfortranarray(X)[::2], y[::2]).predict(X)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.mtrand._rand.get_state()[1], state)


@pytest.mark.parametrize(("estimator", "share"), [(ConvexRegressor, 1.0), (DCRegressor, 0.5)])
def test_alpha_follows_the_numbers_of_rows_and_features(estimator, share):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 3)), rng.standard_normal(80)
    X[:, 2] = 7.0  # says nothing
    expected = share * np.sqrt(np.log(3) / 80)
    model = estimator().fit(X, y)
    assert model.alpha_ == pytest.approx(expected)
    given = estimator(expected).fit(X, y)
    assert given.alpha_ == pytest.approx(expected)
    np.testing.assert_allclose(model.predict(X), given.predict(X), atol=1e-6)
    raw = estimator(standardize=False).fit(1e3 * X, 1e-2 * y)  # "auto" is for unit variances all the same
    np.testing.assert_allclose(100 * raw.predict(1e3 * X), model.predict(X), atol=1e-3)


def test_defaults_are_as_good_as_ridge_on_noisy_data():
    X, y = load_diabetes(return_X_y=True)
    ridge = RidgeCV(np.logspace(-3, 3, 13)).fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    for model in (ConvexRegressor(), DCRegressor()):
        assert model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > ridge - 0.05


@pytest.mark.parametrize("estimator", [ConvexRegressor, DCRegressor])
def test_weights_of_rows_are_copies_of_them(estimator):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    X = np.vstack([X, X[:5]])
    y = np.r_[y, rng.standard_normal(5)]
    weights = rng.integers(0, 4, 45)
    rows = np.repeat(np.arange(45), weights)
    weighted, copied = estimator().fit(X, y, sample_weight=weights), estimator().fit(X[rows], y[rows])
    assert weighted.alpha_ == pytest.approx(copied.alpha_)
    assert weighted.result_.objective == pytest.approx(copied.result_.objective, rel=1e-3)
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X), atol=0.02)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(45,\), got \(3,\)"):
        estimator().fit(X, y, sample_weight=[1, 2, 3])
