"""PBDLCV chooses among feature maps."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_circles
from sklearn.decomposition import PCA

import bregnet
from bregnet import PBDL, PBDLCV, BregmanKNeighborsClassifier, FeatureMap

FAST = {"cv": 2, "temperatures": [0.2], "companion": None, "tol": 0.3, "n_pieces": 12, "random_state": 0}


def test_a_class_around_another_needs_a_kernel(tmp_path):
    X, y = make_circles(160, noise=0.05, factor=0.5, random_state=0)
    search = PBDLCV([0.03, 0.01, 0.003], **FAST).fit(X[:100], y[:100])
    chosen = search.best_params_["feature_map"]
    assert isinstance(chosen, FeatureMap)
    assert chosen.kind == "rbf+lda"
    assert search.score(X[100:], y[100:]) > 0.95
    tried = search.cv_results_["param_feature_map"]
    assert sum(each is chosen for each in tried) == 3  # all alphas; the other three maps have the middle one only
    assert len(tried) == 6
    assert (search.cv_results_["param_alpha"][[each is not chosen for each in tried]] == 0.01).all()
    assert search.n_fits_ == 12
    bregnet.save(search, tmp_path / "model")
    again = bregnet.load(tmp_path / "model")
    np.testing.assert_array_equal(again.divergence_.pairwise(X[:3]), search.divergence_.pairwise(X[:3]))
    assert again.feature_map_.n_features == 2


def test_a_list_of_maps_with_a_grid():
    X, y = load_iris(return_X_y=True)
    search = PBDLCV([0.1, 0.03], feature_map=["lda", PCA(1)], grid={"strictness": [0.0, 0.1]}, **FAST).fit(X, y)
    assert search.best_params_["feature_map"] == "lda"
    assert search.feature_map_.n_outputs == 2
    assert search.n_fits_ == 2 * (2 + 2 * 2)  # maps, then alphas with each strictness
    with pytest.raises(ValueError, match="feature_map must be a feature map or a list with some, got an empty one"):
        PBDLCV(feature_map=[], **FAST).fit(X, y)


def test_one_map_is_not_a_choice():
    X, y = load_iris(return_X_y=True)
    search = PBDLCV([0.03], feature_map=None, **FAST).fit(X, y)
    assert search.n_fits_ == 2
    assert not hasattr(search, "feature_map_")
    assert "feature_map" not in search.best_params_


def test_a_classifier_takes_up_what_was_chosen_for_it():
    X, y = make_circles(160, noise=0.05, factor=0.5, random_state=0)
    options = {**FAST, "scoring": "accuracy", "n_neighbors": [7]}
    model = BregmanKNeighborsClassifier(PBDLCV([0.01], **options)).fit(X[:100], y[:100])
    assert model.n_neighbors_ == 7
    assert model.learner_.feature_map_.n_features == 2
    assert model.score(X[100:], y[100:]) > 0.95


def test_many_features_are_mapped_by_default():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 120)) + 2 * np.eye(120)[y]
    model = PBDL(n_pieces=9, tol=0.3, random_state=0).fit(X, y)
    assert model.feature_map_.n_outputs == 2
    assert model.divergence_.n_features == 120
    assert not hasattr(PBDL(n_pieces=9, tol=0.3).fit(X[:, :99], y), "feature_map_")
    assert not hasattr(PBDL(feature_map=None, n_pieces=9, tol=0.3).fit(X, y), "feature_map_")
    assert not hasattr(PBDL(n_pieces=9, tol=0.3).partial_fit(X, y), "feature_map_")
    pairs = [[0, 3], [1, 4], [0, 1], [3, 5]]
    assert not hasattr(PBDL(n_pieces=9, tol=0.3).fit_pairs(X, pairs, [True, True, False, False]), "feature_map_")
    search = PBDLCV([0.01], **FAST).fit(X, y)
    assert None not in list(search.cv_results_["param_feature_map"])
