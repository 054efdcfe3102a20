"""What the commands share: arguments and options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
POSITIVE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(min=1)
STANDARD = Path("-")  # standard input or output

model = click.argument("path", metavar="MODEL", type=PATH)
data = click.argument("data", type=PATH)
target = click.option("--target", metavar="COLUMN", help="Column of a table, array of an npz file (y), or a .npy file.")
seed = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
quiet = click.option("--quiet", is_flag=True, help="Print results, warnings and errors only.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
report = click.option("--report", type=PATH, metavar="HTML", help="Write a report, one HTML file.")


def _names(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Names with commas between them."""
    return None if value is None else tuple(name.strip() for name in value.split(",") if name.strip())


def pieces(context: click.Context, option: click.Parameter, value: str | None) -> int | str | None:
    """A number of pieces, "auto", or "all" for a piece of its own for every row; None where nothing was given."""
    if value in (None, "auto", "all"):
        return value
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is not 'auto', 'all' or a positive number.")
    return int(value)


def columns(command: Command) -> Command:
    """The options that choose columns of a table."""
    drop = click.option("--drop", callback=_names, metavar="A,B", help="Columns of a table to leave out.")
    features = click.option(
        "--features", callback=_names, metavar="A,B", help="Columns of a table to take as features."
    )
    return features(drop(command))
