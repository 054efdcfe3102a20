"""Losses other than squares on the solver of regression: absolute errors, against a linear program."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import linprog

from bregnet.distributed import ALONE
from bregnet.solver.admm import Options
from bregnet.solver.certificate import DualPoint, stationarity
from bregnet.solver.pairs import TorchPairs, starting_keys
from bregnet.solver.regression import LeastSquares, Regression
from bregnet.solver.solve import solve
from bregnet.solver.working_pairs import WorkingPairs
from tests.support.regression_at_random import random_program, to_problem

KINDS = [{}, {"monotone": True}, {"dc": True}, {"cells": True}]
NAMED = {"ids": lambda kind: "-".join(kind) or "convex"}


class AbsoluteErrors(Regression):
    @property
    def theta_range(self):
        most = self.curvature / 2
        return -most, most

    def losses(self, fitted):
        return (fitted - self.targets).abs()

    def prox(self, copies):
        errors = copies - self.targets
        return self.targets + errors.sign() * (errors.abs() - 0.5).clamp_min(0)

    def dual_of_scaled(self, theta, largest):
        return max(float(largest.clamp_max(1) * (theta @ self.targets)), 0.0)


class SquaresAsAnyLoss(LeastSquares):
    """Squares with copies of the fitted values."""

    def starting_copies(self):
        return Regression.starting_copies(self)


def with_loss(kind, program):
    squares = to_problem(program)
    return kind(squares.geometry, squares.targets, squares.penalty, squares.signs)


def optimum_of(program):
    """The least absolute error by a linear program in slopes and intercepts (Q, K, d + 1), errors and heights."""
    X, y, w = program.points, program.targets, program.weights / program.weights.sum()
    n, d = X.shape
    cells = np.arange(n) if program.cells is None else program.cells
    n_pieces, n_sets = int(cells.max()) + 1, len(program.signs)
    size, lifted, rows = n_pieces * (d + 1), np.c_[X, np.ones(n)], []
    sizes = [size] * n_sets + [n] + [d] * n_sets

    def place(parts):
        n_rows = next(iter(parts.values())).shape[0]
        return sparse.hstack([parts.get(i, sparse.csr_matrix((n_rows, m))) for i, m in enumerate(sizes)])

    own = sparse.csr_matrix(
        (lifted.ravel(), (np.repeat(np.arange(n), d + 1), (cells[:, None] * (d + 1) + np.arange(d + 1)).ravel())),
        (n, size),
    )
    every = sparse.kron(sparse.eye(n_pieces), lifted)
    slopes = sparse.kron(sparse.eye(n_pieces), np.eye(d, d + 1))
    heights = sparse.kron(np.ones((n_pieces, 1)), sparse.eye(d))
    for q in range(n_sets):
        rows.append(place({q: every - sparse.vstack([own] * (n_pieces))}))
        rows += [place({q: sign * slopes, n_sets + 1 + q: -heights}) for sign in (1, -1)]
        if program.monotone is not None:
            rows.append(place({q: -sparse.kron(sparse.eye(n_pieces), np.c_[np.diag(program.monotone), np.zeros(d)])}))
    right = [np.zeros(each.shape[0]) for each in rows]
    for sign in (1, -1):
        rows.append(place({q: sign * s * own for q, s in enumerate(program.signs)} | {n_sets: -sparse.eye(n)}))
        right.append(sign * y)
    cost = np.concatenate([np.zeros(n_sets * size), w, np.tile(program.alpha, n_sets)])
    found = linprog(cost, sparse.vstack(rows).tocsr(), np.concatenate(right), bounds=(None, None), method="highs")
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("kind", KINDS, **NAMED)
@pytest.mark.parametrize("seed", range(2, 4))
def test_absolute_errors_are_certified(kind, seed):
    program = random_program(700 + seed, n=(15, 40), d=(1, 3), **kind)
    optimum = optimum_of(program)
    for tol in (1e-2, 9e-4):
        result = solve(with_loss(AbsoluteErrors, program), Options(tol=tol, max_iter=3000)).result
        assert result.dual_bound <= optimum * (1 + 1e-7)
        assert kind.get("cells") or result.objective >= optimum * (1 - 1e-7)
        assert result.converged


@pytest.mark.parametrize("kind", KINDS, **NAMED)
def test_the_bound_holds_for_any_multipliers(kind):
    rng = np.random.default_rng(0)
    for seed in range(5):
        program = random_program(800 + seed, n=(6, 15), d=(1, 3), **kind)
        optimum, problem = optimum_of(program), with_loss(AbsoluteErrors, program)
        operator = TorchPairs(problem.geometry, torch.float64, ALONE)
        operator.choose(starting_keys(problem.geometry))
        for scale in (1e-3, 1.0, 30.0):
            mu = torch.as_tensor(scale * rng.exponential(size=(problem.n_sets, len(operator.keys))))
            point = DualPoint(mu, torch.as_tensor(scale * rng.standard_normal(problem.geometry.n_points)))
            found = stationarity(operator, problem.signs, point)
            for tight in (False, True):
                assert problem.dual_value(found, point.theta, point.mass(operator), tight=tight) <= optimum + 1e-9


@pytest.mark.parametrize("kind", KINDS, **NAMED)
def test_squares_are_the_same_with_copies_of_the_fitted_values(kind):
    program = random_program(900, n=(40, 40), d=(2, 2), **kind)
    works = [WorkingPairs(with_loss(each, program), Options(tol=1e-6)) for each in (LeastSquares, SquaresAsAnyLoss)]
    for work in works:
        work.run(40)
    torch.testing.assert_close(works[0].state.pieces, works[1].state.pieces, rtol=1e-8, atol=1e-8)


def test_a_snapshot_has_the_copies():
    problem = with_loss(AbsoluteErrors, random_program(901, n=(30, 30), d=(2, 2)))
    work, other = (WorkingPairs(problem, Options()) for _ in range(2))
    work.run(10)
    other.restore(*deepcopy(work.snapshot()))
    for each in (work, other):
        each.run(5)
    assert torch.equal(work.state.copies, other.state.copies)
    assert torch.equal(work.state.pieces, other.state.pieces)
