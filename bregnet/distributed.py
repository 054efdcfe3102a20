"""Several processes that share a fit, with torch.distributed.

Every process runs the same program on the same data and keeps its share of the solver's state, which is what a large
fit is made of: that of some points where a divergence is learned, that of some pieces in a regression. In every
iteration they meet, once or a few times, to add up as many numbers as the pieces have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

import torch
from torch import Tensor


class RankLostError(RuntimeError):
    """Another process of the job has ended, or cannot be reached."""

    exit_code = 3  # of the command line


class Ranks:
    """The processes that share a fit; this one alone.

    Attributes
    ----------
    rank : int
        Number of this process, from 0.
    size : int
        How many there are.
    seconds : float
        Time spent in exchanging numbers, waiting for the others included.
    n_exchanges : int

    Examples
    --------
    >>> from bregnet.distributed import Ranks
    >>> Ranks().size
    1
    """

    rank: int = 0
    size: int = 1
    local_size: int = 1  # on this machine
    seconds: float = 0.0
    n_exchanges: int = 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks; `values` may be overwritten."""
        return self._exchange(values, "SUM")

    def largest(self, values: Tensor) -> Tensor:
        """The largest of all ranks; `values` may be overwritten."""
        return self._exchange(values, "MAX")

    def smallest(self, values: Tensor) -> Tensor:
        """The least of all ranks; `values` may be overwritten."""
        return self._exchange(values, "MIN")

    def first(self, values: Tensor) -> Tensor:
        """What rank 0 has; `values` may be overwritten."""
        return self._exchange(values, None)

    def agreed(self, *numbers: float) -> tuple[float, ...]:
        """The numbers of rank 0: ranks that differ by rounding must not come to different decisions."""
        return tuple(self.first(torch.tensor(numbers, dtype=torch.float64)).tolist())

    def any(self, flag: bool) -> bool:
        """Whether it holds on some rank."""
        return bool(self.largest(torch.tensor(float(flag))))

    def _exchange(self, values: Tensor, reduction: str | None) -> Tensor:
        """The values of all ranks, reduced; None takes those of rank 0."""
        return values

    def share(self, n: int) -> slice:
        """The part of n points that is this rank's: as many as the others have, give or take one."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)


class ProcessRanks(Ranks):
    """The processes of torch.distributed's default group.

    Numbers travel on the device that the group's backend can reach: gloo's are on the CPU, nccl's on a GPU.
    """

    def __init__(self) -> None:
        import torch.distributed as dist

        self._dist = dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        self.seconds, self.n_exchanges = 0.0, 0

    def _exchange(self, values: Tensor, reduction: str | None) -> Tensor:
        began = time.perf_counter()
        device = torch.device("cuda") if self._dist.get_backend() == "nccl" else torch.device("cpu")
        exchanged = values.to(device).contiguous()
        try:
            if reduction is None:
                self._dist.broadcast(exchanged, 0)
            else:
                self._dist.all_reduce(exchanged, getattr(self._dist.ReduceOp, reduction))
        except RuntimeError as error:
            raise RankLostError(
                f"rank {self.rank} of {self.size} lost another rank: start all of them again, with the checkpoint of"
                f" the fit to go on where it was ({str(error).splitlines()[0].split('. ')[0]})"
            ) from error
        self.seconds += time.perf_counter() - began
        self.n_exchanges += 1
        return exchanged.to(values.device)


ALONE = Ranks()
_current: ContextVar[Ranks] = ContextVar("bregnet_ranks", default=ALONE)


def current() -> Ranks:
    """The ranks that share the fits of this thread.

    Returns
    -------
    ranks : Ranks

    Examples
    --------
    >>> from bregnet import distributed
    >>> distributed.current().size
    1
    """
    return _current.get()


@contextmanager
def joined() -> Iterator[Ranks]:
    """Share every fit inside with the other processes of this job, as torchrun has started them.

    All processes must run the same calls on the same data; each keeps its share of the state, and all end with the same
    fitted estimator. Only rank 0 should print or write. A process that was not started by torchrun, or is the only one,
    fits alone. A process group that exists already is used and left as it is. The backend is nccl where every process
    of a machine has a GPU of its own, otherwise gloo.

    Yields
    ------
    ranks : Ranks
        `rank`, `size`, and the time spent in exchanging numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet import ConvexRegressor, distributed
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> with distributed.joined() as ranks:
    ...     model = ConvexRegressor(n_pieces=10, random_state=0).fit(x, x[:, 0] ** 2)
    >>> ranks.rank, ranks.size
    (0, 1)
    """
    import torch.distributed as dist

    wanted = int(os.environ.get("WORLD_SIZE", "1")) > 1
    initialized = dist.is_available() and dist.is_initialized()
    if not wanted and not initialized:
        yield ALONE
        return
    if not initialized:
        _start(dist)
    token = _current.set(ProcessRanks())
    try:
        yield _current.get()
    finally:
        _current.reset(token)
        if not initialized and dist.is_initialized():
            dist.destroy_process_group()


def _start(dist) -> None:  # type: ignore[no-untyped-def]
    """Initialize the default group from the environment that torchrun sets."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    own_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= local_size
    if own_gpu:
        torch.cuda.set_device(local_rank)
    # a rank that is silent for longer is taken for lost
    dist.init_process_group("nccl" if own_gpu else "gloo", timeout=timedelta(minutes=30))
