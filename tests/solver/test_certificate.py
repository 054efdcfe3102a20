import numpy as np
import pytest
import torch

from benchmarks.peers import clarabel_program
from bregnet.solver import certificate
from bregnet.solver.certificate import DualPoint, PairOperator
from bregnet.solver.kernels import Pairs
from bregnet.solver.loop import Options, solve
from bregnet.solver.transport import PieceTree
from tests.regression_at_random import random_program, to_problem
from tests.selecting import some_slow

KINDS = [{}, {"dc": True}, {"cells": True}, {"dc": True, "cells": True}, {"monotone": True}]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "convex")
@pytest.mark.parametrize("block", some_slow(range(5), always=(0,)))
def test_the_bound_never_exceeds_the_optimum(kind, block):
    """250 random programs in all, each looked at early, when the multipliers are poor, and late, in both stages."""
    for seed in range(10 * block, 10 * block + 10):
        program = random_program(seed, n=(5, 30), d=(1, 4), **kind)
        optimum = clarabel_program.solve(program).value
        problem = to_problem(program)
        result = solve(problem, Options(tol=1e-7, max_iter=240, interior_after=180)).result
        slack = 1e-7 * max(1.0, abs(optimum))
        for check in result.history:
            assert check.dual_bound <= optimum + slack
            if not kind.get("cells"):  # with cells the returned maximum may beat the program it came from
                assert check.objective >= optimum - slack


@pytest.mark.parametrize("dc", [False, True])
def test_rounding_is_not_scaled_up(dc):
    """Two points that can be interpolated: what is left of the multipliers is rounding, and no bound."""
    X, y = np.array([[1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]]), np.array([1.0, -1.0])
    for alpha in 10.0 ** np.arange(-9, 0):
        program = clarabel_program.Program(X, y, np.full(3, alpha), signs=(1, -1)[: 1 + dc], weights=np.ones(2))
        result = solve(to_problem(program), Options(tol=1e-6, max_iter=300, interior_after=250)).result
        assert result.dual_bound <= alpha  # the slope 1 along one feature, without error, costs alpha
        assert result.objective <= 1.01 * alpha


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "convex")
@pytest.mark.parametrize("seed", range(4))
def test_any_multipliers_give_a_valid_bound(kind, seed):
    """Nothing of the solver is needed: random multipliers are closed and scaled into a dual point."""
    program = random_program(seed + 100, n=(6, 20), d=(1, 3), **kind)
    optimum = clarabel_program.solve(program).value
    problem = to_problem(program)
    geometry = problem.geometry
    generator = torch.Generator().manual_seed(seed)
    for scale in (1e-4, 1e-2, 1.0):
        k, j = torch.meshgrid(torch.arange(geometry.n_pieces), torch.arange(geometry.n_points), indexing="ij")
        k, j = k.flatten(), j.flatten()
        other = k != geometry.cells[j]
        pairs = tuple(
            Pairs(k[other], j[other], scale * torch.rand(int(other.sum()), dtype=torch.float64, generator=generator))
            for _ in program.signs
        )
        shape = (len(program.signs), geometry.n_pieces, geometry.dimension)
        pieces = torch.randn((*shape[:2], shape[2] + 1), dtype=torch.float64, generator=generator)
        nu = torch.randn(shape, dtype=torch.float64, generator=generator)
        assert problem.bound_of_pairs(pairs, pieces, nu, repairs=2) <= optimum + 1e-7


