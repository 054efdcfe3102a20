"""The exact scan: the largest scores, and the bound on what single precision may have missed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bregnet import BregmanDivergence
from bregnet.engines.flat import FlatEngine, _largest
from bregnet.engines.gallery import Gallery
from bregnet.engines.pieces import PieceEngine, suits_lists
from tests.search_at_random import assert_nearest, divergences, max_affine, points


def gallery_of(divergence, X, side="right"):
    return Gallery(divergence, side, torch.as_tensor(X), torch.arange(len(X)))


@pytest.mark.parametrize(("n", "count"), [(1000, 3), (64 * 40, 7), (64 * 40 + 1, 7), (64 * 41 - 1, 20), (50, 50)])
def test_the_largest_are_those_of_topk(n, count):
    scores = torch.randn(4, n, generator=torch.Generator().manual_seed(n))
    places, worst = _largest(scores, count)
    values, expected = scores.topk(count, dim=1)
    assert torch.equal(places.sort(1).values, expected.sort(1).values)
    assert torch.equal(worst, values[:, -1])


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
    engine = FlatEngine.of(gallery_of(D, X, side))
    queries = engine.vectors.lift.queries(torch.as_tensor(Q[:10]))
    rows = torch.arange(200).expand(10, -1)
    scores = (queries.vectors.float() @ engine.vectors.coarse.T).double()
    true = engine.vectors._products(queries, rows)
    others = set(range(200)) - set(engine.vectors.long.tolist())  # what is always ranked needs no bound
    for item in others:
        assert (scores[:, item] >= engine.vectors.least_score(queries, true[:, item])).all()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("strictness", [0.0, 1e-7])
def test_many_ties_are_ranked_completely(side, strictness):
    D = BregmanDivergence(max_affine(0, 3, n_pieces=5, strictness=strictness))  # hundreds of items tie
    X, Q = points(0, 3000, 3), points(1, 20, 3)
    gallery = gallery_of(D, X, side)
    flat = FlatEngine.of(gallery).search(torch.as_tensor(Q), 5)
    assert_nearest(D, side, X, np.arange(3000), Q, flat, 5)
    assert suits_lists(gallery) == (side == "right" or strictness == 0)
    if suits_lists(gallery):
        lists = PieceEngine.of(gallery).search(torch.as_tensor(Q), 5)
        assert torch.equal(lists.rows, flat.rows)


def test_lists_that_are_too_short_are_completed_on_the_left():
    D = BregmanDivergence(max_affine(0, 3, n_pieces=60))
    X, Q = points(0, 80, 3), points(1, 20, 3)
    found = PieceEngine.of(gallery_of(D, X, "left")).search(torch.as_tensor(Q), 30)
    assert (found.divergences[:, -1] > 0).any()
    assert_nearest(D, "left", X, np.arange(80), Q, found, 30)


def test_items_on_the_border_of_two_pieces_belong_to_both_on_the_left():
    from bregnet import MaxAffine

    D = BregmanDivergence(MaxAffine([[1.0], [-1.0]], [0.0, 0.0]))  # |x|, whose pieces tie at 0
    X = np.array([[0.0], [2.0], [-3.0]])
    found = PieceEngine.of(gallery_of(D, X, "left")).search(torch.tensor([[-1.0], [1.0]], dtype=torch.float64), 2)
    assert found.rows.tolist() == [[0, 2], [0, 1]]
    assert found.divergences.tolist() == [[0, 0], [0, 0]]


def test_only_functions_without_temperature_have_lists():
    X = points(0, 50, 3)
    for name, D in divergences(3).items():
        assert suits_lists(gallery_of(D, X)) == (name in ("sharp", "sharp scaled", "hardly strict"))
    with pytest.raises(ValueError, match="lists of pieces need a MaxAffine without temperature"):
        PieceEngine.of(gallery_of(divergences(3)["smooth"], X))
