"""Sums over working pairs against the matrix R written out."""

import numpy as np
import pytest
import torch

from bregnet.distributed import ALONE, Ranks
from bregnet.solver import pairs as module
from bregnet.solver.geometry import Geometry
from bregnet.solver.nearest import TREE_SLACK, nearest
from bregnet.solver.pairs import WORST, CompiledPairs, TorchPairs, pair_operator, starting_keys, without_own
from bregnet.solver.threads import Threads
from tests.solver.test_kernels import geometry_of

OPERATORS = pytest.mark.parametrize("kind", [CompiledPairs, TorchPairs])
CASES = pytest.mark.parametrize(("n", "d", "n_pieces"), [(12, 1, None), (30, 4, None), (40, 6, 7), (25, 9, 1)])


def some_keys(geometry, share=0.4, seed=1):
    """A random part of all pairs, one piece without any."""
    every = torch.arange(geometry.n_pieces * geometry.n_points)
    kept = torch.rand(len(every), generator=torch.Generator().manual_seed(seed)) < share
    kept &= every // geometry.n_points != 2
    return without_own(geometry, every[kept])


def dense(operator):
    """R as a matrix, (E, K (d + 1)), a row a pair."""
    geometry, centres = operator.geometry, operator.centers
    out = torch.zeros(len(operator.keys), geometry.n_pieces, geometry.dimension + 1, dtype=torch.float64)
    for e, key in enumerate(operator.keys.tolist()):
        k, j = divmod(key, geometry.n_points)
        for piece, sign in ((int(geometry.cells[j]), 1), (k, -1)):
            out[e, piece, 0] += sign
            out[e, piece, 1:] += sign * (geometry.points[j] - centres[piece])
    return out.flatten(1)


def setting(kind, n, d, n_pieces, dtype=torch.float64):
    geometry = geometry_of(n, d, n_pieces)
    operator = kind(geometry, dtype, ALONE)
    operator.choose(some_keys(geometry))
    generator = torch.Generator().manual_seed(2)
    pieces = torch.randn(geometry.n_pieces, d + 1, dtype=torch.float64, generator=generator).to(dtype)
    return operator, pieces, dense(operator), generator


