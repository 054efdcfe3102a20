"""Searches for alpha against plain loops, and their parts by hand."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_circles
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bregnet import (
    PBDL,
    PBDLCV,
    BregmanKNeighborsClassifier,
    Check,
    ConvexRegressor,
    ConvexRegressorCV,
    DCRegressor,
    DCRegressorCV,
    MaxAffine,
    load,
    save,
)
from bregnet.learners.base import Monitor
from bregnet.metrics import mean_average_precision, retrieval_auc
from bregnet.retrieval.evaluation import retrieval_scores
from bregnet.selection.divergences import RetrievalScores
from bregnet.selection.folds import Plan, ScoreMonitor, Split, Track, Variant, _joined, checked_splits, scored_fits
from bregnet.selection.members import Member, drawn
from bregnet.selection.search import Row, best_row, between, judged, rows_of
from tests.support.selecting import some_slow

FOLDS = KFold(3, shuffle=True, random_state=0)


def paraboloid(n=60, d=2, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.square(X).sum(1) + noise * rng.standard_normal(n)


def wave(n=80, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.standard_normal(n)


def plan_of(score=lambda function, split: 0.0, temperatures=(0.0,), early_stopping=True, **options):
    variants = tuple(map(Variant, temperatures))
    return Plan(ConvexRegressor(), np.zeros((2, 1)), np.zeros(2), score, variants, early_stopping, **options)


NO_SPLIT = Split(np.arange(1), np.arange(1))


def row(alpha, scores, temperature=0.0, n_iter=25):
    return Row(alpha, Variant(temperature), n_iter, np.array(scores), 0.0, 0.0)


@parametrize_with_checks(
    [
        ConvexRegressorCV([0.1, 0.01], cv=2, refinements=0, max_iter=50, n_pieces=("auto", 5)),
        DCRegressorCV([0.1, 0.01], cv=2, refinements=0, max_iter=50, n_pieces="auto", n_estimators=2, max_features=0.7),
        PBDLCV([0.1, 0.01], feature_map=None, cv=2, companion_weight=1.0, n_neighbors=3),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few iterations are enough here
@pytest.mark.filterwarnings("ignore:PBDLCV learned nothing")  # some rows are noise
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# the parts


def test_half_way_to_the_neighbors_in_ratio():
    assert between(0.1, [1.0, 0.1, 0.01]) == pytest.approx([np.sqrt(0.1), np.sqrt(0.001)])
    assert between(1.0, [1.0, 0.1]) == pytest.approx([np.sqrt(10), np.sqrt(0.1)])
    assert between(0.1, [1.0, 0.1]) == pytest.approx([np.sqrt(0.1), 0.1 / np.sqrt(10)])
    assert between(0.1, [0.1]) == []


def test_scores_stay_after_the_last_one():
    track = Track((25, 50), np.array([[1.0], [2.0]]), 50, 0.0, 0.0)
    assert track.at([10, 25, 49, 50, 500])[:, 0].tolist() == [1, 1, 1, 2, 2]


def test_iterations_are_those_best_on_average():
    tracks = [
        Track((25, 50, 75), np.array([[0.1, 0.5], [0.9, 0.4], [0.2, 0.3]]), 75, 0.2, 1.0),
        Track((25, 50), np.array([[0.3, 0.6], [0.4, 0.2]]), 50, 0.4, 3.0),
    ]
    plain, smooth = rows_of(0.01, tracks, plan_of(temperatures=(0.0, 0.1)))
    assert (plain.n_iter, plain.scores.tolist()) == (50, [0.9, 0.4])
    assert (smooth.n_iter, smooth.scores.tolist()) == (25, [0.5, 0.6])
    assert plain.gap == pytest.approx(0.3)
    assert plain.seconds == 2.0


def test_best_row_and_ties():
    rows = [row(0.1, [0.8, 0.8]), row(1.0, [0.7, 0.9], 0.1), row(1.0, [0.7, 0.9]), row(0.01, [0.5, 0.5])]
    assert best_row(rows, False) is rows[2]


def test_one_standard_error_by_hand():
    best = row(0.01, [0.9, 0.8, 1.0])  # mean 0.9, standard error 0.1 / sqrt(3) = 0.0577
    rows = [row(1.0, [0.8, 0.8, 0.8]), row(0.1, [0.85, 0.85, 0.85]), row(0.1, [0.84] * 3, 0.1), best]
    assert best_row(rows, False) is best
    assert best_row(rows, True) is rows[1]


def test_monitor_ends_a_fit_whose_score_does_not_rise():
    scores = iter([0.1, 0.5, 0.5004, 0.4])
    monitor = ScoreMonitor(plan_of(lambda function, split: next(scores)), NO_SPLIT, Member())
    ends = [monitor(Check(i, -i, -i, 0.0), lambda t: None) for i in (50, 100, 180, 201)]
    assert ends == [False, False, False, True]  # 1.5 * 100 + 50
    assert monitor.iterations == [50, 100, 180, 201]


def test_monitor_scores_only_what_is_new():
    seen = []
    monitor = ScoreMonitor(
        plan_of(lambda function, split: seen.append(function) or 0.0, (0.0, 0.1)), NO_SPLIT, Member()
    )
    for iteration, objective in ((25, 1.0), (50, 1.0), (75, 0.5)):
        monitor(Check(iteration, objective, 0.0, 1.0), lambda t, i=iteration: (i, t))
    assert seen == [(25, 0.0), (25, 0.1), (75, 0.0), (75, 0.1)]


def test_fits_that_are_solved_before_the_first_check_are_scored():
    X, _ = paraboloid(30)
    for early_stopping in (True, False):
        options = {"refinements": 0, "early_stopping": early_stopping, "n_pieces": "auto"}
        model = ConvexRegressorCV([0.1, 0.01], cv=FOLDS, **options).fit(X, np.full(30, 2.0))
        assert model.cv_results_["mean_test_score"].tolist() == [1.0] * 4
        np.testing.assert_allclose(model.predict(X), 2.0)


def test_monitor_is_given_divergences_and_functions():
    X, y = load_iris(return_X_y=True)
    seen = []

    class Looks(Monitor):
        def __call__(self, check, learned):
            seen.append((learned(0.0), learned(0.3)))
            return len(seen) == 2

        def finish(self, learned):
            seen.append((learned(0.0), learned(0.3)))

    model = PBDL(0.01, n_pieces=6, temperature=0.0, tol=1e-3, random_state=0)._fit_monitored(X, y, Looks())
    assert model.result_.stopped
    assert len(seen) == 3
    sharp, smooth = seen[-1]
    np.testing.assert_array_equal(sharp.pairwise(X), model.divergence_.pairwise(X))
    last = model.n_iter_
    again = PBDL(0.01, temperature=0.3, callback=lambda check: check.iteration >= last, n_pieces=6, tol=1e-3)
    again.set_params(random_state=0).fit(X, y)
    np.testing.assert_array_equal(smooth.pairwise(X), again.divergence_.pairwise(X))


# against plain loops


def standard_objective(function, X, y, alpha):
    """Objective of convex regression for unit-variance features and targets, by its definition."""
    slopes = function.slopes * X.std(0) / y.std()
    return np.mean((function(X) - y) ** 2) / y.var() + alpha * np.abs(slopes).max(0).sum()


def test_path_is_as_good_as_cold_fits_within_their_gaps():
    X, y = paraboloid()
    alphas = [0.3, 0.1, 0.03, 0.01]
    split = Split(np.arange(len(X)), np.arange(0))
    at = iter(alphas)
    plan = Plan(
        ConvexRegressor(),
        X,
        y,
        lambda function, _: standard_objective(function, X, y, next(at)),
        (Variant(0.0),),
        False,
    )
    for alpha, track in zip(alphas, scored_fits(plan, split, alphas), strict=True):
        cold = ConvexRegressor(alpha).fit(X, y).result_
        warm = track.scores[-1, 0]
        assert track.gap <= 0.01
        assert warm >= cold.dual_bound * (1 - 1e-9)
        assert warm * (1 - track.gap) <= cold.objective * (1 + 1e-9)


@pytest.mark.parametrize(
    ("search", "estimator", "data"),
    [(ConvexRegressorCV, ConvexRegressor, paraboloid()), (DCRegressorCV, DCRegressor, wave())],
)
def test_chosen_alpha_is_that_of_a_plain_loop(search, estimator, data):
    X, y = data
    alphas = [1.0, 0.1, 0.01, 0.0003]
    means = []
    for alpha in alphas:
        fits = [(estimator(alpha).fit(X[train], y[train]), test) for train, test in FOLDS.split(X)]
        means.append(np.mean([r2_score(y[test], fit.predict(X[test])) for fit, test in fits]))
    options = {"refinements": 0, "temperatures": [0.0], "early_stopping": False, "n_pieces": "auto"}
    model = search(alphas, cv=FOLDS, **options).fit(X, y)
    assert model.alpha_ == alphas[int(np.argmax(means))]
    assert model.cv_results_["mean_test_score"] == pytest.approx(means, abs=0.01)
    assert model.best_score_ == max(model.cv_results_["mean_test_score"])
    assert model.gap_ <= 0.01
    assert model.best_estimator_.alpha == model.alpha_


@pytest.mark.parametrize("gallery", ["unseen", "train"])
@pytest.mark.parametrize("scoring", ["accuracy", "map", "auc"])
def test_divergences_are_scored_as_by_hand(scoring, gallery):
    X, y = load_wine(return_X_y=True)
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    options = {"n_pieces": 8, "random_state": 0}
    search = PBDLCV(
        [0.1, 0.01],
        feature_map=None,
        cv=folds,
        temperatures=[0.3],
        scoring=scoring,
        companion=None,
        n_neighbors=5,
        gallery=gallery,
        **options,
    ).fit(X, y)
    scores = []
    for train, test in folds.split(X, y):
        learner = PBDL(0.1, temperature=0.3, **options).fit(X[train], y[train])  # the path starts with it
        items = train if gallery == "train" else test
        queries = [(row, items[items != row]) for row in test]  # a row does not find itself
        found = []
        for row, others in queries:
            D = learner.divergence_.pairwise(X[[row]], X[others])
            if scoring == "accuracy":
                neighbors = KNeighborsClassifier(5, metric="precomputed").fit(np.zeros((len(others),) * 2), y[others])
                found.append(neighbors.score(D, y[[row]]))
            else:
                metric = mean_average_precision if scoring == "map" else retrieval_auc
                found.append(metric(D, y[[row], None] == y[others]))
        scores.append(np.mean(found))
    assert search.cv_results_["param_alpha"].tolist() == [0.1, 0.01]
    found = [search.cv_results_[f"split{fold}_test_score"][0] for fold in range(2)]
    assert found == pytest.approx(scores)


def same_results(one, other):
    for name, values in one.cv_results_.items():
        if name not in ("params", "mean_fit_time"):
            np.testing.assert_array_equal(values, other.cv_results_[name], err_msg=name)
    assert one.alpha_ == other.alpha_


@pytest.mark.parametrize("early_stopping", some_slow([True, False], always=[True]))
def test_results_do_not_depend_on_the_number_of_jobs(early_stopping):
    X, y = wave()
    options = {"early_stopping": early_stopping, "refinements": 1, "ensemble": True, "random_state": 0}
    search = DCRegressorCV([0.1, 0.01], cv=FOLDS, **options)
    alone = clone(search).fit(X, y)
    together = clone(search).set_params(n_jobs=2).fit(X, y)
    same_results(alone, together)
    np.testing.assert_array_equal(alone.predict(X), together.predict(X))


def test_threads_give_the_same_and_leave_torchs_setting_alone():
    X, y = load_iris(return_X_y=True)
    search = PBDLCV([0.1, 0.01], feature_map=None, cv=3, refinements=0, n_pieces=6, random_state=0)
    alone = clone(search).fit(X, y)
    before = torch.get_num_threads()
    with parallel_config("threading"):
        same_results(alone, clone(search).set_params(n_jobs=2).fit(X, y))
    assert torch.get_num_threads() == before


# what the searches do


def test_refinements_go_around_the_best_and_end_when_they_do_not_help():
    X, y = wave()
    options = {"refinements": 5, "temperatures": [0.0], "n_pieces": "auto"}
    model = DCRegressorCV([1.0, 0.01], cv=FOLDS, **options).fit(X, y)
    tried = model.cv_results_["param_alpha"]
    assert 2 < len(tried) < 12
    assert sorted(tried, reverse=True) == tried.tolist()
    assert 0.1 in np.round(tried, 12)
    assert model.n_fits_ == 3 * len(tried)
    assert model.cv_results_["rank_test_score"][model.best_index_] == 1


def test_early_stopping_ends_the_last_fit_without_a_warning():
    X, y = paraboloid(100, 4, noise=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = ConvexRegressorCV([0.001], cv=FOLDS, temperatures=[0.0], n_pieces="auto").fit(X, y)
    assert model.n_iter_ == model.cv_results_["n_iter"][0]
    assert model.result_.status.startswith("stopped early")
    longer = ConvexRegressor(0.001).fit(X, y)
    assert model.n_iter_ < longer.n_iter_
    test, truth = paraboloid(500, 4, noise=0.0, seed=1)
    assert model.score(test, truth) > longer.score(test, truth)  # it is what helps against noise


def test_fit_that_runs_out_of_iterations_says_so():
    X, y = wave()
    search = DCRegressorCV([0.001], cv=FOLDS, early_stopping=False, max_iter=30)
    with pytest.warns(ConvergenceWarning, match=r"DCRegressorCV: the fit with the best alpha not converged"):
        search.fit(X, y)


def test_ensemble_is_the_mean_of_all_rows_and_folds():
    X, y = wave()
    options = {"early_stopping": False, "temperatures": [0.0], "n_pieces": "auto"}
    model = DCRegressorCV([0.01], cv=FOLDS, **options, ensemble=True).fit(X, y)
    folds = [DCRegressor(0.01).fit(X[train], y[train]).predict(X) for train, _ in FOLDS.split(X)]
    expected = (DCRegressor(0.01).fit(X, y).predict(X) + np.mean(folds, 0)) / 2
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9, atol=1e-9)
    at = torch.as_tensor(X)
    np.testing.assert_allclose(model.predict(at).numpy(), expected, rtol=1e-9, atol=1e-9)


def test_members_are_scored_and_predict_by_their_mean():
    X, y = wave()
    X = np.column_stack([X, np.random.default_rng(1).standard_normal(len(X))])
    options = {"n_pieces": 12, "clip": True}
    search = DCRegressorCV(
        [0.01], cv=FOLDS, early_stopping=False, temperatures=[0.1], n_estimators=3, max_features=2, **options
    )
    model = search.set_params(random_state=5).fit(X, y)
    members = drawn(3, 2, 3, 5)
    assert members[0].seed == 5
    assert len({member.seed for member in members}) == 3
    assert {len(member.columns) for member in members} == {2}

    def plain(train):
        fits = []
        for seed, columns in members:
            one = DCRegressor(0.01, temperature=0.1, random_state=seed, **options)
            fits.append((one.fit(X[train][:, columns], y[train]), columns))
        return fits

    def mean(fits, rows):
        values = np.mean([fit.function_(X[rows][:, columns]) for fit, columns in fits], axis=0)
        return values.clip(*fits[0][0].target_range_)

    for number, (train, test) in enumerate(FOLDS.split(X)):
        found = model.cv_results_[f"split{number}_test_score"][0]
        # a fit may scale its function once more at its end, in double precision
        assert found == pytest.approx(r2_score(y[test], mean(plain(train), test)), abs=1e-7)
    everything = plain(slice(None))
    np.testing.assert_allclose(model.predict(X), mean(everything, slice(None)), atol=1e-9)
    assert model.gap_ == max(fit.gap_ for fit, _ in everything)
    bounds = np.zeros(3)
    for fit, columns in everything:
        bounds[columns] += fit.feature_bounds_ / 3
    np.testing.assert_allclose(model.feature_bounds_, bounds)
    assert model.n_fits_ == 9


def test_members_that_have_ended_stay_as_they_were():
    plan = plan_of(lambda function, split: float(function(np.zeros((1, 1)))[0]), members=(Member(), Member(1)))
    fits = []
    for moments, values in (((25, 50), (1.0, 2.0)), ((50, 75, 100), (10.0, 20.0, 30.0))):
        monitor = ScoreMonitor(plan, NO_SPLIT, Member())
        for moment, value in zip(moments, values, strict=True):
            monitor(Check(moment, -moment, -moment, 0.0), lambda temperature, value=value: MaxAffine([[0.0]], [value]))
        scores = np.array(monitor.scores)
        fits.append((Track(moments, scores, moments[-1], 0.01 * moments[0], 2.0), monitor))
    joined = _joined(plan, NO_SPLIT, fits)
    assert joined.iterations == (25, 50, 75, 100)
    assert joined.scores[:, 0].tolist() == [5.5, 6.0, 11.0, 16.0]
    assert (joined.n_iter, joined.gap, joined.seconds) == (100, 0.5, 4.0)


def test_a_member_alone_does_not_use_the_other_features():
    X, y = paraboloid(40, 3)
    model = ConvexRegressorCV([0.01], cv=FOLDS, max_features=0.4, random_state=0).fit(X, y)
    (member,) = drawn(1, 1, 3, 0)
    assert np.flatnonzero(model.feature_bounds_).tolist() == member.columns.tolist()
    assert model.predict(X).shape == (40,)
    assert model.function_.n_features == 3


def test_signs_go_with_the_features_of_members():
    X, y = paraboloid(40, 3)
    signs = [1, -1, 0]
    search = ConvexRegressorCV([0.01], cv=FOLDS, temperatures=[0.0], monotone=signs, random_state=0)
    model = search.set_params(n_estimators=4, max_features=2).fit(X, y)
    slopes = model.function_.gradient(np.random.default_rng(0).uniform(-1, 1, (200, 3)))
    assert (slopes[:, 0] >= -1e-12).all()
    assert (slopes[:, 1] <= 1e-12).all()
    assert (slopes[:, 2] < 0).any()
    assert (slopes[:, 2] > 0).any()
    with pytest.raises(ValueError, match="monotone must have one entry for each of 3 features"):
        search.set_params(monotone=[1, 1]).fit(X, y)


def test_members_that_would_be_the_same_are_fitted_once():
    X, y = wave()
    options = {"cv": FOLDS, "refinements": 0, "n_pieces": "auto", "random_state": 0}
    one, several = (DCRegressorCV([0.1, 0.01], n_estimators=n, **options).fit(X, y) for n in (1, 5))
    assert one.n_fits_ == several.n_fits_ == 6
    np.testing.assert_array_equal(one.predict(X), several.predict(X))
    assert DCRegressorCV([0.1], n_estimators=5, max_features=1, **options).fit(X, y).n_fits_ == 15
    assert DCRegressorCV([0.1], n_estimators=5, **options | {"n_pieces": 9}).fit(X, y).n_fits_ == 15
    assert DCRegressorCV([0.1], n_estimators=5, **options | {"n_pieces": ["auto", 9]}).fit(X, y).n_fits_ == 3 + 15


@pytest.mark.parametrize("search", [ConvexRegressorCV, DCRegressorCV])
def test_means_are_saved_and_their_best_estimator_is_a_plain_one(search, tmp_path):
    X, y = paraboloid(50, 4)
    options = {"monotone": [1, -1, 0, 0]} if search is ConvexRegressorCV else {}
    model = search([0.1], cv=FOLDS, n_pieces=8, n_estimators=3, max_features=2, random_state=0, **options).fit(X, y)
    save(model, tmp_path / "model")
    np.testing.assert_allclose(load(tmp_path / "model").predict(X), model.predict(X))
    best = clone(model.best_estimator_).fit(X, y)
    assert best.n_features_in_ == model.best_estimator_.n_features_in_ == 4
    assert model.best_estimator_.gap_ == model.gap_
    assert np.flatnonzero(model.best_estimator_.feature_bounds_).size <= 2


def test_members_do_not_depend_on_the_number_of_jobs():
    X, y = wave()
    search = DCRegressorCV([0.1, 0.01], cv=FOLDS, refinements=0, n_estimators=2, max_features=1, random_state=0)
    search.set_params(n_pieces=20, ensemble=True)
    alone = clone(search).fit(X, y)
    together = clone(search).set_params(n_jobs=2).fit(X, y)
    same_results(alone, together)
    np.testing.assert_array_equal(alone.predict(X), together.predict(X))
    assert alone.n_iter_ == together.n_iter_


def test_temperature_is_chosen_where_it_helps():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 1))
    y = np.square(X[:, 0])
    search = ConvexRegressorCV([0.01], cv=FOLDS, early_stopping=False, n_pieces=3, random_state=0)
    model = clone(search).set_params(temperatures=[0.0, 0.1, 10.0]).fit(X, y)
    assert model.temperature_ == 0.1
    assert model.best_estimator_.function_.temperature == pytest.approx(0.1 * y.std())
    plain = clone(search).set_params(temperatures=[0.0]).fit(X, y)
    new = np.linspace(-1, 1, 201)[:, None]
    assert model.score(new, np.square(new[:, 0])) > plain.score(new, np.square(new[:, 0]))


def test_groups_reach_the_splitter():
    X, y = paraboloid(30)
    groups = np.arange(30) % 3
    model = ConvexRegressorCV([0.1], cv=GroupKFold(3)).fit(X, y, groups=groups)
    given = [(np.flatnonzero(groups != g), np.flatnonzero(groups == g)) for g in range(3)]
    other = ConvexRegressorCV([0.1], cv=given).fit(X, y)
    assert sorted(model.cv_results_[f"split{i}_test_score"][0] for i in range(3)) == pytest.approx(
        sorted(other.cv_results_[f"split{i}_test_score"][0] for i in range(3))
    )


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_other_scores_choose_alike_in_any_unit(unit):
    X, y = wave()
    options = {"refinements": 0, "scoring": "neg_mean_squared_error", "n_pieces": "auto"}
    search = DCRegressorCV([0.01, 0.001], cv=FOLDS, **options)
    model, expected = clone(search).fit(X, unit * y), clone(search).fit(X, y)
    assert model.alpha_ == expected.alpha_
    assert model.n_iter_ == expected.n_iter_
    assert model.best_score_ == pytest.approx(unit**2 * expected.best_score_, rel=1e-3)


def test_scores_that_are_not_numbers_come_last():
    X, y = paraboloid()

    def broken(model, X, y):  # a larger alpha has a flatter function
        values = model.predict(X)
        return np.nan if np.ptp(values) < 0.75 * np.ptp(y) else model.score(X, y)

    search = ConvexRegressorCV([0.1, 0.01], cv=FOLDS, refinements=0, scoring=broken, n_pieces="auto")
    with pytest.warns(UserWarning, match="scores that are not numbers"):
        model = search.fit(X, y)
    assert model.alpha_ == 0.01
    assert model.cv_results_["rank_test_score"].tolist()[:2] == [3, 3]
    with pytest.raises(ValueError, match="scoring must give a number for some alpha"):
        ConvexRegressorCV([0.1], cv=FOLDS, scoring=lambda *_: np.nan, max_iter=30).fit(X, y)


@pytest.mark.parametrize("kind", [ConvexRegressorCV, DCRegressorCV])
@pytest.mark.parametrize("name", ["X", "y"])
def test_the_array_whose_errors_overflow_is_named(kind, name):
    X, y = paraboloid(30)
    (X[:, 0] if name == "X" else y)[-1] = 1e300
    search = kind([0.1], cv=2, refinements=0, max_iter=30, n_pieces=5)
    message = f"{name} must not have values so far apart that errors overflow, got values from .* to 1e\\+300"
    with pytest.raises(ValueError, match=message):
        search.fit(X, y)


def test_an_infinite_prediction_has_no_score():
    X, y = paraboloid(30)
    X[-1, 0] = np.finfo(float).max
    with pytest.raises(ValueError, match=r"X must not have values so far apart .* to 1\.8e\+308 and no score in fold"):
        ConvexRegressorCV([0.1], cv=2, refinements=0, max_iter=30, n_pieces=5).fit(X, y)


def test_the_accuracy_of_huge_features_is_that_of_ordinary_ones():
    X, y = overlapping(60)
    search = PBDLCV([0.03], cv=2, companion=None, feature_map=None, scoring="accuracy", n_pieces=20, random_state=0)
    ordinary = search.fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(search.fit(2.0**600 * X, y).cv_results_["mean_test_score"], ordinary)


def test_divergences_that_nearly_overflow_do_not_let_a_row_find_itself():
    def learned(temperature, only=None):
        return SimpleNamespace(pairwise=lambda Q, X: np.full((len(Q), len(X)), 1e305))

    variant = Variant(0.0, companion="euclid", companion_weight=1e10, n_neighbors=1)
    score = RetrievalScores("accuracy", "unseen", (variant,), np.arange(4.0)[:, None], np.arange(4), None, 0)
    assert score(learned, Split(np.arange(0), np.arange(4))) == [0.0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scores_whose_squares_overflow_have_an_infinite_deviation():
    X, y = paraboloid(30)
    y = np.where(np.arange(30) < 15, 1e-5, 1e100) * y
    search = ConvexRegressorCV([0.1], cv=2, refinements=0, n_pieces=5, one_standard_error=True, max_iter=30)
    assert search.fit(X, y).cv_results_["std_test_score"].tolist() == [np.inf, np.inf]


def test_infinite_and_masked_groups_are_refused():
    X, y = paraboloid(30)
    search, first = ConvexRegressorCV([0.1], cv=GroupKFold(2)), np.arange(30) < 15
    with pytest.raises(ValueError, match="Input groups contains infinity"):
        search.fit(X, y, groups=np.where(first, -np.inf, np.inf))
    with pytest.raises(ValueError, match="groups must not have masked entries, got 15"):
        search.fit(X, y, groups=np.ma.MaskedArray(np.arange(30) // 10, mask=first))


def test_more_pieces_than_rows_of_a_fold():
    X, y = paraboloid(30)
    model = ConvexRegressorCV([0.1], cv=FOLDS, n_pieces=25, random_state=0).fit(X, y)
    assert 10 < model.best_estimator_.function_.n_pieces <= 25


def test_random_state_that_is_a_generator_gives_one_seed():
    X, y = paraboloid(50)
    search = ConvexRegressorCV([0.1, 0.01], cv=FOLDS, n_pieces=5, refinements=0)
    one = clone(search).set_params(random_state=np.random.RandomState(3)).fit(X, y)
    other = clone(search).set_params(random_state=np.random.RandomState(3), n_jobs=2).fit(X, y)
    same_results(one, other)


def test_search_is_a_learner_for_neighbors():
    X, y = load_iris(return_X_y=True)
    learner = PBDLCV([0.1, 0.01], feature_map=None, cv=3, refinements=0, scoring="accuracy", n_pieces=6, random_state=0)
    model = BregmanKNeighborsClassifier(learner).fit(X[::2], y[::2])
    assert model.learner_.alpha_ in (0.1, 0.01)
    assert model.score(X[1::2], y[1::2]) > 0.9


def test_monotone_is_kept():
    X, y = paraboloid()
    model = ConvexRegressorCV([0.01], cv=FOLDS, monotone=1, temperatures=[0.0]).fit(X, y)
    assert (model.function_.slopes >= -1e-12).all()


def test_score_that_still_rises_at_the_last_iteration_gives_a_warning():
    X, y = wave(noise=0.0)
    search = DCRegressorCV([0.001], cv=FOLDS, temperatures=[0.0], max_iter=5)
    with pytest.warns(ConvergenceWarning, match="the score was still rising after 5 iterations; raise max_iter"):
        search.fit(X, y)


def test_threads_leave_the_filters_of_warnings_alone():
    X, y = wave()
    before = list(warnings.filters)
    search = DCRegressorCV([0.01, 0.001], cv=FOLDS, refinements=0, early_stopping=False, max_iter=30, n_jobs=2)
    with parallel_config("threading"), pytest.warns(ConvergenceWarning, match="DCRegressorCV: the fit with the best"):
        search.fit(X, y)
    assert list(warnings.filters) == before


def test_no_random_state_is_one_seed_for_all():
    X, y = paraboloid(50)
    search = ConvexRegressorCV([0.1, 0.01], cv=FOLDS, n_pieces=5, refinements=0)
    found = []
    for n_jobs in (1, 2):
        np.random.seed(7)  # noqa: NPY002
        found.append(clone(search).set_params(n_jobs=n_jobs).fit(X, y))
    same_results(*found)


def test_frames_keep_their_names():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = PBDLCV([0.1], feature_map=None, cv=2, n_pieces=6, random_state=0, tol=0.1).fit(X, y)
    assert model.best_estimator_.feature_names_in_.tolist() == list(X.columns)
    assert model.score(X, y) == pytest.approx(model.best_estimator_.score(X, y))
    assert model.is_similar(X[:1], X[1:2]).tolist() == [True]
    assert model.pair_distance(X[:1], X[1:2]) <= model.threshold_


def test_masks_are_splits_too():
    X, y = paraboloid(40)
    mask = np.arange(40) < 30
    options = {"n_pieces": 35, "ensemble": True, "random_state": 0}
    masked = ConvexRegressorCV([0.1], cv=[(mask, ~mask)], **options).fit(X, y)
    numbered = ConvexRegressorCV([0.1], cv=[(np.flatnonzero(mask), np.flatnonzero(~mask))], **options).fit(X, y)
    same_results(masked, numbered)


def test_progress_tells_round_and_best(capsys):
    X, y = paraboloid(30)
    ConvexRegressorCV([0.1, 0.01], cv=FOLDS, refinements=1, verbose=1).fit(X, y)
    shown = capsys.readouterr().err
    assert "round 1 of at most 2" in shown
    assert "best alpha" in shown


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alphas": []}, ValueError, "alphas must hold at least one number"),
        ({"alphas": [0.1, -1.0]}, ValueError, r"each of alphas must be positive and finite, got -1\.0"),
        ({"alphas": "abc"}, TypeError, "alphas must be a sequence of numbers"),
        ({"alphas": 0.1}, TypeError, r"alphas must be a sequence of numbers, got 0\.1"),
        ({"temperatures": [-0.1]}, ValueError, r"each of temperatures must be at least 0"),
        ({"refinements": -1}, ValueError, "refinements must be at least 0, got -1"),
        ({"early_stopping": "yes"}, TypeError, "early_stopping must be True or False"),
        ({"one_standard_error": 1}, TypeError, "one_standard_error must be True or False"),
        ({"ensemble": None}, TypeError, "ensemble must be True or False"),
        ({"n_estimators": 0}, ValueError, "n_estimators must be at least 1, got 0"),
        (
            {"max_features": 0.0},
            ValueError,
            r"max_features must be above 0 and at most 1\.0, .* got 0\.0",
        ),
        (
            {"max_features": 3},
            ValueError,
            "at most the number of features, 2, got 3",
        ),
        ({"max_features": "half"}, TypeError, "max_features must be a share or a number of features, got 'half'"),
        ({"scoring": "loud"}, ValueError, "loud"),
        ({"n_pieces": 1000}, ValueError, "n_pieces must be at most the number of rows"),
        ({"n_pieces": []}, ValueError, "n_pieces must be one choice or a list with some, got an empty one"),
        ({"n_pieces": ["auto", "many"]}, ValueError, "n_pieces must be 'auto', None or an integer, got 'many'"),
        ({"n_pieces": [5, 0]}, ValueError, "n_pieces must be at least 1, got 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"cv": "ten"}, ValueError, "cv"),
        ({"cv": []}, ValueError, "cv must give at least one split"),
        ({"cv": [([0, 1], [])]}, ValueError, "cv must give row numbers for both parts"),
        ({"cv": [([0, 1], [30])]}, ValueError, "cv must give row numbers below 30, got 30 to 30 in fold 0"),
        ({"n_jobs": 1.5}, TypeError, r"n_jobs must be None or an integer, got 1\.5"),
        ({"n_jobs": 0}, ValueError, "n_jobs must not be 0"),
        ({"alphas": np.array(0.1)}, TypeError, "alphas must be a sequence of numbers"),
        ({"scoring": lambda *_: None}, TypeError, "scoring must give a number, got None"),
    ],
)
def test_bad_parameters(options, error, message):
    X, y = paraboloid(30)
    with pytest.raises(error, match=message):
        DCRegressorCV(**{"alphas": [0.1], "cv": 2, **options}).fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scoring": "precision"}, "scoring must be one of 'map', 'accuracy', 'auc', got 'precision'"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"cv": [(np.arange(50), np.arange(50, 150))]}, "cv must leave at least 2 classes in the training part"),
        ({"cv": KFold(3)}, "cv must leave 2 classes, and 2 rows of one, in the test part, got 1 of up to 50 in fold 0"),
        ({"cv": KFold(3), "gallery": "train"}, "cv must leave a class of the test part in the training part, got none"),
        ({"gallery": "all"}, "gallery must be one of 'unseen', 'train', got 'all'"),
    ],
)
def test_bad_parameters_of_divergences(options, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        PBDLCV(**{"alphas": [0.1], "cv": 2, **options}).fit(X, y)


@pytest.mark.parametrize("search", [ConvexRegressorCV, DCRegressorCV])
def test_weights_of_rows_are_copies_of_them(search):
    X, y = paraboloid(45)
    weights = np.random.default_rng(1).integers(0, 3, len(X))
    rows = np.repeat(np.arange(len(X)), weights)
    folds = [(np.arange(15, 45), np.arange(15)), (np.arange(30), np.arange(30, 45))]
    copies = [tuple(np.flatnonzero(np.isin(rows, part)) for part in fold) for fold in folds]
    options = {"alphas": [0.1, 0.01], "n_pieces": "auto"}  # cells are drawn, from rows or from copies
    weighted = search(**options, cv=folds).fit(X, y, sample_weight=weights)
    copied = search(**options, cv=copies).fit(X[rows], y[rows])
    for name in ("mean_test_score", "std_test_score"):
        np.testing.assert_allclose(weighted.cv_results_[name], copied.cv_results_[name], atol=1e-4)
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X), atol=1e-3)


def test_weights_count_in_scores_of_retrieval():
    X, y = overlapping(60)
    weights = np.random.default_rng(0).integers(0, 3, 60).astype(float)
    folds = list(StratifiedKFold(2).split(X, y))
    options = {"temperatures": [0.2], "companion": None, "n_pieces": None, "tol": 0.01}
    search = PBDLCV([0.03], feature_map=None, cv=folds, **options).fit(X, y, sample_weight=weights)
    for number, (train, test) in enumerate(folds):
        learner = PBDL(0.03, temperature=0.2, n_pieces=None, tol=0.01)
        learner.fit(X[train], y[train], sample_weight=weights[train])
        counted = test[weights[test] > 0]
        each = retrieval_scores(learner.divergence_, X[counted], y[counted])["map"]
        expected = np.average(each, weights=weights[counted])
        assert search.cv_results_[f"split{number}_test_score"][0] == pytest.approx(expected)


# what divergences are scored with


def overlapping(n=150, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.standard_normal((n, 4)) + np.eye(3, 4)[y] * 1.5, y


def test_variants_are_scored_as_fits_with_their_parameters():
    X, y = overlapping()
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    options = {"n_pieces": 9, "random_state": 0}
    search = PBDLCV(
        [0.03],
        feature_map=None,
        cv=folds,
        temperatures=[0.0, 0.3],
        companion_weight=[0.5, 20.0],
        scoring="map",
        **options,
    )
    results = search.fit(X, y).cv_results_
    assert len(results["params"]) == 2 * (1 + 2 * 2)
    for number, params in enumerate(results["params"]):
        given = {name: value for name, value in params.items() if name != "n_neighbors"}
        for fold, (train, test) in enumerate(folds.split(X, y)):
            score = PBDL(**given, **options).fit(X[train], y[train]).score(X[test], y[test])
            assert results[f"split{fold}_test_score"][number] == pytest.approx(score, abs=1e-9)
    assert search.best_params_ == results["params"][search.best_index_]
    assert search.companion_ == search.best_params_["companion"]
    assert search.n_neighbors_ is None


def test_with_a_large_weight_neighbors_are_those_of_the_companion():
    X, y = overlapping()
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = PBDLCV(
        [0.03],
        feature_map=None,
        cv=folds,
        scoring="accuracy",
        gallery="train",
        n_neighbors=[1, 5, 9],
        companion="euclid",
        companion_weight=1e6,
        temperatures=[0.3],
        random_state=0,
    ).fit(X, y)
    for number, k in enumerate((1, 5, 9)):
        for fold, (train, test) in enumerate(folds.split(X, y)):
            scale = X[train].std(0)
            euclid = KNeighborsClassifier(k).fit(X[train] / scale, y[train])
            score = search.cv_results_[f"split{fold}_test_score"][number]
            assert score == pytest.approx(
                euclid.score(X[test] / scale, y[test]), abs=0.021
            )  # one row, at a tie of votes


def test_classifiers_take_up_what_was_chosen():
    X, y = overlapping()
    search = PBDLCV(
        [0.03], feature_map=None, cv=2, scoring="accuracy", n_neighbors=[7, 9], companion=None, random_state=0
    )
    model = BregmanKNeighborsClassifier(search).fit(X, y)
    assert model.learner_.n_neighbors_ in (7, 9)
    assert model.kneighbors(X[:2])[1].shape == (2, model.learner_.n_neighbors_)
    assert BregmanKNeighborsClassifier(search, 4).fit(X, y).kneighbors(X[:2])[1].shape == (2, 4)
    assert BregmanKNeighborsClassifier().fit(X, y).kneighbors(X[:2])[1].shape == (2, 5)


def test_other_parameters_are_axes_of_the_grid(tmp_path):
    X, y = overlapping(60)
    grid = {"n_pieces": [6, 20], "strictness": [0.0, 1.0]}
    model = PBDLCV(
        [0.1, 0.01], feature_map=None, cv=2, companion=None, temperatures=[0.2], grid=grid, random_state=0
    ).fit(X, y)
    assert model.n_fits_ == 2 * 2 * 4
    assert len(model.cv_results_["params"]) == 8
    assert model.best_estimator_.n_pieces == model.best_params_["n_pieces"] in (6, 20)
    alone = PBDLCV(
        [0.1, 0.01],
        feature_map=None,
        cv=2,
        companion=None,
        temperatures=[0.2],
        n_pieces=20,
        strictness=1.0,
        random_state=0,
    )
    expected = alone.fit(X, y).cv_results_["mean_test_score"]
    at = (model.cv_results_["param_n_pieces"] == 20) & (model.cv_results_["param_strictness"] == 1.0)
    np.testing.assert_allclose(model.cv_results_["mean_test_score"][at], expected)
    save(model, tmp_path / "model")
    assert load(tmp_path / "model").best_params_ == model.best_params_
    with pytest.raises(ValueError, match="grid must be a dict of parameters out of"):
        PBDLCV(grid={"alpha": [0.1]}).fit(X, y)


@pytest.mark.parametrize("search", [ConvexRegressorCV, DCRegressorCV])
def test_the_number_of_pieces_is_chosen_by_the_score(search, tmp_path):
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (90, 2))
    options = {"cv": FOLDS, "refinements": 1, "temperatures": [0.0], "random_state": 0}
    curved = search([0.01], n_pieces=["auto", 1], **options).fit(X, np.square(X).sum(1))
    assert curved.n_pieces_ == curved.best_params_["n_pieces"] == "auto"
    # of a plane with noise, a single piece says all
    noisy = X[:, 0] + random.standard_normal(90)
    plane = search([0.001], n_pieces=("auto", 1), **options).fit(X, noisy)
    assert plane.n_pieces_ == plane.best_estimator_.n_pieces == 1
    alone = search([0.001], n_pieces=1, **options).fit(X, noisy)
    of_one = plane.cv_results_["param_n_pieces"] == 1
    np.testing.assert_array_equal(plane.cv_results_["mean_test_score"][of_one], alone.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(plane.predict(X), alone.predict(X))
    save(plane, tmp_path / "model")
    assert load(tmp_path / "model").n_pieces_ == 1
    assert load(tmp_path / "model").best_params_ == plane.best_params_


def test_a_class_of_one_row_does_not_change_how_much_is_held_out():
    X, y = load_iris(return_X_y=True)
    X, y = np.vstack([X[::5], X[0] + 9]), np.append(y[::5], 7)
    model = PBDLCV([0.1], temperatures=[0.2], companion=None, feature_map=None, random_state=0)
    splits = checked_splits(model._folds(y), X, y, None, classifier=True)
    assert [len(test) for _, test in splits] == [13] * 5  # 40% of 31
    for _, test in splits:
        assert sorted(np.bincount(y[test])[:3]) in ([4, 4, 4], [4, 4, 5])
    assert model.fit(X, y).best_score_ > 0.9


def test_a_cell_is_judged_with_its_neighbors():
    def cell(alpha, n_neighbors, score):
        return Row(alpha, Variant(0.2, None, 1.0, n_neighbors), 25, np.array([score]), 0.0, 0.0)

    scores = {
        (1.0, 1): 0.1,
        (1.0, 3): 0.1,
        (0.1, 1): 0.9,
        (0.1, 3): 0.1,
        (0.01, 1): 0.6,
        (0.01, 3): 0.7,
        (0.001, 1): 0.6,
    }
    rows = judged([cell(alpha, k, score) for (alpha, k), score in scores.items()])
    found = {(row.alpha, row.variant.n_neighbors): row.judged for row in rows}
    assert found[1.0, 3] == pytest.approx(np.mean([0.1, 0.1, 0.9, 0.1]))
    assert found[0.01, 3] == pytest.approx(np.mean([0.9, 0.1, 0.6, 0.7, 0.6]))
    assert best_row(rows, False).alpha == 0.001  # 0.6, 0.6, 0.7: better than any that is near the failures


def test_divergences_are_not_chosen_by_what_they_remember():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 6)), np.arange(80) % 2  # nothing to learn
    options = {"alphas": [0.001], "cv": 2, "temperatures": [0.0], "companion": None, "random_state": 0}
    assert PBDLCV(**options).fit(X, y).best_score_ < 0.6


def test_folds_for_known_items_are_shuffled():
    X, y = load_iris(return_X_y=True)
    order = np.argsort(X[:, 0], kind="stable")  # as files often are
    options = {"n_pieces": 6, "tol": 0.5, "feature_map": None, "companion": None, "random_state": 0}
    own = PBDLCV([0.1], gallery="train", **options).fit(X[order], y[order])
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    same = PBDLCV([0.1], gallery="train", cv=folds, **options).fit(X[order], y[order])
    np.testing.assert_array_equal(own.cv_results_["split2_test_score"], same.cv_results_["split2_test_score"])


@pytest.mark.filterwarnings("ignore:PBDLCV learned nothing")
def test_classes_of_three_rows_are_enough_and_groups_are_not_ignored_in_silence():
    X = np.random.default_rng(0).standard_normal((42, 3))
    options = {"n_pieces": 28, "tol": 0.5, "feature_map": None, "companion": None, "random_state": 0}
    search = PBDLCV([0.1], gallery="train", **options).fit(X, np.repeat(np.arange(14), 3))
    assert search.n_splits_ == 3
    with pytest.warns(UserWarning, match="groups parameter is ignored"):
        PBDLCV([0.1], **options | {"n_pieces": 4}).fit(X, np.arange(42) % 2, groups=np.arange(42) // 4)


def test_a_number_of_neighbors_is_taken_from_the_end_of_a_pipeline_or_a_search():
    X, y = overlapping()
    options = {"feature_map": None, "cv": 2, "scoring": "accuracy", "n_neighbors": 9, "companion": None}
    pipeline = make_pipeline(StandardScaler(), PBDLCV([0.03], n_pieces=12, random_state=0, **options))
    search = GridSearchCV(pipeline, {"pbdlcv__strictness": [0.0]}, cv=StratifiedKFold(2))
    for learner in (pipeline, search):
        assert BregmanKNeighborsClassifier(learner).fit(X, y).kneighbors(X[:2])[1].shape == (2, 9)


def test_a_search_that_learned_nothing_says_so():
    X, y = make_circles(200, noise=0.05, factor=0.4, random_state=0)
    search = PBDLCV([0.1], cv=2, feature_map=None, companion=None, random_state=0)
    with pytest.warns(UserWarning, match=r"PBDLCV learned nothing: .* alpha=0\.1, .* map the features"):
        search.fit(X, y)


@pytest.mark.parametrize("gallery", ["unseen", "train"])
@pytest.mark.parametrize("scoring", ["map", "accuracy"])
def test_rows_of_weight_zero_are_as_good_as_absent(gallery, scoring):
    X, y = overlapping(60)
    weights = np.random.default_rng(0).integers(0, 2, 60).astype(float)
    rows = np.flatnonzero(weights)
    folds = list(StratifiedKFold(2).split(X, y))
    fewer = [tuple(np.flatnonzero(np.isin(rows, part)) for part in fold) for fold in folds]
    options = {"feature_map": None, "gallery": gallery, "scoring": scoring, "n_pieces": None, "random_state": 0}
    search = PBDLCV([0.03], cv=folds, **options).fit(X, y, sample_weight=weights)
    absent = PBDLCV([0.03], cv=fewer, **options).fit(X[rows], y[rows])
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], absent.cv_results_["mean_test_score"])


def test_a_fold_without_weight_is_refused():
    X, y = overlapping(60)
    with pytest.raises(ValueError, match="positive weight in both parts, got 30 and 0 in fold 0"):
        PBDLCV(cv=2).fit(X, y, sample_weight=np.arange(60) >= 30)
