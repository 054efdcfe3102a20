"""Every figure of the project by one command, for hours on cores that nothing else uses.

    BREGNET_DATA=folder python -m benchmarks.figures [--only JOB,JOB] [--list] [--quick] [--folder DIR]

Runs the benchmarks one after the other and keeps what they print in `benchmarks/results/JOB.jsonl`, with the commit,
versions and the machine. Each job consists of several commands; one whose rows are there, of the present code of what
it measures, is not run again, so that an interrupted run goes on where it was. `--list` says what is missing or of
earlier code. `python -m benchmarks.render` then writes the tables of the pages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import metric_learning, paper, paper_units, scale, search
from benchmarks.rows import QUICK_RESULTS, RESULTS, ROOT, WITHOUT, Row, Store, Unit

SOLVER = ("bregnet/solver",)
OF_REGRESSION = (  # and of nothing else
    *("working_pairs", "block_one", "preconditioner", "compiled_steps", "regression", "pairs", "compiled_pairs"),
)
OF_LABELS = (*SOLVER, *(f"{WITHOUT}bregnet/solver/{name}.py" for name in OF_REGRESSION))
LEARNERS = ("bregnet/learners", "bregnet/divergences")
LEARNING, LABELS = (*SOLVER, *LEARNERS), (*OF_LABELS, *LEARNERS)
SELECTION = (*LEARNING, "bregnet/selection")
LABEL_SELECTION = (*LABELS, "bregnet/selection", f"{WITHOUT}bregnet/selection/regressors.py")
SEARCH = ("bregnet/divergences", "bregnet/retrieval")
OF_SEARCH = (*SEARCH, "benchmarks/search.py", "benchmarks/scale_search.py")
OF_PARTS = {  # of scale
    "growth": LABELS,
    "regression": SOLVER,
    "processes": LEARNING,
    "pieces": LEARNING,
    "search": OF_SEARCH,
    "evaluation": OF_SEARCH,
}


class Work(NamedTuple):
    """The smallest part of a job that is run on its own, and the code that its figures depend on."""

    arguments: tuple[str, ...]  # of the benchmark, its module first
    measured: tuple[str, ...]

    @property
    def parameters(self) -> Row:
        """What its rows are found by."""
        return {"command": f"python -m benchmarks.{' '.join(self.arguments)}"}


def work(module: str, measured: Sequence[str], *options: str) -> Work:
    """A command of a benchmark, whose own code counts, too."""
    return Work((module, *options), (*measured, f"benchmarks/{module}.py"))


JOBS: dict[str, list[Work]] = {
    "solver": [
        work("solver", SOLVER, "--only", "regression"),
        work("solver", (*OF_LABELS, "benchmarks/solver_bregman.py"), "--only", "divergences"),
    ],
    "metric_learning": [work("metric_learning", LABEL_SELECTION, "--sets", name) for name in metric_learning.SETS],
    "search": [
        *(work("search", SEARCH, "--features", str(d)) for d in search.FEATURES),
        work("search", SEARCH, "--graph"),
    ],
    "clustering": [work("clustering", (*LABELS, "bregnet/clustering"))],
    "scale": [work("scale", OF_PARTS[part], "--part", part) for part in scale.PARTS],
    "selection": [work("selection", SELECTION)],
    "defaults": [work("defaults", (*SELECTION, "bregnet/retrieval"))],
    "variants": [work("variants", (*LABELS, "bregnet/retrieval"))],
    "compared": [work("compared", (*SOLVER, "bregnet/learners"))],
    "embeddings": [work("embeddings", LABELS)],
    "heads": [work("heads", ("bregnet/nn", "bregnet/divergences"))],
}
PAPER = "paper"  # keeps its rows itself, fold by fold


def measured_by(job: str, parameters: Row) -> tuple[str, ...] | None:
    """The code that the rows of a piece of work depend on; None where the job does not have such work any more."""
    if job == PAPER:
        return paper_units.measured(Unit(**parameters))
    return next((each.measured for each in JOBS[job] if each.parameters == parameters), None)


def earlier(store: Store) -> list[Row]:
    """The parameters of results whose measured code has changed since, or that the job does not have any more."""
    found = []
    for record in store:
        measured = measured_by(store.job, record["parameters"])
        if measured is None or not store.is_current(record["parameters"], measured):
            found.append(record["parameters"])
    return found


def wanted(job: str, quick: bool) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """All pieces of work of a job: their parameters, and the code that they measure."""
    if job == PAPER:
        options = paper.parse(["--quick"] if quick else [])
        yield from ((unit._asdict(), paper_units.measured(unit)) for unit in paper.chosen_units(options))
    else:
        yield from ((each.parameters, each.measured) for each in JOBS[job])


def status(job: str, folder: Path, quick: bool) -> str:
    """How much of a job is there, in words."""
    store, pieces = Store(job, folder), list(wanted(job, quick))
    there = [store.get(parameters) is not None for parameters, _ in pieces]
    current = [store.is_current(*piece) for piece in pieces]
    text = f"{job}: {sum(current)} of {len(pieces)} of the present code"
    if sum(there) > sum(current):
        text += f", {sum(there) - sum(current)} of earlier code"
    return text + (f", {len(pieces) - sum(there)} missing" if not all(there) else "")


def run(job: str, each: Work, folder: Path, quick: bool) -> bool:
    """Run a command and keep its rows; whether it succeeded."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "rows.json"
        module, *options = each.arguments
        options += ["--quick"] if quick else []
        command = [sys.executable, "-m", f"benchmarks.{module}", *options, "--json", str(out)]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0 or not out.exists():
            return False
        found = json.loads(out.read_text())
    rows = [{"table": title, **row} for title, rows in found["tables"].items() for row in rows]
    about = {"versions": found["versions"], "machine": found["machine"]}
    Store(job, folder).add(each.parameters, rows, each.measured, **about)
    return True


def run_job(job: str, folder: Path, quick: bool) -> bool:
    """Run what is not there of the present code; whether all succeeded."""
    if job == PAPER:
        return paper.main(["--folder", str(folder), *(["--quick"] if quick else [])]) == 0
    store = Store(job, folder)
    left = [each for each in JOBS[job] if not store.is_current(each.parameters, each.measured)]
    failed = []
    for number, each in enumerate(left):
        print(f"\n== {job}, {number + 1} of {len(left)}: {each.parameters['command']}", flush=True)
        if not run(job, each, folder, quick):
            failed.append(each.parameters["command"])
    for command in failed:
        print(f"FAILED: {command}", file=sys.stderr)
    return not failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="A,B", help=f"some of {','.join([*JOBS, PAPER])}")
    parser.add_argument("--list", action="store_true", help="run nothing, only say what is there")
    parser.add_argument("--quick", action="store_true", help="small cases, into a folder of their own")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where rows are kept")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else [*JOBS, PAPER]
    unknown = [name for name in names if name not in (*JOBS, PAPER)]
    if unknown:
        parser.error(f"--only got {', '.join(unknown)}; valid: {', '.join([*JOBS, PAPER])}")
    folder = options.folder or (QUICK_RESULTS if options.quick else RESULTS)
    failed = [] if options.list else [name for name in names if not run_job(name, folder, options.quick)]
    for name in names:
        print(status(name, folder, options.quick))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
