"""Tables: CSV and other text files, Parquet and Excel, as frames of pandas."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np

from bregnet._core.optional import require
from bregnet.cli.options import STANDARD, TABLES, kind_of
from bregnet.cli.output import tell

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
SPACES = r"\s+"


@dataclass(frozen=True)
class Table:
    """A table that was read, and where its rows are in the file.

    Attributes
    ----------
    path : Path
    frame : DataFrame
    text : bytes or None
        The standard input, where the table was read from there.
    sep : str or None
        What separates the columns, in a file of text.
    """

    path: Path
    frame: Any
    text: bytes | None = None
    sep: str | None = None

    def place(self, row: int) -> str:
        """The number of a row, counted from 0, with its line where the file has lines."""
        if self.sep is None:
            return f"row {row} (line {row + 2})" if self.path.suffix.lower() == ".xlsx" else f"row {row}"
        return f"row {row} (line {self._lines[row]})"

    @cached_property
    def _lines(self) -> list[int]:
        """The line on which each row begins; the first line, 1, has the names of the columns."""
        with _opened(self.path, self.text) as file:
            if self.sep == SPACES:
                return [number for number, line in enumerate(file, start=1) if line.strip()][1:]
            reader, begins, before = csv.reader(file, delimiter=str(self.sep)), [], 0
            for cells in reader:
                if cells:  # pandas leaves empty lines out
                    begins.append(before + 1)
                before = reader.line_num
            return begins[1:]

    def expect_columns(self, names: Sequence[str]) -> None:
        """Raise an error for a column that is not there."""
        missing = [name for name in names if name not in self.frame.columns]
        if missing:
            if self.sep is not None and self.frame.shape[1] == 1:
                _expect_separator(self.path, self.frame.columns[0], self.sep)
            raise ValueError(f"{self.path} must have the column {listed(missing)}, got {listed(self.frame.columns)}")

    def column(self, name: str) -> np.ndarray:
        """A column with a value in every row."""
        self.expect_columns([name])
        column = self.frame[name]
        missing = column.isna().to_numpy()
        if missing.any():
            found = f"none in {int(missing.sum())} of them, the first of which is {self.place(int(missing.argmax()))}"
            raise ValueError(f"{self.path}: column {name!r} must have a value in every row, got {found}")
        return column.to_numpy()


def read_table(
    path: Path,
    sep: str | None = None,
    *,
    missing: Sequence[str] | None = None,
    decimal: str | None = None,
    words: Sequence[str] = (),
    texts: Sequence[str] = (),
) -> Table:
    """Read a table.

    Parameters
    ----------
    path : Path
    sep : str, default=None
        What separates the columns of a file of text; by default what its name says, or its first line.
    missing : sequence of str, default=None
        Text that stands for a missing value, beside what pandas takes for one.
    decimal : str, default=None
        The decimal mark of a file of text; a point by default.
    words : sequence of str, default=()
        Columns of labels: in a file of text they stay text where numbers would lose something, as of the code 007.
    texts : sequence of str, default=()
        Columns that are text whatever they hold, such as categories that are numbered.
    """
    require(f"reading {path.name}", "pandas", extra="cli")
    kind = kind_of(path)
    if kind not in TABLES[:-3]:
        if sep is not None or decimal is not None:
            raise click.UsageError(f"--{'decimal' if sep is None else 'sep'} is for files of text, got {path.name}")
        frame = _frame_of_other(path, kind)
        table = Table(path, frame.mask(frame.isin(list(missing))) if missing else frame)
    else:
        parsed: dict[str, Any] = {"na_values": list(missing or ()), "decimal": decimal or "."}
        parsed |= {"dtype": dict.fromkeys(texts, str), "skipinitialspace": True}  # as after a comma
        table = _table_of_text(path, kind, sep, parsed, words)
    table.frame.columns = table.frame.columns.map(str)
    if len(table.frame) == 0:
        raise ValueError(f"{path} must have at least one row, got none")
    return table


def _frame_of_other(path: Path, kind: str) -> Any:
    import pandas as pd

    package, extra = ("openpyxl", "excel") if kind == ".xlsx" else ("pyarrow", "tables")
    try:
        return pd.read_excel(path) if kind == ".xlsx" else pd.read_parquet(path)
    except ImportError as error:
        raise ValueError(f"reading {path.name} needs the package {package}: pip install 'bregnet[{extra}]'") from error
    except Exception as error:  # parsers have exceptions of their own
        name = "an Excel" if kind == ".xlsx" else "a Parquet"
        raise ValueError(f"{path} is damaged, or not {name} file: {error}") from error


def _table_of_text(path: Path, kind: str, sep: str | None, parsed: dict[str, Any], words: Sequence[str]) -> Table:
    import pandas as pd

    text = sys.stdin.buffer.read() if path == STANDARD else None
    first, found = "", sep or ","
    try:
        with _opened(path, text) as file:
            first = next((line.strip("\r\n\ufeff") for line in file if line.strip()), "")
        if not first:
            raise ValueError(f"{path} is empty")
        found = sep or _separator(kind, first)
        if found == parsed["decimal"]:
            raise click.UsageError(f"{found!r} cannot be the decimal mark and separate columns: give --sep, too")
        if sep is None:
            _expect_separator(path, first, found)
        _expect_distinct(path, first, found)
        _expect_names(path, text, found)
        frame = pd.read_csv(path if text is None else io.BytesIO(text), sep=found, **parsed, low_memory=False)
        frame = _without_row_numbers(frame)
        labels = [name for name in words if name in frame.columns]
        _keep_words(frame, path if text is None else io.BytesIO(text), found, labels)
    except pd.errors.ParserError as error:
        raise ValueError(f"{path} must have as many columns in every line, separated by {found!r}: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged, or not a text file in UTF-8: {error}; save it as UTF-8") from error
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is damaged, or cannot be read: {error}") from error
    return Table(path, frame, text, found)


def _expect_distinct(path: Path, first: str, sep: str) -> None:
    """Raise an error for columns of the same name, of which pandas would rename all but the first."""
    names = first.split() if sep == SPACES else next(csv.reader([first], delimiter=sep, skipinitialspace=True))
    twice = [name for name, count in Counter(names).items() if name.strip() and count > 1]
    if twice:
        raise ValueError(f"{path} must have a name of its own for every column, got {listed(twice)} more than once")


def _expect_names(path: Path, text: bytes | None, sep: str) -> None:
    """Raise an error for rows with more columns than names: pandas would take the first ones for names of the rows."""
    with _opened(path, text) as file:
        lines = map(str.split, file) if sep == SPACES else csv.reader(file, delimiter=sep)
        names, cells = [*islice(filter(None, lines), 2), [], []][:2]
    if len(cells) > len(names):
        raise ValueError(
            f"{path} must have a name for every column, got {len(names)} names in the first line and {len(cells)}"
            " columns in the next: name them all there, or remove a separator that ends the others"
        )


def _opened(path: Path, text: bytes | None) -> Any:
    if text is not None:
        return io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", newline="")
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    return opened(path, "rt", encoding="utf-8", newline="")


def _separator(kind: str, first: str) -> str:
    """What separates the columns, by the name of the file, or of .txt by what is in the first line."""
    if not kind.startswith(".txt"):
        return "\t" if kind.startswith(".tsv") else ","
    most = max(SEPARATORS, key=first.count)
    return most if first.count(most) else SPACES


def _expect_separator(path: Path, first: str, used: str) -> None:
    """Raise an error where the first line looks like several columns with another separator."""
    others = [each for each in SEPARATORS if each != used and each in first]
    if used != SPACES and used not in first and others:
        seen = max(others, key=first.count)
        begins = repr(first if len(first) <= 40 else f"{first[:40]}...")
        option = "tab" if seen == "\t" else f"'{seen}'"
        raise ValueError(
            f"{path} must have its columns separated by {SEPARATORS.get(used, repr(used))}, but its first line,"
            f" {begins}, has {SEPARATORS[seen]}: add --sep {option}"
        )


def _without_row_numbers(frame: Any) -> Any:
    """Drop the first column if it is the index that pandas has written, without a name."""
    first = frame.columns[0] if frame.shape[1] else ""
    if first != "Unnamed: 0" or not np.array_equal(frame[first].to_numpy(), np.arange(len(frame))):
        return frame
    tell("the first column has no name and numbers the rows: it is left out")
    return frame.drop(columns=first)


def _keep_words(frame: Any, source: Any, sep: str, labels: list[str]) -> None:
    """Restore text that was read as numbers or missing values: codes such as 007, and the words NA and None."""
    import pandas as pd
    from pandas.api.types import is_integer_dtype, is_numeric_dtype

    # integers may be codes, and missing values may be words; other columns were read as they are
    labels = [name for name in labels if is_integer_dtype(frame[name].dtype) or frame[name].isna().any()]
    if not labels:
        return
    words = pd.read_csv(source, sep=sep, usecols=labels, dtype=str, keep_default_na=False, skipinitialspace=True)
    for name in labels:
        parsed, text = frame[name], words[name]
        is_code = is_integer_dtype(parsed.dtype) and text.str.fullmatch(r"[+-]?0[0-9]+").any()
        if is_code or parsed.isna().all() or not is_numeric_dtype(parsed.dtype):
            frame[name] = text.where(text != "")


def listed(names: Any) -> str:
    """Names in quotes, the first ten, each cut short."""
    shown = [short(name) for name in islice(names, 11)]
    more = f" and {len(names) - 10} more" if len(shown) > 10 else ""
    return ", ".join(shown[:10]) + more


def short(value: Any) -> str:
    """A value in quotes, cut short."""
    text = str(value)
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
