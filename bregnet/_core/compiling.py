"""Compiling with numba. It is slow to import, so what imports this is itself imported when it is needed.

Compiled functions run in plain Python threads with the interpreter lock released, and not in numba's own parallel
layers: the workqueue layer aborts the process when two threads enter it at once, and the OpenMP layer does not survive
a fork.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event

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


class Notice(event.Listener):
    """Logs, once, that functions of this package are compiled and not found in the cache on disk."""

    due = True

    def on_start(self, event: event.Event) -> None:
        """Called where numba begins to compile a function."""
        function = event.data["dispatcher"]
        if self.due and (function.py_func.__module__ or "").startswith("bregnet."):
            self.due = False
            when = "once after an installation"
            if function.stats.cache_path is None:
                when = "in every run, since no cache can be written; NUMBA_CACHE_DIR may name a folder for it"
            logging.getLogger("bregnet").info("compiling inner loops: up to half a minute, %s", when)

    def on_end(self, event: event.Event) -> None:
        """Called where it has compiled one."""


event.register("numba:compile", Notice())
