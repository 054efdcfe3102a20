"""The tables of the pages, written from the stored rows.

    python -m benchmarks.render [--check]

A page has a place for a table between two markers, the first of which names the figure (`FIGURES` below):

    <!-- figures: NAME -->
    <!-- end -->

Below each table is a line with the commits and dates of its rows, which also says where the code that they measure has
changed since. `--check` writes nothing and fails where a page differs from what its rows render to; that last remark
apart, which every change of the code would change.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import JOBS, PAPER, earlier
from benchmarks.metric_learning import SUMMARY, summary
from benchmarks.paper_tables import behind_lines, sheet_lines, sheets, short_times
from benchmarks.paper_units import chosen_rows
from benchmarks.report import shown
from benchmarks.rows import RESULTS, ROOT, Row, Store

PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md", *sorted((ROOT / "docs" / "guide").glob("*.md")))
PLACE = re.compile(r"<!-- figures: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)
EARLIER = "The code that they measure has changed since"
REMARK = re.compile(rf" {EARLIER}[^.]*\.")
IN_README = ("wine", "wdbc", "vehicle", "seeds*", "glass*", "sonar*")


def table(rows: Sequence[Row], columns: dict[str, str]) -> list[str]:
    """Rows as they are; columns that no row has are left out."""
    there = {name: style for name, style in columns.items() if any(row.get(name) is not None for row in rows)}
    cells = [[_word(shown(row.get(name), style)) for name, style in there.items()] for row in rows]
    words = [all(isinstance(row.get(name), str | None) for row in rows) for name in there]
    return _markdown(list(there), cells, words)


def pivot(rows: Sequence[Row], index: tuple[str, ...], across: str, cell: dict[str, str]) -> list[str]:
    """A row for each value of `index`, a column for each of `across`, and values of several columns in the cells."""
    heads = list(dict.fromkeys(tuple(row[name] for name in index) for row in rows))
    columns = list(dict.fromkeys(row[across] for row in rows))
    found = {(*(row[name] for name in index), row[across]): row for row in rows}
    lines = []
    for head in heads:
        each = [found.get((*head, column), {}) for column in columns]
        texts = [
            " / ".join(shown(row.get(name), style) for name, style in cell.items()) if row else "-" for row in each
        ]
        lines.append([*(_word(shown(value, "g")) for value in head), *texts])
    return _markdown(
        [*index, *(f"{across} {each}" if across in ("d", "goal") else str(each) for each in columns)], lines
    )


def _markdown(names: Sequence[str], cells: Iterable[Sequence[str]], words: Sequence[bool] = ()) -> list[str]:
    ruler = ("---" if word else "---:" for word in words or [True] * len(names))
    return [f"| {' | '.join(row)} |" for row in (names, list(ruler), *cells)]


def _word(text: str) -> str:
    """Code as code."""
    return f"`{text}`" if re.fullmatch(r"\w+\(.*\)(\.\w+)?", text) else text


class Figure(NamedTuple):
    """What a table shows: rows of a job whose table's title begins so and for which `where` holds."""

    job: str
    title: str
    show: Callable[[list[Row]], list[str]]
    where: Callable[[Row], bool] = lambda row: True

    def lines(self, store: Store) -> list[str]:
        """The table, and below it where its rows come from."""
        chosen = [
            (record, row) for record in store for row in record["rows"] if self._has(record, row) and self.where(row)
        ]
        if not chosen:
            command = "paper" if self.job == PAPER else f"figures --only {self.job}"
            return [f"*Not measured yet: `python -m benchmarks.{command}`.*"]
        records = list({id(record): record for record, _ in chosen}.values())
        return [*self.show([row for _, row in chosen]), "", origin(store, records)]

    def _has(self, record: Row, row: Row) -> bool:
        if self.job == PAPER:
            return str(record["parameters"]["table"]) in self.title
        return row["table"].startswith(self.title)


def origin(store: Store, records: Sequence[Row]) -> str:
    """Where rows come from, in a sentence, and another if the code that they measure has changed since."""
    measured_at = dict.fromkeys(f"{record['commit']} ({record['date']})" for record in records)
    machines = dict.fromkeys(f"{each['machine']['cpu']}, {each['machine']['cores']} cores" for each in records)
    text = f"Rows of commit {', '.join(measured_at)} on {'; '.join(machines)}."
    old = [each for each in earlier(store) if any(each == record["parameters"] for record in records)]
    if old:
        text += f" {EARLIER}{'' if len(old) == len(records) else f' for {len(old)} of {len(records)} parts'}."
    return f"*{text}*"


