"""The averages of table 3, their parts by hand."""

import numpy as np
import pytest
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold

from benchmarks import averages
from benchmarks.averages import Candidate, candidates, within_a_standard_error
from bregnet import DCRegressor
from bregnet.datasets import Fold


def test_candidates_by_rows_and_features():
    first, part = candidates(900, 10, False)
    assert first == Candidate(None, 10)
    assert part == Candidate(300, 8, 6, (1, 3, 10, 30))
    assert candidates(900, 60, True) == [Candidate(300, 60), Candidate(300, 30, 6, (1, 3, 10, 30))]
    assert candidates(1500, 5, False) == [Candidate(None, 5)]
    assert candidates(5000, 10, False) == [Candidate(300, 10), Candidate(1000, 8, 4, (1, 3))]
    assert candidates(5000, 4, False) == [Candidate(300, 4), Candidate(1000, 4, 1, (1,))]
    assert candidates(5000, 30, True) == [Candidate(300, 30), Candidate(1000, 30, 1, (1,))]
    assert Candidate(300, 4, 1, (1, 3)).alphas(0.3) == pytest.approx((0.3, 0.1))


def test_what_is_within_a_standard_error_of_the_best():
    best = np.array([0.9, 0.8, 0.7])
    noisy = best - np.array([0.3, -0.2, 0.0])  # 0.033 worse, standard error 0.145
    always = best - np.array([0.03, 0.034, 0.032])  # 0.032 worse, standard error 0.001
    assert within_a_standard_error([always, best, noisy]) == [False, True, True]
    assert within_a_standard_error([best]) == [True]


def folded(n, d):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n + 50, d))
    y = np.abs(X[:, 0]) - X[:, 1] ** 2 + 0.05 * rng.standard_normal(n + 50)
    return Fold(X[:n], y[:n], X[n:], y[n:])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # refits end as early
def test_predictions_are_the_mean_of_what_is_kept(monkeypatch):
    fold = folded(90, 8)
    for name, value in {
        "FEW_PIECES": 15,
        "ALPHAS": (0.1, 0.01),
        "N_AVERAGED": 2,
        "N_OF_PARTS": 2,
        "MEMBERS": 2,
    }.items():
        monkeypatch.setattr(averages, name, value)
    monkeypatch.setattr(averages, "within_a_standard_error", lambda scores: [True] * len(scores))
    found = averages.predict(fold, KFold(3), False, own_split=True)
    first, part = found.searches
    assert part.max_features == 6
    assert first.n_pieces == part.n_pieces == 15
    each = [averages._averaging(search, fold).predict(fold.X_test) for search in found.searches]
    np.testing.assert_array_equal(found.predicted, np.mean(each, axis=0))
    assert np.abs(each[0] - each[1]).max() > 1e-3
    np.testing.assert_array_equal(found.one_fit, first.best_estimator_.predict(fold.X_test))
    assert r2_score(fold.y_test, found.predicted) > 0.5
    alphas = {round(alpha, 9) for alpha in part.cv_results_["param_alpha"]}
    assert alphas == {round(first.alpha_ / step, 9) for step in averages.STEPS_DOWN["small part"]}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # refits end as early
def test_refits_are_of_all_rows_with_what_was_chosen(monkeypatch):
    fold = folded(80, 3)
    monkeypatch.setattr(averages, "N_OF_PARTS", 3)
    search = averages._search(Candidate(10, 2), fold, KFold(3), (0.01,), refinements=0)
    model = averages._averaging(search, fold)
    chosen = {"n_pieces": 10, "temperature": search.temperature_, "clip": True, "max_iter": search.n_iter_}
    predicted = []
    for one, columns in zip(model.estimators_, model.estimators_features_, strict=True):
        assert len(set(columns)) == 2
        plain = DCRegressor(0.01, random_state=one.random_state, **chosen).fit(fold.X[:, columns], fold.y)
        predicted.append(plain.predict(fold.X_test[:, columns]))
    np.testing.assert_allclose(model.predict(fold.X_test), np.mean(predicted, axis=0), atol=1e-6)
    assert len(predicted) == 3
    assert np.std(predicted, axis=0).max() > 1e-3
    whole = averages._search(Candidate(None, 3), fold, KFold(3), (0.01,), refinements=0)
    assert averages._averaging(whole, fold) is whole


def test_a_quick_run_has_one_search_with_few_iterations():
    found = averages.predict(folded(60, 8), KFold(3), True, own_split=False)
    assert len(found.searches) == 1
    assert found.kept == [True]
    assert found.searches[0].max_iter == averages.QUICK_ITERATIONS
    assert found.searches[0].ensemble
