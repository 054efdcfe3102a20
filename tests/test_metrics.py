import tracemalloc
from collections import Counter
from functools import partial
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from bregnet._core.chunks import at_most
from bregnet.metrics import (
    map_at_r,
    mean_average_precision,
    precision_at_k,
    purity,
    r_precision,
    recall_at_k,
    retrieval_auc,
)
from tests.support.expected_precision import expected_average_precision

RETRIEVAL = {
    "mean_average_precision": mean_average_precision,
    "map_at_r": map_at_r,
    "r_precision": r_precision,
    "precision_at_1": partial(precision_at_k, k=1),
    "recall_at_1": partial(recall_at_k, k=1),
    "retrieval_auc": retrieval_auc,
}
all_retrieval_metrics = pytest.mark.parametrize("metric", RETRIEVAL.values(), ids=RETRIEVAL.keys())


@st.composite
def retrieval(draw):
    """Divergences with many ties, and relevance with at least one hit in some query."""
    n_queries, n_items = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    size = n_queries * n_items
    values = draw(st.lists(st.integers(0, 4) | st.floats(0, 4), min_size=size, max_size=size))
    hits = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    hits[draw(st.integers(0, size - 1))] = True
    return np.reshape(values, (n_queries, n_items)).astype(float), np.reshape(hits, (n_queries, n_items))


@st.composite
def with_infinities(draw):
    """As above, with items at infinity and queries without a hit; the last item always counts."""
    n_queries, n_items = draw(st.integers(1, 5)), draw(st.integers(0, 12))
    item = st.tuples(st.sampled_from([0.0, -0.0, 1e-310, 1.0, 1.5, -2.0]), st.sampled_from(["hit", "other", "out"]))
    last = st.tuples(st.just(0.5), st.sampled_from(["hit", "other"]))
    rows = [[*draw(st.lists(item, min_size=n_items, max_size=n_items)), draw(last)] for _ in range(n_queries)]
    divergences = [[np.inf if kind == "out" else d for d, kind in row] for row in rows]
    return np.array(divergences), np.array([[kind == "hit" for _, kind in row] for row in rows])


