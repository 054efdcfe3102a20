"""Weights of rows beside the program itself: thresholds, companions, feature maps, and metadata routing."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from bregnet import PBDL
from bregnet.divergences.maps import fitted_map
from bregnet.learners.calibration import similarity_threshold
from bregnet.learners.companions import companion_for
from bregnet.learners.supervision import Labels
from bregnet.solver.points import Standardization

X, Y = load_iris(return_X_y=True)


@pytest.mark.parametrize("strategy", ["accuracy", "balanced_accuracy"])
def test_a_threshold_for_pairs_of_weights_is_that_of_copies(strategy):
    rng = np.random.default_rng(0)
    for _ in range(20):
        distances, similar, weights = rng.integers(8, size=30), rng.random(30) < 0.5, rng.integers(1, 4, 30)
        copies = (np.repeat(each, weights) for each in (distances, similar))
        assert similarity_threshold(distances, similar, weights, strategy=strategy) == pytest.approx(
            similarity_threshold(*copies, strategy=strategy)
        )


def companion(kind, rows, classes, weights=None):
    supervision = Labels(classes, balanced=True, random_state=0, weights=weights)
    return companion_for(kind, rows, Standardization.from_rows(rows, weights=weights), supervision, 0).matrix


def test_the_scale_of_a_companion_is_that_of_copies():
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    rows = np.repeat(np.arange(len(X)), weights)
    np.testing.assert_allclose(companion("euclid", X, Y, weights), companion("euclid", X[rows], Y[rows]), rtol=0.02)


def test_a_row_of_hardly_any_weight_does_not_matter_to_a_companion():
    rows, classes = np.vstack([X, X[:1] + 50]), np.append(Y, 2)
    without = companion("within", X, Y)
    weights = np.append(np.ones(len(X)), 1e-9)
    np.testing.assert_allclose(companion("within", rows, classes, weights), without, atol=0.02 * np.abs(without).max())


def test_transformers_that_know_weights_are_given_them():
    weights = np.linspace(0.1, 3, len(X))
    scaled = fitted_map(StandardScaler(), X, Y, weights)(X)
    np.testing.assert_allclose(scaled, StandardScaler().fit(X, sample_weight=weights).transform(X))


def test_metadata_routing_brings_weights_to_a_fit_in_a_search():
    weights = np.where(Y == 0, 5.0, 1.0) * np.linspace(0.5, 2, len(Y))
    with config_context(enable_metadata_routing=True):
        learner = PBDL(n_pieces=9, tol=0.3, random_state=0).set_fit_request(sample_weight=True)
        search = GridSearchCV(learner, {"alpha": [0.03]}, cv=StratifiedKFold(2)).fit(X, Y, sample_weight=weights)
    expected = PBDL(0.03, n_pieces=9, tol=0.3, random_state=0).fit(X, Y, sample_weight=weights)
    np.testing.assert_array_equal(
        search.best_estimator_.divergence_.pairwise(X[:5]), expected.divergence_.pairwise(X[:5])
    )
    assert search.best_estimator_.threshold_ == expected.threshold_
