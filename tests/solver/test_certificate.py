import numpy as np
import pytest
import torch

from benchmarks.peers import clarabel_program
from bregnet.distributed import ALONE
from bregnet.solver import certificate
from bregnet.solver.admm import Options
from bregnet.solver.certificate import DualPoint, repair, stationarity
from bregnet.solver.geometry import Geometry
from bregnet.solver.pairs import pair_operator, without_own
from bregnet.solver.solve import solve
from bregnet.solver.transport import PieceTree
from tests.support.regression_at_random import random_program, to_problem
from tests.support.selecting import some_slow

KINDS = [{}, {"dc": True}, {"cells": True}, {"dc": True, "cells": True}, {"monotone": True}]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "convex")
@pytest.mark.parametrize("block", some_slow(range(5), always=(0,)))
def test_the_bound_never_exceeds_the_optimum(kind, block):
    """250 random programs in all, each looked at early, when the multipliers are poor, and late."""
    for seed in range(10 * block, 10 * block + 10):
        program = random_program(seed, n=(5, 30), d=(1, 4), **kind)
        optimum = clarabel_program.solve(program).value
        problem = to_problem(program)
        result = solve(problem, Options(tol=1e-7, max_iter=240)).result
        slack = 1e-7 * max(1.0, abs(optimum))
        for check in result.history:
            assert check.dual_bound <= optimum + slack
            if not kind.get("cells"):  # with cells the returned maximum may beat the program it came from
                assert check.objective >= optimum - slack
        coarse = solve(problem, Options(tol=1e-2)).result  # in single precision
        assert coarse.dual_bound <= optimum + slack
        assert kind.get("cells") or coarse.objective >= optimum - slack


@pytest.mark.parametrize("dc", [False, True])
def test_rounding_is_not_scaled_up(dc):
    """Two points that can be interpolated: what is left of the multipliers is rounding, and no bound."""
    X, y = np.array([[1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]]), np.array([1.0, -1.0])
    for alpha in 10.0 ** np.arange(-9, 0):
        program = clarabel_program.Program(X, y, np.full(3, alpha), signs=(1, -1)[: 1 + dc], weights=np.ones(2))
        result = solve(to_problem(program), Options(tol=1e-6, max_iter=2000)).result
        assert result.dual_bound <= alpha  # the slope 1 along one feature, without error, costs alpha
        assert result.objective <= 1.01 * alpha


def all_pairs(geometry):
    """The operator on every pair of a piece and a point."""
    operator = pair_operator(geometry, torch.float64, ALONE)
    operator.choose(without_own(geometry, torch.arange(geometry.n_pieces * geometry.n_points)))
    return operator


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "convex")
@pytest.mark.parametrize("seed", range(4))
def test_any_multipliers_give_a_valid_bound(kind, seed):
    """Nothing of the solver is needed: random multipliers are repaired, closed and scaled into a dual point."""
    program = random_program(seed + 100, n=(6, 20), d=(1, 3), **kind)
    optimum = clarabel_program.solve(program).value
    problem = to_problem(program)
    geometry, signs = problem.geometry, program.signs
    operator = all_pairs(geometry)
    generator = torch.Generator().manual_seed(seed)
    for scale in (1e-4, 1e-2, 1.0):
        mu = scale * torch.rand((len(signs), len(operator.keys)), dtype=torch.float64, generator=generator)
        shape = (len(signs), geometry.n_pieces, geometry.dimension)
        nu = torch.randn(shape, dtype=torch.float64, generator=generator)
        theta = torch.randn(geometry.n_points, dtype=torch.float64, generator=generator)
        point = DualPoint(mu, theta)
        for each in (point, repair(operator, signs, point, nu, geometry.weights)):
            assert (each.pairs >= 0).all()
            for tight in (False, True):
                found = stationarity(operator, signs, each)
                assert problem.dual_value(found, each.theta, each.mass(operator), tight=tight) <= optimum + 1e-7


