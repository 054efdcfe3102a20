"""Rows that are added to at the end."""

import pickle

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bregnet.retrieval.items import GrowingRows


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
