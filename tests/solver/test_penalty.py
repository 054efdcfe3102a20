import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from bregnet.solver.penalty import Penalty, clip_heights
from tests.support.paper import l_update


@given(seed=st.integers(0, 10_000), n=st.integers(1, 30), level=st.floats(1e-3, 50))
@settings(max_examples=60, deadline=None)
def test_the_clipping_height_is_the_papers_l_update(seed, n, level):
    column = np.random.default_rng(seed).standard_normal(n) * 3
    clipped, height = Penalty(torch.tensor([level], dtype=torch.float64)).prox(torch.as_tensor(column[:, None]), 1.0)
    # with gamma = 0, one constraint c <= L each: the two halves of the paper's p+ and p- double the level
    height = height.item()
    assert height == pytest.approx(l_update(np.zeros(n), np.abs(column), level / 2), abs=1e-10)
    np.testing.assert_allclose(clipped[:, 0].numpy(), np.clip(column, -height, height))


@given(seed=st.integers(0, 10_000), level=st.floats(1e-2, 20))
@settings(max_examples=30, deadline=None)
def test_the_prox_minimises_its_definition(seed, level):
    column = np.random.default_rng(seed).standard_normal(12)

    def value(height):
        return level * height + 0.5 * np.square(np.maximum(np.abs(column) - height, 0)).sum()

    best = minimize_scalar(value, bounds=(0, np.abs(column).max()), method="bounded", options={"xatol": 1e-10})
    height = clip_heights(torch.as_tensor(column[:, None]), torch.tensor([level], dtype=torch.float64))
    assert value(height.item()) <= best.fun + 1e-9


def by_sorting(values, level):
    """The largest candidate over how many entries exceed the height."""
    ordered = np.sort(np.abs(values), axis=0)[::-1]
    counts = np.arange(1, len(values) + 1)[:, None]
    return ((ordered.cumsum(0) - level) / counts).max(0).clip(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_newtons_method_finds_the_height_from_anywhere(scale, dtype):
    values = torch.randn(3, 40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)
    values[0, :, 0] = 0
    values[1, :7, 1] = values[1, 7, 1]
    level = scale * torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.as_tensor(np.stack([by_sorting(each.double().numpy(), level.numpy()) for each in values]))
    generator = torch.Generator().manual_seed(2)
    for start in (None, expected, 2 * expected + 1, torch.rand(3, 5, dtype=torch.float64, generator=generator)):
        torch.testing.assert_close(clip_heights(values, level, start), expected, rtol=1e-12, atol=1e-12)


def test_moreau_the_clipped_part_lies_in_the_dual_ball():
    generator = torch.Generator().manual_seed(1)
    penalty = Penalty(torch.tensor([0.5, 2.0], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64))
    values = torch.randn(50, 2, dtype=torch.float64, generator=generator)
    clipped, _ = penalty.prox(values, 1.0)
    assert penalty.dual_norm(values - clipped) <= 1 + 1e-12
    assert (clipped[:, 0] >= 0).all()
    # Fenchel-Young holds with equality at a prox
    assert ((values - clipped) * clipped).sum() == pytest.approx(penalty.value(clipped).item())


def test_feasible_turns_pieces_about_their_points():
    penalty = Penalty(torch.ones(2, dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64))
    pieces = torch.tensor([[-1.0, 2.0, 0.5], [1.0, -2.0, 0.0]], dtype=torch.float64)
    points = torch.tensor([[3.0, 4.0], [1.0, 1.0]], dtype=torch.float64)
    turned = penalty.feasible(pieces, points)
    assert turned[0, :2].tolist() == [0.0, 0.0]
    torch.testing.assert_close(turned[1], pieces[1])
    value = (pieces[:, :2] * points).sum(1) + pieces[:, 2]
    torch.testing.assert_close((turned[:, :2] * points).sum(1) + turned[:, 2], value)