def test_many_features_repair_with_a_diagonal():
    from bregnet.solver import certificate

    program = random_program(11, n=(30, 30), d=(4, 4), dc=True)
    optimum = clarabel_program.solve(program).value
    problem = to_problem(program)
    operator = PairOperator(problem.geometry, (1, -1))
    generator = torch.Generator().manual_seed(0)
    k, j = torch.tensor([0, 1, 2, 5]), torch.tensor([3, 0, 7, 1])
    pairs = tuple(Pairs(k, j, torch.rand(4, dtype=torch.float64, generator=generator)) for _ in range(2))
    point = DualPoint(pairs, torch.zeros(30, dtype=torch.float64))
    flexibility = torch.rand(30, dtype=torch.float64, generator=generator)
    blocks = operator.diagonal_blocks(point, flexibility)
    torch.testing.assert_close(operator.diagonal(point, flexibility), blocks.diagonal(dim1=-2, dim2=-1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "BLOCK_MAX_DIMENSION", 2)
        result = solve(problem, Options(tol=1e-3, max_iter=4000, interior_size=0)).result
    assert result.dual_bound <= optimum * (1 + 1e-7) <= result.objective * (1 + 1e-6)
    assert result.gap < 0.02


def test_stationarity_is_the_gradient_of_the_lagrangian():
    program = random_program(5, n=(12, 12), d=(2, 2), dc=True, cells=True)
    problem = to_problem(program)
    geometry = problem.geometry
    generator = torch.Generator().manual_seed(0)
    n_pieces, n = geometry.n_pieces, geometry.n_points
    mu = torch.rand(2, n_pieces, n, dtype=torch.float64, generator=generator)
    theta = torch.randn(n, dtype=torch.float64, generator=generator)
    pieces = torch.randn(2, n_pieces, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    values = pieces @ geometry.lifted.T  # (2, K, n)
    own = values[:, geometry.cells, torch.arange(n)]
    lagrangian = (mu * (values - own[:, None])).sum() - (theta * (own[0] - own[1])).sum()
    lagrangian.backward()
    k, j = torch.meshgrid(torch.arange(n_pieces), torch.arange(n), indexing="ij")
    pairs = tuple(Pairs(k.flatten(), j.flatten(), m.flatten()) for m in mu)
    found = PairOperator(geometry, (1, -1)).stationarity(DualPoint(pairs, theta))
    torch.testing.assert_close(found, pieces.grad)


def test_levelling_out_adds_only_multipliers():
    """The change of stationarity is that of non-negative multipliers on pairs, and nothing is left over."""
    program = random_program(3, n=(40, 40), d=(2, 2), cells=True)
    geometry = to_problem(program).geometry
    tree = PieceTree(geometry)
    stationarity = torch.randn(geometry.n_pieces, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    stationarity[:, -1] -= stationarity[:, -1].mean()
    levelled = tree.level_out(stationarity)
    assert levelled[:, -1].abs().max() == 0
    # non-negative least squares over all pairs reproduces the change
    from scipy.optimize import nnls

    n_pieces, n = geometry.n_pieces, geometry.n_points
    columns = []
    for k in range(n_pieces):
        for j in range(n):
            if k != geometry.cells[j]:
                effect = np.zeros((n_pieces, 3))
                effect[k] += geometry.lifted[j].numpy()
                effect[geometry.cells[j]] -= geometry.lifted[j].numpy()
                columns.append(effect.ravel())
    change = (levelled - stationarity).numpy().ravel()
    _, residual = nnls(np.array(columns).T, change, maxiter=10_000)
    assert residual < 1e-8


@pytest.mark.parametrize("elements", [40, 1 << 22])  # a few pairs at a time, and all at once
def test_sums_over_pairs_are_the_same_compiled_and_by_torch(elements, monkeypatch):
    problem = to_problem(random_program(3, n=(30, 31), d=(3, 4), cells=True))
    geometry = problem.geometry
    generator = torch.Generator().manual_seed(0)
    chosen = torch.rand(geometry.n_pieces, geometry.n_points, generator=generator) < 0.3
    chosen[1] = False  # a piece without any
    rows, columns = chosen.nonzero().T
    flow = torch.rand(len(rows), dtype=torch.float64, generator=generator)
    pairs = Pairs(rows, columns, flow)
    pieces = torch.randn(geometry.n_pieces, geometry.dimension + 1, dtype=torch.float64, generator=generator)
    monkeypatch.setattr(certificate, "GATHER_ELEMENTS", elements)
    point = certificate.DualPoint((pairs,), torch.rand(geometry.n_points, dtype=torch.float64, generator=generator))
    found = []
    for compiled in (True, False):
        operator = PairOperator(geometry, (1,))
        operator.compiled = compiled
        blocks = operator.diagonal_blocks(point, geometry.weights)
        diagonal = operator.diagonal(point, geometry.weights)
        torch.testing.assert_close(blocks.diagonal(dim1=-2, dim2=-1), diagonal, rtol=1e-12, atol=1e-12)
        found.append((operator.excess(pairs, pieces), operator.stationarity(point), blocks))
    expected = (pieces @ geometry.lifted.T - geometry.fitted(pieces))[rows, columns]
    torch.testing.assert_close(found[0][0], expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