def test_many_features_repair_with_a_diagonal(monkeypatch):
    program = random_program(11, n=(30, 30), d=(4, 4), dc=True)
    optimum = clarabel_program.solve(program).value
    monkeypatch.setattr(certificate, "BLOCK_MAX_DIMENSION", 2)
    result = solve(to_problem(program), Options(tol=1e-3, max_iter=4000)).result
    assert result.dual_bound <= optimum * (1 + 1e-7) <= result.objective * (1 + 1e-6)
    assert result.gap < 0.02


def test_a_repair_moves_the_pieces_towards_their_multipliers():
    """A dual point of the solver, disturbed a little: after a repair the penalty's multipliers are nearly right."""
    problem = to_problem(random_program(12, n=(60, 60), d=(3, 3)))
    solution = solve(problem, Options(tol=1e-5, max_iter=20_000))
    state, operator = solution.state, pair_operator(problem.geometry, torch.float64, ALONE)
    operator.choose(state.keys)
    theta = problem.theta(torch.stack([operator.fitted(u) for u in state.pieces]))
    clipped, _ = problem.penalty.prox(state.slopes, state.rho * state.kappa)
    nu = state.rho * state.kappa * (state.slopes - clipped)
    noise = 1 + 0.05 * torch.randn(state.slacks.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    point = DualPoint(state.rho * state.slacks.clamp_min(0) * noise, theta)

    def wrong(each):
        found = stationarity(operator, problem.signs, each)
        slopes = found[..., :-1] - found[..., -1:] * operator.centers
        return float((slopes + nu).abs().sum())

    flexibility = float(point.pairs.sum()) / 60 * problem.geometry.weights
    assert wrong(repair(operator, problem.signs, point, nu, flexibility)) < 0.2 * wrong(point)


def test_stationarity_is_the_gradient_of_the_lagrangian():
    program = random_program(5, n=(12, 12), d=(2, 2), dc=True, cells=True)
    geometry = to_problem(program).geometry
    generator = torch.Generator().manual_seed(0)
    operator = all_pairs(geometry)
    n_pieces, n = geometry.n_pieces, geometry.n_points
    mu = torch.rand(2, len(operator.keys), dtype=torch.float64, generator=generator)
    theta = torch.randn(n, dtype=torch.float64, generator=generator)
    pieces = torch.randn(2, n_pieces, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    values = pieces @ geometry.lifted.T  # (2, K, n)
    own = values[:, geometry.cells, torch.arange(n)]
    excess = (values - own[:, None]).reshape(2, -1)[:, operator.keys]
    lagrangian = (mu * excess).sum() - (theta * (own[0] - own[1])).sum()
    lagrangian.backward()
    torch.testing.assert_close(stationarity(operator, (1, -1), DualPoint(mu, theta)), pieces.grad)


@pytest.mark.parametrize("short", [False, True])
def test_levelling_out_adds_only_multipliers(short):
    """The change of stationarity is that of non-negative multipliers on pairs, and nothing is left over."""
    program = random_program(3, n=(40, 40), d=(2, 2), cells=True)
    geometry = to_problem(program).geometry
    tree = PieceTree(geometry)
    stationarity = torch.randn(geometry.n_pieces, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    stationarity[:, -1] -= stationarity[:, -1].mean()
    levelled = tree.level_out(stationarity, short=short)
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


def test_short_paths_cost_less_than_the_tree():
    """What levels out adds up, over pieces and features, to little more than a half of what the tree alone takes."""
    points = torch.randn(400, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tree = PieceTree(Geometry.build(points, torch.ones(400, dtype=torch.float64)))
    surplus = torch.randn(400, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    stationarity = torch.zeros(400, 4, dtype=torch.float64)
    stationarity[:, -1] = surplus - surplus.mean()
    stationarity[:, :-1] = stationarity[:, -1:] * points  # so that masses that stay where they are cost nothing
    costs = [float(tree.level_out(stationarity, short=short)[:, :-1].abs().sum()) for short in (False, True)]
    assert costs[1] < 0.6 * costs[0]
