import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler

import bregnet
from bregnet import (
    PBDL,
    PBDLCV,
    BregmanDivergence,
    BregmanIndex,
    BregmanKMeans,
    BregmanRanker,
    ConvexRegressor,
    KullbackLeibler,
    MaxAffine,
)
from bregnet.divergences.resolve import divergence_of, side_of
from bregnet.nn import BregmanKNN, LearnableMaxAffine

X, Y = np.array([[0.0], [0.1], [0.2], [1.0], [1.2], [1.4]]), np.array([0, 0, 0, 1, 1, 1])
SMOOTH = MaxAffine([[1.0], [-1.0]], [0.0, 0.5], temperature=0.2)
FITTED = {"n_pieces": 2, "tol": 0.3, "random_state": 0}


def searched():
    return GridSearchCV(PBDL(**FITTED), {"alpha": [0.1]}, cv=StratifiedKFold(2)).fit(X, Y)


def loaded(tmp_path):
    bregnet.save(PBDL(**FITTED).fit(X, Y), tmp_path / "model")
    return bregnet.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("make", "generator_of"),
    [
        (lambda: BregmanDivergence(SMOOTH), lambda given: given.generator),
        (lambda: SMOOTH, lambda given: given),
        (lambda: PBDL(**FITTED).fit(X, Y), lambda given: given.divergence_.generator),
        (searched, lambda given: given.best_estimator_.divergence_.generator),
        (
            lambda: PBDLCV([0.1], feature_map=None, cv=2, refinements=0, temperatures=[0.0], **FITTED).fit(X, Y),
            lambda given: given.divergence_.generator,
        ),
        (lambda: BregmanRanker(SMOOTH).fit(X), lambda given: SMOOTH),
        (lambda: BregmanKMeans(2, divergence=SMOOTH, random_state=0).fit(X), lambda given: SMOOTH),
        (lambda: BregmanIndex(SMOOTH), lambda given: SMOOTH),
        (lambda: BregmanKNN(SMOOTH), lambda given: SMOOTH),
    ],
)
def test_what_has_a_divergence_gives_it(make, generator_of):
    given = make()
    assert divergence_of(given).generator is generator_of(given)
    index = BregmanIndex(given)
    assert index.divergence.generator is generator_of(given)


def test_names_modules_and_files(tmp_path):
    assert isinstance(divergence_of("kl").generator, KullbackLeibler)
    module = LearnableMaxAffine.from_generator(SMOOTH)
    wanted = BregmanDivergence(SMOOTH).pairwise(X)
    for given in (module, BregmanKNN(module)):
        np.testing.assert_allclose(divergence_of(given).pairwise(X), wanted, atol=1e-12)
    model = loaded(tmp_path)
    assert divergence_of(model) is model.divergence_


def test_the_side_is_that_which_is_searched():
    ranker = BregmanRanker(SMOOTH, side="left").fit(X)
    assert side_of(ranker) == side_of(ranker.set_params(side="right")) == "left"  # as it was fitted
    assert side_of(BregmanIndex(SMOOTH, side="left")) == "left"
    assert side_of(SMOOTH) == side_of("kl") == side_of(PBDL()) == "right"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (3, TypeError, "it must be a BregmanDivergence, its name, a generator, .* got 3"),
        (None, TypeError, "it must be a BregmanDivergence, .* got None"),
        (PBDL, TypeError, "it must be a BregmanDivergence, .* got <class"),
        (LearnableMaxAffine, TypeError, "it must be a BregmanDivergence, .* got <class"),
        ("cosine", ValueError, "it must be one of 'sqeuclidean', .* where it is a name, got 'cosine'"),
        (PBDL(), NotFittedError, "PBDL instance is not fitted"),
        (BregmanRanker(SMOOTH), NotFittedError, "BregmanRanker instance is not fitted"),
        (GridSearchCV(PBDL(), {}), NotFittedError, "GridSearchCV instance is not fitted"),
        (StandardScaler().fit(X), TypeError, "a fitted estimator with a divergence_, got StandardScaler"),
        (ConvexRegressor(tol=0.5).fit(X, Y), TypeError, "a fitted estimator with a divergence_, got ConvexRegressor"),
    ],
)
def test_what_has_none_is_named(given, error, message):
    with pytest.raises(error, match=message):
        divergence_of(given, "it")
