"""Compiling with numba. It is slow to import, so what imports this is itself imported when it is needed.

Compiled functions run in plain Python threads with the interpreter lock released, and not in numba's own parallel
layers: the workqueue layer aborts the process when two threads enter it at once, and the OpenMP layer does not survive
a fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled on first use, free of the interpreter's lock, and kept on disk where that can be."""
    # reassociation lets reductions vectorise; NaN and infinity keep their meaning, so divergence is noticed
    options: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "arcp", "nsz"}}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(function, **options)
