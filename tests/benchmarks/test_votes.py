"""The votes of table 4 by hand."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

from benchmarks import votes
from benchmarks.votes import Divergences, Setting, classify, merit, vote_shares, whitening
from bregnet.datasets import Fold


def data():
    X, y = load_iris(return_X_y=True)
    return X[::3], y[::3], X[1::3], y[1::3]


def test_whitened_classes_have_unit_covariance_but_for_a_constant():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 2000)
    X = rng.standard_normal((len(y), 3)) @ rng.standard_normal((3, 3)) + 3 * np.eye(3)[y]
    there = X @ whitening(X, y)
    within = np.mean([np.cov(there[y == c].T) for c in range(3)], axis=0)
    np.testing.assert_allclose(within / within[0, 0], np.eye(3), atol=0.05)
    assert there.var(0).mean() == pytest.approx(1)
    # the same distances as discriminant analysis, where all directions are kept
    model = LinearDiscriminantAnalysis().fit(X, y)
    assert model.score(X, y) > 0.9


def test_whitening_drops_directions_without_variance():
    X, y, _, _ = data()
    flat = np.column_stack([X, X.sum(1)])
    assert whitening(flat, y).shape == (5, 4)


def test_shares_are_those_of_scikit_learns_neighbours():
    X, y, queries, _ = data()
    learned = Divergences(X, y, (0.03,))
    shares = vote_shares(learned, queries, y, np.unique(y))
    by_hand = {key: D for *key, D in ((f, t, w, D) for f, t, w, D in learned.to_rows(queries)) for key in [tuple(key)]}
    for (families, temperature, weight), D in list(by_hand.items())[::7]:
        for k in (1, 9):
            model = KNeighborsClassifier(k, metric="precomputed").fit(np.zeros((len(X),) * 2), y)
            found = shares[Setting(families, temperature, weight, k)]
            np.testing.assert_allclose(found, model.predict_proba(D))


def test_merit_by_hand():
    shares = np.array([[1.0, 0.0], [0.6, 0.4]])
    expected = 0.5 + np.mean(np.log([0.95 * 1.0 + 0.025, 0.95 * 0.4 + 0.025]))
    assert merit(shares, np.array([0, 1])) == pytest.approx(expected)


def test_families_are_those_of_the_whole_training_part(monkeypatch):
    monkeypatch.setattr(votes, "OWN_PIECE_POINTS", 40)  # all rows are more than that, those without a fold are not
    X, y, X_test, y_test = data()
    found = classify(Fold(X, y, X_test, y_test), StratifiedKFold(5, shuffle=True, random_state=0), (0.03,))
    assert not any("own" in setting.families for setting in found.settings)


def test_choices_do_not_see_the_test_part():
    X, y, X_test, y_test = data()
    inner = StratifiedKFold(2, shuffle=True, random_state=0)
    one = classify(Fold(X, y, X_test, y_test), inner, (0.03,))
    other = classify(Fold(X, y, X_test[::-1], y_test[:1].repeat(len(y_test))), inner, (0.03,))
    assert one.settings == other.settings
    assert len(one.settings) == votes.N_BEST
    assert one.accuracy > 0.9
