"""Saved models, and rows of files for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from sklearn.base import BaseEstimator, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from bregnet.cli.data import Columns, Data, read_rows
from bregnet.cli.features import Encoding, transformed
from bregnet.cli.output import warnings_as_lines
from bregnet.divergences import BregmanDivergence
from bregnet.divergences.resolve import divergence_of
from bregnet.io.model_files import load_with_header
from bregnet.retrieval import BregmanIndex
from bregnet.retrieval.folder import read_header


@dataclass(frozen=True)
class Model:
    """An object that was read from a file, or from the folder of an index.

    Attributes
    ----------
    path : Path
    holds : object
    header : dict
        The header of the file.
    table : ColumnTransformer or None
        What makes numbers of the columns of a table for it, where `bregnet fit` had to.
    """

    path: Path
    holds: Any
    header: dict[str, Any]
    table: ColumnTransformer | None = None

    @classmethod
    def read(cls, path: Path) -> Model:
        """Read a file, or the folder of an index."""
        if path.is_dir():
            index = BregmanIndex.load(path)
            return cls(path, index, read_header(path)[0])
        holds, header = load_with_header(path)
        if isinstance(holds, Pipeline) and isinstance(holds[0], ColumnTransformer):
            return cls(path, holds[-1], header, holds[0])
        return cls(path, holds, header)

    @property
    def kind(self) -> str:
        """The name of the object's type."""
        return type(self.holds).__name__

    @property
    def is_regressor(self) -> bool:
        """Whether it predicts numbers."""
        return isinstance(self.holds, BaseEstimator) and is_regressor(self.holds)

    @property
    def divergence(self) -> BregmanDivergence | None:
        """Its divergence, where it has one."""
        try:
            return divergence_of(self.holds)
        except TypeError:
            return None

    def needed_divergence(self, command: str) -> BregmanDivergence:
        """Its divergence, which it must have."""
        if self.divergence is None:
            raise ValueError(f"{command} needs a model with a divergence, got {self.path}, which holds a {self.kind}")
        return self.divergence

    @property
    def index(self) -> BregmanIndex | None:
        """The items it searches, where it has some."""
        found = getattr(self.holds, "index_", self.holds)
        return found if isinstance(found, BregmanIndex) else None

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns of the table it was fitted to, where they are known."""
        names = getattr(self.holds if self.table is None else self.table, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    @property
    def n_features(self) -> int | None:
        """How many features it is for; None if any number is accepted."""
        function = getattr(self.holds, "function_", self.holds)
        holders = (self.holds, self.divergence, function)
        counts = (getattr(each, name, None) for each in holders for name in ("n_features_in_", "n_features"))
        return next((count for count in counts if count is not None), None)

    def rows(self, path: Path, columns: Columns, *, target: str | None = None, names: str | None = None) -> Data:
        """Rows of a file for this model: the columns it was fitted to, or those that are chosen."""
        if self.feature_names is not None and columns:
            known = ", ".join(self.feature_names)
            raise click.UsageError(f"--features and --drop are for models that know no columns; {self.path}: {known}")
        encoding = None if self.table is None else Encoding.from_transformer(self.table)
        read = read_rows(path, names=self.feature_names, columns=columns, target=target, label=names, encoding=encoding)
        if self.table is not None:
            with warnings_as_lines():
                read = replace(read, X=transformed(self.table, read.X, str(path)))
        if self.n_features not in (None, read.X.shape[1]):
            raise ValueError(f"{path} must have the {self.n_features} features of the model, got {read.X.shape[1]}")
        return read
