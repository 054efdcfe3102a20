"""The exact scan: the largest scores, and the bound on what single precision may have missed."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bregnet import BregmanDivergence
from bregnet.retrieval.engine import Settings
from bregnet.retrieval.flat import FlatEngine, Scores
from bregnet.retrieval.items import Gallery
from bregnet.retrieval.pieces import PieceEngine
from tests.support.search_at_random import assert_nearest, divergences, max_affine, points


def gallery_of(divergence, X, side="right"):
    return Gallery(divergence, side, torch.as_tensor(X), torch.arange(len(X)))


@pytest.mark.parametrize(("n", "count"), [(1000, 3), (64 * 40, 7), (64 * 40 + 1, 7), (64 * 41 - 1, 20), (50, 49)])
@pytest.mark.parametrize("at_once", [64, 640, 1 << 13])
@pytest.mark.parametrize(("n_long", "group"), [(0, 64), (2, 64), (2, 1)])
def test_the_largest_are_those_of_topk(n, count, at_once, n_long, group):
    X, Q = points(0, n, 3), points(1, 200, 3)
    vectors = FlatEngine.build(gallery_of(divergences(3)["sum"], X), Settings()).vectors
    vectors.long = torch.tensor([0, n - 1])[:n_long]
    queries = vectors.lift.queries(torch.as_tensor(Q))
    found = Scores(vectors, queries, group, at_once)
    rows, worst = found.largest(min(count, n - n_long))
    scores = queries.vectors @ vectors.coarse.double().T
    scores[:, vectors.long] = -torch.inf
    values, expected = scores.topk(rows.shape[1], dim=1)
    assert torch.equal(rows.sort(1).values, expected.sort(1).values)
    torch.testing.assert_close(worst.double(), values[:, -1], rtol=0, atol=1e-6)
    for number in range(0, 200, 20):
        least = float(values[number, -1]) - 1e-3
        above = (scores[number] >= least).nonzero()[:, 0].tolist() + vectors.long.tolist()
        assert set(above) <= set(found.rows_above(number, least).tolist())
        assert len(found.rows_above(number, -1e300)) == n


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 40),
    st.sampled_from(sorted(divergences(1))),
    st.sampled_from(["right", "left"]),
    st.floats(-6, 6),
)
def test_the_bound_on_single_precision_holds(seed, n_features, name, side, exponent):
    if name in ("kl", "itakura-saito"):
        exponent = 0.0
    D = divergences(n_features)[name]
    X, Q = (points(seed + number, 200, n_features) * 10**exponent for number in (0, 1))
    engine = FlatEngine.build(gallery_of(D, X, side), Settings())
    queries = engine.vectors.lift.queries(torch.as_tensor(Q[:10]))
    rows = torch.arange(200).expand(10, -1)
    scores = (queries.vectors.float() @ engine.vectors.coarse.T).double()
    true = engine.vectors._products(queries, rows)
    others = set(range(200)) - set(engine.vectors.long.tolist())  # what is always ranked needs no bound
    for item in others:
        assert (scores[:, item] >= engine.vectors.least_score(queries, true[:, item])).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 8),
    st.integers(1, 30),
    st.sampled_from(sorted(divergences(1))),
    st.sampled_from(["right", "left"]),
    st.booleans(),
)
@example(seed=7, n_features=7, k=10, name="cold", side="left", lattice=False)  # 1e4 off, the last entry loses digits
@example(seed=3360, n_features=2, k=7, name="cold", side="left", lattice=True)
def test_the_nearest_are_the_first_of_all_in_order(seed, n_features, k, name, side, lattice):
    """Items that cannot be among the k nearest are ranked with fewer digits; of all items each has its own."""
    X, Q = (points(seed + number, 200, n_features, lattice) for number in (0, 1))
    X[:2] *= 1e4  # far longer than the others
    vectors = FlatEngine.build(gallery_of(divergences(n_features)[name], X, side), Settings()).vectors
    queries, rows = vectors.lift.queries(torch.as_tensor(Q[:10])), torch.arange(200).expand(10, -1)
    some, everything = vectors.ranked(queries, rows, k), vectors.ranked(queries, rows, 200)
    assert torch.equal(some.rows, everything.rows[:, :k])
    torch.testing.assert_close(some.divergences, everything.divergences[:, :k], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("temperature", [0.003, 0.03])
def test_thousands_of_nearly_equal_divergences(side, temperature):
    """Of a cold function, divergences on one piece are far below what inner products can tell apart."""
    D = BregmanDivergence(max_affine(0, 3, n_pieces=5, temperature=temperature))
    X, Q = points(0, 3000, 3), points(1, 20, 3)
    engine = FlatEngine.build(gallery_of(D, X, side), Settings())
    assert_nearest(D, side, X, np.arange(3000), Q, engine.search(torch.as_tensor(Q), 5, Settings()), 5)
    radii = engine.search(torch.as_tensor(Q), 5, Settings()).divergences[:, -1]
    for found in engine.within(torch.as_tensor(Q), radii, Settings()):
        assert len(found.rows) >= 5


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("strictness", [0.0, 1e-7])
def test_many_ties_are_ranked_completely(side, strictness):
    D = BregmanDivergence(max_affine(0, 3, n_pieces=5, strictness=strictness))  # hundreds of items tie
    X, Q = points(0, 3000, 3), points(1, 20, 3)
    gallery = gallery_of(D, X, side)
    flat = FlatEngine.build(gallery, Settings()).search(torch.as_tensor(Q), 5, Settings())
    assert_nearest(D, side, X, np.arange(3000), Q, flat, 5)
    assert PieceEngine.suits(gallery) == (side == "right" or strictness == 0)
    if PieceEngine.suits(gallery):
        lists = PieceEngine.build(gallery, Settings()).search(torch.as_tensor(Q), 5, Settings())
        assert torch.equal(lists.rows, flat.rows)


def test_lists_that_are_too_short_are_completed_on_the_left():
    D = BregmanDivergence(max_affine(0, 3, n_pieces=60))
    X, Q = points(0, 80, 3), points(1, 20, 3)
    found = PieceEngine.build(gallery_of(D, X, "left"), Settings()).search(torch.as_tensor(Q), 30, Settings())
    assert (found.divergences[:, -1] > 0).any()
    assert_nearest(D, "left", X, np.arange(80), Q, found, 30)


def test_items_on_the_border_of_two_pieces_belong_to_both_on_the_left():
    from bregnet import MaxAffine

    D = BregmanDivergence(MaxAffine([[1.0], [-1.0]], [0.0, 0.0]))  # |x|, whose pieces tie at 0
    X = np.array([[0.0], [2.0], [-3.0]])
    found = PieceEngine.build(gallery_of(D, X, "left"), Settings()).search(
        torch.tensor([[-1.0], [1.0]], dtype=torch.float64), 2, Settings()
    )
    assert found.rows.tolist() == [[0, 2], [0, 1]]
    assert found.divergences.tolist() == [[0, 0], [0, 0]]


def test_only_functions_without_temperature_have_lists():
    X = points(0, 50, 3)
    for name, D in divergences(3).items():
        assert PieceEngine.suits(gallery_of(D, X)) == (name in ("sharp", "sharp scaled", "hardly strict"))
    with pytest.raises(ValueError, match="lists of pieces need a MaxAffine without temperature"):
        PieceEngine.build(gallery_of(divergences(3)["smooth"], X), Settings())
