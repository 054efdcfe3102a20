import numpy as np
import pytest
import torch

from benchmarks.peers import bregman_program
from bregnet.solver.admm import Options
from bregnet.solver.all_pairs import AllPairs
from bregnet.solver.bregman import BregmanLearning, LabelLoss
from bregnet.solver.entries import EntryKernel, PairEntries
from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import TiledKernel
from bregnet.solver.multipliers import DenseMultipliers
from bregnet.solver.penalty import Penalty
from bregnet.solver.solve import solve
from tests.support import paper
from tests.support.divergences_at_random import random_supervision
from tests.support.selecting import some_slow

KINDS = ["labels", "pairs", "triplets"]


@pytest.mark.parametrize("cells", [False, True], ids=["own", "cells"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", some_slow(range(4), always=(0,)))
def test_the_bound_never_exceeds_the_optimum(kind, cells, block):
    """240 random programs in all, each looked at early, when the multipliers are poor, and late, in both stages."""
    for seed in range(10 * block, 10 * block + 10):
        program, problem = random_supervision(seed, kind, cells=cells)
        optimum = bregman_program.solve(program).value
        result = solve(problem, Options(tol=1e-7, max_iter=160, interior_after=120)).result
        slack = 1e-7 * max(1.0, abs(optimum))
        for check in result.history:
            assert check.dual_bound <= optimum + slack
            if not cells:  # with cells the returned maximum may beat the program it came from
                assert check.objective >= optimum - slack


@pytest.mark.parametrize(
    ("kind", "seed", "n"),
    [
        *((k, s, (15, 40)) for k in KINDS for s in range(4)),
        ("labels", 9, (80, 80)),
        ("pairs", 9, (80, 80)),
        ("triplets", 9, (60, 60)),
    ],
)
def test_the_objective_agrees_with_a_linear_program(kind, seed, n):
    program, problem = random_supervision(seed, kind, n=n, d=(2, 3))
    optimum = bregman_program.solve(program).value
    result = solve(problem, Options(tol=5e-4, max_iter=20_000)).result
    assert result.converged
    assert result.objective == pytest.approx(optimum, rel=1e-3, abs=1e-9)
    assert result.dual_bound == pytest.approx(optimum, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_admm_alone_gets_there_too(seed):
    program, problem = random_supervision(seed, "labels", n=(15, 20), d=(2, 2))
    optimum = bregman_program.solve(program).value
    result = solve(problem, Options(tol=2e-3, max_iter=20_000, interior_size=0)).result
    assert result.objective == pytest.approx(optimum, rel=2e-3)


def label_problem(X, y, alpha, balanced):
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    geometry = Geometry.build(torch.as_tensor(X), torch.ones(len(X), dtype=torch.float64))
    classes = np.unique(y, return_inverse=True)[1]
    sizes = np.bincount(classes)
    similar = float(np.square(sizes).sum())
    weights = (0.5 / similar, 0.5 / (len(X) ** 2 - similar)) if balanced else (1 / len(X) ** 2,) * 2
    labels = LabelLoss(geometry, torch.eye(len(sizes), dtype=torch.float64), torch.as_tensor(sizes), *weights)
    level = torch.full((X.shape[1],), alpha, dtype=torch.float64)
    return X, y, BregmanLearning(geometry, Penalty(level), labels)


@pytest.mark.parametrize("alpha", [0.02, 0.1])
def test_the_paper_as_printed_finds_the_same_optimum(alpha):
    rng = np.random.default_rng(2)
    y = np.repeat([0, 1], 9)
    X = rng.standard_normal((18, 2)) + 1.5 * y[:, None]
    X, y, problem = label_problem(X - X.mean(0), y, alpha, balanced=False)
    pull, push = bregman_program.label_weights(y, balanced=False)
    theirs = paper.bregman_objective(paper.bregman_learning(X, y, 0.03, alpha, 8000), X, pull, push, alpha)
    ours = solve(problem, Options(tol=1e-5, max_iter=20_000)).result
    assert ours.objective == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("balanced", [True, False])
def test_weights_of_labels_are_those_of_all_pairs(balanced):
    y = np.array([0, 0, 1, 1, 1, 2])
    X = np.random.default_rng(0).standard_normal((6, 2))
    _, y, problem = label_problem(X, y, 0.1, balanced)
    for found, expected in zip(
        problem.supervision.margins.at(slice(None)), bregman_program.label_weights(y, balanced), strict=True
    ):
        np.testing.assert_allclose(found, expected)


def test_cells_add_up_the_weights_of_their_points():
    X = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    cells = torch.tensor([0, 0, 1, 1, 2, 2])
    sizes, histograms = torch.tensor([2, 4]), torch.eye(2, dtype=torch.float64)
    whole = LabelLoss(Geometry.build(X, torch.ones(6)), histograms, sizes, 0.3, 0.7)
    coarse = LabelLoss(Geometry.build(X, torch.ones(6), cells, 3), histograms, sizes, 0.3, 0.7)
    for fine, found in zip(whole.margins.at(slice(None)), coarse.margins.at(slice(None)), strict=True):
        torch.testing.assert_close(found, fine.reshape(3, 2, 6).sum(1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_any_multipliers_give_a_valid_bound(kind, seed):
    """Nothing of the solver is needed: random multipliers are raised, closed and scaled into a dual point."""
    program, problem = random_supervision(seed + 50, kind, n=(6, 15), d=(1, 3))
    optimum = bregman_program.solve(program).value
    shape = problem.geometry.n_pieces, problem.geometry.n_points
    n_losses = 0 if problem.entries is None else problem.entries.new_copies().shape[-1]
    generator = torch.Generator().manual_seed(seed)
    for scale in (1e-3, 0.1, 10.0):
        mu = scale * torch.randn(shape, dtype=torch.float64, generator=generator)
        losses = scale * torch.randn(n_losses, dtype=torch.float64, generator=generator)
        bound = problem.bound(DenseMultipliers(mu, losses))
        assert bound <= optimum + 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_slacks_and_multipliers_survive_another_step_size(kind):
    _, problem = random_supervision(7, kind, n=(12, 12), d=(2, 2))
    kernel = problem.kernel(torch.float64)
    kernel.start(0.3)
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(12, 12, dtype=torch.float64, generator=generator)
    if problem.entries is not None:
        kernel.copies = torch.randn(kernel.copies.shape, dtype=torch.float64, generator=generator)

    def looks():
        multipliers = torch.cat([tile for _, tile in kernel.multipliers(state)])
        slacks = multipliers / kernel.rho - state
        if kind != "triplets":
            return [multipliers, slacks]
        ends = kernel._chosen(state)[1][problem.entries.ends]
        return [multipliers, slacks, kernel.rho * (ends - kernel.copies)]

    before = looks()
    kernel.rescale(state, 1.7)
    assert kernel.rho == 1.7
    for old, new in zip(before, looks(), strict=True):
        torch.testing.assert_close(new, old)


def test_torch_and_compiled_passes_agree_on_entries():
    _, problem = random_supervision(3, "triplets", n=(20, 20), d=(2, 2))
    options = Options(tol=1e-12, max_iter=60, interior_size=0)
    plain = EntryKernel(problem.geometry, TiledKernel(problem.geometry, torch.float64), problem.entries)
    first = solve(problem, options)
    second = solve(problem, options, iteration=AllPairs(problem, options, kernel=plain))
    torch.testing.assert_close(first.state.slacks, second.state.slacks, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(first.state.copies, second.state.copies, rtol=1e-8, atol=1e-8)


def test_pairs_on_every_slack_are_labels():
    """The same weights given as margins and as chosen entries make the same iterates."""
    X = np.random.default_rng(1).standard_normal((16, 2))
    _, _, problem = label_problem(X, np.repeat([0, 1], 8), 0.05, True)
    pull, push = problem.supervision.margins.at(slice(None))
    rows, columns = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    entries = PairEntries(rows.flatten(), columns.flatten(), pull.flatten(), push.flatten())
    geometry = problem.geometry
    kernel = EntryKernel(geometry, TiledKernel(geometry, torch.float64), entries)
    options = Options(tol=1e-12, max_iter=80, interior_size=0)
    first = solve(problem, options)
    second = solve(problem, options, iteration=AllPairs(problem, options, kernel=kernel))
    torch.testing.assert_close(first.state.slacks, second.state.slacks, rtol=1e-8, atol=1e-8)
    assert first.result.dual_bound == pytest.approx(second.result.dual_bound, rel=1e-8)
