"""Compiling with numba. It is slow to import, so what imports this is itself imported when it is needed.

Compiled functions run in plain Python threads with the interpreter lock released, and not in numba's own parallel
layers: the workqueue layer aborts the process when two threads enter it at once, and the OpenMP layer does not survive
a fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

# Reassociation lets reductions vectorize; NaN and infinity keep their meaning, so divergence is noticed.
FAST = {"reassoc", "contract", "arcp", "nsz"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled on first use, without the interpreter lock, and cached on disk where possible.

    Each of its callers in compiled code has a copy of it. If they shared one, it would be the one that the process has
    loaded first, compiled alone or together with a caller. These round differently, so that results would depend on
    whether the cache on disk was filled.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": FAST, "forceinline": True}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(function, **options)
