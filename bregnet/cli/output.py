"""Results go to the standard output or to a file, messages to the standard error."""

from __future__ import annotations

import csv
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import numpy as np

from bregnet._core.files import expect_place, whole_file
from bregnet._core.optional import require
from bregnet.cli.options import STANDARD
from bregnet.plotting._shared import shown_number
from bregnet.reporting import Report, report

if TYPE_CHECKING:
    from bregnet.cli.data import Data


def tell(what: str, *, quiet: bool = False) -> None:
    """Print a message, not a result."""
    if not quiet:
        click.echo(what, err=True)


def shows_progress(*, quiet: bool) -> bool:
    """Whether to show a progress bar: on a terminal."""
    return not quiet and sys.stderr.isatty()


def check_outputs(*files: Path | None, stream: Path | None = None, report: Path | None = None) -> None:
    """Raise an error before the work if a file cannot be written; `stream` may be the standard output."""
    files = (*files, report)
    if report is not None:
        require("a report", "jinja2", "matplotlib", extra="report")
    if STANDARD in files:
        raise click.UsageError("only rows can go to the standard output, got '-' for another file")
    outputs = [each for each in (*files, stream) if each not in (None, STANDARD)]
    if len({each.resolve() for each in outputs if each is not None}) < len(outputs):
        raise click.UsageError(f"each output must be a file of its own, got {outputs[0]} twice")
    for output in outputs:
        assert output is not None
        name = "--report" if output == report else "the output"
        expect_place(name, output)
        if not os.access(output.resolve().parent, os.W_OK):
            raise PermissionError(f"{name} must lie in a folder that can be written to, got {output}")


@contextmanager
def writing(output: Path | None) -> Iterator[TextIO]:
    """A file to write to, or the standard output for None and "-"."""
    if output is None or output == STANDARD:
        yield sys.stdout
        sys.stdout.flush()
        return
    with whole_file(output) as made, open(made, "w", encoding="utf-8", newline="") as file:
        yield file


def write_csv(output: Path | None, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table to a file or to the standard output."""
    with writing(output) as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(head)
        lines.writerows(rows)


def write_report(
    path: Path, estimator: Any, data: Data, known: Data | None, *, title: str, quiet: bool, **about: Any
) -> Report:
    """Write a report about rows, as queries against known ones if these are given; rivals learn from the known."""
    if known is not None:
        about |= {"X_known": _indexed(known), "y_known": known.y}
    with warnings_as_lines():
        made = report(estimator, _indexed(data), data.y, path, title=title, **about)
    tell(f"report written to {path}", quiet=quiet)
    return made


def _indexed(data: Data) -> Any:
    """A frame whose index has the names of the rows, or their numbers in the file; all rows of a matrix as it is."""
    if isinstance(data.X, np.ndarray) and data.labels is None and data.numbers is None:
        return data.X
    require("a report with names of rows", "pandas", extra="cli")
    import pandas as pd

    index = data.row_numbers if data.labels is None else [str(each) for each in data.labels.tolist()]
    if isinstance(data.X, pd.DataFrame):
        return data.X.set_axis(index, axis=0)
    return pd.DataFrame(np.asarray(data.X), index, [f"feature {number}" for number in range(data.X.shape[1])])


def write_json(value: Any) -> None:
    """Print JSON; numbers that are not finite become text."""
    plain = json.loads(json.dumps(value, default=str), parse_constant=lambda word: str(float(word)))
    click.echo(json.dumps(plain, indent=2))


def table(rows: Mapping[str, Mapping[str, float]], head: str = "") -> str:
    """A line for each row, with names of rows and columns."""
    first = max(map(len, [head, *rows]))
    columns = [[name.ljust(first) for name in (head, *rows)]]
    for heading in next(iter(rows.values())):
        cells = [heading, *(_number(row[heading]) for row in rows.values())]
        columns.append([cell.rjust(max(len(heading), 8)) for cell in cells])
    return "\n".join(map("  ".join, zip(*columns, strict=True)))


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or 0.001 <= abs(value) < 10_000 else shown_number(value, 3)


@contextmanager
def warnings_as_lines(*, silent: bool = False) -> Iterator[None]:
    """Print warnings at the end, each once and in one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="X (has|does not have valid) feature names")
        yield
    if not silent:
        for message in dict.fromkeys(str(each.message) for each in caught):
            tell(f"warning: {message.splitlines()[0]}")
