"""Threads that work on one thing step by step: a barrier, and sums over threads, for compiled code.

A return to Python between two steps takes longer than a step of a small problem. So the threads of a team stay in
compiled code and wait for each other there. A team is, for each of its threads, a tuple of the thread's number, a
counter of arrivals that all share, the number of barriers that this thread has passed, and a board of numbers to add.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from bregnet._core.compiling import compiled

SPINS = 20_000  # looks at the counter, some 20 microseconds, before others may have the core

let_others_run = types.ExternalFunction("SwitchToThread" if os.name == "nt" else "sched_yield", types.int32())


def _first_entry(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


@intrinsic
def arrive(typing_context, counter):
    """Add 1 to the first entry of an array, at once for all threads."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _first_entry(context, builder, signature.args[0], arguments[0])
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", place, one, "seq_cst")

    return types.int64(counter), generate


@intrinsic
def arrivals(typing_context, counter):
    """The first entry of an array, as it is now."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _first_entry(context, builder, signature.args[0], arguments[0])
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(counter), generate


def _wait(team):  # pragma: no cover - compiled
    """A barrier: return when all threads of the team are here."""
    _, counter, passed, board = team
    passed[0] += 1
    if board.shape[1] == 1:
        return
    goal = passed[0] * board.shape[1]
    arrive(counter)
    spins = 0
    while arrivals(counter) < goal:
        spins += 1
        if spins > SPINS:
            let_others_run()


def _add_up(team, values):  # pragma: no cover - compiled
    """Sum values over the threads, in place, in the same order on each; a barrier as well.

    There are two boards by turns: who has passed this barrier may write before others have read.
    """
    number, _, passed, board = team
    slot = board[passed[0] % 2]
    for i in range(len(values)):
        slot[number, i] = values[i]
    wait(team)
    for i in range(len(values)):
        total = 0.0
        for thread in range(len(slot)):
            total += slot[thread, i]
        values[i] = total


wait = compiled(_wait)
add_up = compiled(_add_up)


def new_team(n_threads: int, width: int) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """A team for each of its threads, which may add up to `width` numbers at a time."""
    counter, board = np.zeros(1, dtype=np.int64), np.zeros((2, n_threads, width))
    return [(number, counter, np.zeros(1, dtype=np.int64), board) for number in range(n_threads)]


@contextmanager
def releasing(team: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]) -> Iterator[None]:
    """Let all threads of a team pass its barriers when one of them fails or is interrupted: nobody else would."""
    try:
        yield
    except BaseException:
        team[0][1][0] = 1 << 62  # arrivals, more than anyone waits for
        raise
