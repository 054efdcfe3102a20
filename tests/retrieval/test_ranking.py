import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import rel_entr
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from bregnet import PBDL
from bregnet.metrics import mean_average_precision
from bregnet.retrieval import BregmanRanker
from tests.support.expected_precision import expected_average_precision
from tests.support.search_at_random import brute_order, divergences, exact, learned
from tests.support.search_at_random import points as positive_points

pytestmark = pytest.mark.filterwarnings("ignore:PBDL learned nothing")  # grids have large alphas

SIDES = pytest.mark.parametrize("side", ["right", "left"])


@parametrize_with_checks([BregmanRanker(), BregmanRanker(PBDL(tol=0.5), side="left")])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def points(n=120, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def labels(n=120, seed=0):
    return np.random.default_rng(seed).integers(3, size=n)


def brute_score(values, asked, items):
    """The mean of the expected average precision over queries of a class that items have."""
    known = [row for row in range(len(asked)) if asked[row] in items]
    return np.mean([expected_average_precision(items == asked[row], -values[row].round(10)) for row in known])


# --- the answer is right -------------------------------------------------------------------------------------------


@SIDES
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_ranks_and_score_equal_brute_force_with_ties(side, temperature):
    X, Q = points(), points(30, seed=1)
    X = np.vstack([X, X[::5]])  # duplicates
    y, asked = labels(144), labels(30, seed=1)
    D = learned(temperature)
    ranker = BregmanRanker(D, side=side).fit(X, y)
    values = exact(D, Q, X, side)
    order = brute_order(values, Q, X)
    ids, divergences = ranker.rank(Q)
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(divergences, np.take_along_axis(values, order, 1), atol=1e-12)
    np.testing.assert_array_equal(ranker.rank(Q, k=7)[0], order[:, :7])
    assert ranker.score(Q, asked) == pytest.approx(brute_score(values, asked, y), abs=1e-12)


@SIDES
def test_kl_on_the_simplex_equals_brute_force(side):
    rng = np.random.default_rng(0)
    X, Q = rng.dirichlet(np.ones(4), 80), rng.dirichlet(np.ones(4), 20)
    y, asked = labels(80), labels(20, seed=1)
    ranker = BregmanRanker("kl", side=side).fit(X, y)
    values = rel_entr(*((Q[:, None], X) if side == "right" else (X, Q[:, None]))).sum(2)
    ids, divergences = ranker.rank(Q)
    np.testing.assert_array_equal(ids, values.argsort(1))
    np.testing.assert_allclose(divergences, np.sort(values, 1), atol=1e-12)
    assert ranker.score(Q, asked) == pytest.approx(brute_score(values, asked, y), abs=1e-12)


def test_the_default_is_squared_euclidean():
    X, Q = points(), points(9, seed=1)
    squares = np.square(Q[:, None] - X).sum(2)
    for D in (None, "sqeuclidean"):
        ids, divergences = BregmanRanker(D).fit(X).rank(Q)
        np.testing.assert_array_equal(ids, squares.argsort(1))
        np.testing.assert_allclose(divergences, np.sort(squares, 1), atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from(["right", "left"]),
)
def test_ranks_and_score_of_small_grids(rows, temperature, side):
    X, y = np.array(rows, dtype=float)[:, :2], np.array(rows)[:, 2]
    Q, asked = np.array([[0.0, 1.0], [2.0, 2.0], [0.5, 0.5]]), np.array([y[0], 1, 2])
    D = learned(temperature, d=2, n_pieces=3)
    ranker = BregmanRanker(D, side=side).fit(X, y)
    values = exact(D, Q, X, side)
    ids, divergences = ranker.rank(Q)
    np.testing.assert_array_equal(ids, brute_order(values, Q, X))
    assert (np.diff(divergences, axis=1) >= 0).all()
    assert ranker.score(Q, asked) == pytest.approx(brute_score(values, asked, y), abs=1e-12)


def score_of_ranks(ranker, Q, asked, items):
    """The score from what `rank` returns."""
    ids, values = ranker.rank(Q)
    return mean_average_precision(values, items[ids] == asked[:, None])


def test_an_item_far_away_does_not_make_the_others_tie():
    near = np.random.default_rng(0).normal(size=(60, 2))
    X, y = np.vstack([near, [[1e7, 1e7]]]), np.append(near[:, 0] > 0, True)
    ranker = BregmanRanker().fit(X, y)
    squares = np.square(near[:, None] - X).sum(2)
    wanted = np.mean([expected_average_precision(y == y[row], -squares[row]) for row in range(60)])
    assert ranker.score(near, y[:60]) == pytest.approx(wanted, abs=1e-12)  # was 0.5
    assert ranker.score(near, y[:60]) == pytest.approx(score_of_ranks(ranker, near, y[:60], y), abs=1e-14)


@SIDES
@pytest.mark.parametrize("lattice", [False, True])
@pytest.mark.parametrize("name", sorted(set(divergences(3)) - {"cold", "smooth"}))  # flat regions: see test_evaluation
def test_the_score_is_that_of_the_ranks(name, lattice, side):
    X, Q = positive_points(0, 90, 3, lattice), positive_points(1, 25, 3, lattice)
    for items in (X, np.vstack([X[1:], 1e4 * X[:1]])):
        y, asked = labels(90), labels(25, seed=1)
        ranker = BregmanRanker(divergences(3)[name], side=side).fit(items, y)
        assert ranker.score(Q, asked) == pytest.approx(score_of_ranks(ranker, Q, asked, y), abs=1e-14)


def test_equal_items_tie_however_they_are_rounded():
    rng = np.random.default_rng(0)
    row = rng.standard_normal((1, 17)) + 10
    X, Q = np.repeat(row, 301, 0), rng.standard_normal((40, 17))
    y = np.arange(301) % 2
    for side in ("right", "left"):
        ranker = BregmanRanker(learned(0.3, d=17), side=side).fit(X, y)
        wanted = expected_average_precision(y == 0, np.zeros(301))
        assert ranker.score(Q, np.zeros(40)) == pytest.approx(wanted, abs=1e-12)


@SIDES
def test_cells_that_are_all_searched_rank_exactly(side):
    pytest.importorskip("faiss")
    X, Q, y = points(300), points(20, seed=1), labels(300)
    flat = BregmanRanker(learned(0.3), side=side).fit(X, y)
    cells = BregmanRanker(learned(0.3), side=side, kind="ivf", random_state=0).fit(X, y)
    np.testing.assert_array_equal(cells.rank(Q)[0], flat.rank(Q)[0])  # all items are asked for
    cells.index_.nprobe = 1
    assert cells.score(Q, y[:20]) == flat.score(Q, y[:20])


def test_queries_of_other_classes_do_not_count():
    X, y = points(), labels()
    ranker = BregmanRanker().fit(X, y)
    asked = np.append(labels(9, seed=1), [7, -1])
    Q = points(11, seed=2)
    assert ranker.score(Q, asked) == pytest.approx(ranker.score(Q[:9], asked[:9]))
    for none in ([7, 8], ["0", "1"]):
        with pytest.raises(ValueError, match="y must have a class that the items have, got none"):
            ranker.score(Q[:2], none)


# --- learners ------------------------------------------------------------------------------------------------------


@SIDES
def test_a_learner_is_cloned_and_fitted_to_the_labels(side):
    X, y = load_iris(return_X_y=True)
    X, y, Q, asked = X[::3], y[::3], X[1::3], y[1::3]
    given = PBDL(alpha=0.05, temperature=0.2, tol=0.2)
    ranker = BregmanRanker(given, side=side).fit(X, y)
    assert not hasattr(given, "divergence_")
    assert ranker.divergence_ is ranker.learner_.divergence_
    values = exact(clone(given).fit(X, y).divergence_, Q, X, side)
    np.testing.assert_array_equal(ranker.rank(Q)[0], values.argsort(1))
    assert ranker.score(Q, asked) == pytest.approx(brute_score(values, asked, y), abs=1e-12)
    assert get_tags(BregmanRanker(given)).target_tags.required
    with pytest.raises(ValueError, match="PBDL estimator requires y to be passed"):
        BregmanRanker(given).fit(X)


@pytest.mark.filterwarnings("ignore:PBDL learned nothing:UserWarning")
def test_a_grid_search_chooses_the_learners_alpha():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    search = GridSearchCV(BregmanRanker(PBDL(temperature=0.1, tol=0.1)), {"divergence__alpha": [0.01, 10.0]}, cv=2)
    search.fit(X, y)
    assert search.best_params_ == {"divergence__alpha": 0.01}  # 10 leaves no slope: all items tie
    all_tied = expected_average_precision(np.arange(25) % 3 == 0, np.zeros(25))
    assert search.cv_results_["mean_test_score"][1] == pytest.approx(all_tied, abs=0.02)
    assert search.best_score_ > 0.9


# --- it behaves as scikit-learn and torch users expect -------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_torch_in_torch_out(dtype):
    X, Q = torch.as_tensor(points(), dtype=dtype), torch.as_tensor(points(9, seed=1), dtype=dtype)
    y, asked = labels(), labels(9, seed=1)
    ranker = BregmanRanker(learned(0.3)).fit(X, torch.as_tensor(y))
    peer = BregmanRanker(learned(0.3)).fit(X.double().numpy(), y)
    for ours, theirs in zip(ranker.rank(Q, 5), peer.rank(Q.double().numpy(), 5), strict=True):
        assert isinstance(ours, torch.Tensor)
        assert ours.device == Q.device
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-12)
    score = peer.score(Q.double().numpy(), asked)
    assert ranker.score(Q, torch.as_tensor(asked)) == pytest.approx(score, abs=1e-12)


