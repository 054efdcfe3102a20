"""Data files: CSV and Parquet tables, npz archives and npy matrices."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

TABLES, ARRAYS = (".csv", ".csv.gz", ".parquet", ".pq"), (".npz", ".npy")
PATH = click.Path(path_type=Path)


@dataclass(frozen=True)
class Data:
    """What a file holds.

    Attributes
    ----------
    X : DataFrame or ndarray
        A frame keeps the names of the features.
    y : ndarray or None
    target : str
        What y is called.
    """

    X: Any
    y: np.ndarray | None = None
    target: str = "y"

    @property
    def is_float(self) -> bool:
        """Whether the target is a column of floating-point numbers."""
        return self.y is not None and self.y.dtype.kind == "f"


def read_training(path: Path, target: str | None) -> Data:
    """Features and target of a file; which target is needed depends on the kind of file."""
    kind = _kind(path)
    if kind in TABLES:
        if target is None:
            raise click.UsageError(f"--target must name a column of {path.name}")
        return _split(path, _table(path, kind), target)
    if kind == ".npz":
        name = "y" if target is None else target
        return Data(_matrix(path, _member(path, "X")), _vector(path, _member(path, name)), name)
    if target is None or Path(target).suffix != ".npy":
        raise click.UsageError(f"--target must be a .npy file beside {path.name}, got {target!r}")
    return Data(_matrix(path, _mapped(path)), _vector(Path(target), _mapped(Path(target))), target)


def read_features(path: Path, names: list[str] | None) -> Any:
    """Features of a file: the named columns of a table, or all."""
    kind = _kind(path)
    if kind not in TABLES:
        return _matrix(path, _member(path, "X") if kind == ".npz" else _mapped(path))
    table = _table(path, kind)
    if names is not None:
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise ValueError(f"{path} must have the columns of the model, got none named {_listed(missing)}")
        table = table[names]
    return _numbers(path, table)


def _kind(path: Path) -> str:
    kind = next((kind for kind in (*TABLES, *ARRAYS) if path.name.lower().endswith(kind)), None)
    if kind is None:
        raise click.UsageError(f"DATA must end in {', '.join((*TABLES, *ARRAYS))}, got {str(path)!r}")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    return kind


def _table(path: Path, kind: str) -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ValueError(f"reading {path} needs pandas: pip install pandas, or save the data as .npz") from error
    is_csv = kind.startswith(".csv")
    try:
        table = pd.read_csv(path) if is_csv else pd.read_parquet(path)
    except ImportError as error:
        raise ValueError(f"reading {path} needs pyarrow: pip install pyarrow") from error
    except Exception as error:  # parsers and decompressors have exceptions of their own
        raise ValueError(f"{path} is damaged, or not a {'CSV' if is_csv else 'Parquet'} file: {error}") from error
    table.columns = table.columns.map(str)
    if len(table) == 0:
        raise ValueError(f"{path} must have at least one row, got none")
    return table


def _split(path: Path, table: Any, target: str) -> Data:
    if target not in table.columns:
        raise ValueError(f"{path} must have the column {target!r}, got {_listed(table.columns)}")
    column = table[target]
    if column.isna().any():
        raise ValueError(f"{path}: column {target!r} must have a value in every row, got {_gaps(column)}")
    return Data(_numbers(path, table.drop(columns=target)), column.to_numpy(), target)


def _numbers(path: Path, table: Any) -> Any:
    """A frame of numbers, none missing."""
    from pandas.api.types import is_numeric_dtype

    if table.shape[1] == 0:
        raise ValueError(f"{path} must have a feature beside the target, got none")
    for name, column in table.items():
        if not is_numeric_dtype(column.dtype):
            raise ValueError(f"{path}: column {name!r} must hold numbers, got {column.iloc[0]!r} in the first row")
        if column.isna().any():
            raise ValueError(f"{path}: column {name!r} must have a number in every row, got {_gaps(column)}")
    return table.astype(np.float64)


def _gaps(column: Any) -> str:
    missing = column.isna().to_numpy()
    return f"none in {int(missing.sum())} of them, the first of which is row {int(missing.argmax()) + 1}"


def _member(path: Path, name: str) -> np.ndarray:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if name not in archive.files:
                raise KeyError(f"{path} must hold an array {name!r}, got {_listed(archive.files)}")
            return archive[name]
    except KeyError as error:
        raise ValueError(error.args[0]) from error
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged, or does not hold plain arrays: {error}") from error


def _mapped(path: Path) -> np.ndarray:
    """An array that stays in its file."""
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is damaged, or does not hold a plain array: {error}") from error


def _matrix(path: Path, array: np.ndarray) -> np.ndarray:
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: X must be a matrix of numbers, got shape {array.shape} and dtype {array.dtype}")
    return array


def _vector(path: Path, array: np.ndarray) -> np.ndarray:
    if array.ndim != 1:
        raise ValueError(f"{path}: the target must have one dimension, got shape {array.shape}")
    return array


def _listed(names: Any) -> str:
    """Names in quotes, the first ten."""
    shown = [repr(str(name)) for name in names]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")
