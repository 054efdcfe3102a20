import numpy as np
import pytest
import torch

from bregnet.solver.geometry import Geometry
from bregnet.solver.normal import NormalEquations


def dense_solution(geometry, kappa, right_hand_side):
    """The same quadratic written as one big least-squares system."""
    lifted, cells = geometry.lifted.numpy(), geometry.cells.numpy()
    n, size = lifted.shape
    n_pieces = geometry.n_pieces
    hessian = np.zeros((n_pieces * size, n_pieces * size))
    for k in range(n_pieces):
        for j in range(n):
            row = np.zeros((n_pieces, size))
            row[k] += lifted[j]
            row[cells[j]] -= lifted[j]
            hessian += np.outer(row.ravel(), row.ravel())
    hessian += kappa * np.diag(np.tile(np.r_[np.ones(size - 1), 0], n_pieces))
    return np.linalg.pinv(hessian, hermitian=True, rcond=1e-12) @ right_hand_side.ravel()


@pytest.mark.parametrize("n_pieces", [12, 4])
def test_block_one_solves_the_normal_equations(n_pieces):
    generator = torch.Generator().manual_seed(n_pieces)
    points = torch.randn(12, 3, dtype=torch.float64, generator=generator)
    weights = torch.randint(1, 4, (12,), generator=generator).double()
    cells = torch.arange(12) % n_pieces
    geometry = Geometry.build(points - points.mean(0), weights, cells, n_pieces)
    right = torch.randn(n_pieces, 4, dtype=torch.float64, generator=generator)
    right[:, -1] -= right[:, -1].mean()  # only right-hand sides without a constant part have a solution
    pieces = NormalEquations(geometry, 0.9).factor().solve(right)
    expected = dense_solution(geometry, 0.9, right.numpy()).reshape(n_pieces, 4)
    pieces = pieces - pieces.mean(0) * torch.tensor([0, 0, 0, 1.0])  # the common constant is free
    expected = expected - expected.mean(0) * np.array([0, 0, 0, 1.0])
    np.testing.assert_allclose(pieces.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("compiled", [True, False])
def test_rank_one_and_batched_forms_agree(monkeypatch, compiled):
    monkeypatch.setattr("bregnet.solver.normal.COMPILED_MAX_SIZE", 100 if compiled else 0)
    points = torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    geometry = Geometry.build(points, torch.ones(30, dtype=torch.float64))
    right = torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    right[:, -1] -= right[:, -1].mean()
    rank_one = NormalEquations(geometry, 1.5).factor().solve(right)
    monkeypatch.setattr(Geometry, "own_piece", False)
    batched = NormalEquations(geometry, 1.5).factor().solve(right)
    torch.testing.assert_close(rank_one, batched, rtol=1e-9, atol=1e-9)
