"""The work of `bregnet demo`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import sklearn.datasets
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from bregnet.cli.data import Data
from bregnet.cli.output import check_outputs, shows_progress, table, tell, warnings_as_lines, write_json, write_report
from bregnet.learners import PBDL
from bregnet.solver.admm import single_threaded_torch

ABOUT = (
    "mAP is the mean average precision: 1 where all rows of a query's class are ranked first. NMI is the normalized"
    ' mutual information of classes and clusters: 1 where k-means finds the classes. "class probabilities" ranks by'
    " those of a logistic regression. Where all classes are known this is hard to beat; it cannot learn from pairs."
    " This is one split of one set."
)
# the library's defaults: none is chosen here
SETTINGS: dict[str, Any] = {name: PBDL().get_params()[name] for name in ("alpha", "temperature", "tol")}


def run(name: str, report: Path, *, seed: int, as_json: bool, quiet: bool) -> None:
    """Learn, write the report and print what it compares."""
    began = time.perf_counter()
    check_outputs(report=report)
    known, new, class_names = _parts(name, seed)
    size = f"{len(known.X) + len(new.X)} rows, {new.X.shape[1]} features, {len(class_names)} classes"
    tell(f"{name}: {size}; {len(known.X)} to learn from, {len(new.X)} held out", quiet=quiet)
    title = f"bregnet demo: {name}, {len(new.X)} held-out rows"
    with _one_thread(), warnings_as_lines():
        model = PBDL(**SETTINGS, random_state=seed, verbose=int(shows_progress(quiet=quiet)))
        model.fit(known.X, known.y).set_params(verbose=0)
        made = write_report(report, model, new, known, title=title, quiet=True, class_names=class_names)
    scores = made.numbers["retrieval"]
    if as_json:
        fit = {**SETTINGS, "gap": model.gap_, "status": model.result_.status, "seconds": model.result_.seconds}
        rows = {"known": len(known.X), "held_out": len(new.X)}
        found = {row: {key.lower(): value for key, value in each.items()} for row, each in scores.items()}
        write_json({"data": name, "rows": rows, "scores": found, "fit": fit, "report": str(report)})
    else:
        click.echo(f"\n{table(scores)}\n")
        for said in (made.numbers["summary"], f"The fit of PBDL {model.result_.status}.", ABOUT):
            click.echo(click.wrap_text(said, 100))
    tell(_farewell(report, time.perf_counter() - began), quiet=quiet)


def _parts(name: str, seed: int) -> tuple[Data, Data, list[str]]:
    """Rows to learn from, rows to score, stratified by class, and the names of the classes."""
    bunch = getattr(sklearn.datasets, f"load_{name}")(as_frame=True)
    read = Data(bunch.data, bunch.target.to_numpy(), "class")
    known, new = train_test_split(np.arange(len(read.X)), test_size=0.3, random_state=seed, stratify=read.y)
    return read.part(known), read.part(new), [str(each) for each in bunch.target_names]


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread: on small data and busy cores, threads that wait for each other take longer."""
    with threadpool_limits(1), single_threaded_torch:
        yield


def _farewell(report: Path, seconds: float) -> str:
    program = "bregnet" if Path(sys.argv[0]).name == "bregnet" else "python -m bregnet"
    return (
        f"The report is {shlex.quote(str(report.resolve()))} ({seconds:.0f} seconds in all). On your own table:\n"
        f"  {program} fit table.csv --target COLUMN -o model --holdout 0.2 --report fit.html\n"
        f"  {program} search model table.csv -k 5"
    )
