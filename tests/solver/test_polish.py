from dataclasses import replace

import pytest
import torch

from bregnet._core.chunks import at_most
from bregnet.solver import polish
from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import TiledKernel
from bregnet.solver.normal import NormalEquations
from bregnet.solver.partition import kmeans_cells
from bregnet.solver.polish import VIOLATION, excesses, keep_points, strictly_convex


def geometry_of(n, d, n_pieces=None):
    points = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    weights = torch.ones(n, dtype=torch.float64)
    if n_pieces is None:
        return Geometry.build(points, weights)
    cells = torch.as_tensor(kmeans_cells(points.numpy(), n_pieces, weights.numpy(), 0))
    return Geometry.build(points, weights, cells, n_pieces)


def tangents_of_a_paraboloid(geometry, noise):
    """Tangents of |x|^2 at the cells' centres, which keep their points, and noise, which spoils it."""
    centres = geometry.centers
    pieces = torch.cat([2 * centres, -centres.square().sum(1, keepdim=True)], dim=1)
    return pieces + noise * torch.randn(pieces.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def polished(geometry, pieces, limit=2000):
    kernel = TiledKernel(geometry, torch.float64)
    after, n_steps = keep_points(geometry, kernel, NormalEquations(geometry, 2.0).factor(), 2.0, pieces, limit)
    assert 0 < n_steps <= limit
    return after


@pytest.mark.parametrize(("n", "d", "n_pieces"), [(30, 2, None), (60, 4, None), (80, 2, 9)])
def test_every_piece_keeps_its_points(n, d, n_pieces):
    geometry = geometry_of(n, d, n_pieces)
    pieces = tangents_of_a_paraboloid(geometry, 0.1)
    assert excesses(geometry, pieces).max() > 0.01
    after = polished(geometry, pieces)
    assert excesses(geometry, after).max() <= VIOLATION
    # near the pieces at hand, and no steeper
    assert (after - pieces)[:, :-1].abs().max() < 1.0
    assert (after[:, :-1].abs().amax(0) <= pieces[:, :-1].abs().amax(0) + 0.05).all()


def test_pieces_that_keep_their_points_stay():
    geometry = geometry_of(40, 3)
    pieces = tangents_of_a_paraboloid(geometry, 0.0)
    after = polished(geometry, pieces)
    shift = (after - pieces)[:, -1].mean()  # a constant is free
    torch.testing.assert_close(after[:, :-1], pieces[:, :-1], rtol=0, atol=1e-8)
    torch.testing.assert_close(after[:, -1] - shift, pieces[:, -1], rtol=0, atol=1e-8)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_curvature_makes_every_piece_strictly_the_largest(noise):
    geometry = geometry_of(50, 3)
    pieces = tangents_of_a_paraboloid(geometry, noise)
    after = strictly_convex(geometry, pieces)
    values = geometry.lifted @ after.T
    own = values.diagonal().clone()
    values.fill_diagonal_(-torch.inf)
    assert (own > values.amax(1)).all()


def test_the_tightest_points_are_chosen_where_there_are_many():
    geometry = geometry_of(400, 2, 9)
    pieces = tangents_of_a_paraboloid(geometry, 0.05)
    assert polish.tightest(geometry, pieces) is geometry
    with at_most(9 * 60):
        some = polish.tightest(geometry, pieces)
    assert 55 <= some.n_points <= 60
    assert some.n_pieces == 9
    values = geometry.lifted @ pieces.T
    own = values[torch.arange(400), geometry.cells]
    values[torch.arange(400), geometry.cells] = -torch.inf
    lead = own - values.amax(1)
    chosen = lead.sort().values[: some.n_points]
    there = some.lifted @ pieces.T
    own = there[torch.arange(some.n_points), some.cells]
    there[torch.arange(some.n_points), some.cells] = -torch.inf
    torch.testing.assert_close((own - there.amax(1)).sort().values, chosen)
    with at_most(1):
        assert polish.tightest(geometry, pieces).n_points <= 400 // polish.SUBSET_SHARE + 1
    stretched = replace(geometry, lifted=geometry.lifted.clone())
    stretched.lifted[:, :-1] *= torch.exp(4 * torch.randn(400, 1, generator=torch.Generator().manual_seed(0)))
    with at_most(9 * 60):
        assert 55 <= polish.tightest(stretched, pieces).n_points <= 60
    assert polish.tightest(geometry_of(40, 2), tangents_of_a_paraboloid(geometry_of(40, 2), 0.0)).n_points == 40


def test_polishing_the_tightest_points_mends_most_of_the_others():
    geometry = geometry_of(400, 2, 9)
    pieces = tangents_of_a_paraboloid(geometry, 0.1)
    with at_most(9 * 150):
        some = polish.tightest(geometry, pieces)
    after = polished(some, pieces)
    before = (excesses(geometry, pieces) > VIOLATION).sum()
    assert (excesses(geometry, after) > VIOLATION).sum() < 0.5 * before
