import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from sklearn.model_selection import KFold

import bregnet
from bregnet import PBDL, PBDLCV, BregmanDivergence, BregmanRanker, MaxAffine, plotting
from bregnet.metrics import mean_average_precision, r_precision, retrieval_auc
from bregnet.retrieval import evaluation
from bregnet.retrieval.evaluation import RECALL_LEVELS, retrieval_scores
from bregnet.retrieval.items import ULPS
from tests.support.cli_runs import run
from tests.support.expected_precision import expected_average_precision
from tests.support.search_at_random import divergences, exact, points, sizes_between

SIDES = pytest.mark.parametrize("side", ["right", "left"])


def with_equal_ties(values, roundings):
    """Divergences of a query, those that the definition calls ties with one value."""
    order = np.argsort(values)
    ordered, ties = values[order], ULPS * roundings[order]
    tied = np.diff(ordered) <= np.minimum(ties[1:], ties[:-1])
    level, out = np.cumsum(np.append(0, ~tied)), np.empty(len(values))
    out[order] = level
    return out


def by_definition(D, Q, X, side):
    """Levels of all items for each query, from divergences of pairs."""
    values = exact(D, Q, X, side)
    return np.array([with_equal_ties(v, sizes_between(D, q, X, side)) for q, v in zip(Q, values, strict=True)])


# --- the figures are right -----------------------------------------------------------------------------------------


@SIDES
@pytest.mark.parametrize("every", [20, 150], ids=["several", "few"])  # few are computed pair by pair, for all queries
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_items_that_lie_very_far_off_tie_as_others_do(temperature, every, side):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        D = BregmanDivergence(MaxAffine(rng.standard_normal((12, 3)), rng.standard_normal(12), temperature=temperature))
        X, Q = rng.standard_normal((200, 3)), rng.standard_normal((20, 3))
        X[::every] *= 1e6
        y, asked = rng.integers(2, size=200), rng.integers(2, size=20)
        expected = mean_average_precision(by_definition(D, Q, X, side), asked[:, None] == y, per_query=True)
        found = retrieval_scores(D, Q, asked, (X, y), side=side)["map"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@SIDES
@pytest.mark.parametrize("lattice", [False, True])
@pytest.mark.parametrize("name", divergences(3))
def test_scores_are_those_of_all_pairs_with_the_ties_of_search(name, lattice, side):
    D, rng = divergences(3)[name], np.random.default_rng(0)
    X, Q = points(0, 60, 3, lattice), points(1, 15, 3, lattice)
    y, asked = rng.integers(3, size=60), rng.integers(3, size=15)
    for items in (X, np.vstack([X[1:], 1e4 * X[:1]])):
        levels, relevant = by_definition(D, Q, items, side), asked[:, None] == y
        found = retrieval_scores(D, Q, asked, (items, y), side=side, measures=["map", "r_precision", "auc"])
        for key, metric in (("map", mean_average_precision), ("r_precision", r_precision), ("auc", retrieval_auc)):
            expected = metric(levels, relevant, per_query=True)
            np.testing.assert_allclose(found[key], expected, rtol=0, atol=1e-12, err_msg=key)
    levels = by_definition(D, X, X, side)
    expected = []
    for row in range(60):
        others = np.arange(60) != row
        expected.append(expected_average_precision(y[others] == y[row], -levels[row, others]))
    np.testing.assert_allclose(retrieval_scores(D, X, y, side=side)["map"], expected, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=3, max_size=9),
    st.sampled_from(["euclid", "sharp", "smooth", "kl"]),
    st.sampled_from(["right", "left"]),
)
def test_small_grids_row_by_row(rows, name, side):
    X, y = 1.0 + np.array(rows)[:, :2], np.array([0, 0, *(row[2] for row in rows[2:])])
    D = divergences(2)[name]
    levels = by_definition(D, X, X, side)
    for row, found in enumerate(retrieval_scores(D, X, y, side=side)["map"]):
        others = np.arange(len(X)) != row
        relevant = y[others] == y[row]
        if relevant.any():
            assert found == pytest.approx(expected_average_precision(relevant, -levels[row, others]), abs=1e-12)
        else:
            assert np.isnan(found)


