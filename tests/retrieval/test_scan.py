"""The compiled scan: what it keeps, and that search by it is right in settings of all sorts."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bregnet._core.parallel import in_threads
from bregnet.retrieval.engine import Settings
from bregnet.retrieval.flat import FlatEngine
from bregnet.retrieval.items import Gallery
from bregnet.retrieval.scan import scan
from tests.support.search_at_random import assert_nearest, divergences, points


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    n=st.integers(60, 700),
    n_features=st.sampled_from([1, 2, 3, 5, 8, 16, 33, 64]),
    k=st.integers(1, 12),
    name=st.sampled_from(sorted(divergences(1))),
    side=st.sampled_from(["right", "left"]),
    kind=st.sampled_from(["plain", "lattice", "far", "near", "single"]),
    tile=st.sampled_from([(1, 7), (3, 64), (5, 100), (256, 1024)]),
)
def test_nothing_that_belongs_to_the_answer_is_lost(seed, n, n_features, k, name, side, kind, tile):
    """Of all other items the products are below the bound, and the nearest of all items are found."""
    X, Q = points(seed, n, n_features, kind == "lattice"), points(seed + 1, 5, n_features, kind == "lattice")
    if kind == "far":
        X[:3] *= 1e4  # much longer than the others, so they are always ranked
    if kind == "near":
        Q[:3] = X[:3] * (1 + 1e-9)
    X = torch.as_tensor(X, dtype=torch.float32 if kind == "single" else torch.float64)
    D = divergences(n_features)[name]
    engine = FlatEngine.build(Gallery(D, side, X, torch.arange(n)), Settings())
    queries = engine.vectors.lift.queries(torch.as_tensor(Q))
    found = scan(engine.vectors, queries, k, tile)
    products = queries.vectors.float() @ engine.vectors.coarse.T
    for number in torch.isfinite(found.bounds).nonzero()[:, 0].tolist():
        kept = found.rows[number][found.rows[number] >= 0]
        assert len(kept.unique()) == len(kept) >= k
        others = torch.ones(n, dtype=torch.bool)
        others[kept] = False
        assert (products[number][others] <= found.bounds[number] + 1e-6).all()
        assert torch.isin(engine.vectors.long, kept).all()
    assert_nearest(D, side, X.double().numpy(), np.arange(n), Q, engine.search(torch.as_tensor(Q), k, Settings()), k)


def test_queries_that_tie_with_too_many_are_left_to_the_other_route():
    X = torch.ones(500, 3, dtype=torch.float64)
    X[0] = 2.0
    vectors = FlatEngine.build(Gallery(divergences(3)["euclid"], "right", X, torch.arange(500)), Settings()).vectors
    assert torch.isinf(scan(vectors, vectors.lift.queries(X[:2]), 5).bounds).all()


def test_threads_of_the_pool_leave_the_number_of_threads_as_it_was():
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        in_threads(lambda part: seen.append((part, torch.get_num_threads())), 200)
        assert sorted(part.start for part, _ in seen) == [0, 100]
        assert [count for _, count in seen] == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