@given(retrieval(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_mean_average_precision_without_ties_is_that_of_scikit_learn(case, random):
    divergences, relevant = case
    for row in divergences:
        row[:] = random.sample(range(100), len(row))
    by_hand = [average_precision_score(h, -d) for d, h in zip(divergences, relevant, strict=True) if h.any()]
    assert mean_average_precision(divergences, relevant) == pytest.approx(np.mean(by_hand), abs=1e-12)


@all_retrieval_metrics
@given(retrieval())
@settings(max_examples=50, deadline=None)
def test_items_at_infinity_do_not_count(metric, case):
    divergences, relevant = case
    more = np.column_stack([np.full(len(divergences), np.inf), divergences, np.full(len(divergences), np.inf)])
    nothing = np.zeros((len(relevant), 1), dtype=bool)
    found = metric(more, np.column_stack([nothing, relevant, nothing]), per_query=True)
    np.testing.assert_allclose(found, metric(divergences, relevant, per_query=True), rtol=0, atol=1e-12)


@all_retrieval_metrics
@given(retrieval(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_neither_the_order_of_items_nor_a_growing_map_matters(metric, case, random):
    divergences, relevant = case
    order = list(range(divergences.shape[1]))
    random.shuffle(order)
    found = metric(torch.as_tensor(2 * divergences[:, order]), torch.as_tensor(relevant[:, order]), per_query=True)
    np.testing.assert_allclose(found, metric(divergences, relevant, per_query=True), rtol=0, atol=1e-12)


def test_best_and_worst_orders():
    n, relevant = 10, np.arange(10)[None] < 3
    assert mean_average_precision(np.arange(n)[None], relevant) == 1
    worst = np.mean([1 / 8, 2 / 9, 3 / 10])
    assert mean_average_precision(-np.arange(n)[None], relevant) == pytest.approx(worst)
    first = [3 / 10 * (1 + (i - 1) * 2 / 9) / i for i in range(1, 11)]  # all tied: each place by its chances
    assert mean_average_precision(np.zeros((1, n)), relevant) == pytest.approx(sum(first) / 3)


# --- ties in random order ------------------------------------------------------------------------------------------


def literal_average_precision(hits):
    return np.mean([sum(hits[: i + 1]) / (i + 1) for i in np.flatnonzero(hits)])


def literal_map_at_r(hits):
    n_hits = sum(hits)
    return sum(hits[i] * sum(hits[: i + 1]) / (i + 1) for i in range(n_hits)) / n_hits


def literal_auc(hits):
    pairs = [(i, j) for i in np.flatnonzero(hits) for j in np.flatnonzero(~np.array(hits))]
    return np.mean([i < j for i, j in pairs]) if pairs else np.nan


EXPECTED = {  # from the relevance of the items in one order, nearest first
    "mean_average_precision": (mean_average_precision, literal_average_precision),
    "map_at_r": (map_at_r, literal_map_at_r),
    "r_precision": (r_precision, lambda hits: np.mean(hits[: sum(hits)])),
    "retrieval_auc": (retrieval_auc, literal_auc),
    **{f"precision_at_{k}": (partial(precision_at_k, k=k), lambda hits, k=k: np.mean(hits[:k])) for k in (1, 3)},
    **{f"recall_at_{k}": (partial(recall_at_k, k=k), lambda hits, k=k: sum(hits[:k]) / sum(hits)) for k in (1, 3)},
}


def over_all_orders(literal, divergences, relevant):
    """Per query, the mean of a literal metric over all orders of its items that put the nearest first."""
    scores = []
    for d, h in zip(divergences, relevant, strict=True):
        counted = np.flatnonzero(np.isfinite(d))
        orders = (sorted(order, key=d.__getitem__) for order in permutations(counted))
        scores.append(np.mean([literal(h[order].tolist()) for order in orders]) if h.any() else np.nan)
    return scores


@pytest.mark.parametrize(("metric", "literal"), EXPECTED.values(), ids=EXPECTED.keys())
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_ties_count_as_expected_over_all_their_orders(metric, literal, data):
    n_queries, n_items = data.draw(st.integers(1, 3)), data.draw(st.integers(3, 6))
    rows = st.lists(st.sampled_from([-1.0, 0.0, -0.0, 2.0]), min_size=n_items, max_size=n_items)
    divergences = np.array([data.draw(rows) for _ in range(n_queries)])
    relevant = np.array([[data.draw(st.booleans()) for _ in row] for row in divergences])
    out = np.array([[data.draw(st.booleans()) for _ in row] for row in divergences]) & ~relevant
    out[:, :3] = False  # three items stay, for k = 3
    divergences[out] = np.inf
    found = metric(divergences, relevant, per_query=True)
    np.testing.assert_allclose(found, over_all_orders(literal, divergences, relevant), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("metric", "literal"), EXPECTED.values(), ids=EXPECTED.keys())
def test_many_items_without_ties(metric, literal):
    rng = np.random.default_rng(0)
    divergences, relevant = rng.normal(size=(20, 300)), rng.random((20, 300)) < rng.random((20, 1))
    expected = [literal(h[np.argsort(d)].tolist()) for d, h in zip(divergences, relevant, strict=True)]
    assert metric(divergences, relevant) == pytest.approx(np.mean(expected), abs=1e-12)


def test_thousands_of_items_without_ties_and_with_them_lose_no_digits():
    rng = np.random.default_rng(0)
    divergences, relevant = rng.permutation(40_000)[None] / 1.0, rng.random((1, 40_000)) < 0.001
    for values in (divergences, divergences // 2, divergences // 1000):
        expected = expected_average_precision(relevant[0], -values[0])
        assert mean_average_precision(values, relevant) == pytest.approx(expected, rel=1e-13)


def test_one_large_tie_at_the_edge():
    """100 items, 10 nearer ones with 5 hits, then a tie of 90 with 30: R = 35 places, of which 25 in the tie."""
    divergences = np.repeat([0.0, 1.0], [10, 90])[None]
    relevant = np.r_[np.arange(10) < 5, np.arange(90) < 30][None]
    assert r_precision(divergences, relevant) == pytest.approx((5 + 25 * 30 / 90) / 35)
    assert precision_at_k(divergences, relevant, 20) == pytest.approx((5 + 10 / 3) / 20)
    assert recall_at_k(divergences, relevant, 20) == pytest.approx((5 + 10 / 3) / 35)
    near = [5 / 10 * (1 + (i - 1) * 4 / 9) / i for i in range(1, 11)]
    far = [30 / 90 * (6 + (i - 11) * 29 / 89) / i for i in range(11, 36)]
    assert map_at_r(divergences, relevant) == pytest.approx(sum(near + far) / 35)


# --- all metrics ---------------------------------------------------------------------------------------------------


@given(with_infinities())
@settings(max_examples=200, deadline=None)
def test_the_auc_of_each_query_is_that_of_scikit_learn_and_its_average_precision_that_of_the_support(case):
    precision, auc = [], []
    for d, h in zip(*case, strict=True):
        counted = np.isfinite(d)
        truth, scores = h[counted], -d[counted]
        precision.append(expected_average_precision(truth, scores) if truth.any() else np.nan)
        auc.append(roc_auc_score(truth, scores) if len(set(truth)) == 2 else np.nan)
    np.testing.assert_allclose(mean_average_precision(*case, per_query=True), precision, rtol=0, atol=1e-12)
    np.testing.assert_allclose(retrieval_auc(*case, per_query=True), auc, rtol=0, atol=1e-12)


@all_retrieval_metrics
@given(case=with_infinities())
@settings(max_examples=50, deadline=None)
def test_the_score_is_the_mean_over_queries_that_have_one(metric, case):
    scores = metric(*case, per_query=True)
    assert ((scores >= 0) & (scores <= 1) | np.isnan(scores)).all()
    if np.isnan(scores).all():
        with pytest.raises(ValueError, match="relevant must mark at least one item"):
            metric(*case)
    else:
        mean = metric(*case)
        assert type(mean) is float
        assert mean == pytest.approx(np.nanmean(scores), abs=1e-12)


def random_case(n_queries=40, n_items=23, seed=0):
    """With ties, items at infinity, and queries without a relevant item."""
    rng = np.random.default_rng(seed)
    divergences = rng.integers(0, 9, size=(n_queries, n_items)) / 4
    relevant = rng.random((n_queries, n_items)) < rng.choice([0.0, 0.1, 0.6], size=(n_queries, 1))
    divergences[~relevant & (rng.random(relevant.shape) < 0.1)] = np.inf
    return divergences, relevant


@all_retrieval_metrics
@pytest.mark.parametrize("elements", [1, 23, 100, 1 << 30])
def test_blocks_of_any_size_give_the_same(metric, elements):
    divergences, relevant = random_case()
    expected = metric(divergences, relevant, per_query=True)
    with at_most(elements):
        np.testing.assert_array_equal(metric(divergences, relevant, per_query=True), expected)


@all_retrieval_metrics
@pytest.mark.parametrize(
    ("change", "mark"),
    [
        (torch.tensor, torch.tensor),
        (lambda d: torch.tensor(d, requires_grad=True), lambda h: torch.tensor(h, dtype=torch.float32)),
        (lambda d: torch.tensor(d, dtype=torch.bfloat16), np.asfortranarray),
        (lambda d: d.astype(np.float16), lambda h: h.astype(int)),
        (np.asfortranarray, lambda h: h.tolist()),
        (lambda d: d - 1, lambda h: h),
        (lambda d: np.where((d == 0) & (np.arange(23) < 12), -0.0, d), lambda h: h),
        (lambda d: np.repeat(d, 2, axis=1)[:, ::2], lambda h: np.repeat(h, 2, axis=1)[:, ::2]),
    ],
    ids=["torch", "gradients", "bfloat16", "float16", "columns first", "negative", "minus zero", "strides"],
)
def test_arrays_of_every_kind_give_the_same(metric, change, mark):
    divergences, relevant = random_case()  # quarters, that every precision holds
    expected = metric(divergences, relevant, per_query=True)
    found = metric(change(divergences), mark(relevant), per_query=True)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected)


@all_retrieval_metrics
def test_a_perfect_ranking_scores_exactly_one(metric):
    relevant = np.arange(100) < np.arange(1, 100)[:, None]
    score = metric(np.broadcast_to(np.arange(100.0), relevant.shape), relevant, per_query=True)
    expected = 1 / np.arange(1, 100) if metric is RETRIEVAL["recall_at_1"] else np.ones(99)
    np.testing.assert_array_equal(score, expected)


@all_retrieval_metrics
def test_what_was_given_is_left_alone(metric):
    divergences, relevant = random_case()
    metric(divergences, relevant)
    np.testing.assert_array_equal(divergences, random_case()[0])
    np.testing.assert_array_equal(relevant, random_case()[1])


@all_retrieval_metrics
@pytest.mark.parametrize("n_jobs", [None, 1, 2])
@pytest.mark.parametrize("precision", [np.float64, np.float16])
def test_memory_is_bounded_beside_what_is_given(metric, precision, n_jobs):
    divergences, relevant = random_case(3000, 300)
    divergences, relevant = divergences.astype(precision), relevant.astype(np.int64)
    divergences.flags.writeable = False
    metric(divergences[:10], relevant[:10], n_jobs=n_jobs)  # what is imported on the way does not count
    tracemalloc.start()
    try:
        with at_most(3000):
            metric(divergences, relevant, n_jobs=n_jobs)
        assert tracemalloc.get_traced_memory()[1] < 600_000  # a mask of all would take 900,000
    finally:
        tracemalloc.stop()


@all_retrieval_metrics
@pytest.mark.parametrize("n_jobs", [None, 1, 2, 5, -1])
def test_any_number_of_jobs_gives_the_same(metric, n_jobs):
    divergences, relevant = random_case(203)
    expected, mean = metric(divergences, relevant, per_query=True), metric(divergences, relevant)
    for elements in (1 << 16, 23, 100):
        with at_most(elements):
            np.testing.assert_array_equal(metric(divergences, relevant, per_query=True, n_jobs=n_jobs), expected)
            assert metric(torch.tensor(divergences), torch.tensor(relevant), n_jobs=n_jobs) == mean


@all_retrieval_metrics
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_errors_name_the_row_of_all_queries(metric, n_jobs):
    for value, marked, message in (
        (np.nan, False, "not be NaN, got NaN in row 31, column 7"),
        (-np.inf, False, "got -inf in row 31, column 7"),
        (np.inf, True, "got True in row 31, column 7"),
    ):
        divergences, relevant = random_case()
        divergences[31, 7], relevant[31, 7] = value, marked
        with at_most(100), pytest.raises(ValueError, match=message):
            metric(divergences, relevant, n_jobs=n_jobs)


@all_retrieval_metrics
@pytest.mark.parametrize(
    ("n_jobs", "error", "message"),
    [
        (0, ValueError, "n_jobs must not be 0"),
        (1.5, TypeError, "n_jobs must be None or an integer, got 1.5"),
        (True, TypeError, "n_jobs must be None or an integer, got True"),
    ],
)
def test_jobs_are_checked(metric, n_jobs, error, message):
    with pytest.raises(error, match=message):
        metric([[0.0, 1.0]], [[True, False]], n_jobs=n_jobs)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
@all_retrieval_metrics
def test_nothing_to_score(metric, shape):
    nothing = np.zeros(shape)
    assert np.isnan(metric(nothing, nothing > 0, per_query=True)).tolist() == [True] * shape[0]
    with pytest.raises(ValueError, match="relevant must mark at least one item"):
        metric(nothing, nothing > 0)


# --- purity --------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_purity_counts_the_most_frequent_class_of_each_cluster(points):
    classes, clusters = zip(*points, strict=True)
    most = [max(Counter(c for c, own in points if own == cluster).values()) for cluster in set(clusters)]
    expected = sum(most) / len(points)
    assert purity(classes, clusters) == pytest.approx(expected, abs=1e-15)
    assert purity(np.array(classes, dtype=object), torch.tensor(clusters)) == pytest.approx(expected, abs=1e-15)
    assert purity(classes, range(len(points))) == 1


@pytest.mark.parametrize(
    ("labels_true", "labels_pred", "error", "message"),
    [
        ([0, 1], [0], ValueError, "labels_true and labels_pred must have the same length, got 2 and 1"),
        ([], [], ValueError, "labels_true must have shape \\(n_points,\\) with at least one point, got \\(0,\\)"),
        ([0, 1], [[0, 1]], ValueError, "labels_pred must have shape .* got \\(1, 2\\)"),
        ([0.0, np.nan], [0, 1], ValueError, "labels_true must not be NaN, got nan for point 1"),
        ([0, 1], ["a", None], TypeError, "labels_pred must hold labels that can be ordered"),
    ],
)
def test_bad_labels_are_named(labels_true, labels_pred, error, message):
    with pytest.raises(error, match=message):
        purity(labels_true, labels_pred)


# --- bad input -----------------------------------------------------------------------------------------------------


@all_retrieval_metrics
@pytest.mark.parametrize(
    ("divergences", "relevant", "error", "message"),
    [
        ([[0.0, 1.0]], [[True]], ValueError, "same shape .* got \\(1, 2\\) and \\(1, 1\\)"),
        ([0.0, 1.0], [True, False], ValueError, "same shape"),
        ([[np.nan, 1.0]], [[True, False]], ValueError, "divergences must not be NaN"),
        ([[0.0, 1.0]], [[False, False]], ValueError, "relevant must mark at least one item"),
        ([[0.0, 1.0], [2.0, np.nan]], [[True, False]] * 2, ValueError, "not be NaN, got NaN in row 1, column 1"),
        (
            [[0.0, -np.inf]],
            [[True, False]],
            ValueError,
            "finite, or inf for items that do not count, got -inf in row 0",
        ),
        (
            [[0.0, np.inf]],
            [[True, True]],
            ValueError,
            "False where divergences are infinite, got True in row 0, column 1",
        ),
        ([[0.0, 1.0]], [[1, 2]], ValueError, "relevant must hold True or False, got another value in row 0, column 1"),
        ([[0.0, 1.0]], [[np.nan, 1]], ValueError, "relevant must hold True or False"),
        ([["a", "b"]], [[True, False]], TypeError, "divergences must hold real numbers"),
        ([[0.0, 1.0]], [["a", "b"]], TypeError, "relevant must hold real numbers"),
    ],
)
def test_bad_input_is_named(metric, divergences, relevant, error, message):
    with pytest.raises(error, match=message):
        metric(divergences, relevant)


@all_retrieval_metrics
def test_per_query_is_true_or_false(metric):
    with pytest.raises(TypeError, match="per_query must be True or False, got 'yes'"):
        metric([[0.0, 1.0]], [[True, False]], per_query="yes")


def test_an_auc_needs_items_of_both_kinds():
    divergences, relevant = [[0.0, 1.0, np.inf], [1.0, 1.0, 2.0]], [[True, True, False], [False, False, False]]
    with pytest.raises(
        ValueError, match="relevant must mark at least one item, and not all that count, for some query"
    ):
        retrieval_auc(divergences, relevant)


@pytest.mark.parametrize("metric", [precision_at_k, recall_at_k])
@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (0, ValueError, "k must be at least 1, got 0"),
        (1.0, TypeError, "k must be an integer, got 1.0"),
        (True, TypeError, "k must be an integer, got True"),
        (
            4,
            ValueError,
            "k must be at most the number of items that are counted for a query, got 4 where query 2 has 3",
        ),
    ],
)
def test_k_is_checked(metric, k, error, message):
    """A query without a relevant item does not count, however few items it has."""
    divergences = np.array([[0.0, 1, 2, 3], [0, np.inf, np.inf, np.inf], [3, 2, 1, np.inf]])
    relevant = np.array([[True, False, False, False], [False] * 4, [False, False, True, False]])
    with pytest.raises(error, match=message):
        metric(divergences, relevant, k)
    np.testing.assert_array_equal(metric(divergences, relevant, np.int64(1), per_query=True), [1, np.nan, 1])
    np.testing.assert_allclose(precision_at_k(divergences, relevant, 3, per_query=True), [1 / 3, np.nan, 1 / 3])