def test_interpolated_precision_is_the_highest_from_a_recall_on():
    X, rng = points(0, 40, 2, lattice=True), np.random.default_rng(0)
    y = rng.integers(2, size=40)
    D = divergences(2)["euclid"]
    found = retrieval_scores(D, X[:10], y[:10], (X[10:], y[10:]), measures=["precision_at_recall"])[
        "precision_at_recall"
    ]
    for row, query in enumerate(X[:10]):
        distances, relevant = np.square(X[10:] - query).sum(1), y[10:] == y[row]
        near = [distances <= distance + 1e-9 for distance in distances]  # a threshold at each item
        points_ = [(relevant[each].sum() / relevant.sum(), relevant[each].mean()) for each in near]
        best = [max(precision for recall, precision in points_ if recall >= level - 1e-9) for level in RECALL_LEVELS]
        np.testing.assert_allclose(found[row], best, atol=1e-12)


@SIDES
def test_scores_do_not_depend_on_blocks_or_copies(side):
    X, rng = points(0, 50, 3), np.random.default_rng(0)
    y, D = rng.integers(3, size=50), divergences(3)["smooth"]
    measures = list(evaluation.MEASURES)
    whole = retrieval_scores(D, X, y, side=side, measures=measures)
    for elements in (1, 7 * 50):
        for name, values in retrieval_scores(D, X, y, side=side, measures=measures, block_elements=elements).items():
            np.testing.assert_allclose(values, whole[name], rtol=0, atol=1e-14)
    once = retrieval_scores(D, X, y, (X, y), side=side, measures=["auc"])
    twice = retrieval_scores(D, X, y, (np.vstack([X, X]), np.append(y, y)), side=side, measures=["auc"])
    np.testing.assert_allclose(twice["auc"], once["auc"], rtol=0, atol=1e-14)


def test_memory_is_that_of_a_block(monkeypatch):
    sizes = []
    original = evaluation.Scan.divergences

    def seen(self, points, classes):
        values, order = original(self, points, classes)
        sizes.append(values.size)
        return values, order

    monkeypatch.setattr(evaluation.Scan, "divergences", seen)
    X, y = points(0, 300, 3), np.arange(300) % 3
    retrieval_scores(divergences(3)["kl"], X, y, block_elements=3000)
    assert sum(sizes) == 300 * 300
    assert max(sizes) <= 3000


def test_only_pairs_that_matter_are_computed_one_by_one(monkeypatch):
    counts = []
    original = evaluation.Gallery.paired
    monkeypatch.setattr(
        evaluation.Gallery, "paired", lambda self, q, rows: counts.append(len(rows)) or original(self, q, rows)
    )
    X = np.vstack([np.full((50, 1), 0.0), np.full((50, 1), 9.0)]) + 1e-9 * np.arange(100)[:, None]
    f = BregmanDivergence(MaxAffine([[1.0], [-1.0]], [0.0, 9.0], temperature=0.05))
    assert np.nanmean(retrieval_scores(f, X, np.repeat([0, 1], 50))["map"]) == pytest.approx(1)
    assert sum(counts) == 0  # each class is one crowd of its own


# --- all that speak of retrieval say the same ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def tied():
    """A divergence without temperature on rows of small integers: thousands of ties, many of which rounding breaks."""
    rng = np.random.default_rng(2)
    X = rng.integers(0, 4, size=(60, 3)).astype(float)
    y = (X.sum(1) + rng.integers(0, 3, size=60) > 5).astype(int)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = PBDL(0.02, temperature=0.0, n_pieces=6, random_state=0, tol=0.3).fit(frame, y)
    model.function_ = MaxAffine(rng.integers(-3, 4, size=(12, 3)) / 10, rng.integers(-3, 4, size=12) / 10)
    model.divergence_ = BregmanDivergence(model.function_)
    return model, frame, y


def expected_of(D, Q, asked, X, y, *, own):
    levels, found = by_definition(D, Q, X, "right"), []
    for row, label in enumerate(asked):
        counted = (np.arange(len(X)) != row) if own else np.ones(len(X), dtype=bool)
        found.append(expected_average_precision(y[counted] == label, -levels[row, counted]))
    return np.mean(found)


