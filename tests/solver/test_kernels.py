import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bregnet._core.chunks import at_most
from bregnet.solver import compiled, kernels, penalty
from bregnet.solver.admm import Options
from bregnet.solver.all_pairs import AllPairs
from bregnet.solver.bregman import BregmanLearning, LabelLoss
from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import FusedKernel, TiledKernel, choose_kernel
from bregnet.solver.margins import Margins
from bregnet.solver.penalty import Penalty
from tests.support.threads import in_threads


def geometry_of(n, d, n_pieces=None, seed=0):
    points = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weights = torch.ones(n, dtype=torch.float64)
    if n_pieces is None:
        return Geometry.build(points, weights)
    return Geometry.build(points, weights, torch.arange(n) % n_pieces, n_pieces)


def problem_of(geometry, alpha=0.01):
    """Two classes that lie one after the other."""
    n, device = geometry.n_points, geometry.lifted.device
    sizes, histograms = torch.tensor([n // 3, n - n // 3]), torch.eye(2, dtype=torch.float64)
    labels = LabelLoss(geometry, histograms.to(device), sizes.to(device), 0.9 / n**2, 1.1 / n**2)
    return BregmanLearning(geometry, Penalty(torch.full((geometry.dimension,), alpha).double().to(device)), labels)


def margins_of(geometry):
    """Points in three groups: similar to their own, dissimilar to the next, both at once for the third."""
    n = geometry.n_points
    sizes = torch.tensor([n // 4, n // 2, n - n // 4 - n // 2])
    generator = torch.Generator().manual_seed(5)
    weights = torch.rand(2, geometry.n_pieces, 3, dtype=torch.float64, generator=generator)
    weights[0, :, 0] = weights[1, :, 1] = 0
    return Margins(*weights, sizes)


def iterate(problem, kind, n_steps):
    """Steps from rest, with one kernel or the other."""
    kernel = kind(problem.geometry, torch.float64, problem.supervision.margins)
    work = AllPairs(problem, Options(rho=1.0 / problem.geometry.n_points**2), kernel=kernel)
    work.run(n_steps)
    return work.state


@pytest.mark.parametrize(("n", "d", "n_pieces"), [(40, 1, None), (60, 4, None), (90, 7, 11), (300, 13, None)])
def test_both_kernels_make_the_same_iterates(n, d, n_pieces):
    problem = problem_of(geometry_of(n, d, n_pieces))
    ours, torchs = (iterate(problem, kind, 40) for kind in (FusedKernel, TiledKernel))
    torch.testing.assert_close(ours.pieces, torchs.pieces, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.slacks, torchs.slacks, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@at_most(1000)
def test_a_pass_with_margins_is_what_it_says(dtype):
    n, d, rho = compiled.POINT_BLOCK + 77, 6, 0.7
    geometry = geometry_of(n, d, 9)
    margins = margins_of(geometry)
    pull, push = (weight / rho for weight in margins.at(slice(None)))
    generator = torch.Generator().manual_seed(3)
    pieces = torch.randn(9, d + 1, dtype=torch.float64, generator=generator)
    start = 2 * torch.randn(9, n, dtype=torch.float64, generator=generator)
    fitted = geometry.fitted(pieces)

    def slack(state):  # each case of the prox on its own
        free = (-state - pull).clamp_min(0)
        pushed = (-state - pull + push).clamp_min(0)
        return torch.where(free >= 2, free, pushed.clamp_max(2))

    expected = start + 1.7 * (pieces @ geometry.lifted.T - fitted + slack(start))
    total = expected + 2 * slack(expected)
    tolerance = {"rtol": 1e-4, "atol": 3e-3} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    for kind in (FusedKernel, TiledKernel):
        state = start.to(dtype, copy=True)
        kernel = kind(geometry, dtype, margins)
        kernel.start(rho)
        moments = kernel.advance(state, pieces, fitted, 1.7)
        torch.testing.assert_close(state.double(), expected, **tolerance)
        torch.testing.assert_close(moments.products, total @ geometry.lifted, **tolerance)
        torch.testing.assert_close(moments.column_sums, total.sum(0), **tolerance)
        torch.testing.assert_close(kernel.moments(state).products, moments.products, **tolerance)
        found = torch.cat([tile for _, tile in kernel.multipliers(state)])
        torch.testing.assert_close(found, rho * (expected + slack(expected)), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@at_most(9000)  # several tiles, the last one short
def test_a_pass_is_what_it_says(dtype):
    n, d = compiled.POINT_BLOCK + 77, 6  # two blocks of points
    geometry = geometry_of(n, d, 9)
    generator = torch.Generator().manual_seed(3)
    pieces = torch.randn(9, d + 1, dtype=torch.float64, generator=generator)
    start = torch.randn(9, n, dtype=torch.float64, generator=generator)
    fitted = geometry.fitted(pieces)
    expected = start + 1.7 * (pieces @ geometry.lifted.T - fitted + (-start).clamp_min(0))
    tolerance = {"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    for kind in (FusedKernel, TiledKernel):
        state = start.to(dtype, copy=True)
        moments = kind(geometry, dtype).advance(state, pieces, fitted, 1.7)
        torch.testing.assert_close(state.double(), expected, **tolerance)
        torch.testing.assert_close(moments.products, expected.abs() @ geometry.lifted, **tolerance)
        torch.testing.assert_close(moments.column_sums, expected.abs().sum(0), **tolerance)
        again = kind(geometry, dtype).moments(state)
        torch.testing.assert_close(again.products, moments.products, **tolerance)


def test_rescaling_keeps_slacks_and_multipliers():
    geometry = geometry_of(20, 2)
    kernel = TiledKernel(geometry, torch.float64)
    state = torch.randn(20, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = state.clone()
    kernel.rescale(state, 4.0)
    torch.testing.assert_close((-state).clamp_min(0), (-before).clamp_min(0))
    torch.testing.assert_close(state.clamp_min(0) * 4, before.clamp_min(0))


def test_the_choice_follows_the_number_of_features():
    assert isinstance(choose_kernel(geometry_of(10, 3), torch.float32), FusedKernel)
    assert isinstance(choose_kernel(geometry_of(10, kernels.FUSED_MAX_DIMENSION + 1), torch.float32), TiledKernel)


def test_threads_may_share_the_compiled_pass():
    geometry = geometry_of(250, 3)
    expected = iterate(problem_of(geometry), FusedKernel, 20).pieces
    for pieces in in_threads(lambda: iterate(problem_of(geometry), FusedKernel, 20).pieces, 4):
        torch.testing.assert_close(pieces, expected, rtol=0, atol=1e-12)


class NoTransfers(TorchDispatchMode):
    """Fails on any operation that reads a value on the host or moves a tensor to another device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value was read on the host"
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in torch.utils._pytree.tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
        assert all(t.device.type == "meta" for t in tensors if t.ndim), f"{func} left the device"
        return out


@pytest.mark.parametrize("n_pieces", [None, 8])
def test_the_torch_path_stays_on_its_device(n_pieces, monkeypatch):
    """The meta device holds no data: reading a value, going to numpy or mixing devices all fail on it."""
    on_host = geometry_of(50, 3, n_pieces)
    geometry = Geometry(
        on_host.lifted.to("meta"), on_host.weights.to("meta"), on_host.cells.to("meta"), on_host.n_pieces
    )
    # set-up may read values, and so may the search for the height at which slopes are clipped; the rest may not
    monkeypatch.setattr(torch.linalg, "pinv", lambda a, **_: torch.empty_like(a.mT))
    monkeypatch.setattr(torch.Tensor, "__float__", lambda tensor: 50.0)
    monkeypatch.setattr(torch, "repeat_interleave", lambda v, sizes, dim=0: v.new_empty((50, *v.shape[1:])))
    problem = problem_of(geometry)
    kernel = TiledKernel(geometry, torch.float32, problem.supervision.margins)
    work = AllPairs(problem, Options(rho=1e-3), kernel=kernel)
    monkeypatch.setattr(penalty, "clip_heights", lambda values, level, start: values.abs().amax(-2) + level)
    with NoTransfers():
        work.run(3)
    assert work.state.pieces.device.type == "meta"


@pytest.mark.parametrize("kernel_type", [FusedKernel, TiledKernel])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_of_a_state_are_those_of_the_step_that_led_to_it(kernel_type, weighted):
    geometry = geometry_of(70, 5, 11)
    kernel = kernel_type(geometry, torch.float32, margins_of(geometry) if weighted else None)
    kernel.start(0.7)
    state = kernel.new_state()
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        pieces = torch.randn(11, 6, dtype=torch.float64, generator=generator)
        after = kernel.advance(state, pieces, geometry.fitted(pieces), 1.7)
    before = state.clone()
    again = kernel.moments(state)
    assert torch.equal(state, before)
    assert torch.equal(again.products, after.products)
    assert torch.equal(again.column_sums, after.column_sums)


def test_sums_over_cells_are_the_same_compiled_and_by_torch():
    geometry = geometry_of(50, 3, 7)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(50, dtype=torch.float64, generator=generator)
    pieces = torch.randn(7, 4, dtype=torch.float64, generator=generator)
    expected = geometry.cell_sum(values[:, None] * geometry.lifted)
    torch.testing.assert_close(geometry.cell_moments(values), expected)
    outer = geometry.lifted[:, :, None] * geometry.lifted[:, None, :]
    torch.testing.assert_close(geometry.cell_grams(values), geometry.cell_sum(values[:, None, None] * outer))
    torch.testing.assert_close(geometry.fitted(pieces), (pieces[geometry.cells] * geometry.lifted).sum(1))
