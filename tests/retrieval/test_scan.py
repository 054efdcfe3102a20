"""The compiled scan: what it keeps, and that search by it is right in settings of all sorts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bregnet._core.parallel import in_threads
from bregnet.retrieval import scan as scanning
from bregnet.retrieval.engine import Settings
from bregnet.retrieval.flat import HALF_FROM, FlatEngine
from bregnet.retrieval.items import Gallery
from bregnet.retrieval.scan import Candidates, Lists, room_for, scan, scan_lists, spare_room
from tests.support.search_at_random import assert_nearest, divergences, points

KINDS = st.sampled_from(["plain", "lattice", "far", "near", "single"])


def setting(seed, n, n_features, n_queries, name, side, kind):
    """Items of some kind as an engine with all of them, and queries."""
    X, Q = points(seed, n, n_features, kind == "lattice"), points(seed + 1, n_queries, n_features, kind == "lattice")
    if kind == "far":
        X[:3] *= 1e4  # much longer than the others, so they are always ranked
    if kind == "near":
        Q[:3] = X[: min(3, n_queries)] * (1 + 1e-9)
    X = torch.as_tensor(X, dtype=torch.float32 if kind == "single" else torch.float64)
    gallery = Gallery(divergences(n_features)[name], side, X, torch.arange(n))
    return FlatEngine.build(gallery, Settings()), torch.as_tensor(Q)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    n=st.integers(60, 700),
    n_features=st.sampled_from([1, 2, 3, 5, 8, 16, 33, 64]),
    k=st.one_of(st.integers(1, 12), st.sampled_from([20, 45])),
    name=st.sampled_from(sorted(divergences(1))),
    side=st.sampled_from(["right", "left"]),
    kind=KINDS,
    n_queries=st.sampled_from([1, 1, 2, 5]),  # one alone has a route of its own
    tile=st.sampled_from([(1, 7), (3, 64), (5, 100), (256, 1024)]),
)
def test_nothing_that_belongs_to_the_answer_is_lost(seed, n, n_features, k, name, side, kind, n_queries, tile):
    """Of all other items the products are below the bound, and the nearest of all items are found."""
    engine, Q = setting(seed, n, n_features, n_queries, name, side, kind)
    queries = engine.vectors.lift.queries(Q)
    found = scan(engine.vectors, queries, k, tile)
    products = queries.vectors.float() @ engine.vectors.coarse.T
    for number in torch.isfinite(found.bounds).nonzero()[:, 0].tolist():
        kept = found.rows[number][found.rows[number] >= 0]
        assert len(kept.unique()) == len(kept) >= k
        others = torch.ones(n, dtype=torch.bool)
        others[kept] = False
        assert (products[number][others] <= found.bounds[number] + 1e-6).all()
        assert torch.isin(engine.vectors.long, kept).all()
    D, X = engine.gallery.divergence, engine.gallery.points.double().numpy()
    assert_nearest(D, side, X, np.arange(n), Q.numpy(), engine.search(Q, k, Settings()), k)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    n=st.integers(60, 3000),
    n_features=st.sampled_from([1, 2, 8, 33, 130]),
    k=st.one_of(st.integers(1, 12), st.sampled_from([20, 45])),
    name=st.sampled_from(sorted(divergences(1))),
    side=st.sampled_from(["right", "left"]),
    kind=KINDS,
    n_queries=st.sampled_from([1, 1, 2, 5, 70]),
    tile=st.sampled_from([(3, 64), (256, 1024)]),
    n_threads=st.sampled_from([1, 2, 3]),
)
def test_half_precision_finds_what_single_precision_does_or_says_that_it_may_have_missed_it(
    seed, n, n_features, k, name, side, kind, n_queries, tile, n_threads
):
    engine, Q = setting(seed, n, n_features, n_queries, name, side, kind)
    vectors, queries = engine.vectors, engine.vectors.lift.queries(Q)
    found, missed = [], np.zeros(n_queries, dtype=bool)
    for scanned, threads in ((vectors.single, 1), (vectors.half, n_threads)):
        candidates = scan(vectors, queries, k, tile, scanned=scanned, n_threads=threads)
        found.append(candidates.nearest())
        missed[candidates.missed(found[-1])] = True
    single, half = found
    assert torch.equal(half.rows[~missed], single.rows[~missed])
    lost = (half.divergences - single.divergences)[~missed].abs()  # which are computed again depends on candidates
    assert (lost <= 1e-9 * single.divergences[~missed] + 1e-13 * queries.scale[~missed, None]).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    n_features=st.sampled_from([1, 8, 33, 130]),
    name=st.sampled_from(sorted(divergences(1))),
    side=st.sampled_from(["right", "left"]),
    kind=KINDS,
)
def test_products_in_half_precision_are_above_the_exact_ones_by_no_more_than_they_say(
    seed, n_features, name, side, kind
):
    engine, Q = setting(seed, 300, n_features, 20, name, side, kind)
    vectors, half = engine.vectors, engine.vectors.half
    queries = vectors.lift.queries(Q)
    near = torch.ones(300, dtype=torch.bool)
    near[vectors.long] = False  # these are always ranked
    exact = (queries.vectors @ (vectors.coarse.double() + vectors.fine).T)[:, near]
    asked, lost = half.asked(queries)
    rounded = half.vectors.mT.reshape(-1, asked.shape[1])[:300]
    products = (asked @ rounded.T).double()[:, near]
    rounding = half.relative * products.abs() + half.rounding
    assert (products + rounding >= exact).all()
    above = half.above[near, 0] + lost[:, None] * half.above[near, 1]
    assert (products - rounding - above.double() <= exact).all()


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    n=st.integers(60, 3000),
    n_features=st.sampled_from([1, 3, 8, 33]),
    k=st.one_of(st.integers(1, 12), st.sampled_from([20, 45])),
    name=st.sampled_from(sorted(divergences(1))),
    side=st.sampled_from(["right", "left"]),
    kind=KINDS,
    n_queries=st.integers(1, 12),
    n_lists=st.integers(1, 9),
    n_probes=st.integers(1, 9),
    tile=st.sampled_from([(1024, 512), (3, 50), (1, 1)]),
)
def test_queries_alone_and_together_keep_the_same_items_of_lists(
    seed, n, n_features, k, name, side, kind, n_queries, n_lists, n_probes, tile
):
    """Of the probed lists, and of no other, what may belong to the answer."""
    engine, Q = setting(seed, n, n_features, n_queries, name, side, kind)
    vectors, rng = engine.vectors, np.random.default_rng(seed)
    rows = torch.as_tensor(rng.permutation(n))
    inner = np.sort(rng.integers(0, n + 1, n_lists - 1))  # some lists are empty
    lists = Lists(vectors.coarse[rows], rows, torch.as_tensor(np.r_[0, inner, n]))
    probes = torch.as_tensor(np.argsort(rng.random((n_queries, n_lists)), axis=1)[:, :n_probes].copy())
    queries = vectors.lift.queries(Q)
    together = scan_lists(vectors, queries, k, lists, probes, tile)
    alone = [scan_lists(vectors, queries[q : q + 1], k, lists, probes[q : q + 1]) for q in range(n_queries)]
    for q, one in enumerate(alone):
        probed = torch.cat([rows[lists.starts[p] : lists.starts[p + 1]] for p in probes[q].tolist()])
        expected = torch.cat([probed, vectors.long]).unique()
        values = vectors._products(queries[q : q + 1], expected[None])[0]
        nearest = values.sort().values[: min(k, len(expected))]
        for found, number in ((one, 0), (together, q)):
            if found.bounds[number] == torch.inf:  # too many are nearly equal
                continue
            kept = found.rows[number][found.rows[number] >= 0]
            assert len(kept.unique()) == len(kept)
            assert torch.isin(kept, expected).all()
            found_values, scale = found.divergences[number][: len(nearest)], float(queries.scale[q])
            torch.testing.assert_close(found_values, nearest, rtol=1e-9, atol=1e-9 * scale)
            others = expected[~torch.isin(expected, kept)]
            products = vectors.coarse[others] @ queries.vectors[q].float()
            assert (products <= found.bounds[number] + 1e-6).all()


def test_queries_that_tie_with_too_many_are_left_to_the_other_route():
    X = torch.ones(500, 3, dtype=torch.float64)
    X[0] = 2.0
    vectors = FlatEngine.build(Gallery(divergences(3)["euclid"], "right", X, torch.arange(500)), Settings()).vectors
    assert torch.isinf(scan(vectors, vectors.lift.queries(X[:2]), 5).bounds).all()


def test_half_precision_is_given_up_where_it_leaves_too_many_items():
    """The items of a sphere, from its center: the answer is right, and further queries begin in single precision."""
    X = points(0, 3000, 4)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    D, Q = divergences(4)["euclid"], 1e-4 * points(1, 12, 4)
    engine = FlatEngine.build(Gallery(D, "right", torch.as_tensor(X), torch.arange(3000)), Settings())
    assert not engine._half_pays(1)  # for so few queries
    engine.search(torch.as_tensor(points(2, HALF_FROM + 1, 4)), 5, Settings())
    assert engine._half_pays(1)
    for row in range(12):
        found = engine.search(torch.as_tensor(Q[row : row + 1]), 5, Settings())
        assert_nearest(D, "right", X, np.arange(3000), Q[row : row + 1], found, 5)
    assert not engine._half_pays(1)


@pytest.mark.parametrize("far", [1e9, 3e10, 1e11, 1e15, 1e30])
@pytest.mark.parametrize("n_queries", [1, 2])
def test_nothing_is_lost_where_an_item_is_so_far_off_that_the_others_are_tiny(far, n_queries):
    """In single precision the squares of their vectors are 0."""
    D, n, d = divergences(8)["euclid"], 1000, 8
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
        X = points(seed, n, d - 1)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        X = np.column_stack([X, 1e-6 * rng.standard_normal(n)]) @ rotation
        Q = np.repeat(rotation[-1:], n_queries, 0)
        X[0] = far
        engine = FlatEngine.build(Gallery(D, "right", torch.as_tensor(X), torch.arange(n)), Settings())
        for engine._n_asked in (0, HALF_FROM):  # in single and in half precision
            found = engine.search(torch.as_tensor(Q), 5, Settings())
            assert_nearest(D, "right", X, np.arange(n), Q, found, 5)


def test_threads_that_share_items_have_room_for_their_own():
    X = torch.as_tensor(points(0, 8192, 16))
    vectors = FlatEngine.build(Gallery(divergences(16)["euclid"], "right", X, torch.arange(8192)), Settings()).vectors
    whole = Candidates(vectors, vectors.lift.queries(X[:1]), 5, scanned=vectors.half)
    part = Candidates(vectors, vectors.lift.queries(X[:1]), 5, scanned=vectors.half, n_items=1024)
    assert part._limits[1] - room_for(5) == spare_room(1024, 1) == (whole._limits[1] - room_for(5)) // 8


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


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("n_queries", [3, 70])
def test_products_round_as_single_precision_does(onednn, n_queries, monkeypatch):
    """Whoever makes them: bounds of exact searches count on it."""
    if onednn and not scanning._onednn_is_fast():
        pytest.skip("numpy makes all products on this processor")
    monkeypatch.setattr(scanning, "_onednn_is_fast", lambda: onednn)
    rng = np.random.default_rng(0)
    queries, items = (torch.as_tensor(rng.standard_normal((n, 67)), dtype=torch.float32) for n in (n_queries, 200))
    found = scanning._products(queries, items, torch.empty((n_queries, 200)))
    sizes = queries.double().abs() @ items.double().abs().T
    rounding = 67 * torch.finfo(torch.float32).eps * sizes
    assert ((found.double() - queries.double() @ items.double().T).abs() <= rounding).all()
