"""Errors as one line, with an exit code that says what kind they are."""

from __future__ import annotations

import os
from typing import Any

import click

from bregnet.distributed import RankLostError

FAULTY_DATA, RANK_LOST = 1, 3


class Commands(click.Group):
    """A group of commands that ends with one line where the data, a file or another process fail."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click knows what to do
            raise
        except (RankLostError, OSError, ValueError, TypeError, MemoryError) as error:
            if ctx.params["debug"]:
                raise
            click.echo(f"{_speaker()}: {_one_line(error)}", err=True)
            ctx.exit(RANK_LOST if isinstance(error, RankLostError) else FAULTY_DATA)


def _speaker() -> str:
    """Who reports an error, where several processes work together."""
    rank = os.environ.get("RANK", "0")
    return "error" if rank == "0" else f"error (rank {rank})"


def _one_line(error: BaseException) -> str:
    """What happened; scikit-learn adds lines of advice, which are for programmers."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip() if lines else type(error).__name__
