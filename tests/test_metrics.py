import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from bregnet.metrics import mean_average_precision


@st.composite
def retrieval(draw):
    """Divergences with many ties, and relevance with at least one hit in some query."""
    n_queries, n_items = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    size = n_queries * n_items
    values = draw(st.lists(st.integers(0, 4) | st.floats(0, 4), min_size=size, max_size=size))
    hits = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    hits[draw(st.integers(0, size - 1))] = True
    return np.reshape(values, (n_queries, n_items)).astype(float), np.reshape(hits, (n_queries, n_items))


def by_hand(divergences, relevant):
    return np.mean([average_precision_score(h, -d) for d, h in zip(divergences, relevant, strict=True) if h.any()])


@given(retrieval())
@settings(max_examples=100, deadline=None)
def test_mean_average_precision_is_that_of_scikit_learn(case):
    divergences, relevant = case
    assert mean_average_precision(divergences, relevant) == pytest.approx(by_hand(divergences, relevant), abs=1e-12)


@given(retrieval())
@settings(max_examples=50, deadline=None)
def test_items_at_infinity_do_not_count(case):
    divergences, relevant = case
    more = np.column_stack([np.full(len(divergences), np.inf), divergences, np.full(len(divergences), np.inf)])
    nothing = np.zeros((len(relevant), 1), dtype=bool)
    found = mean_average_precision(more, np.column_stack([nothing, relevant, nothing]))
    assert found == pytest.approx(mean_average_precision(divergences, relevant), abs=1e-12)


@given(retrieval(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_neither_the_order_of_items_nor_a_growing_map_matters(case, random):
    divergences, relevant = case
    order = list(range(divergences.shape[1]))
    random.shuffle(order)
    found = mean_average_precision(torch.as_tensor(2 * divergences[:, order]), torch.as_tensor(relevant[:, order]))
    assert found == pytest.approx(mean_average_precision(divergences, relevant), abs=1e-12)


def test_best_and_worst_orders():
    n, relevant = 10, np.arange(10)[None] < 3
    assert mean_average_precision(np.arange(n)[None], relevant) == 1
    worst = np.mean([1 / 8, 2 / 9, 3 / 10])
    assert mean_average_precision(-np.arange(n)[None], relevant) == pytest.approx(worst)
    assert mean_average_precision(np.zeros((1, n)), relevant) == pytest.approx(0.3)  # all tied: the share of hits


@pytest.mark.parametrize(
    ("divergences", "relevant", "error", "message"),
    [
        ([[0.0, 1.0]], [[True]], ValueError, "same shape .* got \\(1, 2\\) and \\(1, 1\\)"),
        ([0.0, 1.0], [True, False], ValueError, "same shape"),
        ([[np.nan, 1.0]], [[True, False]], ValueError, "divergences must not be NaN"),
        ([[0.0, 1.0]], [[False, False]], ValueError, "relevant must mark at least one item"),
        ([["a", "b"]], [[True, False]], TypeError, "divergences must hold real numbers"),
        ([[0.0, 1.0]], [["a", "b"]], TypeError, "relevant must hold real numbers"),
    ],
)
def test_bad_input_is_named(divergences, relevant, error, message):
    with pytest.raises(error, match=message):
        mean_average_precision(divergences, relevant)
