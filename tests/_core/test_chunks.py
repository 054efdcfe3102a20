from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bregnet._core.chunks import CACHE, MEMORY, at_most, batches, blocks, cache, rows_at_once


@given(st.integers(0, 200), st.integers(1, 60), st.integers(0, 40))
def test_batches_cover_all_rows_once(n_rows, batch_size, start):
    found = [row for part in batches(n_rows, batch_size, start) for row in range(part.start, part.stop)]
    assert found == list(range(start, n_rows))
    assert all(part.stop - part.start <= batch_size for part in batches(n_rows, batch_size, start))


@given(st.integers(1, 200), st.integers(1, 60), st.integers(1, 500))
def test_blocks_are_as_large_as_the_budget_allows(n_rows, row_elements, budget):
    sizes = [part.stop - part.start for part in blocks(n_rows, row_elements, budget=budget)]
    assert sum(sizes) == n_rows
    assert sizes[0] == 1 or sizes[0] * row_elements <= budget
    assert len(sizes) == 1 or (sizes[0] + 1) * row_elements > budget


def test_a_cap_holds_in_all_threads_until_it_ends():
    with at_most(100), at_most(1000), ThreadPoolExecutor(1) as pool:
        assert pool.submit(rows_at_once, 10).result() == 10
    assert rows_at_once(1) == MEMORY


def test_a_cap_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), at_most(100):
        1 / 0  # noqa: B018
    assert rows_at_once(1) == MEMORY


def test_a_gpu_gets_larger_blocks():
    assert cache(torch.device("cpu")) == CACHE < cache(torch.device("cuda")) == MEMORY
