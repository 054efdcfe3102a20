"""What the commands share: arguments and options."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
POSITIVE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(min=1)
STANDARD = Path("-")  # standard input or output
TABLES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".parquet", ".pq", ".xlsx")

model = click.argument("path", metavar="MODEL", type=PATH)
data = click.argument("data", type=PATH)
target = click.option("--target", metavar="COLUMN", help="Column of a table, array of an npz file (y), or a .npy file.")
seed = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
quiet = click.option("--quiet", is_flag=True, help="Print results, warnings and errors only.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
report = click.option("--report", type=PATH, metavar="HTML", help="Write a report, one HTML file.")
ids = click.option("--id", "names", metavar="COLUMN", help="Names of the rows; by default their numbers, from 0.")


def kind_of(path: Path) -> str:
    """How the name of a data file ends, which says what it is; it must be there."""
    if path == STANDARD:
        return ".csv"
    kinds = (*TABLES, ".npz", ".npy")
    kind = next((kind for kind in kinds if path.name.lower().endswith(kind)), None)
    if kind is None:
        raise click.UsageError(f"DATA must end in {', '.join(kinds)}, got {str(path)!r}")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    return kind


def _names(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Names with commas between them; one that has a comma itself is in double quotes."""
    if value is None:
        return None
    return tuple(name.strip() for name in next(csv.reader([value], skipinitialspace=True), []) if name.strip())


def _ordered(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> dict[str, Any]:
    """Names with commas between them, or a name with its values in order, as in size=small,medium,large."""
    found: dict[str, Any] = {}
    for given in value:
        name, has_order, order = given.partition("=")
        values = [each.strip() for each in order.split(",")]
        if has_order and not (name.strip() and all(values) and len(set(values)) == len(values) > 1):
            raise click.BadParameter(f"{given!r} is not a column, '=', and its values with commas between them.")
        names = [name.strip()] if has_order else _names(context, option, given) or ()
        found |= dict.fromkeys(names, values if has_order else None)
    return found


def _separator(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """What separates columns: a character, or the word tab or space."""
    value = {"tab": "\t", r"\t": "\t", "space": r"\s+"}.get(value or "", value)
    if value is not None and value != r"\s+" and len(value) != 1:
        raise click.BadParameter(f"{value!r} is not a character, 'tab' or 'space'.")
    return value


def _decimal(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A decimal mark: one character that is no digit, sign or letter."""
    if value is not None and (len(value) != 1 or value.isalnum() or value in "+- "):
        raise click.BadParameter(f"{value!r} is not a decimal mark, such as ','.")
    return value


def pieces(context: click.Context, option: click.Parameter, value: str | None) -> int | str | None:
    """A number of pieces, "auto", or "all" for a piece of its own for every row; None where nothing was given."""
    if value in (None, "auto", "all"):
        return value
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is not 'auto', 'all' or a positive number.")
    return int(value)


def columns(command: Command) -> Command:
    """The options that choose columns of a table, and say how they are separated."""
    drop = click.option("--drop", callback=_names, metavar="A,B", help="Columns of a table to leave out.")
    features = click.option(
        "--features", callback=_names, metavar="A,B", help="Columns of a table to take as features."
    )
    sep = click.option(
        "--sep",
        callback=_separator,
        metavar="CHARACTER",
        help="What separates columns, also tab or space; by default a comma, in .tsv a tab, in .txt what is there.",
    )
    decimal = click.option(
        "--decimal",
        callback=_decimal,
        metavar="CHARACTER",
        help="The decimal mark of a file of text, such as a comma in 3,14; by default a point.",
    )
    missing = click.option(
        "--missing", callback=_names, metavar="A,B", help="Text in a table that stands for a missing value, such as ?."
    )
    return features(drop(sep(decimal(missing(command)))))


def encoding(command: Command) -> Command:
    """The options that make numbers of the columns of a table."""
    one_hot = click.option(
        "--one-hot",
        callback=_names,
        metavar="A,B|auto",
        help="Columns of categories to encode by a column of 0 and 1 for each value; auto is all that hold text.",
    )
    ordinal = click.option(
        "--ordinal",
        callback=_ordered,
        multiple=True,
        metavar="A,B|auto",
        help="Columns to encode by numbers from 0, in alphabetical order, or in that of size=small,medium,large.",
    )
    impute = click.option(
        "--impute",
        type=click.Choice(["median", "mean", "most-frequent"]),
        help="Fill missing numbers by this value of their column; categories by the most frequent.",
    )
    return one_hot(ordinal(impute(command)))
