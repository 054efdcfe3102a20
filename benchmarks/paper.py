"""The five tables of the paper side by side with ours on this machine.

    BREGNET_DATA=folder python -m benchmarks.paper [--table 1,3] [--sets a,b] [--methods ours,lasso] [--quick]
        [--jobs N] [--folder DIR] [--fresh] [--no-run]

Every finished fold of every method is kept at once in `paper.jsonl` in the folder of results, and a run goes on where
the last one was interrupted. A row is computed anew when the code that it measures has changed. `--no-run` shows what
is stored, and `python -m benchmarks.render` writes it to RESULTS.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm.auto import tqdm

from benchmarks.baselines import HAS_XGBOOST, INSTALL_XGBOOST
from benchmarks.paper_tables import Sheet, sheets
from benchmarks.paper_units import FIGURES, METHODS, chosen_rows, compute, measured, require_data, row_units, set_names
from benchmarks.report import Table, machine
from benchmarks.rows import QUICK_RESULTS, RESULTS, Outcome, Store, Unit

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class Finished(NamedTuple):
    """A unit with its outcome, or with what went wrong."""

    unit: Unit
    outcome: Outcome | None
    threads: int
    error: str = ""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--table", action="append", metavar="1,3", help="tables, as numbers with commas; all by default"
    )
    parser.add_argument("--sets", metavar="A,B", help="only these sets; d2, d4, ... in tables 1 and 2")
    parser.add_argument("--methods", metavar="A,B", default=",".join(METHODS), help="only these columns")
    parser.add_argument("--quick", action="store_true", help="minutes: few sets, first fold, small grids")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, of one thread each if several")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where finished rows are kept")
    parser.add_argument("--fresh", action="store_true", help="compute what is stored, too")
    parser.add_argument("--no-run", action="store_true", help="compute nothing, only show what is stored")
    options = parser.parse_args(arguments)
    options.folder = options.folder or (QUICK_RESULTS if options.quick else RESULTS)
    options.table = _tables(parser, options.table)
    options.methods = _names(parser, "--methods", options.methods, METHODS)
    if options.sets is not None:
        valid = dict.fromkeys(name for table in options.table for name in set_names(table))
        options.sets = _names(parser, "--sets", options.sets, list(valid))
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")
    return options


def _tables(parser: argparse.ArgumentParser, given: list[str] | None) -> list[int]:
    names = _names(parser, "--table", ",".join(given), [str(table) for table in FIGURES]) if given else FIGURES
    return sorted({int(name) for name in names})


def _names(parser: argparse.ArgumentParser, option: str, given: str, valid: Sequence[str]) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    unknown = [name for name in names if name not in valid]
    if unknown or not names:
        parser.error(f"{option} got {', '.join(unknown) or 'nothing'}; valid: {', '.join(valid)}")
    return names


def chosen_units(options: argparse.Namespace) -> list[Unit]:
    """All work that was asked for and can be done here."""
    methods = [method for method in options.methods if method != "xgboost" or HAS_XGBOOST]
    return [
        unit
        for table in options.table
        for row in chosen_rows(table, options.quick, options.sets)
        for unit in row_units(table, row, methods, options.quick)
    ]


def work(unit: Unit, quick: bool) -> Finished:
    """Compute a unit; a failure of one should not end a run of hours."""
    try:
        return Finished(unit, compute(unit, quick), torch.get_num_threads())
    except Exception:
        return Finished(unit, None, torch.get_num_threads(), traceback.format_exc())


def work_through(units: Sequence[Unit], quick: bool, jobs: int, bar: tqdm) -> Iterator[Finished]:
    """The units as they are finished: here, or in `jobs` processes of one thread each."""
    if jobs == 1:
        for unit in units:
            bar.set_postfix_str(str(unit))
            yield work(unit, quick)
        return
    with _one_thread_each(), ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(work, unit, quick) for unit in units}
        try:
            for future in as_completed(waiting):
                bar.set_postfix_str(f"last: {future.result().unit}")
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started meanwhile have one thread: libraries read these variables as they are loaded."""
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            os.environ.pop(name)
        os.environ.update(before)


def run(units: Sequence[Unit], store: Store, quick: bool, jobs: int, fresh: bool) -> list[Finished]:
    """Compute what is not stored for the present code, or everything, and store it; returns what failed."""
    left = [unit for unit in units if fresh or not store.is_current(unit._asdict(), measured(unit))]
    require_data(left)
    done = len(units) - len(left)
    print(f"{len(units)} units of work, {done} of them stored already", flush=True)
    failed = []
    terminal = sys.stderr.isatty()
    with tqdm(total=len(units), initial=done, unit="unit", disable=not terminal) as bar:
        for finished in work_through(left, quick, jobs, bar):
            done += 1
            if finished.outcome is None:
                failed.append(finished)
            else:
                row = finished.outcome._asdict() | {"threads": finished.threads}
                store.add(finished.unit._asdict(), [row], measured(finished.unit))
            bar.update()
            if not terminal:
                print(f"[{done}/{len(units)}] {_line(finished)}", flush=True)
    return failed


def _line(finished: Finished) -> str:
    """A finished row in words."""
    if finished.outcome is None:
        return f"{finished.unit}: FAILED"
    outcome = finished.outcome
    parts = [f"{outcome.seconds_per_fit:.2f} s/fit", f"{outcome.seconds_all:.1f} s in all"]
    if outcome.score is not None:
        parts.insert(0, f"score {100 * outcome.score:.1f}")
    if outcome.gap is not None:
        parts.append(f"gap {outcome.gap:.2%}")
    return f"{finished.unit}: " + ", ".join(parts)


def show(sheet: Sheet) -> None:
    table = Table(sheet.title, sheet.columns)
    for row in sheet.rows:
        table.add(**row)
    if sheet.counts:
        print("; ".join(sheet.counts), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    store = Store("paper", options.folder)
    units = chosen_units(options)
    failed: list[Finished] = []
    if not options.no_run:
        print(machine())
        failed = run(units, store, options.quick, options.jobs, options.fresh)
    for table in options.table:
        rows = chosen_rows(table, options.quick, options.sets)
        for sheet in sheets(store, table, rows, options.quick) if rows else []:
            show(sheet)
    known = [store.get(unit._asdict()) for unit in units]
    print(f"\n{len(known) - known.count(None)} of {len(units)} units of work are finished")
    if not HAS_XGBOOST:
        print(INSTALL_XGBOOST)
    for finished in failed:
        print(f"\n{finished.unit} failed:\n{finished.error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