def test_feature_names_are_checked():
    X, y = points(), labels()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    ranker, peer = BregmanRanker().fit(frame, y), BregmanRanker().fit(X, y)
    np.testing.assert_array_equal(ranker.rank(frame)[0], peer.rank(X)[0])
    assert ranker.score(frame, y) == peer.score(X, y)
    for ask in (ranker.rank, lambda Q: ranker.score(Q, y)):
        with pytest.raises(ValueError, match="feature names should match"):
            ask(frame[["b", "a", "c"]])
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            ask(X)


@pytest.mark.parametrize("kinds", [["cat", "dog", "owl"], [0.0, 1.0, 5.0], [True, False, True]])
def test_labels_of_any_kind(kinds):
    X, Q, names = points(), points(9, seed=1), np.array(kinds)
    y, asked = names[labels()], names[labels(9, seed=1)]
    wanted = brute_score(np.square(Q[:, None] - X).sum(2), asked, y)
    for items, queries in ((y, asked), (pd.Series(y), pd.Series(asked)), (y.tolist(), asked.tolist())):
        assert BregmanRanker().fit(X, items).score(Q, queries) == pytest.approx(wanted)


@pytest.mark.parametrize("D", ["sqeuclidean", learned(0.0), learned(0.3)], ids=str)
def test_copies_answer_alike(D):
    X, Q, y = points(), points(9, seed=1), labels()
    ranker = BregmanRanker(D).fit(X, y)
    wanted, score = ranker.rank(Q), ranker.score(Q, y[:9])
    for same in (pickle.loads(pickle.dumps(ranker)), copy.deepcopy(ranker), clone(ranker).fit(X, y)):
        for ours, theirs in zip(same.rank(Q), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert same.score(Q, y[:9]) == score


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"side": None}, ValueError, "side must be one of 'right', 'left', got None"),
        ({"kind": "tree"}, ValueError, "kind must be one of 'flat', 'ivf', got 'tree'"),
        ({"n_cells": 0}, ValueError, "n_cells must be at least 1, got 0"),
        ({"nprobe": 1.5}, TypeError, "nprobe must be an integer, got 1.5"),
        ({"random_state": "one"}, ValueError, "'one' cannot be used to seed"),
        ({"device": "nowhere"}, ValueError, "device must be one of .* got 'nowhere'"),
        ({"divergence": "cosine"}, ValueError, "divergence must be one of .* got 'cosine'"),
        ({"divergence": learned(d=2)}, ValueError, "divergence must be for the 3 features of X, got one for 2"),
    ],
)
def test_bad_parameters_are_named(parameters, error, message):
    with pytest.raises(error, match=message):
        BregmanRanker(**parameters).fit(points(), labels())


