"""Data files: CSV and Parquet tables, npz archives and npy matrices."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from bregnet._core.optional import require
from bregnet.cli.options import STANDARD
from bregnet.cli.output import tell

TABLES = (".csv", ".csv.gz", ".parquet", ".pq")


@dataclass(frozen=True)
class Data:
    """The rows of a file.

    Attributes
    ----------
    X : DataFrame or ndarray
        A frame keeps the names of the features.
    y : ndarray or None
    target : str
        Name of y.
    labels : ndarray or None
        Names of the rows.
    """

    X: Any
    y: Any = None
    target: str = "y"
    labels: np.ndarray | None = None

    @property
    def is_float(self) -> bool:
        """Whether the target is a column of floating-point numbers."""
        return self.y is not None and self.y.dtype.kind == "f"

    def part(self, rows: np.ndarray) -> Data:
        """Some of the rows."""
        X = self.X[rows] if isinstance(self.X, np.ndarray) else self.X.iloc[rows]
        y, labels = (None if each is None else each[rows] for each in (self.y, self.labels))
        return Data(X, y, self.target, labels)


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are features; all by default."""

    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.features or self.drop)

    def chosen_from(self, path: Path, table: Any) -> Any:
        """The columns that are chosen, of a table that has them."""
        _check_columns(path, table, [*(self.features or ()), *(self.drop or ())])
        chosen = table if self.features is None else table[list(dict.fromkeys(self.features))]
        return chosen.drop(columns=[name for name in self.drop or () if name in chosen.columns])


def needed_target(path: Path, target: str | None) -> str:
    """The name of the target: "y" by default in an archive, and required for other files."""
    kind = _kind(path)
    if target is None and kind != ".npz":
        what = "be a .npy file beside" if kind == ".npy" else "name a column of"
        raise click.UsageError(f"--target must {what} {path.name}")
    return target or "y"


def read_rows(
    path: Path,
    *,
    names: list[str] | None = None,
    columns: Columns | None = None,
    target: str | None = None,
    label: str | None = None,
) -> Data:
    """Read the features of a file and, if asked for, target and names of the rows.

    Parameters
    ----------
    path : Path
    names : list of str, default=None
        Columns of a table that are the features; otherwise `columns` chooses among the other columns.
    columns : Columns, default=None
    target, label : str, default=None
        A column of a table, an array of an archive, or an .npy file beside a matrix.
    """
    kind, columns, others = _kind(path), columns or Columns(), [each for each in (target, label) if each is not None]
    if kind not in TABLES:
        if columns:
            raise click.UsageError(f"--features and --drop are for tables, got {path.name}")
        strange = [name for name in others if kind == ".npy" and Path(name).suffix != ".npy"]
        if strange:
            raise click.UsageError(f"--target and --id must be .npy files beside {path.name}, got {strange[0]!r}")
        found = {name: _array(path, name) if kind == ".npz" else _array(Path(name)) for name in others}
        X: Any = _array(path, "X" if kind == ".npz" else None, ndim=2)
    else:
        table = _table(path, kind, others)
        found = {name: _column(path, table, name) for name in others}
        both = [name for name in columns.features or () if name in others]
        if both:
            raise click.UsageError(f"--features must not name the target or the ids, got {_listed(both)}")
        rest = table.drop(columns=list(found))
        X = _numbers(path, columns.chosen_from(path, rest) if names is None else _named(path, table, names))
    for name, values in found.items():
        if len(values) != len(X):
            raise ValueError(f"{name!r} must have a value for each of the {len(X)} rows of {path}, got {len(values)}")
    return Data(X, found.get(target or ""), target or "y", found.get(label or ""))


