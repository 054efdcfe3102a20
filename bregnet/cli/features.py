"""From the columns of a table to numbers: what is one already, what is encoded or filled, and what is refused."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from bregnet.cli.tables import Table, listed, short

AUTO = "auto"
_TIME = r"([ T]\d{1,2}:\d{2}.*)?"
_MONTH = r"(?i:(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)\.?"
DATE = (
    rf"\s*(\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}|\d{{1,4}}[-/. ]+{_MONTH}[-/, ]+\d{{1,4}}"
    rf"|{_MONTH}[-/ ]+\d{{1,2}},? *[-/ ]\d{{4}}){_TIME}\s*"
)
THOUSANDS = r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*"
IDS = re.compile(r"(?i:(.*[_\W])?(id|ids|index|key|uuid))|.*[a-z]I[dD]")


@dataclass(frozen=True)
class Encoding:
    """How columns of a table become numbers.

    Attributes
    ----------
    one_hot : tuple of str
        Columns with a new column for each value; "auto" is all that hold text.
    ordinal : mapping of str to list of str or None
        Columns whose values are numbered, in this order, or for None in alphabetical order; "auto" is all of text.
    impute : str or None
        What fills gaps.
    fitted : bool
        Whether it is that of a model, which cannot be changed any more.
    """

    one_hot: tuple[str, ...] = ()
    ordinal: Mapping[str, list[str] | None] = field(default_factory=dict)
    impute: str | None = None
    fitted: bool = False

    @classmethod
    def from_transformer(cls, transformer: ColumnTransformer) -> Encoding:
        """That of a fitted transformer."""
        columns = {name: list(each) for name, _, each in transformer.transformers}
        imputes = any(isinstance(_steps(part)[0], SimpleImputer) for _, part, _ in transformer.transformers)
        ordinal = dict.fromkeys(columns.get("ordinal", ()))
        return cls(tuple(columns.get("one-hot", ())), ordinal, "median" if imputes else None, fitted=True)

    @property
    def categories(self) -> list[str]:
        """The columns of categories."""
        return [name for name in (*self.one_hot, *self.ordinal) if name != AUTO]

    def with_text(self, names: list[str]) -> Encoding:
        """The same with the names of the columns that auto stands for."""
        one_hot = tuple(name for name in self.one_hot if name != AUTO)
        ordinal = {name: order for name, order in self.ordinal.items() if name != AUTO}
        if AUTO in self.one_hot:
            return replace(self, one_hot=(*one_hot, *names), ordinal=ordinal)
        return replace(self, one_hot=one_hot, ordinal=ordinal | dict.fromkeys(names if AUTO in self.ordinal else ()))


def columns_as_numbers(table: Table, chosen: Any, how: Encoding) -> tuple[Any, Encoding]:
    """Columns as numbers or as the text of categories, each checked, and the encoding with the names of all of them.

    Parameters
    ----------
    table : Table
    chosen : DataFrame
        The columns of the table that are features.
    how : Encoding
    """
    import pandas as pd

    if chosen.shape[1] == 0:
        raise ValueError(f"{table.path} must have a feature beside the target, got none")
    if not how.fitted:
        _expect_there(table, chosen, how)
    made, words, is_auto = {}, [], AUTO in how.one_hot or AUTO in how.ordinal
    for name, column in chosen.items():
        if column.isna().all():
            raise ValueError(f"{table.path}: column {name!r} has no value in any row{_left_out([name], how)}")
        if name in how.categories:
            made[name] = _as_words(column)
            _expect_in_order(table, made[name], how.ordinal.get(name))
            continue
        _refuse_dates(table, column, how)
        numbers = _as_numbers(table, column)
        if numbers is None and is_auto:
            _refuse_names(table, column)
        words += [name] if numbers is None else []
        made[name] = _as_words(column) if numbers is None else numbers
    gaps = [name for name, column in made.items() if column.isna().any() and how.impute is None]
    if gaps or (words and not is_auto):
        _refuse(table, chosen, [] if is_auto else words, gaps, how)
    return pd.DataFrame(made, index=chosen.index), how.with_text(words)


def fitted_transformer(how: Encoding, X: Any) -> ColumnTransformer | None:
    """What makes numbers of the columns of a frame, fitted to it; None where they are numbers."""
    if not how.categories and how.impute is None:
        return None
    numbers = [name for name in X.columns if name not in how.categories]
    fill = None if how.impute is None else how.impute.replace("-", "_")

    def filled(encoder: Any) -> Any:
        return encoder if fill is None else make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)

    parts: list[Any] = []
    if numbers:
        parts.append(("numbers", "passthrough" if fill is None else SimpleImputer(strategy=fill), numbers))
    if how.one_hot:
        parts.append(("one-hot", filled(OneHotEncoder(handle_unknown="ignore", sparse_output=False)), [*how.one_hot]))
    if how.ordinal:
        found = {name: sorted(X[name].dropna().unique()) for name in how.ordinal}
        orders = [order or found[name] for name, order in how.ordinal.items()]
        parts.append(("ordinal", filled(OrdinalEncoder(categories=orders)), [*how.ordinal]))
    made = ColumnTransformer(parts, verbose_feature_names_out=False).set_output(transform="pandas")
    return made.fit(X)


def transformed(transformer: ColumnTransformer, X: Any, source: str) -> Any:
    """The numbers of a frame; a value that no row of the fit had is an error in an order, and else a warning."""
    for name, _, columns in transformer.transformers:
        if name == "numbers":
            continue
        known = _steps(transformer.named_transformers_[name])[-1].categories_
        for column, values in zip(columns, known, strict=True):
            new = X[column].notna() & ~X[column].isin(list(values))
            if not new.any():
                continue
            first = f"{short(X[column][new].iloc[0])} in row {X.index[new][0]}"
            if name == "ordinal":
                raise ValueError(f"{source}: column {column!r} must hold {listed(values)}, got {first}")
            counted = f"{int(new.sum())} {'row has' if new.sum() == 1 else 'rows have'}"
            said = f"{counted} a value of {column!r} that no row of the fit had: {first}; it counts as none of these"
            warnings.warn(f"{source}: {said}", stacklevel=2)
    return transformer.transform(X)


def described(transformer: ColumnTransformer) -> str:
    """What was done, in a line."""
    said, fills = [], {}
    for name, part, columns in transformer.transformers:
        fitted = _steps(transformer.named_transformers_[name])
        if isinstance(_steps(part)[0], SimpleImputer):
            what = "numbers" if name == "numbers" else "categories"
            fills[what] = f"{what} by the {_steps(part)[0].strategy.replace('_', ' ')}"
        if name == "one-hot":
            made = sum(map(len, fitted[-1].categories_))
            said.append(f"{listed(columns)} one-hot encoded, in {made} columns")
        elif name == "ordinal":
            orders = [_order(list(map(str, values))) for values in fitted[-1].categories_]
            said += [f"{column!r} numbered {order}" for column, order in zip(columns, orders, strict=True)]
    return "; ".join([*said, *([f"gaps are filled: {', '.join(fills.values())}"] if fills else [])])


def _order(values: list[str]) -> str:
    """Values in their order; the middle of many is left out."""
    return " < ".join(values if len(values) <= 8 else [*values[:4], "...", values[-1]])


def id_like(X: Any) -> list[str]:
    """Columns of numbers that look like ids: by their name, or with another whole number in every row."""
    found = []
    for name, column in X.items():
        values = column.to_numpy()
        is_number = values.dtype.kind == "f"
        distinct = is_number and len(values) > 20 and np.array_equal(values, np.floor(values)) and column.is_unique
        if is_number and (IDS.fullmatch(str(name)) or distinct):
            found.append(str(name))
    return found


def _steps(part: Any) -> list[Any]:
    return [step for _, step in part.steps] if hasattr(part, "steps") else [part]


def _as_words(column: Any) -> Any:
    """A column of categories as text; 2.0 is 2, for pandas writes so where a column of whole numbers has gaps."""
    as_text = column.map(str).str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)
    return as_text.astype(object).where(column.notna(), np.nan)


def _as_numbers(table: Table, column: Any) -> Any:
    """A column of numbers, with gaps; None for one of text. Text in some cells of a column of numbers is an error."""
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(column.dtype):
        numbers = column.astype(np.float64)
    else:
        numbers = pd.to_numeric(column, errors="coerce").astype(np.float64)
        bad = (numbers.isna() & column.notna()).to_numpy()
        if bad.any() and column[bad].astype(str).str.fullmatch(rf"\s*[+-]?\d*,\d+\s*|{THOUSANDS}").all():
            found = f"{short(column[bad].iloc[0])} in {table.place(int(bad.argmax()))}"
            way = "--decimal , reads a comma as the decimal mark"
            if column[bad].astype(str).str.fullmatch(THOUSANDS).all():
                way += "; where it separates thousands, leave it out of the file"
            raise ValueError(f"{table.path}: column {column.name!r} must hold numbers, got {found}; {way}")
        if 2 * bad.sum() > column.notna().sum():
            return None
        if bad.any():
            first, is_one = column[bad].iloc[0], column[bad].nunique() == 1
            others = int(bad.sum()) - 1
            what = f" and {'the same' if is_one else 'text'} in {others} more row{'s' * (others > 1)}" if others else ""
            advice = f"; --missing {short(first)} takes it for a gap" if is_one and "," not in first else ""
            found = f"{short(first)} in {table.place(int(bad.argmax()))}{what}{advice}"
            raise ValueError(f"{table.path}: column {column.name!r} must hold numbers, got {found}")
    infinite = np.isinf(numbers.to_numpy())
    if infinite.any():
        found = f"{numbers[infinite].iloc[0]} in {table.place(int(infinite.argmax()))}"
        raise ValueError(f"{table.path}: column {column.name!r} must hold finite numbers, got {found}")
    return numbers


def _expect_there(table: Table, chosen: Any, how: Encoding) -> None:
    missing = [name for name in how.categories if name not in chosen.columns]
    if missing:
        raise ValueError(f"{table.path}: {listed(missing)} cannot be encoded, for the features are {listed(chosen)}")
    both = [name for name in how.one_hot if name in how.ordinal]
    if both:
        raise ValueError(f"a column is encoded by --one-hot or by --ordinal, got {listed(both)} in both")


def _expect_in_order(table: Table, column: Any, order: list[str] | None) -> None:
    """Raise an error for a value that is not in a given order."""
    new = (column.notna() & ~column.isin(order or [])).to_numpy()
    if order is not None and new.any():
        found = f"{short(column[new].iloc[0])} in {table.place(int(new.argmax()))}"
        raise ValueError(f"{table.path}: column {column.name!r} must hold {listed(order)}, got {found}")


def _refuse_dates(table: Table, column: Any, how: Encoding) -> None:
    from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

    if is_numeric_dtype(column.dtype):
        return
    filled = column.dropna()
    if not is_datetime64_any_dtype(column.dtype):
        is_date = filled.astype(str).str.fullmatch(DATE) & ~filled.astype(str).str.fullmatch(r"\d+\.\d+")
        if 2 * is_date.sum() <= len(filled):
            return
    first = int(column.notna().to_numpy().argmax())
    raise ValueError(
        f"{table.path}: column {column.name!r} holds dates, {short(column.iloc[first])} in {table.place(first)}; make"
        " numbers of them first, such as the days since one of them, or the month" + _without([str(column.name)], how)
    )


def _refuse_names(table: Table, column: Any) -> None:
    """Raise an error for a column that auto would encode, with another text in every row."""
    if column.is_unique and len(column) > 2:
        name = column.name
        raise ValueError(
            f"{table.path}: column {name!r} has another text in every row, {short(column.iloc[0])} in"
            f" {table.place(0)}: --id {option([name])} takes it for names of the rows, and --drop {option([name])}"
            " leaves it out"
        )


def _refuse(table: Table, chosen: Any, words: list[str], gaps: list[str], how: Encoding) -> None:
    """Raise an error for columns of text, and columns with gaps, and say what can be done."""
    found, options = [], []
    if words:
        found.append(
            f"{listed(words)} {'hold' if len(words) > 1 else 'holds'} text ({_first(table, chosen[words[0]])})"
        )
        names = [name for name in words if chosen[name].is_unique]
        options += [f"--id {option(names[:1])} takes names of rows"] if names else []
        options += ["--one-hot auto encodes categories"] if len(words) > len(names) else []
    if gaps:
        missing = chosen[gaps[0]].isna().to_numpy()
        several = f"{int(missing.sum())} rows, the first of which is " if missing.sum() > 1 else ""
        others = f", and {listed(gaps[1:])} {'have' if len(gaps) > 2 else 'has'} gaps, too" if len(gaps) > 1 else ""
        found.append(f"{gaps[0]!r} has no value in {several}{table.place(int(missing.argmax()))}{others}")
        options.append("--impute median fills gaps")
    advice = f"; {', '.join(options)}{_without(list(dict.fromkeys([*words, *gaps])), how)}"
    if how.fitted:
        advice = "; the model was fitted to numbers without gaps (--one-hot and --impute of bregnet fit take others)"
    raise ValueError(f"{table.path}: features must hold numbers, but {' and '.join(found)}{advice}")


def _first(table: Table, column: Any) -> str:
    row = int(column.notna().to_numpy().argmax())
    return f"{short(column.iloc[row])} in {table.place(row)}"


def option(names: list[str]) -> str:
    """Names as an option takes them, in quotes where a shell needs them, or where they have commas themselves."""
    return shlex.quote(",".join(f'"{name}"' if "," in name else name for name in names))


def _without(names: list[str], how: Encoding) -> str:
    return "" if how.fitted else f", or leave out with --drop {option(names)}"


def _left_out(names: list[str], how: Encoding) -> str:
    return "" if how.fitted else f"; --drop {option(names)} leaves it out"