def test_a_score_needs_classes_of_the_items():
    X, y = points(), labels()
    ranker = BregmanRanker().fit(X)
    with pytest.raises(ValueError, match="score needs the classes of the items, and fit was called without y"):
        ranker.score(X, y)
    assert ranker.fit(X, y).classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="fit was called without y"):
        ranker.fit(X).score(X, y)  # the classes of the earlier fit are gone


def test_bad_arrays_are_refused():
    X, y = np.abs(points()) + 0.1, labels()
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        BregmanRanker().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        BregmanRanker().fit(X, y[1:])
    with pytest.raises(TypeError, match="must be dense, got a sparse"):
        BregmanRanker().fit(csr_array(X))
    for ask in (lambda r: r.rank(X), lambda r: r.score(X, y)):
        with pytest.raises(NotFittedError):
            ask(BregmanRanker())
    ranker = BregmanRanker("kl").fit(X, y)
    for k, error, message in (
        (0, ValueError, "k must be at least 1, got 0"),
        (121, ValueError, r"k must be at most the number of items \(120\), got 121"),
        (2.5, TypeError, "k must be an integer, got 2.5"),
    ):
        with pytest.raises(error, match=message):
            ranker.rank(X, k)
    for ask in (ranker.rank, lambda Q: ranker.score(Q, y)):
        with pytest.raises(ValueError, match="2 features, but BregmanRanker is expecting 3"):
            ask(X[:, :2])
        with pytest.raises(ValueError, match=r"Q must be at least 0 .* got -.* in row 0"):
            ask(-X)
    with pytest.raises(ValueError, match=r"Q must have shape \(n_points, 3\), got \(120, 2\)"):
        ranker.rank(torch.as_tensor(X[:, :2]))
    for ask in (ranker.rank, lambda Q: ranker.score(Q, y)):
        with pytest.raises(ValueError, match=r"Q must have shape \(n_queries, 3\), got None"):
            ask(None)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        ranker.score(X, np.where(y == 0, np.nan, y))


def test_a_fit_that_fails_leaves_the_ranker_as_it_was():
    X, y = np.abs(points()) + 0.1, labels()
    ranker = BregmanRanker("kl").fit(X, y)
    wanted, score = ranker.rank(X)[0], ranker.score(X, y)
    for bad, asked in ((-X[:, :2], None), (-X[:, :2], y), (X[:, :2], X[:, 0])):
        with pytest.raises(ValueError, match=r"X must be positive|Unknown label type"):
            ranker.fit(bad, asked)
        np.testing.assert_array_equal(ranker.rank(X)[0], wanted)
        assert ranker.score(X, y) == score


def test_the_side_is_that_of_the_fit():
    X, y = points(), labels()
    ranker = BregmanRanker(learned(0.3)).fit(X, y)
    wanted, score = ranker.rank(X)[0], ranker.score(X, y)
    ranker.set_params(side="left")
    np.testing.assert_array_equal(ranker.rank(X)[0], wanted)
    assert ranker.score(X, y) == score
    assert ranker.fit(X, y).score(X, y) != score
