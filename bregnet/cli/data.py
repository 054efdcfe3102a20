"""Data files: tables, npz archives and npy matrices."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from bregnet.cli.features import Encoding, columns_as_numbers
from bregnet.cli.options import TABLES, kind_of
from bregnet.cli.tables import listed, read_table


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
    numbers : ndarray or None
        Their numbers in the file, from 0; None for all rows of it.
    encoding : Encoding
        How the columns of a table become numbers.
    """

    X: Any
    y: Any = None
    target: str = "y"
    labels: np.ndarray | None = None
    numbers: np.ndarray | None = None
    encoding: Encoding = field(default_factory=Encoding)

    @property
    def is_float(self) -> bool:
        """Whether the target is a column of floating-point numbers."""
        return self.y is not None and self.y.dtype.kind == "f"

    @property
    def row_numbers(self) -> np.ndarray:
        """Their numbers in the file, from 0."""
        return np.arange(len(self.X)) if self.numbers is None else self.numbers

    @property
    def called(self) -> np.ndarray:
        """Names of the rows, or else their numbers in the file."""
        return self.row_numbers if self.labels is None else self.labels

    def part(self, rows: np.ndarray) -> Data:
        """Some of the rows."""
        X = self.X[rows] if isinstance(self.X, np.ndarray) else self.X.iloc[rows]
        y, labels = (None if each is None else each[rows] for each in (self.y, self.labels))
        return replace(self, X=X, y=y, labels=labels, numbers=self.row_numbers[rows])


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are features, all by default, and how its text is read."""

    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None
    sep: str | None = None
    missing: tuple[str, ...] | None = None
    decimal: str | None = None

    def __bool__(self) -> bool:
        return bool(self.features or self.drop)


def read_rows(
    path: Path,
    *,
    names: list[str] | None = None,
    columns: Columns | None = None,
    target: str | None = None,
    label: str | None = None,
    encoding: Encoding | None = None,
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
    encoding : Encoding, default=None
        How columns of a table become numbers; by default they must be numbers. It is not applied here.
    """
    kind, others = kind_of(path), [each for each in (target, label) if each is not None]
    columns = Columns() if columns is None else columns
    encoding = encoding or Encoding(fitted=names is not None)
    if kind in TABLES:
        return _rows_of_table(path, names, columns, target, label, encoding)
    of_text = (columns.sep, columns.missing, columns.decimal)
    if columns or any(of_text) or encoding.one_hot or encoding.ordinal or encoding.impute:
        given = "--features and --drop" if columns else "--sep, --decimal, --missing, --one-hot, --ordinal and --impute"
        raise click.UsageError(f"{given} are for tables, got {path.name}")
    strange = [name for name in others if kind == ".npy" and Path(name).suffix != ".npy"]
    if strange:
        raise click.UsageError(f"--target and --id must be .npy files beside {path.name}, got {strange[0]!r}")
    found = {name: _array(path, name) if kind == ".npz" else _array(Path(name)) for name in others}
    X = _array(path, "X" if kind == ".npz" else None, ndim=2)
    for name, values in found.items():
        if len(values) != len(X):
            raise ValueError(f"{name!r} must have a value for each of the {len(X)} rows of {path}, got {len(values)}")
    return Data(X, found.get(target or ""), target or "y", found.get(label or ""))


def _rows_of_table(
    path: Path, names: list[str] | None, columns: Columns, target: str | None, label: str | None, encoding: Encoding
) -> Data:
    """The features of a table, chosen and checked, with target and names."""
    others = [each for each in (target, label) if each is not None]
    how: dict[str, Any] = {"missing": columns.missing, "decimal": columns.decimal}
    table = read_table(path, columns.sep, **how, words=others, texts=encoding.categories)
    found = {name: table.column(name) for name in others}
    both = [name for name in columns.features or () if name in others]
    if both:
        raise click.UsageError(f"--features must not name the target or the ids, got {listed(both)}")
    if names is None:
        rest = table.frame.drop(columns=list(found))
        replace(table, frame=rest).expect_columns([*(columns.features or ()), *(columns.drop or ())])
        chosen = rest if columns.features is None else rest[list(dict.fromkeys(columns.features))]
        chosen = chosen.drop(columns=[name for name in columns.drop or () if name in chosen.columns])
    else:
        missing = [name for name in names if name not in table.frame.columns]
        if missing:
            raise ValueError(f"{path} must have the columns of the model, got none named {listed(missing)}")
        chosen = table.frame[names]
    X, encoding = columns_as_numbers(table, chosen, encoding)
    return Data(X, found.get(target or ""), target or "y", found.get(label or ""), encoding=encoding)


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
    kind = kind_of(path)
    if kind == ".npy":
        values = _array(path, ndim=2)
        if values.shape[1] != len(names):
            raise ValueError(f"{path} must have the columns {', '.join(names)}, got shape {values.shape}")
        parts = list(values.T)
    elif kind == ".npz":
        parts = [_array(path, name) for name in names]
    else:
        table = read_table(path)
        parts = [table.column(name) for name in names]
    for name, part in zip(names, parts, strict=True):
        broken = part
        if part.dtype.kind in "biuf":
            broken = part[~np.isfinite(part) | (part != np.floor(part))]
        if len(broken):
            raise ValueError(f"{path}: {name!r} must hold whole numbers, got {broken.tolist()[0]!r}")
    return np.column_stack([np.asarray(part).astype(np.int64) for part in parts])


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
        raise ValueError(f"{path} must hold an array {name!r}, got {listed(held.files)}")
    if array.ndim != ndim or (ndim == 2 and array.dtype.kind not in "biuf"):
        wanted = "X must be a matrix of numbers" if ndim == 2 else "the target must have one dimension"
        raise ValueError(f"{path}: {wanted}, got shape {array.shape} and dtype {array.dtype}")
    return array
