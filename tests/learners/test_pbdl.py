import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_iris, load_wine, make_circles
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks.peers import bregman_program
from bregnet import (
    PBDL,
    BregmanDivergence,
    BregmanRanker,
    Check,
    KullbackLeibler,
    Quadratic,
    SquaredEuclidean,
)
from bregnet.learners import base
from bregnet.learners.calibration import KnownPairs
from bregnet.learners.supervision import class_histograms, drawn_pairs, in_groups, majority
from bregnet.solver.partition import merge_duplicates
from tests.support.expected_precision import expected_average_precision

ROUNDED = 1e-3  # what rounding in single precision, amplified by some hundred iterations, may move a divergence
KINDS = pytest.mark.parametrize("kind", ["labels", "pairs", "triplets"])


@parametrize_with_checks([PBDL(tol=0.2, max_iter=200)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def plain(alpha=0.01, **options):
    """A learner of the plain maximum, whose divergences are those of the program, to a gap of 1%."""
    return PBDL(alpha, **{"temperature": 0.0, "tol": 0.01, **options})


def classes_apart(n=24, seed=0):
    """Three classes that the first feature tells apart, and a second feature that says nothing."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return np.column_stack([y + 0.4 * rng.standard_normal(n), rng.standard_normal(n)]), y


def chosen_pairs(y, m=60, seed=0):
    """Pairs of different rows, and whether they are of the same class."""
    ends = np.argwhere(np.triu(np.ones((len(y), len(y)), dtype=bool), 1))
    ends = np.random.default_rng(seed).permutation(ends)[:m]
    return ends, y[ends[:, 0]] == y[ends[:, 1]]


def chosen_triplets(y, m=60, seed=0):
    """Anchors, rows of their class and rows of another."""
    rng = np.random.default_rng(seed)
    anchors = rng.integers(len(y), size=m)
    others = [(rng.choice(np.flatnonzero(y == y[a])), rng.choice(np.flatnonzero(y != y[a]))) for a in anchors]
    return np.column_stack([anchors, others])


def taught(model, X, y, kind):
    if kind == "labels":
        return model.fit(X, y)
    if kind == "pairs":
        return model.fit_pairs(X, *chosen_pairs(y))
    return model.fit_triplets(X, chosen_triplets(y))


def value(model, X, y, kind):
    """The objective of the fitted divergence from its definition, over observations."""
    penalty = model.alpha * model.feature_bounds_.sum()
    D = model.divergence_.pairwise(X)  # [j, i] is D(x_j, x_i)
    if kind == "triplets":
        anchor, positive, negative = chosen_triplets(y).T
        return np.maximum(0, 1 + D[positive, anchor] - D[negative, anchor]).mean() + penalty
    if kind == "labels":
        similar, different = y[:, None] == y, y[:, None] != y
    else:
        similar, different = np.zeros((2, len(y), len(y)), dtype=bool)
        ends, alike = chosen_pairs(y)
        for matrix, rows in ((similar, ends[alike]), (different, ends[~alike])):
            matrix[rows[:, 0], rows[:, 1]] = matrix[rows[:, 1], rows[:, 0]] = True
    if model.balanced:
        pull, push = 0.5 / similar.sum(), 0.5 / different.sum()
    else:
        pull = push = 1 / (similar.sum() + different.sum())
    return pull * D[similar].sum() + push * np.maximum(0, 2 - D[different]).sum() + penalty


# --- the answer is right -------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("n_pieces", [None, 7])
@pytest.mark.parametrize("balanced", [True, False])
def test_the_objective_is_that_of_the_returned_divergence(kind, n_pieces, balanced):
    X, y = classes_apart()
    X = X * [3.0, 0.01] + [100.0, -1.0]
    standardize = balanced == (n_pieces is None)
    model = plain(alpha=0.03, balanced=balanced, n_pieces=n_pieces, standardize=standardize, tol=0.2, random_state=0)
    taught(model, X, y, kind)
    assert model.result_.objective == pytest.approx(value(model, X, y, kind), rel=1e-6)
    largest = np.abs(model.function_.slopes).max(0)
    np.testing.assert_allclose(model.feature_bounds_, largest * X.std(0) if standardize else largest)


@KINDS
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rounding_does_not_choose_between_tied_pieces(kind, offset):
    """At the optimum several pieces tie at a point, with quite different slopes: only one is meant."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((9, 4)) + offset, np.arange(9) % 3
        model = taught(plain(alpha=1e-5, tol=1e-6, max_iter=800), X, y, kind)
        assert model.result_.objective == pytest.approx(value(model, X, y, kind), rel=1e-5, abs=1e-9)
        assert model.result_.dual_bound <= model.result_.objective


def test_a_function_of_another_value_has_another_gap():
    X, y = classes_apart()
    result = plain(tol=0.1).fit(X, y).result_
    worse = result.restated(2 * result.objective, 0.1)
    assert worse.gap == pytest.approx(1 - result.dual_bound / (2 * result.objective))
    assert worse.status.startswith("not converged to 0.1")
    assert not worse.converged


def test_a_failed_fit_leaves_the_model_as_it_was():
    X, y = classes_apart()
    model = plain(tol=0.2).fit(X, y)
    before = model.divergence_.pairwise(X)
    with pytest.raises(ValueError, match="at least 2 classes"):
        model.fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="X must be"):
        model.set_params(companion=KullbackLeibler()).fit(X, y)
    assert list(model.classes_) == [0, 1, 2]
    np.testing.assert_array_equal(model.divergence_.pairwise(X), before)
    model.set_params(companion=None).fit_pairs(X, *chosen_pairs(y))
    assert not hasattr(model, "classes_")


def test_many_classes_need_no_table_of_all_points_and_classes():
    rng = np.random.default_rng(0)
    X, classes = rng.standard_normal((40, 2)), rng.integers(0, 9, 40)
    for rows in (X, np.vstack([X[:39], X[:1]])):
        merged = in_groups(merge_duplicates(rows), classes)
        histograms, sizes = class_histograms(merged, classes)
        found = np.repeat(histograms, sizes, axis=0)
        for place, row in enumerate(found):
            expected = np.bincount(classes[merged.inverse == place], minlength=classes.max() + 1)
            np.testing.assert_array_equal(row, expected)
        assert (found[np.arange(len(found)), np.unique(classes)[majority(merged, classes)]] >= 1).all()


@KINDS
@pytest.mark.parametrize("n_pieces", [None, 6])
def test_duplicates_count_as_often_as_they_come(kind, n_pieces):
    X, y = classes_apart(18)
    X, y = np.vstack([X, X[:7], X[:3]]), np.r_[y, y[:4], (y[4:7] + 1) % 3, y[:2], (y[2] + 1) % 3]  # some conflict
    model = taught(plain(alpha=0.03, n_pieces=n_pieces, tol=0.2, random_state=0), X, y, kind)
    assert model.function_.n_pieces <= (n_pieces or 18)
    assert model.result_.objective == pytest.approx(value(model, X, y, kind), rel=1e-6)


@pytest.mark.parametrize("balanced", [False, True])
def test_labels_give_the_optimum_of_the_papers_program(balanced):
    X, y = classes_apart()
    X -= X.mean(0)
    model = plain(alpha=0.02, n_pieces=None, balanced=balanced, standardize=False, tol=1e-4).fit(X, y)
    weights = bregman_program.label_weights(y, balanced)
    optimum = bregman_program.solve(bregman_program.BregmanProgram(X, np.full(2, 0.02), *weights)).value
    assert model.gap_ <= 1e-4
    assert model.result_.dual_bound <= optimum * (1 + 1e-7)
    assert optimum <= model.result_.objective * (1 + 1e-7)
    assert model.result_.objective <= optimum * (1 + 2e-4)


def test_triplets_give_the_optimum_of_their_program():
    X, y = classes_apart(18)
    X -= X.mean(0)
    model = plain(alpha=0.1, n_pieces=None, standardize=False, tol=0.03).fit_triplets(X, chosen_triplets(y, 30))
    nothing = np.zeros((18, 18))
    program = bregman_program.BregmanProgram(X, np.full(2, 0.1), nothing, nothing, None, chosen_triplets(y, 30), 1 / 30)
    optimum = bregman_program.solve(program).value
    assert model.result_.dual_bound <= optimum * (1 + 1e-7)
    assert optimum <= model.result_.objective * (1 + 1e-7)
    assert model.result_.objective <= optimum * 1.04


@pytest.mark.parametrize("balanced", [False, True])
def test_all_pairs_say_what_labels_say(balanced):
    X, y = classes_apart(18)
    ordered = np.stack(np.divmod(np.arange(18**2), 18), axis=1)
    labels = plain(alpha=0.02, balanced=balanced, tol=1e-3).fit(X, y)
    pairs = clone(labels).fit_pairs(X, ordered, y[ordered[:, 0]] == y[ordered[:, 1]])
    assert pairs.result_.objective == pytest.approx(labels.result_.objective, rel=2e-3)
    if not balanced:  # without the diagonal, which costs nothing, all other weights grow by n / (n - 1)
        apart = ordered[ordered[:, 0] < ordered[:, 1]]
        pairs.set_params(alpha=0.02 * 18 / 17).fit_pairs(X, apart, y[apart[:, 0]] == y[apart[:, 1]])
        assert pairs.result_.objective * 17 / 18 == pytest.approx(labels.result_.objective, rel=2e-3)


def test_pairs_in_the_forms_of_metric_learn():
    X, y = classes_apart(18)
    ends, alike = chosen_pairs(y)
    expected = plain().fit_pairs(X, ends, alike).divergence_.pairwise(X)
    signs = np.where(alike, 1, -1)
    for model in (plain().fit_pairs(X, ends, signs), plain().fit_pairs(X, ends, signs.astype(float))):
        np.testing.assert_array_equal(model.divergence_.pairwise(X), expected)
    units = StandardScaler().fit(X[ends].reshape(-1, 2))  # every end of a pair is a row then
    rows = units.transform(X)
    inside, outside = (
        plain(standardize=False, tol=1e-4).fit_pairs(*given).divergence_.pairwise(rows)
        for given in ((rows[ends], None, signs), (rows, ends, alike))
    )
    np.testing.assert_allclose(inside, outside, atol=0.02)
    with pytest.raises(ValueError, match=r"X must have shape \(n_pairs, 2, n_features\) .* got \(4, 3, 2\)"):
        plain().fit_pairs(np.zeros((4, 3, 2)), similar=[1, 1, -1, -1])
    with pytest.raises(ValueError, match=r"pairs must be None where X has them.* by its name, similar"):
        plain().fit_pairs(X[ends], signs)


def test_triplets_in_the_form_of_metric_learn():
    X, y = classes_apart(18)
    triplets = chosen_triplets(y)
    rows = StandardScaler().fit(X[triplets].reshape(-1, 2)).transform(X)  # every end of a triplet is a row then
    inside, outside = (
        plain(standardize=False, tol=1e-4).fit_triplets(*given).divergence_.pairwise(rows)
        for given in ((rows[triplets],), (rows, triplets))
    )
    np.testing.assert_allclose(inside, outside, atol=0.02)
    with pytest.raises(ValueError, match=r"X must have shape \(n_triplets, 3, n_features\) .* got \(4, 2, 2\)"):
        plain().fit_triplets(np.zeros((4, 2, 2)))
    with pytest.raises(ValueError, match=r"triplets must be None where X has them"):
        plain().fit_triplets(X[triplets], triplets)


@pytest.mark.parametrize("n_pieces", [None, 9])
@pytest.mark.parametrize("balanced", [True, False])
def test_weights_of_rows_are_copies_of_them(n_pieces, balanced):
    X, y = classes_apart(30)
    X = np.vstack([X, X[:4]])  # some are duplicates already
    y = np.r_[y, y[:3], (y[3] + 1) % 3]
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    rows = np.repeat(np.arange(len(X)), weights)
    options = {"alpha": 0.03, "balanced": balanced, "n_pieces": n_pieces, "tol": 1e-3, "random_state": 0}
    weighted = plain(**options).fit(X, y, sample_weight=weights)
    copied = plain(**options).fit(X[rows], y[rows])
    assert weighted.result_.objective == pytest.approx(value(copied, X[rows], y[rows], "labels"), rel=2e-3)
    assert value(weighted, X[rows], y[rows], "labels") == pytest.approx(weighted.result_.objective, rel=1e-6)
    scaled = plain(**options).fit(X, y, sample_weight=0.37 * weights)
    np.testing.assert_allclose(scaled.divergence_.pairwise(X), weighted.divergence_.pairwise(X), atol=0.02)


def test_scores_of_one_class_are_refused():
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(PBDL(), {"alpha": [0.1, 50.0]}, cv=KFold(3), error_score="raise")
    with pytest.raises(ValueError, match=r"y must have at least 2 classes .* got 1; .* cv=StratifiedKFold\(3\)"):
        search.fit(X, y)
    with pytest.raises(ValueError, match=r"y must have a class that the items have, .* stratified folds"):
        cross_val_score(BregmanRanker(), X, y, cv=KFold(3), error_score="raise")


def test_repeated_and_turned_pairs_count_again():
    X, y = classes_apart(12)
    ends, alike = chosen_pairs(y, 15)
    once = plain(alpha=0.03, tol=1e-3).fit_pairs(X, ends, alike)
    twice = plain(alpha=0.03, tol=1e-3).fit_pairs(X, np.r_[ends, ends[:, ::-1]], np.r_[alike, alike])
    assert twice.result_.objective == pytest.approx(once.result_.objective, rel=2e-3)
    np.testing.assert_allclose(twice.divergence_.pairwise(X), once.divergence_.pairwise(X), atol=ROUNDED)


@KINDS
def test_units_and_the_order_of_rows_do_not_matter(kind):
    X, y = classes_apart()
    expected = taught(plain(alpha=0.03, tol=0.2), X, y, kind)
    D = expected.divergence_.pairwise(X)
    moved = X * [1e3, 1e-3] + [5e3, 2.0]
    model = taught(plain(alpha=0.03, tol=0.2), moved, y, kind)
    np.testing.assert_allclose(model.divergence_.pairwise(moved), D, atol=ROUNDED)
    np.testing.assert_allclose(model.feature_bounds_, expected.feature_bounds_, atol=ROUNDED)
    assert model.threshold_ == pytest.approx(expected.threshold_, abs=ROUNDED)
    by_hand = StandardScaler().fit_transform(X)
    model = taught(plain(alpha=0.03, tol=0.2, standardize=False), by_hand, y, kind)
    np.testing.assert_allclose(model.divergence_.pairwise(by_hand), D, atol=ROUNDED)

    order = np.random.default_rng(5).permutation(len(X))
    place = np.argsort(order)
    model = plain(alpha=0.03, tol=0.2)
    if kind == "labels":
        model.fit(X[order], y[order])
    elif kind == "pairs":
        ends, alike = chosen_pairs(y)
        model.fit_pairs(X[order], place[ends], alike)
    else:
        model.fit_triplets(X[order], place[chosen_triplets(y)])
    np.testing.assert_allclose(model.divergence_.pairwise(X), D, atol=ROUNDED)


@pytest.mark.parametrize("scale", [1e-9, 1e9, 1e-200])
def test_extreme_scales_do_not_matter(scale):
    X, y = classes_apart()
    options = {"alpha": 0.03, "tol": 0.2, "strictness": 0.1 if scale > 1e-100 else 0.0}
    D = plain(**options).fit(X, y).divergence_.pairwise(X)
    scaled = X * [scale, 1.0]
    np.testing.assert_allclose(plain(**options).fit(scaled, y).divergence_.pairwise(scaled), D, atol=ROUNDED)


@pytest.mark.parametrize(
    "say",
    [
        lambda y: np.array(["low", "middle", "top"])[y],
        lambda y: np.array(["low", "middle", "top"], dtype=object)[y],
        lambda y: y.astype(float),
        lambda y: y - 7,
        lambda y: y.tolist(),
        lambda y: torch.as_tensor(y),
        lambda y: pd.Series(np.array(["a", "b", "c"])[y], index=range(50, 50 + len(y))),
        lambda y: pd.Categorical(y),
    ],
)
def test_labels_of_any_kind(say):
    X, y = classes_apart()
    model = plain(alpha=0.03, tol=0.2)
    expected = model.fit(X, y).divergence_.pairwise(X)
    score = model.score(X, y)
    np.testing.assert_array_equal(model.fit(X, say(y)).divergence_.pairwise(X), expected)
    assert len(model.classes_) == 3
    assert model.score(X, say(y)) == score


def test_truth_values_are_labels():
    X, y = classes_apart()
    model = plain(alpha=0.03, tol=0.2)
    expected = model.fit(X, (y == 2).astype(int)).divergence_.pairwise(X)
    for labels in (y == 2, torch.as_tensor(y == 2), pd.Series(y == 2)):
        np.testing.assert_array_equal(model.fit(X, labels).divergence_.pairwise(X), expected)


def test_pairs_triplets_and_points_may_be_tensors_or_frames():
    X, y = classes_apart()
    ends, alike = chosen_pairs(y)
    expected = plain(tol=0.2).fit_pairs(X, ends, alike).divergence_.pairwise(X)
    given = [
        (torch.as_tensor(X), torch.as_tensor(ends), torch.as_tensor(alike)),
        (pd.DataFrame(X), pd.DataFrame(ends), pd.Series(alike)),
        (X.tolist(), ends.astype(np.uint8).tolist(), alike.astype(float).tolist()),
    ]
    for points, pairs, similar in given:
        found = plain(tol=0.2).fit_pairs(points, pairs, similar).divergence_.pairwise(X)
        np.testing.assert_allclose(found, expected, atol=ROUNDED)
    expected = plain(alpha=0.1, tol=0.2).fit_triplets(X, chosen_triplets(y)).divergence_.pairwise(X)
    model = plain(alpha=0.1, tol=0.2).fit_triplets(torch.as_tensor(X), torch.as_tensor(chosen_triplets(y)))
    np.testing.assert_allclose(model.divergence_.pairwise(X), expected, atol=ROUNDED)


def test_noise_is_switched_off_whatever_its_scale():
    rng = np.random.default_rng(0)
    X, y = classes_apart(30)
    X = np.column_stack([X[:, 0], 1e4 * rng.standard_normal(30), 1e-4 * rng.standard_normal(30)])
    bounds = plain(alpha=0.15, tol=0.02).fit(X, y).feature_bounds_
    assert bounds[0] > 1
    assert (bounds[1:] < 0.02 * bounds[0]).all()
    again = plain(alpha=0.15, tol=0.02).fit(X * [1e5, 1e-3, 1e7], y).feature_bounds_
    np.testing.assert_allclose(again, bounds, atol=ROUNDED)


def test_triplets_order_unseen_rows_better_than_euclid():
    X, y = classes_apart(30)
    unseen, labels = classes_apart(60, seed=1)
    X, unseen = X * [1.0, 2.0], unseen * [1.0, 2.0]
    anchor, positive, negative = chosen_triplets(labels, 500, seed=1).T
    model = plain(alpha=0.05, temperature=0.1, tol=0.2).fit_triplets(X, chosen_triplets(y, 90))

    def right(D):
        return (D[positive, anchor] < D[negative, anchor]).mean()

    euclid = BregmanDivergence(SquaredEuclidean())
    assert right(model.divergence_.pairwise(unseen)) > right(euclid.pairwise(unseen)) + 0.1


def test_pairs_tell_unseen_pairs_apart_better_than_chance_or_euclid():
    X, y = classes_apart(36)
    unseen, labels = classes_apart(60, seed=1)
    ends, alike = chosen_pairs(labels, 600)
    model = plain(alpha=0.05, tol=0.2).fit_pairs(X, *chosen_pairs(y, 300))
    found = model.is_similar(unseen[ends[:, 0]], unseen[ends[:, 1]])
    assert (found[alike].mean() + (~found[~alike]).mean()) / 2 > 0.75
    euclid = BregmanDivergence(SquaredEuclidean()).paired(unseen[ends[:, 0]], unseen[ends[:, 1]])
    assert average_precision_score(alike, model.pair_score(unseen[ends[:, 0]], unseen[ends[:, 1]])) > (
        average_precision_score(alike, -euclid) + 0.1
    )


# --- parts of the divergence ---------------------------------------------------------------------------------------


def smooth_divergence(function, temperature, X):
    """D(x_i, x_j) of temperature * log sum exp, from its definition."""
    values = X @ function.slopes.T + function.intercepts
    f = temperature * logsumexp(values / temperature, axis=1)
    shares = np.exp((values - f[:, None]) / temperature)
    gradients = shares @ function.slopes
    return f[:, None] - f - X @ gradients.T + (gradients * X).sum(1)


def mahalanobis(matrix, X):
    apart = X[:, None] - X
    return np.einsum("ijk,kl,ijl->ij", apart, matrix, apart)


@pytest.mark.parametrize("standardize", [True, False])
def test_the_divergence_is_the_sum_of_its_parts(standardize):
    X, y = classes_apart()
    X = X * [1.0, 5.0]
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    model = plain(
        temperature=0.3,
        strictness=0.2,
        companion=Quadratic(matrix),
        companion_weight=0.7,
        standardize=standardize,
        tol=0.2,
    ).fit(X, y)
    paraboloid = np.diag(0.2 / 2 / (X.var(0) if standardize else np.ones(2)))
    expected = smooth_divergence(model.function_, 0.3, X) + mahalanobis(paraboloid, X) + 0.7 * mahalanobis(matrix, X)
    np.testing.assert_allclose(model.divergence_.pairwise(X), expected, atol=1e-9)
    alone = plain(standardize=standardize, tol=0.2).fit(X, y)
    np.testing.assert_array_equal(alone.function_.slopes, model.function_.slopes)  # only the program is solved
    assert alone.result_.objective == model.result_.objective


@KINDS
def test_the_companion_of_what_is_similar(kind):
    X, y = classes_apart()
    X = X * [1.0, 5.0] + [10.0, 0.0]
    model = taught(plain(companion="within", companion_weight=2.0, tol=0.2), X, y, kind)
    scaled = (X - X.mean(0)) / X.std(0)
    if kind == "labels":
        residuals = scaled - np.stack([scaled[y == label].mean(0) for label in range(3)])[y]
        apart = np.argwhere(y[:, None] != y)
    elif kind == "pairs":
        ends, alike = chosen_pairs(y)
        near = np.r_[ends[alike], ends[alike][:, ::-1]]
        residuals, apart = scaled[near[:, 0]] - scaled[near[:, 1]], ends[~alike]
    else:
        rows = chosen_triplets(y)
        residuals, apart = scaled[rows[:, 0]] - scaled[rows[:, 1]], rows[:, [0, 2]]
    covariance = LedoitWolf(assume_centered=True).fit(residuals).covariance_
    expected = mahalanobis(np.linalg.inv(covariance), scaled)
    expected *= 2 / expected[apart[:, 0], apart[:, 1]].mean()
    added = model.divergence_.pairwise(X) - BregmanDivergence(model.function_).pairwise(X)
    np.testing.assert_allclose(added, 2 * expected, rtol=1e-4, atol=1e-8)


def test_the_companion_by_neighborhood_components():
    X, y = classes_apart()
    model = plain(companion="nca", tol=0.2, random_state=3).fit(X, y)
    scaled = (X - X.mean(0)) / X.std(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mapped = NeighborhoodComponentsAnalysis(random_state=3).fit(scaled, y).transform(scaled)
    expected = mahalanobis(np.eye(mapped.shape[1]), mapped)
    expected *= 2 / expected[y[:, None] != y].mean()
    added = model.divergence_.pairwise(X) - BregmanDivergence(model.function_).pairwise(X)
    np.testing.assert_allclose(added, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("companion", ["within", "nca"])
def test_companions_mind_neither_offsets_nor_constant_features(companion):
    X, y = classes_apart()
    options = {"companion": companion, "tol": 0.1, "random_state": 0}
    D = plain(**options).fit(X, y).divergence_.pairwise(X)
    far = np.column_stack([X + 1e6, np.full(len(X), 3.0)])
    model = plain(**options).fit(far, y)
    np.testing.assert_allclose(model.divergence_.pairwise(far), D, rtol=1e-4, atol=1e-4)
    other = np.column_stack([X + 1e6, np.full(len(X), 103.0)])  # what never varied says nothing
    np.testing.assert_allclose(model.pair_distance(far, other), 0, atol=1e-4)
    assert model.feature_bounds_[2] == 0


def test_a_companion_of_no_weight_changes_nothing():
    X, y = classes_apart()
    expected = plain(tol=0.2).fit(X, y)
    model = plain(companion="within", companion_weight=0.0, tol=0.2).fit(X, y)
    np.testing.assert_array_equal(model.divergence_.pairwise(X), expected.divergence_.pairwise(X))
    assert model.threshold_ == expected.threshold_


@pytest.mark.parametrize("companion", ["euclid", "within", "nca"])
def test_features_too_small_for_a_companion_are_refused(companion):
    X, y = classes_apart()
    with pytest.raises(ValueError, match=r"X must have features whose standard deviation is 0 or at least 1e-130, got"):
        plain(companion=companion).fit(1e-300 * X, y)


@pytest.mark.filterwarnings("ignore:PBDL learned nothing")
def test_the_companion_of_equal_similar_points_is_euclid():
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    model = plain(companion="within", tol=0.2).fit(X, [0, 0, 1, 1])
    added = model.divergence_.pairwise(X) - BregmanDivergence(model.function_).pairwise(X)
    np.testing.assert_allclose(added, 2 * (X[:, :1] != X[:, 0]), atol=1e-9)
    same = plain(companion="within", tol=0.2).fit(np.ones((4, 2)), [0, 0, 1, 1])
    np.testing.assert_array_equal(same.divergence_.pairwise(X[::2]), 0)


# --- similar or not ------------------------------------------------------------------------------------------------


def balanced_accuracy(near, similar):
    return (near[similar].mean() + (~near[~similar]).mean()) / 2


@KINDS
@pytest.mark.parametrize("balanced", [True, False])
def test_the_threshold_is_the_best_for_the_supervision(kind, balanced):
    X, y = classes_apart()
    model = taught(plain(alpha=0.05, temperature=0.2, balanced=balanced, tol=0.2), X, y, kind)
    D = model.divergence_.pairwise(X)
    if kind == "labels":
        apart = ~np.eye(len(X), dtype=bool)
        distances, similar = D[apart], (y[:, None] == y)[apart]
    elif kind == "pairs":
        ends, alike = chosen_pairs(y)
        distances, similar = np.r_[D[ends[:, 0], ends[:, 1]], D[ends[:, 1], ends[:, 0]]], np.r_[alike, alike]
    else:
        anchor, positive, negative = chosen_triplets(y).T
        distances, similar = np.r_[D[positive, anchor], D[negative, anchor]], np.arange(120) < 60
    accuracy = balanced_accuracy if balanced else lambda near, similar: (near == similar).mean()
    best = max(accuracy(distances <= at, similar) for at in [-1.0, *distances + 1e-9])
    assert accuracy(distances <= model.threshold_, similar) == pytest.approx(best, abs=1e-9)


def test_pairs_are_similar_up_to_the_threshold():
    X, y = classes_apart()
    model = plain(temperature=0.1, tol=0.2).fit(X, y)
    first, second = X[:20], X[4:24]
    D = model.divergence_.pairwise(X)[np.arange(20), np.arange(4, 24)]
    np.testing.assert_allclose(model.pair_distance(first, second), D, atol=1e-9)
    np.testing.assert_array_equal(model.pair_score(first, second), -model.pair_distance(first, second))
    model.threshold_ = float(np.sort(model.pair_distance(first, second))[9])
    assert model.is_similar(first, second).sum() == 10  # the threshold itself counts


@pytest.mark.parametrize("strategy", ["accuracy", "balanced_accuracy", "true_positive_rate", "false_positive_rate"])
def test_calibration_is_the_best_of_all_thresholds(strategy):
    X, y = classes_apart()
    model = plain(alpha=0.1, temperature=0.2, tol=0.2).fit(X, y)
    unseen, labels = classes_apart(40, seed=1)
    ends, similar = chosen_pairs(labels, 80)
    first, second = unseen[ends.T]
    rate = {"true_positive_rate": 0.9, "false_positive_rate": 0.1}.get(strategy)
    assert model.calibrate(first, second, similar, strategy=strategy, rate=rate) is model
    distances = model.pair_distance(first, second)
    found = model.is_similar(first, second)
    choices = [distances <= at for at in [-1.0, *distances]]
    if strategy == "accuracy":
        assert (found == similar).mean() == max((near == similar).mean() for near in choices)
    elif strategy == "balanced_accuracy":
        best = max(balanced_accuracy(near, similar) for near in choices)
        assert balanced_accuracy(found, similar) == pytest.approx(best)
    elif strategy == "true_positive_rate":
        assert found[similar].mean() >= rate
        assert found[~similar].mean() == min(n[~similar].mean() for n in choices if n[similar].mean() >= rate)
    else:
        assert found[~similar].mean() <= rate
        assert found[similar].mean() == max(n[similar].mean() for n in choices if n[~similar].mean() <= rate)


@pytest.mark.parametrize("y", [np.r_[np.zeros(29, dtype=int), 1], np.r_[0, 0, np.arange(28)]])
def test_the_threshold_knows_both_kinds_of_pairs_however_rare(y):
    """A random sample of pairs may miss the rare kind."""
    for seed in range(3):
        known = drawn_pairs(y, seed, n_rows=2)
        np.testing.assert_array_equal(known.similar, y[known.tangents] == y[known.points])
        assert len(set(known.similar)) == 2
        assert (known.tangents != known.points).all()


def test_many_features_are_calibrated_some_pairs_at_a_time():
    X, y = classes_apart()
    divergence = plain(tol=0.2).fit(X, y).divergence_
    known = drawn_pairs(y, 0)
    few = KnownPairs(*(part[::20] for part in known[:3]))  # a matrix would not pay
    expected = divergence.pairwise(X)[known.points, known.tangents]
    np.testing.assert_array_equal(known.divergences(divergence, X), expected)
    np.testing.assert_allclose(few.divergences(divergence, X, n_elements=10), expected[::20], rtol=1e-9, atol=1e-12)


# --- score ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_the_score_is_the_mean_average_precision_over_queries(temperature):
    X, y = classes_apart()
    model = plain(alpha=0.1, temperature=temperature, tol=0.2).fit(X, y)
    unseen, labels = classes_apart(31, seed=1)
    labels = np.r_[labels[:-1], 9]  # a class of one row, which is no query
    D = model.divergence_.pairwise(unseen).round(12)  # what rounding explains is a tie
    rest = ~np.eye(31, dtype=bool)
    precisions = [expected_average_precision(labels[rest[i]] == labels[i], -D[i, rest[i]]) for i in range(30)]
    assert model.score(unseen, labels) == pytest.approx(np.mean(precisions), abs=1e-9)
    names = np.array(list("abcdefghij"))[labels]
    assert model.score(torch.as_tensor(unseen), names) == pytest.approx(np.mean(precisions), abs=1e-9)


def test_a_score_needs_a_class_of_two():
    X, y = classes_apart()
    model = plain(tol=0.2).fit(X, y)
    with pytest.raises(ValueError, match="y must have a class with at least 2 rows, got none"):
        model.score(X[:3], y[:3])


# --- it behaves as scikit-learn and torch users expect -------------------------------------------------------------


def test_clone_and_pickle():
    X, y = classes_apart()
    model = plain(alpha=0.05, temperature=0.2, companion=SquaredEuclidean(), warm_start=True, tol=0.2).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.divergence_.pairwise(X), model.divergence_.pairwise(X))
    assert (again.result_, again.threshold_, again._warm) == (model.result_, model.threshold_, None)
    copy = clone(model)
    assert not hasattr(copy, "divergence_")
    np.testing.assert_array_equal(copy.fit(X, y).divergence_.pairwise(X), model.divergence_.pairwise(X))


@pytest.mark.filterwarnings("ignore:PBDL learned nothing")
def test_grid_search_over_alpha_and_temperature():
    X, y = classes_apart(36)
    grid = {"alpha": [0.05, 5.0], "temperature": [0.0, 0.2]}
    search = GridSearchCV(plain(tol=0.2), grid, cv=2).fit(X, y)
    assert search.best_params_["alpha"] == 0.05  # with the other nothing is learned
    flat = search.cv_results_["mean_test_score"][search.cv_results_["param_alpha"] == 5.0]
    assert search.best_score_ > flat.max() + 0.2
    best = search.best_estimator_
    assert best.score(X, y) == plain(tol=0.2, **search.best_params_).fit(X, y).score(X, y)


def test_feature_names_are_remembered_and_checked():
    X, y = classes_apart()
    frame = pd.DataFrame(X, columns=["size", "noise"])
    model = plain(tol=0.2).fit(frame, y)  # without a warning about names
    assert model.feature_names_in_.tolist() == ["size", "noise"]
    np.testing.assert_array_equal(model.pair_distance(frame[:5], frame[5:10]), model.divergence_.paired(X[:5], X[5:10]))
    assert model.score(frame, y) > 0.5
    for look in (lambda other: model.score(other, y), lambda other: model.is_similar(frame, other)):
        with pytest.raises(ValueError, match="feature names should match"):
            look(frame[["noise", "size"]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_in_tensors_out(dtype):
    X, y = classes_apart()
    given = torch.as_tensor(X, dtype=dtype)
    model = plain(temperature=0.1, tol=0.2).fit(given, torch.as_tensor(y))
    expected = plain(temperature=0.1, tol=0.2).fit(given.double().numpy(), y)
    D = model.divergence_.pairwise(given)
    assert isinstance(D, torch.Tensor)
    np.testing.assert_array_equal(D.numpy(), expected.divergence_.pairwise(given.double().numpy()))
    distance, near = model.pair_distance(given[:9], given[9:18]), model.is_similar(given[:9], given[9:18])
    assert isinstance(distance, torch.Tensor)
    assert near.dtype == torch.bool
    np.testing.assert_array_equal(near.numpy(), distance.numpy() <= expected.threshold_)
    threshold = model.calibrate(given[:-1], given[1:], torch.as_tensor(y[:-1] < 2)).threshold_
    assert threshold == expected.calibrate(X[:-1].astype(given.numpy().dtype), given[1:].numpy(), y[:-1] < 2).threshold_


def test_warm_start_along_alpha_takes_fewer_iterations_to_the_same_optimum():
    X, y = classes_apart(30)
    warm, n_warm, n_cold = plain(warm_start=True, tol=0.05), 0, 0
    for alpha in (0.3, 0.25, 0.2, 0.15):
        warm.set_params(alpha=alpha).fit(X, y)
        cold = plain(alpha=alpha, tol=0.05).fit(X, y)
        assert max(warm.gap_, cold.gap_) <= 0.05
        # each value is above both bounds
        assert warm.result_.dual_bound <= cold.result_.objective * (1 + 1e-9)
        assert cold.result_.dual_bound <= warm.result_.objective * (1 + 1e-9)
        n_warm, n_cold = n_warm + warm.n_iter_, n_cold + cold.n_iter_
    assert n_warm < n_cold


@pytest.mark.filterwarnings("ignore:PBDL learned nothing")
def test_a_warm_start_never_carries_over_what_does_not_fit():
    X, y = classes_apart(18)
    warm = plain(alpha=0.1, warm_start=True, tol=0.02).fit(X, y)
    cases = [
        (X, (y == 1).astype(int), "labels"),
        (X[:15], y[:15], "labels"),
        (X, y, "pairs"),
        (X, (y + (np.arange(18) == 4)) % 3, "pairs"),
        (X, y, "labels"),
    ]
    for points, labels, kind in cases:
        cold = taught(plain(alpha=0.1, tol=0.02), points, labels, kind)
        found = taught(warm, points, labels, kind).result_.objective
        assert found == pytest.approx(cold.result_.objective, rel=0.025)
        assert found == pytest.approx(value(warm, points, labels, kind), rel=1e-6)


def test_random_state_makes_fits_repeatable():
    X, y = classes_apart(40)
    for seed in (lambda: 3, lambda: np.random.RandomState(3)):
        models = [plain(n_pieces=8, companion="nca", tol=0.2, random_state=seed()).fit(X, y) for _ in range(2)]
        np.testing.assert_array_equal(*(model.divergence_.pairwise(X) for model in models))


def test_the_callback_sees_the_certificate_and_can_stop():
    X, y = classes_apart()
    seen = []

    def stop(check):
        seen.append(check)
        return len(seen) == 2

    model = plain(tol=1e-9, callback=stop).fit(X, y)  # stopping on request is no warning
    assert all(isinstance(check, Check) for check in seen)
    assert model.result_.history == tuple(seen)
    assert model.result_.stopped
    assert not model.result_.converged
    assert model.n_iter_ == model.result_.n_iter == seen[-1].iteration
    assert "stopped early" in model.result_.status


def test_the_result_tells_how_it_went():
    X, y = classes_apart()
    result = plain(tol=0.05).fit(X, y).result_
    assert result.converged
    assert result.gap == pytest.approx((result.objective - result.dual_bound) / result.objective)
    assert result.gap <= 0.05
    assert f"after {result.n_iter} iterations" in result.status
    objectives = [check.objective for check in result.history]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] == result.objective
    bounds = [check.dual_bound for check in result.history]
    assert bounds == sorted(bounds)
    assert bounds[-1] == result.dual_bound


def test_progress_shows_iterations_and_the_gap(capsys):
    X, y = classes_apart()
    plain(tol=0.2, verbose=1).fit(X, y)
    shown = capsys.readouterr().err
    assert "gap" in shown
    assert "it/s" in shown or "s/it" in shown
    plain(tol=0.2).fit(X, y)
    assert capsys.readouterr() == ("", "")


@KINDS
def test_not_converging_warns_where_fit_was_called(kind):
    X, y = classes_apart()
    model = plain(alpha=1e-3, tol=1e-8, max_iter=30)
    message = r"PBDL not converged to 1e-08: certified gap .*% after 30 iterations; raise max_iter or tol"
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        taught(model, X, y, kind)
    assert [warning.filename for warning in caught] == [__file__]
    assert not model.result_.converged
    assert value(model, X, y, kind) == pytest.approx(model.result_.objective, rel=1e-6)


def test_input_is_left_alone():
    X, y = classes_apart()
    before = X.copy()
    X.flags.writeable = y.flags.writeable = False
    state, torch_state = np.random.mtrand._rand.get_state()[1].copy(), torch.get_rng_state()
    model = plain(n_pieces=7, companion="nca", tol=0.2, random_state=0).fit(np.asfortranarray(X)[::2], y[::2])
    model.score(X, y)
    np.testing.assert_array_equal(X, before)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.mtrand._rand.get_state()[1], state)


# --- pieces --------------------------------------------------------------------------------------------------------


def test_numbers_of_pieces():
    X, y = classes_apart(30)
    each = plain(alpha=0.03, n_pieces=None, tol=0.1).fit(X, y)
    auto = plain(alpha=0.03, tol=0.1).fit(X, y)
    np.testing.assert_array_equal(auto.divergence_.pairwise(X), each.divergence_.pairwise(X))
    few = plain(alpha=0.03, n_pieces=6, tol=0.1, random_state=0).fit(X, y)
    assert few.function_.n_pieces <= 6 < each.function_.n_pieces
    with pytest.warns(UserWarning, match="PBDL") as caught:
        one = plain(n_pieces=1, tol=0.1).fit(X, y)
    assert "n_pieces=1 is below one a class" in str(caught[0].message)
    assert "give 6 or more" in str(caught[0].message)
    assert "learned nothing" in str(caught[1].message)
    np.testing.assert_array_equal(one.divergence_.pairwise(X), 0)


@pytest.mark.parametrize(("n_classes", "expected"), [(2, 100), (5, 100), (12, 240), (30, 400), (300, 600)])
def test_pieces_follow_the_classes(n_classes, expected):
    assert PBDL()._piece_count(5000, n_classes) == expected
    assert PBDL()._piece_count(60, n_classes) == 60
    assert PBDL()._piece_count(5000) == 100  # pairs and triplets
    assert PBDL(n_pieces=7)._piece_count(5000, n_classes) == 7


def test_many_classes_are_still_told_apart():
    """Cells that ignore the classes mix them, and then most pairs of classes cannot be learned to be apart."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 8)
    centers = 4 * rng.standard_normal((30, 5))
    X, unseen = (centers[y] + rng.standard_normal((240, 5)) for _ in range(2))
    auto = PBDL(random_state=0).fit(X, y).score(unseen, y)
    with pytest.warns(UserWarning, match="the cells ignore the classes"):
        blind = PBDL(n_pieces=10, random_state=0).fit(X, y).score(unseen, y)
    assert auto > blind + 0.2


def test_a_fit_that_learned_nothing_says_so():
    X, y = make_circles(100, noise=0.05, factor=0.5, random_state=0)
    with pytest.warns(UserWarning, match=r"PBDL learned nothing: .* alpha=0\.01, .* lower alpha"):
        model = PBDL().fit(X, y)
    assert model.threshold_ == -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapped = PBDL().fit(np.square(X), y)
    assert mapped.score(np.square(X), y) > 0.95


def test_defaults_rank_unseen_rows_better_than_the_plain_program():
    X, y = load_wine(return_X_y=True)
    known, unseen = np.arange(len(X)) % 2 == 0, np.arange(len(X)) % 2 == 1
    paper = PBDL(n_pieces=None, balanced=False, temperature=0, tol=0.01).fit(X[known], y[known])
    assert PBDL(random_state=0).fit(X[known], y[known]).score(X[unseen], y[unseen]) > paper.score(X[unseen], y[unseen])


def test_cells_inside_classes_retrieve_as_well_as_a_piece_each():
    X, y = classes_apart(60)
    unseen, labels = classes_apart(60, seed=1)
    each = plain(alpha=0.05, tol=0.2).fit(X, y).score(unseen, labels)
    cells = plain(alpha=0.05, n_pieces=9, tol=0.2, random_state=0).fit(X, y).score(unseen, labels)
    assert cells > each - 0.05


# --- bad and odd input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[np.nan], [1.0], [2.0]], [0, 0, 1], "Input X contains NaN"),
        ([[np.inf], [1.0], [2.0]], [0, 0, 1], "Input X contains infinity"),
        ([["a"], ["b"], ["c"]], [0, 0, 1], "could not convert string"),
        ([1.0, 2.0, 3.0], [0, 0, 1], "Expected 2D array"),
        ([[0.0], [1.0], [2.0]], [0, 0, 1, 1], "inconsistent numbers of samples"),
        ([[0.0], [1.0], [2.0]], [0, 0, 0], "y must have at least 2 classes, got 1 class"),
        ([[0.0], [1.0]], [0, 1], "y must have a class with at least 2 rows, got only classes of one row"),
        ([[0.0], [1.0], [2.0]], [0.1, 0.2, 0.2], "Unknown label type: continuous"),
        ([[0.0], [1.0], [2.0]], [0, np.nan, 0], "Input y contains NaN"),
        ([[0.0], [1.0], [2.0]], None, "requires y to be passed"),
        (np.empty((0, 1)), [], "minimum of 1 is required"),
        (torch.tensor([[torch.nan], [1.0], [2.0]]), torch.tensor([0, 0, 1]), "Input X contains NaN"),
    ],
)
def test_bad_arrays_are_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        plain().fit(X, y)


@pytest.mark.parametrize(
    ("pairs", "similar", "error", "message"),
    [
        ([[0, 24]], [True], ValueError, "pairs must hold row numbers of X from 0 to 23, got 24"),
        ([[0, -1]], [True], ValueError, "pairs must hold row numbers of X from 0 to 23, got -1"),
        ([[0.0, 1.0]], [True], TypeError, r"pairs must hold row numbers of X \(integers\), got dtype float64"),
        ([[True, False]], [True], TypeError, r"pairs must hold row numbers of X \(integers\), got dtype bool"),
        ([0, 1], [True], ValueError, r"pairs must have shape \(n_pairs, 2\) with at least one row, got \(2,\)"),
        ([[0, 1, 2]], [True], ValueError, r"pairs must have shape \(n_pairs, 2\) .* got \(1, 3\)"),
        ([], [], ValueError, r"pairs must have shape \(n_pairs, 2\) with at least one row, got \(0,\)"),
        ([[0, 1], [1, 2]], [True], ValueError, r"similar must have shape \(2,\), got \(1,\)"),
        ([[0, 1], [1, 2]], [1, -2], ValueError, "similar must hold True or False, or 1 and -1"),
        ([[0, 1], [1, 2]], ["yes", "no"], ValueError, "similar must hold True or False"),
        ([[0, 1], [1, 2]], [np.nan, 1], ValueError, "similar must hold True or False"),
        ([[0, 1], [1, 2]], [True, True], ValueError, "similar must mark pairs of both kinds, got only similar ones"),
        ([[0, 1], [1, 2]], [0, 0], ValueError, "similar must mark pairs of both kinds, got only dissimilar ones"),
        ([[4, 7], [4, 7]], [True, False], ValueError, r"pairs must not call the same rows .* got both for \[4, 7\]"),
        ([[4, 7], [7, 4]], [True, False], ValueError, r"pairs must not call the same rows .* got both for \[4, 7\]"),
        ([[0, 1], [3, 3]], [True, False], ValueError, r"pairs must not call a row dissimilar to itself, got \[3, 3\]"),
    ],
)
def test_bad_pairs_are_named(pairs, similar, error, message):
    with pytest.raises(error, match=message):
        plain().fit_pairs(classes_apart()[0], pairs, similar)


@pytest.mark.parametrize(
    ("triplets", "error", "message"),
    [
        ([], ValueError, r"triplets must have shape \(n_triplets, 3\) with at least one row, got \(0,\)"),
        ([[0, 1]], ValueError, r"triplets must have shape \(n_triplets, 3\) with at least one row, got \(1, 2\)"),
        ([[0, 1, 24]], ValueError, "triplets must hold row numbers of X from 0 to 23, got 24"),
        ([[0, 1, -1]], ValueError, "triplets must hold row numbers of X from 0 to 23, got -1"),
        ([[0.0, 1.0, 2.0]], TypeError, "triplets must hold row numbers"),
        ([[5, 1, 5]], ValueError, r"triplets must have a negative other than .* got \[5, 1, 5\]"),
        ([[5, 1, 1]], ValueError, r"triplets must have a negative other than .* got \[5, 1, 1\]"),
    ],
)
def test_bad_triplets_are_named(triplets, error, message):
    with pytest.raises(error, match=message):
        plain().fit_triplets(classes_apart()[0], triplets)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"alpha": 0}, ValueError, "alpha must be positive and finite, got 0"),
        ({"alpha": -1.0}, ValueError, "alpha must be positive and finite, got -1.0"),
        ({"alpha": "big"}, TypeError, "alpha must be a number, got 'big'"),
        ({"temperature": -0.1}, ValueError, "temperature must be at least 0 and finite, got -0.1"),
        ({"temperature": None}, TypeError, "temperature must be a number, got None"),
        ({"strictness": np.nan}, ValueError, "strictness must be at least 0 and finite, got nan"),
        (
            {"companion": "lda"},
            ValueError,
            "companion must be None, 'euclid', 'within', 'nca' or a Generator, got 'lda'",
        ),
        ({"companion": 3}, ValueError, "companion must be None, 'euclid', 'within', 'nca' or a Generator, got 3"),
        ({"companion": Quadratic(np.eye(3))}, ValueError, "companion must be for the 2 features of X, got one for 3"),
        ({"companion_weight": -1}, ValueError, "companion_weight must be at least 0 and finite, got -1"),
        ({"balanced": 1}, TypeError, "balanced must be True or False, got 1"),
        ({"standardize": "no"}, TypeError, "standardize must be True or False, got 'no'"),
        ({"tol": 0.0}, ValueError, "tol must be positive and finite, got 0.0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1, got 0"),
        ({"n_pieces": 0}, ValueError, "n_pieces must be at least 1, got 0"),
        ({"n_pieces": 25}, ValueError, r"n_pieces must be at most the number of rows of X \(24\), got 25"),
        ({"n_pieces": "many"}, ValueError, "n_pieces must be 'auto', None or an integer, got 'many'"),
        ({"random_state": "x"}, ValueError, "cannot be used to seed"),
        ({"callback": 3}, TypeError, "callback must be None or callable, got 3"),
        ({"device": "nowhere"}, ValueError, "device must be one of .* got 'nowhere'"),
    ],
)
def test_bad_parameters_are_named_before_anything_is_solved(parameters, error, message, monkeypatch):
    monkeypatch.setattr(base, "solve", lambda *args, **kwargs: pytest.fail("the program was solved"))
    with pytest.raises(error, match=message):
        plain(**parameters).fit(*classes_apart())


def test_neighborhood_components_need_labels(monkeypatch):
    monkeypatch.setattr(base, "solve", lambda *args, **kwargs: pytest.fail("the program was solved"))
    X, y = classes_apart()
    with pytest.raises(ValueError, match="companion='nca' needs class labels: use fit, or another companion"):
        plain(companion="nca").fit_pairs(X, *chosen_pairs(y))
    with pytest.raises(ValueError, match="companion='nca' needs class labels"):
        plain(companion="nca").fit_triplets(X, chosen_triplets(y))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there():
    with pytest.raises(ValueError, match=r"device must be one of 'auto', 'cpu' .*, got 'cuda'"):
        plain(device="cuda").fit(*classes_apart())


def test_looking_too_early_or_at_other_features():
    X, y = classes_apart()
    for look in (plain().pair_distance, plain().is_similar, plain().score):
        with pytest.raises(NotFittedError):
            look(X, X if look.__name__ != "score" else y)
    model = plain(tol=0.2).fit(X, y)
    with pytest.raises(ValueError, match="3 features, but PBDL is expecting 2"):
        model.pair_distance(np.zeros((1, 3)), np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"Y must have shape \(n_points, 2\), got \(1, 3\)"):
        model.pair_distance(torch.zeros((1, 2)), torch.zeros((1, 3)))
    with pytest.raises(ValueError, match="X and Y must have as many rows as each other, got 2 and 3"):
        model.is_similar(X[:2], X[:3])
    with pytest.raises(ValueError, match=r"similar must have shape \(24,\), got \(23,\)"):
        model.calibrate(X, X, y[1:] == 0)


def test_a_class_of_one_row_is_kept_apart():
    X, y = classes_apart()
    X, y = np.vstack([X, [8.0, 0.0]]), np.r_[y, 7]
    model = plain(alpha=0.03, tol=0.1).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 7]
    assert model.result_.objective == pytest.approx(value(model, X, y, "labels"), rel=1e-6)
    assert not model.is_similar(X[:-1], X[[-1] * 24]).any()


def test_constant_columns_are_not_used():
    X, y = classes_apart()
    D = plain(alpha=0.03, tol=0.2).fit(X, y).divergence_.pairwise(X)
    wider = np.column_stack([np.full(24, 1e6), X, np.zeros(24), 1e16 + 2.0 * np.arange(24)])
    model = plain(alpha=0.03, tol=0.2).fit(wider, y)
    assert (model.feature_bounds_[[0, 3, 4]] == 0).all()
    np.testing.assert_allclose(model.divergence_.pairwise(wider), D, atol=ROUNDED)


def test_two_rows():
    X = np.array([[0.0, 5.0], [1.0, 5.0]])
    pairs = plain(alpha=0.01, tol=1e-3).fit_pairs(X, [[0, 0], [0, 1]], [True, False])
    # standardized to -1 and 1, the two divergences add up to 2 (a_1 - a_0): both are 2 at slopes -1 and 1
    np.testing.assert_allclose(pairs.divergence_.pairwise(X), [[0, 2], [2, 0]], atol=0.02)
    np.testing.assert_allclose(pairs.feature_bounds_, [1.0, 0.0], atol=0.01)
    assert pairs.result_.objective == pytest.approx(0.01, rel=1e-2)
    triplets = plain(alpha=0.01, tol=1e-3).fit_triplets(X, [[0, 0, 1]])
    # with the kink at x_0, D(x_1, x_0) = 2 (a_1 - a_0) is 1 at slopes -1/4 and 1/4
    assert triplets.pair_distance(X[1:], X[:1]) == pytest.approx([1.0], abs=0.01)
    assert triplets.result_.objective == pytest.approx(0.01 / 4, rel=1e-2)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        plain().fit_pairs(X[:1], [[0, 0]], [True])


def test_rows_that_are_all_equal_cannot_be_distinguished():
    X = np.ones((6, 2))
    with pytest.warns(UserWarning, match="learned nothing"):
        model = plain().fit(X, [0, 0, 0, 1, 1, 1])
    assert model.result_.objective == pytest.approx(2 * 0.5)  # every dissimilar pair is 2 short
    assert model.gap_ == 0
    np.testing.assert_array_equal(model.divergence_.pairwise(X), 0)
