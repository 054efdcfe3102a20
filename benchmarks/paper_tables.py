"""The paper's tables with our columns beside its own, from the stored rows. What is not finished is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from benchmarks.paper_figures import Classification, Regression
from benchmarks.paper_units import FoldRow, Row, TimingRow, fold_units, own_methods, table_methods, timing_unit
from benchmarks.report import shown
from benchmarks.rows import Store, Unit

Values: TypeAlias = dict[str, Any]

TITLES = {
    1: "Table 1: convex regression on synthetic data, seconds",
    2: "Table 2: DC regression on synthetic data, seconds",
    3: "Table 3: regression, R^2 x 100",
    4: "Table 4: classification, accuracy in percent",
    5: "Table 5: DC regression on UCI sets, seconds",
}
STOPS = {"rule": "rule", "gap": "gap 1%"}  # how columns are called
PEERS = ("paper lasso", "paper forest", "paper xgboost")  # columns that are not the paper's own method
REASONS = {  # what is known of a row that is behind, by the name of its set
    "Parkinson Speech": (
        "Lasso's figure is that of a constant. All rows of a person have the same target; two of the five inner folds"
        " hold people who all have the same one, so that their R^2 says nothing, and the others vary far more than the"
        " settings differ: there is nothing to choose by."
    ),
    "Wine Quality": (
        "The program is solved to a gap of 1%, so it is not the solver that holds the score back. Many wines are there"
        " several times: a small alpha repeats the grades of those that were seen, a large one grades the others"
        " better, and between the two the score of held-out rows is flat. An average of many fits has both."
    ),
    "Solar Flare-1": (
        "Five of six rows have no flare. The score of one of the five folds is far below 0 whatever is chosen; which of"
        " two neighboring penalties the inner folds choose for the others moves the mean by more than what is missing."
    ),
    "Iris": (
        "The paper's folds are not published, and one row more or less is two thirds of a percent;"
        " `python -m benchmarks.variants` prints what each choice does to one divergence."
    ),
}
TIMING_FIELDS = {"s": ".2f", "iter": "d", "objective": ".5f", "gap": ".2%"}


@dataclass(frozen=True)
class Sheet:
    """One table to print.

    Attributes
    ----------
    title : str
    columns : dict
        The format of each column's numbers by its name, or the length of its words.
    rows : list of dict
        Values by column; a column that is missing is not finished.
    compared : tuple of str
        The columns whose best value stands out.
    best : callable
        `max` or `min`.
    counts : tuple of str
        In how many rows we do better.
    own : tuple of str
        Our columns.
    """

    title: str
    columns: dict[str, str]
    rows: list[Values]
    compared: tuple[str, ...]
    best: Callable[..., str]
    counts: tuple[str, ...] = ()
    own: tuple[str, ...] = ("ours",)

    def text(self, row: Values, column: str) -> str:
        """A cell as it is printed."""
        return shown(row.get(column), self.columns[column])

    def best_columns(self, row: Values) -> set[str]:
        """The compared columns with the best figure as printed, ties included."""
        there = [column for column in self.compared if isinstance(row.get(column), float)]
        if not there:
            return set()
        winner = float(self.text(row, self.best(there, key=lambda column: row[column])))
        return {column for column in there if float(self.text(row, column)) == winner}


def count(rows: Sequence[Values], what: str, holds: Callable[[Values], bool], needs: Sequence[str]) -> str:
    """In how many of the rows that have all needed columns `what` holds."""
    complete = [row for row in rows if all(row.get(column) is not None for column in needs)]
    return f"{what}: {sum(map(holds, complete))} of {len(complete)}"


def outcome(store: Store, unit: Unit) -> Values | None:
    """What is stored of a unit."""
    record = store.get(unit._asdict())
    return None if record is None else record["rows"][0]


def sheets(store: Store, table: int, rows: Sequence[Row], quick: bool) -> list[Sheet]:
    """A table of the paper; tables 3 and 4 are followed by their seconds."""
    title = TITLES[table] + (" (quick)" if quick else "")
    of_folds = [row for row in rows if isinstance(row, Regression | Classification)]
    if of_folds:
        seconds = title.partition(",")[0] + f", seconds{' (quick)' if quick else ''}"
        return [_scores(store, table, of_folds, quick, title), _seconds(store, table, of_folds, quick, seconds)]
    return [_timings(store, table, [row for row in rows if not isinstance(row, FoldRow)], title)]


def _head(rows: Sequence[Row]) -> dict[str, str]:
    longest = str(max((len(str(row.head.get("set", ""))) for row in rows), default=0))
    return {name: longest if name == "set" else "d" for name in rows[0].head} if rows else {}


def _timings(store: Store, table: int, rows: Sequence[TimingRow], title: str) -> Sheet:
    """Tables 1, 2 and 5; "> 3.00" where a fit ran out of iterations."""
    filled = [{**row.head, **row.seconds, **_timing_cells(store, table, row)} for row in rows]
    papers = dict.fromkeys(rows[0].seconds if rows else (), ".2f")
    own = {f"{name}: {field}": style for name in STOPS.values() for field, style in TIMING_FIELDS.items()}
    seconds = [f"{name}: s" for name in STOPS.values()]
    when = dict(zip(seconds, ("by its own rule", "to a certified gap of 1%"), strict=True))
    counts = [count(filled, f"faster than the paper {when[c]}", _less(c, "paper"), [c]) for c in seconds]
    columns = {**_head(rows), "n here": "d", **papers, **own}
    return Sheet(title, columns, filled, (*papers, *seconds), min, tuple(counts))


def _timing_cells(store: Store, table: int, row: TimingRow) -> Values:
    cells: Values = {}
    for stop, name in STOPS.items():
        found = outcome(store, timing_unit(table, row, stop))
        if found is not None:
            extra, seconds = found["extra"], found["seconds_per_fit"]
            shown = seconds if extra["reached"] else f"> {seconds:.2f}"
            values = shown, extra["iterations"], extra["objective"], found["gap"]
            cells |= {f"{name}: {field}": value for field, value in zip(TIMING_FIELDS, values, strict=True)}
            cells["n here"] = extra["n"]
    return cells


def _scores(store: Store, table: int, rows: Sequence[FoldRow], quick: bool, title: str) -> Sheet:
    """Tables 3 and 4: means over folds."""
    ours = own_methods(table)
    filled = []
    for row in rows:
        cells: Values = {**row.head, **row.scores}
        for method in table_methods(table):
            done = _finished(store, table, row, method, quick)
            if done:
                cells[method] = 100 * _mean(done, "score")
            single = [each["extra"].get("one_fit") for each in done]
            if done and None not in single:
                cells["one fit"] = 100 * sum(single) / len(single)
            if done and method == ours[0]:
                cells |= {"gap": _mean(done, "gap"), "alpha": _span(done, "alpha")}
        filled.append(cells)
    papers, own = tuple(rows[0].scores), table_methods(table)
    own = ("ours", "one fit", *own[1:]) if table == 3 else own
    columns = {**_head(rows), **dict.fromkeys((*papers, *own), ".1f"), "gap": ".1%", "alpha": "16"}
    counts = []
    for method in ours:
        rivals = [column for column in papers if column not in PEERS]
        counts += [count(filled, f"{method} at least {c}", _at_least(method, c), [method, c]) for c in rivals]
        trees = f"{method} above both forest and xgboost here"
        counts.append(count(filled, trees, _above_trees(method), [method, "forest", "xgboost"]))
    return Sheet(title, columns, filled, (*papers, *own), max, tuple(counts), ours)


def _seconds(store: Store, table: int, rows: Sequence[FoldRow], quick: bool, title: str) -> Sheet:
    """Mean seconds of a fit, and the sum over all fits of all folds."""
    own = [f"{method}: {what}" for method in table_methods(table) for what in ("fit", "all")]
    filled = []
    for row in rows:
        cells: Values = {**row.head, **row.seconds}
        for method in table_methods(table):
            done = _finished(store, table, row, method, quick)
            if done:
                cells[f"{method}: fit"] = _mean(done, "seconds_per_fit")
                cells[f"{method}: all"] = sum(each["seconds_all"] for each in done)
        filled.append(cells)
    papers = dict.fromkeys(rows[0].seconds, ".1f")
    columns = {**_head(rows), **papers, **dict.fromkeys(own, ".2f")}
    alls = [*papers, *(column for column in own if column.endswith("all"))]
    counts = [
        count(
            filled,
            f"{method} faster than {column.removesuffix(': all')}",
            _less(f"{method}: all", column),
            [f"{method}: all", column],
        )
        for method in own_methods(table)
        for column in papers
    ]
    return Sheet(title, columns, filled, tuple(alls), min, tuple(counts))


def _finished(store: Store, table: int, row: FoldRow, method: str, quick: bool) -> list[Values]:
    """The stored rows of a cell; none unless all its folds are finished."""
    found = [outcome(store, unit) for unit in fold_units(table, row, method, quick)]
    done = [each for each in found if each is not None]
    return done if len(done) == len(found) else []


def _mean(rows: Sequence[Values], field: str) -> Any:
    values = [row[field] for row in rows]
    return None if None in values else sum(values) / len(values)


def _span(rows: Sequence[Values], name: str) -> str | None:
    """What was chosen in the folds: one value, or the least and the largest."""
    values = sorted({row["extra"][name] for row in rows if name in row["extra"]})
    return " to ".join(f"{value:.3g}" for value in dict.fromkeys((values[0], values[-1]))) if values else None


def _less(column: str, other: str) -> Callable[[Values], bool]:
    """Never where a fit ran out of iterations, which words say."""
    return lambda row: isinstance(row[column], float) and row[column] < row[other]


def _at_least(method: str, column: str) -> Callable[[Values], bool]:
    """As printed, to one decimal: the paper's figures are rounded too."""
    return lambda row: round(row[method], 1) >= row[column]


