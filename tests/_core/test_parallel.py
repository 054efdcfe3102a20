"""Work that threads share."""

import threading

import pytest
import torch

from bregnet._core.parallel import in_threads, shared, shares


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("n", "least", "expected"), [(10, 1, [4, 4, 2]), (10, 4, [5, 5]), (10, 11, [10])])
def test_shares_are_equal_and_not_too_small(n, least, expected):
    assert [part.stop - part.start for part in shares(n, 3, least)] == expected


def test_results_are_in_the_order_of_the_parts():
    parts = list(shares(10, 3, 1))
    assert shared(lambda part: part.start, parts) == [0, 4, 8]


def test_after_an_error_nothing_goes_on():
    begun, ended = [], []

    def answer(part):
        if part.start == 0:
            raise ValueError("the first part")
        begun.append(part)
        threading.Event().wait(0.02)
        ended.append(part)

    with pytest.raises(ValueError, match="the first part"):
        shared(answer, list(shares(10, 3, 1)))
    assert begun == ended


def test_threads_of_the_pool_share_their_parts_without_waiting_for_each_other():
    """As many of them as the pool has share parts at once, again and again: nobody is left to begin the others."""
    sums = []

    def answer(part):
        for _ in range(50):
            sums.append(sum(shared(lambda each: each.start, list(shares(10, 3, 1)), n_threads=3)))

    in_threads(answer, 9, least=3)
    assert sums == [12] * 150
