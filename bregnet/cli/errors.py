"""Errors in one line, with exit codes by their kind."""

from __future__ import annotations

import os
from typing import Any

import click


class Commands(click.Group):
    """A group of commands, in the order they were added, that prints errors in one line.

    The exit codes are those of the program's help.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take --debug wherever it stands."""
        if "--debug" in args:
            args = ["--debug", *(each for each in args if each != "--debug")]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, click.ClickException, click.exceptions.Exit, click.Abort):  # click knows what to do
            raise
        except KeyboardInterrupt:
            _say("interrupted")
            ctx.exit(130)
        except Exception as error:
            if ctx.params["debug"]:
                raise
            _say(_one_line(error))
            ctx.exit(getattr(error, "exit_code", 1))


def _say(what: str) -> None:
    rank = os.environ.get("RANK", "0")  # where several processes work together
    click.echo(f"{'error' if rank == '0' else f'error (rank {rank})'}: {what}", err=True)


def _one_line(error: Exception) -> str:
    """The first line of an error; scikit-learn adds lines of advice for programmers."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    lines = str(error).strip().splitlines()
    said = lines[0].rstrip() if lines else type(error).__name__
    for_users = (OSError, ValueError, TypeError, MemoryError, ModuleNotFoundError)
    if isinstance(error, for_users) or hasattr(error, "exit_code"):
        return said
    return f"{type(error).__name__}: {said} (bregnet --debug shows where)"