def of_paper(table_number: int, which: int = 0) -> Callable[[list[Row]], list[str]]:
    """A table of the paper; tables 3 and 4 are followed by their seconds."""
    rows = chosen_rows(table_number, False)
    return lambda _: sheet_lines(sheets(store(PAPER), table_number, rows, False)[which])


def behind(_: list[Row]) -> list[str]:
    found = [sheets(store(PAPER), number, chosen_rows(number, False), False)[0] for number in (3, 4)]
    return behind_lines(found) or ["No row."]


def times(_: list[Row]) -> list[str]:
    found = [sheets(store(PAPER), number, chosen_rows(number, False), False)[0] for number in (1, 2, 5)]
    return table(short_times(found), {"table": "", "case": "", "paper": ".2f", "by its rule": ".2f", "to 1%": ".2f"})


def every(style: str) -> Callable[[list[Row]], list[str]]:
    """All columns that the rows have."""
    return lambda rows: table(rows, {name: style for name in rows[0] if name != "table"})


def _retrieval(protocol: str, *scores: str) -> Figure:
    show = partial(pivot, index=("method",), across="set", cell=dict.fromkeys(scores or ("mAP", "accuracy"), ".1f"))
    return Figure("metric_learning", "retrieval", show, lambda row: row["protocol"] == protocol)


def _search(side: str, k: int, cell: dict[str, str]) -> Figure:
    show = partial(pivot, index=("method",), across="d", cell=cell)
    return Figure(
        "search",
        "The nearest items",
        show,
        lambda row: (row["side"], row["k"]) == (side, k) and any(name in row for name in cell),
    )


def _rows(job: str, title: str, columns: dict[str, str]) -> Figure:
    return Figure(job, title, partial(table, columns=columns))