def test_everything_gives_one_figure_each_row_against_the_others(tied, tmp_path, monkeypatch):
    model, X, y = tied
    rows = X.to_numpy(copy=True)
    wanted = expected_of(model.divergence_, rows, y, rows, y, own=True)
    blind = model.divergence_.pairwise(rows)  # a score of these takes rounding for an order
    np.fill_diagonal(blind, np.inf)
    relevant = (y[:, None] == y) & ~np.eye(60, dtype=bool)
    assert abs(mean_average_precision(blind, relevant) - wanted) > 1e-4
    assert model.score(X, y) == pytest.approx(wanted, abs=1e-12)

    search = PBDLCV(
        [0.02], feature_map=None, refinements=0, temperatures=[0.0], n_pieces=6, random_state=0, tol=0.3, cv=2
    ).fit(X, y)
    search.divergence_ = model.divergence_
    assert search.score(X, y) == pytest.approx(wanted, abs=1e-12)

    page = bregnet.report(model, X, y)
    assert page.numbers["map"] == pytest.approx(wanted, abs=1e-12)
    ax = plotting.precision_recall({"learned": model}, X, y, Figure().add_subplot())
    assert ax.get_legend().get_texts()[0].get_text() == f"learned, mAP {wanted:.3f}"

    monkeypatch.chdir(tmp_path)
    X.assign(kind=y).to_csv("rows.csv", index=False)
    bregnet.save(model, "model")
    scores = json.loads(run("evaluate", "model", "rows.csv", "--target", "kind", "--json").stdout)["scores"]["PBDL"]
    assert scores["map"] == pytest.approx(wanted, abs=1e-12)
    assert scores["accuracy"] == pytest.approx(page.numbers["accuracy"])


def test_everything_gives_one_figure_against_known_rows(tied, tmp_path, monkeypatch):
    model, X, y = tied
    known, new = np.arange(60) % 2 == 0, np.arange(60) % 2 == 1
    rows, D = X.to_numpy(copy=True), model.divergence_
    wanted = expected_of(D, rows[new], y[new], rows[known], y[known], own=False)
    assert BregmanRanker(D).fit(rows[known], y[known]).score(rows[new], y[new]) == pytest.approx(wanted, abs=1e-12)

    page = bregnet.report(model, X[new], y[new], X_known=X[known], y_known=y[known])
    assert page.numbers["map"] == pytest.approx(wanted, abs=1e-12)
    ax = plotting.precision_recall({"D": D}, rows[new], y[new], Figure().add_subplot(), known=(rows[known], y[known]))
    assert ax.get_legend().get_texts()[0].get_text() == f"D, mAP {wanted:.3f}"

    monkeypatch.chdir(tmp_path)
    table = X.assign(kind=y)
    table[new].to_csv("new.csv", index=False)
    table[known].to_csv("known.csv", index=False)
    bregnet.save(model, "model")
    options = ["--target", "kind", "--known", "known.csv", "--json"]
    assert json.loads(run("evaluate", "model", "new.csv", *options).stdout)["scores"]["PBDL"]["map"] == pytest.approx(
        wanted, abs=1e-12
    )


def test_cross_validation_scores_held_out_rows_as_the_ranker_does(tied):
    _, X, y = tied
    rows, folds = X.to_numpy(copy=True), KFold(2, shuffle=True, random_state=0)
    options = {"n_pieces": 6, "random_state": 0, "tol": 0.3}
    search = PBDLCV([0.02], feature_map=None, cv=folds, temperatures=[0.0], companion=None, gallery="train", **options)
    search.fit(rows, y)
    for fold, (train, test) in enumerate(folds.split(rows)):
        learner = PBDL(0.02, temperature=0.0, **options).fit(rows[train], y[train])
        ranker = BregmanRanker(learner.divergence_).fit(rows[train], y[train])
        found = search.cv_results_[f"split{fold}_test_score"][0]
        assert found == pytest.approx(ranker.score(rows[test], y[test]), abs=1e-12)


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "y", "known", "message"),
    [
        ([[1.0], [2.0]], [0, 1], None, "y must have a class with at least 2 rows, got none"),
        ([[1.0]], [0], ([[2.0]], [1]), "y must have a class that the items have, got none"),
        ([[1.0]], ["0"], ([[2.0]], [0]), "y must have a class that the items have, got none"),
        ([[1.0]], [0], ([[2.0]], [0]), "y must have rows of a class with items to find and others among them"),
        ([[-1.0]], [0], ([[2.0]], [0]), "X must be at least 0 .* got -1 in row 0"),
        ([[1.0]], [0], ([[0.0]], [0]), r"known\[0\] must be positive at the tangent points of .* got 0"),
    ],
)
def test_bad_input_is_named(X, y, known, message):
    with pytest.raises(ValueError, match=message):
        retrieval_scores(bregnet.divergence("kl"), X, y, known, measures=["map", "auc"])


def test_labels_that_cannot_be_ordered_are_named():
    with pytest.raises(TypeError, match="y must hold labels such as those of the items"):
        retrieval_scores(bregnet.divergence("kl"), [[1.0]], np.array([None]), ([[1.0]], np.array(["a"], dtype=object)))
