"""Divergences of pairs of queries and items, and rows that are added to at the end."""

import pickle

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bregnet import BregmanDivergence
from bregnet.retrieval.items import ULPS, Gallery, GrowingRows
from tests.support.search_at_random import max_affine
from tests.support.search_at_random import points as points_at_random


def numbered(start, count):
    rows = torch.arange(start, start + count)
    return rows[:, None].double().expand(-1, 3), rows


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_rows_stay_as_they_are_while_others_are_added(sizes):
    rows, held, total = GrowingRows(*numbered(0, sizes[0])), [], sizes[0]
    for size in sizes[1:]:
        held.append(rows.tensors)
        rows.add(*numbered(total, size))
        total += size
    for points, numbers in [*held, rows.tensors]:
        assert torch.equal(numbers, torch.arange(len(numbers)))
        assert torch.equal(points, numbers[:, None].double().expand(-1, 3))
    assert len(rows) == total


def test_what_was_given_is_not_written_to():
    given_rows = torch.zeros(10, 2)
    rows = GrowingRows(given_rows[:5])
    rows.add(torch.ones(3, 2))
    assert (given_rows == 0).all()


def test_two_that_go_on_from_the_same_rows():
    rows = GrowingRows(torch.zeros(4))
    rows.add(torch.zeros(1))  # now with room
    first = rows.extended(5, torch.ones(1))
    second = rows.extended(5, torch.full((1,), 2.0))
    assert first is rows
    assert first.tensors[0].tolist() == [0, 0, 0, 0, 0, 1]
    assert second.tensors[0].tolist() == [0, 0, 0, 0, 0, 2]


def test_the_larger_precision_is_taken_on():
    rows = GrowingRows(torch.ones(3, dtype=torch.float32))
    rows.add(torch.full((1,), 0.1, dtype=torch.float64))
    assert rows.tensors[0].dtype == torch.float64
    assert rows.tensors[0][-1].item() == 0.1


def test_room_is_made_for_many_additions_at_once():
    rows, places = GrowingRows(torch.zeros(100)), set()
    for _ in range(1000):
        rows.add(torch.zeros(1))
        places.add(rows.tensors[0].data_ptr())
    assert len(places) < 10


def test_a_pickle_holds_the_rows_alone():
    rows = GrowingRows(torch.zeros(1000))
    rows.add(torch.ones(1))
    dumped = pickle.dumps(rows)
    assert len(dumped) < 4 * 1001 + 1000
    again = pickle.loads(dumped)
    again.add(torch.ones(1))
    np.testing.assert_array_equal(again.tensors[0], np.r_[np.zeros(1000), 1, 1])


@given(
    st.integers(0, 10_000),
    st.integers(1, 20),
    st.integers(1, 30),
    st.sampled_from([1e-4, 0.003, 0.05, 0.3, 2.0, 50.0]),
    st.sampled_from(["right", "left"]),
    st.sampled_from([0.0, 1e-7, 1e-2, 1.0, 1e3]),
)
@settings(max_examples=100, deadline=None)
def test_compiled_pairs_are_those_of_the_function(seed, n_features, n_pieces, temperature, side, apart):
    """From equal points to points so far from each other that exponentials overflow, to nearly all digits."""
    f = max_affine(seed, n_features, n_pieces, temperature=temperature)
    X, rng = points_at_random(seed, 12, n_features), np.random.default_rng(seed)
    numbers, rows = torch.tensor([0, 1, 1, 2, 2, 2]), torch.tensor([0, 3, 4, 2, 2, 11])
    Q = torch.as_tensor(X[:3] + apart * rng.standard_normal((3, n_features)))
    gallery = Gallery(BregmanDivergence(f), side, torch.as_tensor(X), torch.arange(12))
    values, ties = gallery.paired(Q, rows, numbers)
    pair = Q[numbers], gallery.points[rows]
    first, second = pair if side == "right" else pair[::-1]
    sizes = f._rounding(first, second)
    assert ((values - f._paired(first, second)).abs() <= 0.5 * ULPS * sizes + 1e-300).all()
    torch.testing.assert_close(ties, ULPS * sizes, rtol=1e-9, atol=1e-300)
    assert torch.equal(gallery.paired(Q[numbers], rows)[0], values)