RATIO = {"x faiss flat": ".3g", "recall": ".3f"}
FIT = {"n": "d", "d": "d", "alpha": "g", "iterations": "d", "seconds": ".2f"}
GAP = {"objective": ".5f", "gap": ".2%"}
SPEED = {"problem": "", **FIT, "pairs": ".1f", "passes": ".0f", **GAP}
SETTLING = {"set": "", "alpha": "g", **{f"mAP@{count}": ".1%" for count in (25, 50, 100, 200, 400, 800)}}
GROWTH = {"n": "d", "s/iter": ".5f", "total s": ".2f", "iterations": "d", "gap": ".2%"}
FIGURES: dict[str, Figure] = {
    "readme-retrieval": _retrieval("unseen")._replace(
        where=lambda row: (
            row["protocol"] == "unseen" and row["set"] in IN_README and not row["method"].startswith("PBDLCV")
        )
    ),
    **{f"retrieval-{name}": _retrieval(name) for name in ("training", "unseen", "classes", "pairs", "triplets")},
    "accuracy-training": _retrieval("training", "accuracy"),
    "retrieval-means": Figure("metric_learning", "retrieval", lambda rows: table(summary(rows), SUMMARY)),
    "clusters": Figure(
        "clustering", "clusters", partial(pivot, index=("method",), across="set", cell={"NMI": ".1f", "Rand": ".1f"})
    ),
    "clustering-speed": _rows(
        "clustering",
        "an iteration",
        {"method": "", "n": "d", "d": "d", "k": "d", "ratio": ".2f", "ms/iter": ".2f", "sklearn": ".2f"},
    ),
    "search-right": _search("right", 10, RATIO),
    "search-left": _search("left", 10, RATIO),
    "search-100": _search("right", 100, RATIO),
    "search-single": _search("right", 10, {"x one by one": ".3g"}),
    "search-rates": _search("right", 10, {"queries/s": ".0f", "bytes/item": ".0f"}),
    "search-graph": Figure(
        "search", "Cells and graphs", partial(pivot, index=("side", "method"), across="d", cell=RATIO)
    ),
    "solver-convex": _rows("solver", "table 1", SPEED | {"x paper": ".0f"}),
    "solver-dc": _rows("solver", "table 2", SPEED | {"x paper": ".0f"}),
    "solver-alpha": _rows("solver", "alpha", SPEED),
    "solver-size": _rows("solver", "more points", SPEED),
    "solver-fine": _rows("solver", "fine", SPEED),
    "solver-clarabel": _rows("solver", "against Clarabel", SPEED | {"x Clarabel": ".0f"}),
    "divergences-iteration": _rows("solver", "PBDL, to", FIT | {"ms/iter": ".2f", "x paper/iter": ".0f"} | GAP),
    "divergences-gaps": Figure(
        "solver",
        "PBDL, iterations",
        partial(pivot, index=("set", "alpha"), across="goal", cell={"iterations": "d", "seconds": ".1f"}),
    ),
    "divergences-settling": _rows("solver", "PBDL, held-out", SETTLING | {"settled": "d", "gap@800": ".1%"}),
    "divergences-abalone": _rows("solver", "PBDL on abalone", FIT | GAP | {"peak MB": ".0f"}),
    "scale-regression": _rows(
        "scale", "growth with n: convex", GROWTH | {"pairs a point": ".1f", "peak kB a point": ".1f"}
    ),
    "scale-divergences": _rows(
        "scale", "growth with n: PBDL", GROWTH | {"state MB": ".0f", "peak/state": ".2f", "mAP": ".3f"}
    ),
    "scale-exponents": _rows("scale", "exponent", {"table": "", "sizes": "", "s/iter": ".2f", "total s": ".2f"}),
    "scale-processes": _rows(
        "scale",
        "processes",
        {"learner": "", "processes": "d", "total s": ".1f", "speed-up": ".2f", "difference": ".1e"}
        | {"communication": ".2%", "with waiting": ".1%"},
    ),
    "scale-pieces": Figure(
        "scale", "quality", partial(pivot, index=("data", "learner"), across="pieces", cell={"score": ".3f"})
    ),
    "scale-search": _rows(
        "scale",
        "The 10 nearest of",
        {"temperature": "g", "side": "", "method": "", **RATIO, "bytes/item": ".0f"}
        | {"built in s": ".1f", "peak MB": ".0f", "queries/s": ".0f"},
    ),
    "scale-evaluation": _rows(
        "scale", "mAP, R-precision", {"side": "", "seconds": ".1f", "numpy in s": ".1f", "largest difference": ".0e"}
    ),
    "selection-paths": _rows(
        "selection",
        "a path",
        {"problem": "", "n": "d", "d": "d", "path": "", "iterations": "d", "x last": ".2f", "seconds": ".2f"},
    ),
    "selection-searches": _rows(
        "selection",
        "searches",
        {"problem": "", "n": "d", "d": "d", "search": "", "fits": "d", "seconds": ".1f", "test R^2": ".1f"},
    ),
    "variants": Figure("variants", "accuracy", every(".1f")),
    "defaults-divergences": Figure("defaults", "divergences", every(".3f")),
    "defaults-regression": Figure("defaults", "regression", every(".3f")),
    "embeddings": _rows(
        "embeddings",
        "vectors of many features",
        {"rows": "", "features": "d", "classes": "d", "method": "", "mAP": ".1f", "seconds": ".1f", "MB": ".0f"},
    ),
    "heads": Figure("heads", "heads", partial(pivot, index=("embeddings", "head"), across="set", cell={"mAP": ".1f"})),
    "compared-regression": _rows(
        "compared",
        "convex regression",
        {"method": "", "n": "d", "d": "d", "x default": ".1f", "seconds": ".2f", "residual": ".2e", "test R^2": ".1f"},
    ),
    **{f"paper-{number}": Figure(PAPER, str(number), of_paper(number)) for number in range(1, 6)},
    "paper-3-seconds": Figure(PAPER, "3", of_paper(3, 1)),
    "paper-4-seconds": Figure(PAPER, "4", of_paper(4, 1)),
    "paper-behind": Figure(PAPER, "34", behind),
    "paper-times": Figure(PAPER, "125", times),
}


@cache
def store(job: str) -> Store:
    return Store(job, RESULTS)


def rendered(page: str) -> str:
    """A page with its tables as the stored rows have them."""

    def fill(found: re.Match) -> str:
        name = found[1]
        if name not in FIGURES:
            raise ValueError(f"a marker must name one of {', '.join(FIGURES)}, got {name}")
        lines = FIGURES[name].lines(store(FIGURES[name].job))
        return "\n".join([f"<!-- figures: {name} -->", "", *lines, "", "<!-- end -->"])

    return PLACE.sub(fill, page)


def differing() -> list[Path]:
    """The pages that are not what their rows render to."""
    return [page for page in PAGES if REMARK.sub("", (text := page.read_text())) != REMARK.sub("", rendered(text))]


def earlier_lines() -> list[str]:
    """The results whose measured code has changed since, a line for each job."""
    out = []
    for job in (*JOBS, PAPER):
        old = earlier(store(job))
        if old:
            some = "; ".join(" ".join(map(str, each.values())) for each in old[:3]) + ("; ..." if len(old) > 3 else "")
            out.append(f"{job}: {len(old)} of {len(store(job))} results are of earlier code ({some})")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page differs from its rows")
    options = parser.parse_args(arguments)
    changed = differing()
    print("\n".join(earlier_lines()))
    for page in changed:
        print(f"{page.relative_to(ROOT)} differs from what its rows render to")
    if options.check:
        return 1 if changed else 0
    for page in PAGES:
        page.write_text(rendered(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
