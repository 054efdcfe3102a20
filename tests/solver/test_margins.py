import pytest
import torch

from bregnet.solver.margins import MARGIN, Margins, slack_prox


def test_pulled_is_the_prox():
    """Against the least value on a fine grid."""
    generator = torch.Generator().manual_seed(0)
    state = 4 * torch.randn(500, dtype=torch.float64, generator=generator)
    pull, push = 2 * torch.rand(2, 500, dtype=torch.float64, generator=generator)
    pull[::3], push[1::3] = 0, 0
    grid = torch.linspace(0, 20, 20_001, dtype=torch.float64)[:, None]
    value = (grid + state) ** 2 / 2 + pull * grid + push * (MARGIN - grid).clamp_min(0)
    torch.testing.assert_close(slack_prox(state, pull, push), grid[value.argmin(0), 0], rtol=0, atol=1e-3)


def test_without_weights_it_is_the_positive_part():
    state = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(slack_prox(state, 0.0, 0.0), (-state).clamp_min(0))


@pytest.mark.parametrize("rows", [slice(0, 4), slice(1, 3), slice(None)])
def test_weights_at_points_are_those_of_their_groups(rows):
    pull, push = torch.arange(12.0).reshape(4, 3), -torch.arange(12.0).reshape(4, 3)
    margins = Margins(pull, push, torch.tensor([2, 1, 4]))
    assert margins.bounds.tolist() == [0, 2, 3, 7]
    down, up = margins.at(rows)
    assert down.tolist() == [[row[0], row[0], row[1], row[2], row[2], row[2], row[2]] for row in pull[rows].tolist()]
    torch.testing.assert_close(up, -down)
    scaled = margins.scaled(4.0, torch.float32)
    torch.testing.assert_close(scaled.at(rows)[0], (down / 4).float())
