"""Soft neighbors under a learned divergence."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_circles, make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import bregnet
from bregnet import (
    PBDL,
    BregmanDivergence,
    BregmanKNeighborsClassifier,
    BregmanNCA,
    BregmanRanker,
    MaxAffine,
    Quadratic,
)
from bregnet.learners import soft_neighbors
from bregnet.learners.soft_neighbors import _Adam, _logistic_pieces, _Parameters, _Rows, soft_neighbor_loss

INITS = pytest.mark.parametrize("init", ["logistic", "pbdl"])


@parametrize_with_checks([BregmanNCA(max_iter=2), BregmanNCA(quadratic=0.0, max_iter=1)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


def likelihood_by_hand(D, y):
    """Mean over rows of the log of the share of their class among their soft neighbors."""
    found = []
    for i in range(len(y)):
        weights = np.exp(-D[i]) * (np.arange(len(y)) != i)
        if (others := weights[y == y[i]].sum()) > 0:
            found.append(np.log(others / weights.sum()))
    return np.mean(found)


@pytest.mark.parametrize("curved", [False, True])
def test_the_loss_is_that_of_the_divergence(curved):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), np.append(np.arange(19) % 3, 7)  # the last class has one row
    slopes, intercepts, W = rng.standard_normal((4, 3)), rng.standard_normal(4), rng.standard_normal((3, 3))
    f = MaxAffine(slopes, intercepts, temperature=0.5)
    D = BregmanDivergence(f + Quadratic(W @ W.T) if curved else f).pairwise(X)
    made = [torch.tensor(each) for each in (slopes, intercepts, np.log(0.5), W)]
    parameters = _Parameters(*made[:3], made[3] if curved else None)
    rows, own = _Rows(torch.tensor(X), torch.tensor(y)), torch.arange(20)
    assert parameters.loss(rows, rows, own).item() == pytest.approx(-likelihood_by_hand(D, y))
    same = soft_neighbor_loss(-torch.tensor(D), rows.classes, rows.classes, own)
    assert same.item() == pytest.approx(-likelihood_by_hand(D, y))


def test_a_row_without_others_of_its_class_has_no_gradient_that_is_no_number():
    logits = torch.zeros(3, 3, requires_grad=True)
    classes = torch.tensor([0, 0, 1])
    soft_neighbor_loss(logits, classes, classes, torch.arange(3)).backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[2].any()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_divergence_of_the_logistic_start_is_that_of_class_probabilities(n_classes):
    X, y = make_classification(80, 5, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=0)
    log_p = LogisticRegression(max_iter=1000).fit(X, y).predict_log_proba(X)
    D = BregmanDivergence(MaxAffine(*_logistic_pieces(X, y), temperature=1.0)).pairwise(X)
    expected = (np.exp(log_p) * log_p).sum(1) - log_p @ np.exp(log_p).T  # KL(p(item) || p(query))
    np.testing.assert_allclose(D, expected, atol=1e-8)


@INITS
def test_descent_improves_the_likelihood_of_rows_held_out(init):
    X, y, X_new, y_new = iris()
    model = BregmanNCA(init, random_state=0).fit(X, y)
    assert model.log_likelihoods_.max() > model.log_likelihoods_[0]
    assert len(model.log_likelihoods_) == model.n_iter_ + 1
    classifier = BregmanKNeighborsClassifier(model.divergence_, 50, weights="softmax").fit(X, y)
    assert classifier.score(X_new, y_new) > 0.93
    np.testing.assert_array_equal(model.is_similar(X[:1], X[-1:]), [False])
    assert model.score(X_new, y_new) > 0.8


def test_the_same_seed_gives_the_same_divergence_and_another_one_another():
    X, y, X_new, _ = iris()
    one, same, other = (BregmanNCA(max_iter=5, random_state=seed).fit(X, y) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.divergence_.pairwise(X_new), same.divergence_.pairwise(X_new))
    assert not np.allclose(one.divergence_.pairwise(X_new), other.divergence_.pairwise(X_new))


def test_units_and_constant_features_do_not_matter():
    X, y, X_new, _ = iris()
    one = BregmanNCA(max_iter=20, random_state=0).fit(X, y)
    scales, shift = np.array([1e-3, 1.0, 50.0, 1e4]), np.array([5.0, 0.0, -3.0, 1e3])
    other = BregmanNCA(max_iter=20, random_state=0).fit(np.column_stack([X * scales + shift, np.full(len(X), 7.0)]), y)
    there = np.column_stack([X_new * scales + shift, np.full(len(X_new), 9.0)])
    np.testing.assert_allclose(other.divergence_.pairwise(there), one.divergence_.pairwise(X_new), rtol=0.02, atol=0.02)


def test_the_best_pass_is_kept_and_the_fit_ends_after_some_without_a_better_one():
    X, y = make_moons(60, noise=0.4, random_state=0)
    model = BregmanNCA(learning_rate=0.3, n_iter_no_change=3, random_state=0).fit(X, y)
    assert model.n_iter_ - model.log_likelihoods_.argmax() == 3
    short = BregmanNCA(learning_rate=0.3, max_iter=max(1, model.log_likelihoods_.argmax()), random_state=0).fit(X, y)
    np.testing.assert_array_equal(short.divergence_.pairwise(X), model.divergence_.pairwise(X))


def test_many_rows_are_learned_from_some_items_at_a_time(monkeypatch):
    X, y = make_moons(400, noise=0.2, random_state=0)
    model = BregmanNCA(max_iter=30, random_state=0)
    all_items = model.fit(X[::2], y[::2]).divergence_
    monkeypatch.setattr(soft_neighbors, "MOST_ITEMS", 64)
    some_items = clone(model).fit(X[::2], y[::2]).divergence_
    for each in (all_items, some_items):
        assert (
            BregmanKNeighborsClassifier(each, 50, weights="softmax").fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
        )


def test_without_rows_held_out_the_training_rows_are_judged_leaving_one_out():
    X, y, _, _ = iris()
    model = BregmanNCA(validation_fraction=0.0, max_iter=1, random_state=0).fit(X, y)
    D = BregmanNCA(validation_fraction=0.0, max_iter=1, learning_rate=1e-9, random_state=0).fit(X, y)
    assert model.log_likelihoods_[0] == pytest.approx(likelihood_by_hand(D.divergence_.pairwise(X), y), rel=1e-3)
    assert BregmanNCA(max_iter=1, random_state=0).fit(X[[0, 1, -1, -2]], y[[0, 1, -1, -2]]).n_iter_ == 1


def test_descent_leaves_a_logistic_start_that_knows_nothing():
    X, y = make_circles(400, noise=0.1, factor=0.5, random_state=0)
    learner = BregmanNCA(random_state=0)
    ours = BregmanKNeighborsClassifier(learner, 50, weights="softmax").fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    assert ours > 0.95
    assert LogisticRegression().fit(X[::2], y[::2]).score(X[1::2], y[1::2]) < 0.7


@INITS
def test_it_is_saved_alone_and_inside_other_estimators(tmp_path, init):
    X, y, X_new, _ = iris()
    model = BregmanNCA(init, max_iter=3, random_state=0).fit(X, y)
    bregnet.save(model, tmp_path / "model")
    again = bregnet.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    np.testing.assert_allclose(again.divergence_.pairwise(X_new), model.divergence_.pairwise(X_new), atol=1e-11)
    np.testing.assert_array_equal(again.log_likelihoods_, model.log_likelihoods_)
    assert again.threshold_ == model.threshold_
    classifier = BregmanKNeighborsClassifier(BregmanNCA(max_iter=3, random_state=0), 9, weights="softmax").fit(X, y)
    bregnet.save(classifier, tmp_path / "classifier")
    again = bregnet.load(tmp_path / "classifier")
    np.testing.assert_allclose(again.predict_proba(X_new), classifier.predict_proba(X_new), atol=1e-11)
    assert again.learner_.n_iter_ == 3


def test_the_card_and_the_report(tmp_path):
    X, y, X_new, y_new = iris()
    model = BregmanNCA(max_iter=3, random_state=0)
    assert "log-likelihood" not in model._repr_html_()
    model.fit(X, y)
    assert f"from {model.log_likelihoods_[0]:.3g} to" in model._repr_html_()
    bregnet.report(model, X_new, y_new).save(tmp_path / "page.html")
    assert "BregmanNCA" in (tmp_path / "page.html").read_text()


def test_it_serves_a_ranker_and_probabilities_sum_to_one():
    X, y, X_new, y_new = iris()
    assert BregmanRanker(BregmanNCA(max_iter=3, random_state=0)).fit(X, y).score(X_new, y_new) > 0.8
    start = PBDL(temperature=0.3, tol=0.1).fit(X, y)
    for weights in ("uniform", "distance", "softmax"):
        found = BregmanKNeighborsClassifier(start.divergence_, 9, weights=weights).fit(X, y).predict_proba(X_new)
        np.testing.assert_allclose(found.sum(1), 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init": "random"}, "init must be one of 'logistic', 'pbdl', got 'random'"),
        ({"quadratic": -1.0}, "quadratic must be"),
        ({"learning_rate": 0.0}, "learning_rate must be"),
        ({"learning_rate": 1e300}, "learning_rate must be at most 1e\\+20, got 1e\\+300"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"validation_fraction": 1.0}, "validation_fraction must be below 1, got 1.0"),
        ({"device": "nowhere"}, "device must be"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y, _, _ = iris()
    with pytest.raises(ValueError, match=message):
        BregmanNCA(**parameters).fit(X, y)


def test_steps_are_those_of_torchs_adam():
    ours, theirs = (torch.tensor([1.0, -2.0, 3.0], requires_grad=True) for _ in range(2))
    optimizers = _Adam([ours], 0.1), torch.optim.Adam([theirs], lr=0.1)
    for _ in range(20):
        optimizers[0].step(torch.autograd.grad((ours**4).sum(), [ours]))
        optimizers[1].zero_grad()
        (theirs**4).sum().backward()
        optimizers[1].step()
    torch.testing.assert_close(ours, theirs)


def test_a_descent_that_diverges_says_so_and_keeps_the_best():
    X, y, _, _ = iris()
    with pytest.warns(ConvergenceWarning, match=r"diverged in pass \d+, .*lower learning_rate=1000000000"):
        model = BregmanNCA(learning_rate=1e9, random_state=0).fit(X, y)
    assert np.isfinite(model.log_likelihoods_).all()
    assert len(model.log_likelihoods_) == model.n_iter_ + 1


def test_features_of_tiny_variation_are_refused():
    X, y, _, _ = iris()
    with pytest.raises(ValueError, match="X must have features whose standard deviation is 0 or at least 1e-130, got"):
        BregmanNCA().fit(X * 1e-200, y)


@pytest.mark.parametrize("batch_size", [1, 128])
@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_rows_that_are_alone_in_their_class_do_not_end_a_fit(batch_size):
    X, y = make_classification(40, 4, n_informative=3, n_redundant=0, random_state=0)
    y[:3] = 7, 8, 9
    model = BregmanNCA(batch_size=batch_size, max_iter=4, random_state=0).fit(X, y)
    assert model.n_iter_ == 4
    assert np.isfinite(model.log_likelihoods_).all()


def test_held_out_rows_without_another_of_their_class_are_not_what_a_fit_is_judged_by():
    X = np.random.default_rng(0).standard_normal((20, 2))
    model = BregmanNCA(max_iter=3, random_state=0).fit(X, [*range(18), 0, 1])
    assert model.n_iter_ == 3
    assert (model.log_likelihoods_ < 0).all()