@OPERATORS
@CASES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_of_the_matrix(kind, n, d, n_pieces, dtype):
    operator, pieces, R, generator = setting(kind, n, d, n_pieces, dtype)
    close = {"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    slacks = R @ pieces.double().flatten()
    torch.testing.assert_close(operator.slacks(pieces).double(), slacks, **close)
    found = operator.normal(pieces).double().flatten()
    torch.testing.assert_close(found, R.T @ slacks, **close)
    weights = torch.rand(len(R), dtype=torch.float64, generator=generator)
    found = operator.normal(pieces, weights.to(dtype)).double().flatten()
    torch.testing.assert_close(found, R.T @ (weights * slacks), **close)
    values = torch.randn(len(R), dtype=torch.float64, generator=generator)
    torch.testing.assert_close(operator.adjoint(values.to(dtype)).double().flatten(), R.T @ values, **close)


@OPERATORS
@CASES
def test_blocks_are_those_of_the_normal_matrix(kind, n, d, n_pieces):
    operator, pieces, R, generator = setting(kind, n, d, n_pieces)
    n_pieces, size = pieces.shape
    weights = torch.rand(len(R), dtype=torch.float64, generator=generator)
    at_points = torch.rand(n, dtype=torch.float64, generator=generator)
    points = torch.zeros(n, n_pieces, size, dtype=torch.float64)  # the map from pieces to fitted values
    cells = operator.geometry.cells
    points[torch.arange(n), cells, 0] = 1
    points[torch.arange(n), cells, 1:] = operator.geometry.points - operator.centers[cells]
    points = points.flatten(1)
    torch.testing.assert_close(operator.fitted(pieces), points @ pieces.flatten())
    torch.testing.assert_close(operator.from_points(at_points).flatten(), points.T @ at_points)
    whole = R.T @ (weights[:, None] * R) + points.T @ (at_points[:, None] * points)
    blocks = whole.reshape(n_pieces, size, n_pieces, size).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    chosen = torch.arange(0, n_pieces, 2)
    found = operator.add_at_points(operator.blocks(weights, chosen), at_points, chosen)
    torch.testing.assert_close(found, blocks[chosen])
    expected = (blocks @ pieces.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(operator.precondition(blocks.contiguous(), pieces), expected)


@OPERATORS
@pytest.mark.parametrize(("n", "d", "n_pieces"), [(300, 3, None), (700, 5, 40), (2, 1, None)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_scan_finds_the_largest_and_the_worst(kind, n, d, n_pieces, n_threads, monkeypatch):
    monkeypatch.setattr(module, "SERIAL_SCAN", 0)
    geometry = geometry_of(n, d, n_pieces)
    operator = kind(geometry, torch.float64, ALONE)
    operator._threads = Threads(n_threads)
    generator = torch.Generator().manual_seed(3)
    lifted = torch.randn(geometry.n_pieces, d + 1, dtype=torch.float64, generator=generator)
    values = lifted @ geometry.lifted.T
    found = operator.scan(lifted, 0.3)
    torch.testing.assert_close(found.largest, values.amax(0))
    excess = values - geometry.fitted(lifted)
    excess[geometry.cells, torch.arange(n)] = -torch.inf
    expected = set()
    for axis in (0, 1):
        worst, at = excess.topk(min(WORST, excess.shape[axis]), axis)
        for rank, other in (worst > 0.3).nonzero().tolist():
            where = at[rank, other].item()
            expected.add(where * n + other if axis == 0 else rank * n + where)
    assert set(found.violated.tolist()) == expected


def test_pairs_start_with_neighbours_in_both_directions():
    geometry = geometry_of(200, 3)
    keys = starting_keys(geometry)
    assert torch.equal(keys, torch.unique(keys))
    pieces, points = keys // 200, keys % 200
    assert torch.isin(points * 200 + pieces, keys).all()
    assert (pieces != points).all()
    distance = torch.cdist(geometry.points, geometry.points)
    nearest = distance.fill_diagonal_(torch.inf).topk(5, largest=False).indices
    there = torch.isin((nearest + 200 * torch.arange(200)[:, None]).flatten(), keys)
    assert there.double().mean() > 0.97  # the search may overlook a few
    few = geometry_of(6, 2)
    assert len(starting_keys(few)) == 30  # all pairs of six points
    cells = geometry_of(50, 2, 4)
    assert len(starting_keys(cells)) == 150  # every point and every other cell
    assert len(starting_keys(geometry_of(1, 2))) == 0


class One(Ranks):
    """One of several ranks that compute one after the other, and meet in `boxes`."""

    def __init__(self, rank, size, boxes):
        self.rank, self.size, self._boxes, self._turn = rank, size, boxes, 0

    def sum(self, values):
        if self._turn == len(self._boxes):
            self._boxes.append(torch.zeros_like(values))
        self._boxes[self._turn] = self._boxes[self._turn] + values
        self._turn += 1
        return self._boxes[self._turn - 1].clone()


@pytest.mark.parametrize("n_pieces", [None, 9])
def test_ranks_share_the_pieces(n_pieces):
    """Both ranks go through the same sums; the last one to come has all parts of each."""
    geometry = geometry_of(60, 3, n_pieces)
    alone = pair_operator(geometry, torch.float64, ALONE)
    keys = some_keys(geometry)
    alone.choose(keys)
    generator = torch.Generator().manual_seed(4)
    pieces = torch.randn(geometry.n_pieces, 4, dtype=torch.float64, generator=generator)
    boxes, parts = [], []
    for rank in range(2):
        operator = pair_operator(geometry, torch.float64, One(rank, 2, boxes))
        mine = operator.mine(keys)
        operator.choose(mine)
        parts.append(mine)
        normal = operator.normal(pieces)
        chosen = torch.arange(geometry.n_pieces)
        blocks = operator.blocks(torch.ones(len(mine), dtype=torch.float64), chosen)
    assert torch.equal(torch.cat(parts), keys)
    torch.testing.assert_close(normal, alone.normal(pieces))
    torch.testing.assert_close(blocks, alone.blocks(torch.ones(len(keys), dtype=torch.float64), chosen))


@OPERATORS
@pytest.mark.parametrize("n_pieces", [None, 9])
def test_the_spread_is_that_of_the_differences(kind, n_pieces):
    geometry = geometry_of(60, 3, n_pieces)
    operator = kind(geometry, torch.float64, ALONE)
    keys = some_keys(geometry)
    operator.choose(keys)
    differences = geometry.points[keys % 60] - operator.centers[keys // 60]
    expected = torch.cat([differences.square().sum(0), torch.tensor([float(len(keys))])])
    torch.testing.assert_close(operator.spread(), expected)


@OPERATORS
def test_a_rank_without_pieces_finds_nothing(kind):
    geometry = geometry_of(30, 2, 1)
    operator = kind(geometry, torch.float64, One(0, 2, []))
    assert operator.share.start == operator.share.stop
    excess, _, more, _ = operator._scan(torch.ones(1, 3, dtype=torch.float64), torch.zeros(30, dtype=torch.float64), 0)
    assert (excess == 0).all()
    assert len(more) == 0


@pytest.mark.parametrize("d", [3, 30])
def test_neighbors_are_nearly_the_nearest(d):
    rng = np.random.default_rng(0)
    points, queries = 1e3 + rng.standard_normal((400, d)), 1e3 + rng.standard_normal((50, d))
    found = nearest(points, queries, 5)
    expected = np.sort(((queries[:, None] - points) ** 2).sum(-1))[:, :5] ** 0.5
    distances = np.sort(np.linalg.norm(queries[:, None] - points[found], axis=2))
    assert (distances >= expected - 1e-9).all()
    assert (distances <= (1 + TREE_SLACK) * expected).all()


def test_threads_cover_their_work():
    for n_threads, total in ((1, 10), (3, 10), (4, 2), (3, 0)):
        chunks = Threads(n_threads).chunks(total)
        assert [i for begin, end in chunks for i in range(begin, end)] == list(range(total))
    work = np.array([0, 100, 100, 101, 102, 200])  # one heavy piece at each end
    assert Threads(2).chunks(5, work) == [(0, 1), (1, 5)]
    seen = np.zeros(1000)
    Threads(3).run(lambda _, begin, end: np.add(seen[begin:end], 1, out=seen[begin:end]), Threads(3).chunks(1000))
    assert (seen == 1).all()


def test_what_a_thread_raises_is_raised():
    def fail(number, begin, end):
        if number == 1:
            raise ArithmeticError("here")

    with pytest.raises(ArithmeticError, match="here"):
        Threads(2).run(fail, [(0, 1), (1, 2)])


@pytest.mark.parametrize("n_features", [3, 20])
def test_sums_round_alike_wherever_arrays_lie_in_memory(n_features):
    """Compiled loops once chose by addresses whether to add up side by side, which rounds in another way."""
    points = np.random.default_rng(43).standard_normal((30, n_features))
    geometry = Geometry.build(torch.as_tensor(points), torch.ones(30, dtype=torch.float64))
    operator = CompiledPairs(geometry, torch.float32, ALONE)
    operator.choose(starting_keys(geometry))
    pieces = torch.randn(30, n_features + 1, generator=torch.Generator().manual_seed(0))
    found = []
    for shift in range(40):
        memory = torch.zeros(len(operator.keys) + pieces.numel() + 40)
        values = memory[shift : shift + len(operator.keys)]
        own = memory[shift + len(operator.keys) :][: pieces.numel()].view_as(pieces).copy_(pieces)
        found.append((values.copy_(operator.slacks(own)).clone(), operator.adjoint(values), operator.normal(own)))
    assert all(torch.equal(a, b) for each in found for a, b in zip(each, found[0], strict=True))