def read_pairs(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of row numbers (m, 2), and whether they are similar (m,)."""
    columns = _whole_columns(path, ("i", "j", "similar"))
    strange = ~np.isin(columns[:, 2], (0, 1))
    if strange.any():
        raise ValueError(f"{path}: 'similar' must hold 0 and 1, got {columns[strange, 2][0]}")
    return columns[:, :2], columns[:, 2].astype(bool)


def read_triplets(path: Path) -> np.ndarray:
    """Row numbers of anchor, nearer and farther rows, (m, 3)."""
    return _whole_columns(path, ("anchor", "nearer", "farther"))


def _whole_columns(path: Path, names: tuple[str, ...]) -> np.ndarray:
    """Columns of whole numbers: those of these names, or all of a matrix."""
    kind = _kind(path)
    if kind == ".npy":
        values = _array(path, ndim=2)
        if values.shape[1] != len(names):
            raise ValueError(f"{path} must have the columns {', '.join(names)}, got shape {values.shape}")
        parts = list(values.T)
    elif kind == ".npz":
        parts = [_array(path, name) for name in names]
    else:
        table = _table(path, kind, ())
        parts = [_column(path, table, name) for name in names]
    for name, part in zip(names, parts, strict=True):
        broken = part
        if part.dtype.kind in "biuf":
            broken = part[~np.isfinite(part) | (part != np.floor(part))]
        if len(broken):
            raise ValueError(f"{path}: {name!r} must hold whole numbers, got {broken.tolist()[0]!r}")
    return np.column_stack([np.asarray(part).astype(np.int64) for part in parts])


def _kind(path: Path) -> str:
    if path == STANDARD:
        return ".csv"
    kinds = (*TABLES, ".npz", ".npy")
    kind = next((kind for kind in kinds if path.name.lower().endswith(kind)), None)
    if kind is None:
        raise click.UsageError(f"DATA must end in {', '.join(kinds)}, got {str(path)!r}")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    return kind


def _table(path: Path, kind: str, labels: Sequence[str]) -> Any:
    """A table; in a CSV file, columns of labels stay text where numbers would lose something, as of the code 007."""
    require(f"reading {path.name}", "pandas", extra="cli")
    import pandas as pd

    is_csv = kind.startswith(".csv")
    source: Any = io.BytesIO(sys.stdin.buffer.read()) if path == STANDARD else path
    try:
        table: Any = pd.read_csv(source) if is_csv else pd.read_parquet(source)
        if is_csv:
            table = _without_row_numbers(table)
            _keep_words(table, source, [name for name in labels if name in table.columns])
    except ImportError as error:
        raise ValueError(f"reading {path.name} needs the package pyarrow: pip install 'bregnet[tables]'") from error
    except Exception as error:  # parsers and decompressors have exceptions of their own
        raise ValueError(f"{path} is damaged, or not a {'CSV' if is_csv else 'Parquet'} file: {error}") from error
    table.columns = table.columns.map(str)
    if len(table) == 0:
        raise ValueError(f"{path} must have at least one row, got none")
    return table


def _without_row_numbers(table: Any) -> Any:
    """Drop the first column if it is the index that pandas has written, without a name."""
    first = table.columns[0] if table.shape[1] else ""
    if first != "Unnamed: 0" or not np.array_equal(table[first].to_numpy(), np.arange(len(table))):
        return table
    tell("the first column has no name and numbers the rows: it is left out")
    return table.drop(columns=first)


def _keep_words(table: Any, source: Any, labels: list[str]) -> None:
    """Restore text that was read as numbers or missing values: codes such as 007, and the words NA and None."""
    import pandas as pd
    from pandas.api.types import is_integer_dtype, is_numeric_dtype

    # integers may be codes, and missing values may be words; other columns were read as they are
    labels = [name for name in labels if is_integer_dtype(table[name].dtype) or table[name].isna().any()]
    if not labels:
        return
    if isinstance(source, io.BytesIO):
        source.seek(0)
    words = pd.read_csv(source, usecols=labels, dtype=str, keep_default_na=False)
    for name in labels:
        parsed, text = table[name], words[name]
        is_code = is_integer_dtype(parsed.dtype) and text.str.fullmatch(r"[+-]?0[0-9]+").any()
        if is_code or parsed.isna().all() or not is_numeric_dtype(parsed.dtype):
            table[name] = text.where(text != "")


def _check_columns(path: Path, table: Any, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise ValueError(f"{path} must have the column {_listed(missing)}, got {_listed(table.columns)}")


def _column(path: Path, table: Any, name: str) -> np.ndarray:
    _check_columns(path, table, [name])
    column = table[name]
    if column.isna().any():
        raise ValueError(f"{path}: column {name!r} must have a value in every row, got {_gaps(column)}")
    return column.to_numpy()


def _named(path: Path, table: Any, names: list[str]) -> Any:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise ValueError(f"{path} must have the columns of the model, got none named {_listed(missing)}")
    return table[names]


def _numbers(path: Path, table: Any) -> Any:
    """A frame of numbers, none missing."""
    from pandas.api.types import is_numeric_dtype

    if table.shape[1] == 0:
        raise ValueError(f"{path} must have a feature beside the target, got none")
    words = [name for name, column in table.items() if not is_numeric_dtype(column.dtype)]
    if words:
        shown = f"{table[words[0]].iloc[0]!r} in the first row of {words[0]!r}"
        raise ValueError(
            f"{path}: features must hold numbers, but {_listed(words)} {'do' if len(words) > 1 else 'does'} not"
            f" ({shown}); leave out with --drop {','.join(words)}, or choose columns with --features"
        )
    for name, column in table.items():
        if column.isna().any():
            raise ValueError(f"{path}: column {name!r} must have a number in every row, got {_gaps(column)}")
    return table.astype(np.float64)


def _gaps(column: Any) -> str:
    missing = column.isna().to_numpy()
    return f"none in {int(missing.sum())} of them, the first of which is row {int(missing.argmax()) + 1}"


def _array(path: Path, name: str | None = None, *, ndim: int = 1) -> np.ndarray:
    """An array of an archive, or that of an .npy file, in which it stays."""
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        held: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        array = held if name is None else held.get(name)
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        what = "a plain array" if name is None else "plain arrays"
        raise ValueError(f"{path} is damaged, or does not hold {what}: {error}") from error
    if array is None:
        raise ValueError(f"{path} must hold an array {name!r}, got {_listed(held.files)}")
    if array.ndim != ndim or (ndim == 2 and array.dtype.kind not in "biuf"):
        wanted = "X must be a matrix of numbers" if ndim == 2 else "the target must have one dimension"
        raise ValueError(f"{path}: {wanted}, got shape {array.shape} and dtype {array.dtype}")
    return array


def _listed(names: Any) -> str:
    """Names in quotes, the first ten."""
    shown = [repr(str(name)) for name in names]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")