def _above_trees(method: str) -> Callable[[Values], bool]:
    return lambda row: round(row[method], 1) > max(round(row["forest"], 1), round(row["xgboost"], 1))


def sheet_lines(sheet: Sheet) -> list[str]:
    """A table with the best of each row in bold, and its counts."""
    lines = ["| " + " | ".join(sheet.columns) + " |"]
    lines.append("|" + "|".join("---" if column == "set" else "---:" for column in sheet.columns) + "|")
    for row in sheet.rows:
        best = sheet.best_columns(row)
        texts = [(column, sheet.text(row, column)) for column in sheet.columns]
        lines.append("| " + " | ".join(f"**{text}**" if column in best else text for column, text in texts) + " |")
    return [*lines, "", "; ".join(sheet.counts) + "."] if sheet.counts else lines


def behind_lines(sheets: Iterable[Sheet]) -> list[str]:
    """The rows of tables 3 and 4 in which ours is below what the paper prints, with what is known of them.

    That is its own method for regression, whose baselines are counted elsewhere, and every column for classification.
    """
    lines = []
    for sheet in sheets:
        table = sheet.title.partition(":")[0]
        papers = [column for column in sheet.columns if column.startswith("paper ")]
        rivals = [column for column in papers if table == "Table 4" or column not in PEERS]
        for row, own in product(sheet.rows, sheet.own):
            if row.get(own) is None:
                continue
            above = [c for c in rivals if row.get(c) is not None and row[c] > float(sheet.text(row, own))]
            if above:
                shown = ", ".join(f"{column} {sheet.text(row, column)}" for column in above)
                reason = REASONS.get(row["set"], "")
                name = f"{own} " if len(sheet.own) > 1 else ""
                lines.append(f"- {table}, {row['set']}: {name}{sheet.text(row, own)}; {shown}. {reason}".rstrip())
    return lines


def short_times(found: Iterable[Sheet]) -> list[Values]:
    """Tables 1, 2 and 5 without what is beside the seconds."""
    out = []
    for sheet in found:
        for row in sheet.rows:
            case = row.get("set") or f"{row['d']} features"
            own = {"by its rule": row.get("rule: s"), "to 1%": row.get("gap 1%: s")}
            out.append({"table": sheet.title[6], "case": case, "paper": row["paper"], **own})
    return out
