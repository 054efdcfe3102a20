"""Which units of work make up each table of the paper, and how one is computed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from benchmarks import baselines, ours, paper_timing
from benchmarks.data import inner_folds
from benchmarks.paper_figures import (
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    Classification,
    Regression,
    Synthetic,
    Timing,
)
from benchmarks.rows import Outcome, Unit
from bregnet.datasets import Fold, paper_folds

FoldRow: TypeAlias = Regression | Classification  # its figures come from folds
TimingRow: TypeAlias = Synthetic | Timing  # its figures come from one fit
Row: TypeAlias = FoldRow | TimingRow

FIGURES: dict[int, tuple[Row, ...]] = {1: TABLE_1, 2: TABLE_2, 3: TABLE_3, 4: TABLE_4, 5: TABLE_5}
METHODS = ("ours", *ours.CLASSIFIERS, "lasso", "forest", "xgboost")
QUICK_SETS = {1: {"d2", "d4"}, 2: {"d2", "d4"}, 3: {"concrete", "airfoil"}, 4: {"iris", "wine"}, 5: {"concrete"}}
MOST_ITERATIONS, QUICK_ITERATIONS = 3200, 300


def set_names(table: int) -> list[str]:
    """The sets of a table, each once."""
    return list(dict.fromkeys(row.key for row in FIGURES[table]))


def chosen_rows(table: int, quick: bool, sets: Sequence[str] | None = None) -> list[Row]:
    """The rows of a table to compute: of the named sets, else all, or few where it should be quick."""
    wanted = set(sets) if sets is not None else QUICK_SETS[table] if quick else set(set_names(table))
    return [row for row in FIGURES[table] if row.key in wanted]


def table_methods(table: int) -> tuple[str, ...]:
    """The methods that have a column here."""
    columns = {3: ("ours", "lasso", "forest", "xgboost"), 4: (*own_methods(4), "forest", "xgboost")}
    return columns.get(table, ("ours",))


def own_methods(table: int) -> tuple[str, ...]:
    """The methods of a table that are ours."""
    return tuple(ours.CLASSIFIERS) if table == 4 else ("ours",)


def measured(unit: Unit) -> tuple[str, ...]:
    """The code that an outcome depends on, for `benchmarks.rows.code_hash`."""
    if unit.table in (1, 2, 5):
        return ("bregnet/solver", "bregnet/learners/regressors.py", "benchmarks/paper_timing.py")
    if unit.method not in own_methods(unit.table):
        return ("benchmarks/baselines.py",)
    own = ("bregnet/solver", "bregnet/learners", "bregnet/selection", "benchmarks/ours.py")
    return own if unit.table == 3 else (*own, "bregnet/divergences", "bregnet/retrieval")


def fold_units(table: int, row: FoldRow, method: str, quick: bool) -> list[Unit]:
    """A cell of table 3 or 4: one unit a fold."""
    return [Unit(table, row.key, row.target, fold, method) for fold in range(1 if quick else row.n_folds)]


def timing_unit(table: int, row: TimingRow, stop: str) -> Unit:
    """A cell of table 1, 2 or 5."""
    return Unit(table, row.key, 1, 0, "ours", stop)


def row_units(table: int, row: Row, methods: Sequence[str], quick: bool) -> list[Unit]:
    """All work of a row."""
    own = [method for method in table_methods(table) if method in methods]
    if isinstance(row, Regression | Classification):
        return [unit for method in own for unit in fold_units(table, row, method, quick)]
    return [timing_unit(table, row, stop) for _ in own for stop in paper_timing.STOPS]


@lru_cache(maxsize=2)
def _folds(name: str, target: int) -> list[Fold]:
    return paper_folds(name, target=target - 1)


def require_data(units: Sequence[Unit]) -> None:
    """Complain before the work begins, not hours later, about a set that cannot be read."""
    for name in dict.fromkeys(unit.set for unit in units if unit.table >= 3):
        paper_folds(name)


def compute(unit: Unit, quick: bool) -> Outcome:
    """Do the work of a unit."""
    max_iter = QUICK_ITERATIONS if quick else MOST_ITERATIONS
    if unit.table in (1, 2):
        dc = unit.table == 2
        fold = paper_timing.synthetic_fold(int(unit.set.removeprefix("d")), dc)
        return paper_timing.timed_fit(fold, dc=dc, stop=str(unit.stop), max_iter=max_iter)
    fold = _folds(unit.set, unit.target)[unit.fold]
    if unit.table == 5:
        return paper_timing.timed_fit(fold, dc=True, stop=str(unit.stop), max_iter=max_iter)
    classify = unit.table == 4
    inner = inner_folds(fold.y, classify=classify)
    if unit.method in ours.CLASSIFIERS:
        return ours.classification(unit.method, fold, inner, quick)
    if unit.method == "ours":
        return ours.regression(fold, inner, quick)
    if unit.method == "lasso":
        return baselines.lasso(fold, inner, quick)
    return getattr(baselines, unit.method)(fold, inner, quick, classify=classify)
