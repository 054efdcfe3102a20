"""Threads of a team: what they add up, and what happens when one of them fails."""

import subprocess
import sys

import numpy as np
import pytest

from bregnet.solver.teams import add_up, new_team
from bregnet.solver.threads import Threads

FAILING = """
import torch
from bregnet.solver import compiled_steps, pairs
from bregnet import ConvexRegressor
from sklearn.datasets import make_regression

torch.get_num_threads, pairs.SERIAL_WORK = (lambda: 2), 0
X, y = make_regression(60, 3, random_state=0)
ConvexRegressor(alpha=0.1).fit(X, y)
whole = compiled_steps.iterate_share
for failing, kind in ((0, KeyboardInterrupt), (1, MemoryError)):

    def share(team, *given):
        if team[0] == failing:
            raise kind
        whole(team, *given)

    compiled_steps.iterate_share = share
    try:
        ConvexRegressor(alpha=0.1).fit(X, y)
    except kind:
        print(kind.__name__)
"""


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_sums_over_threads_are_those_of_all_on_each(n_threads):
    team, found = new_team(n_threads, 2), {}

    def share(number, *_):
        found[number] = []
        for turn in range(50):
            values = np.array([number + 1.0, turn])
            add_up(team[number], values)
            found[number].append(values.tolist())

    Threads(n_threads).run(share, [(number, number + 1) for number in range(n_threads)])
    expected = [[n_threads * (n_threads + 1) / 2, n_threads * turn] for turn in range(50)]
    assert [found[number] for number in range(n_threads)] == [expected] * n_threads


def test_an_error_in_one_thread_ends_the_others():
    """In a process of its own, which would never end otherwise."""
    done = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["KeyboardInterrupt", "MemoryError"], done.stderr
