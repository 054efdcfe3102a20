"""The work of `bregnet demo`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import sklearn.datasets
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from bregnet.cli.data import Data
from bregnet.cli.output import check_outputs, shows_progress, table, tell, warnings_as_lines, write_json
from bregnet.cli.reports import write_report
from bregnet.cli.scores import divergence_scores, headed
from bregnet.divergences import BregmanDivergence, Quadratic
from bregnet.learners import PBDL
from bregnet.solver.admm import single_threaded_torch

HELD_OUT = 0.3
NEIGHBOURS = 5
SHOWN = ("accuracy", "map", "nmi", "purity")
LEARNED = "PBDL"
# pieces and alpha are the library's defaults, the temperature is what it recommends for ranking: none is chosen here
SETTINGS: dict[str, Any] = {"alpha": 0.01, "temperature": 0.2, "tol": 0.05}


@dataclass(frozen=True)
class DemoData:
    """A set of scikit-learn's, in two parts.

    Attributes
    ----------
    name : str
    known, new : Data
        What is learned from, and what is scored.
    class_names : list of str
    """

    name: str
    known: Data
    new: Data
    class_names: list[str]

    @classmethod
    def of(cls, name: str, seed: int) -> DemoData:
        """Read a set and part its rows, with the classes in the same shares."""
        bunch = getattr(sklearn.datasets, f"load_{name}")()
        parts = train_test_split(bunch.data, bunch.target, test_size=HELD_OUT, random_state=seed, stratify=bunch.target)
        names = tuple(str(each) for each in bunch.feature_names)
        known, new = (_Named(X, y, "class", None, names) for X, y in (parts[::2], parts[1::2]))
        return cls(name, known, new, [str(each) for each in bunch.target_names])

    def __str__(self) -> str:
        rows, features = len(self.known.X) + len(self.new.X), self.new.X.shape[1]
        size = f"{rows} rows, {features} features, {len(self.class_names)} classes"
        return f"{self.name}: {size}; {len(self.known.X)} to learn from, {len(self.new.X)} held out"


@dataclass(frozen=True)
class _Named(Data):
    """A matrix whose columns have names."""

    names: tuple[str, ...] = ()

    @property
    def feature_names(self) -> list[str]:
        return list(self.names)


def run(name: str, report: Path, *, seed: int, as_json: bool, quiet: bool) -> None:
    """Learn, compare, print and write the report."""
    began = time.perf_counter()
    check_outputs(report)
    parts = DemoData.of(name, seed)
    tell(str(parts), quiet=quiet)
    with _one_thread(), warnings_as_lines():
        linear, model = _linear(parts.known, seed), _learned(parts.known, seed, quiet=quiet)
        compared = {"NCA": linear, LEARNED: model.divergence_}
        scores = divergence_scores(compared, parts.new, parts.known, k=NEIGHBOURS, seed=seed)
    shown = {row: headed({each: found[each] for each in SHOWN}, NEIGHBOURS) for row, found in scores.items()}
    meaning = conclusion(shown, len(parts.new.X))
    if as_json:
        fit = {**SETTINGS, "gap": model.gap_, "status": model.result_.status, "seconds": model.result_.seconds}
        rows = {"known": len(parts.known.X), "held_out": len(parts.new.X)}
        write_json({"data": name, "rows": rows, "scores": scores, "fit": fit, "report": str(report)})
    else:
        click.echo(f"\n{table(shown)}\n\n{meaning}\nThe fit of PBDL {model.result_.status}.")
    title = f"bregnet demo: {name}, {len(parts.new.X)} held-out rows"
    about: dict[str, Any] = {"class_names": parts.class_names, "comparison": shown}
    with _one_thread():
        write_report(report, model, parts.new, parts.known, title=title, quiet=True, **about)
    tell(_farewell(report, time.perf_counter() - began), quiet=quiet)


@contextmanager
def _one_thread() -> Iterator[None]:
    """These sets are small: on busy cores, threads that wait for each other take longer than one alone."""
    with threadpool_limits(1), single_threaded_torch:
        yield


def _linear(known: Data, seed: int) -> BregmanDivergence:
    """The linear metric of scikit-learn's NCA, learned on features of unit variance."""
    scaler = StandardScaler().fit(known.X)
    nca = NeighborhoodComponentsAnalysis(random_state=seed).fit(scaler.transform(known.X), known.y)
    components = nca.components_ / scaler.scale_
    return BregmanDivergence(Quadratic(components.T @ components))


def _learned(known: Data, seed: int, *, quiet: bool) -> PBDL:
    model = PBDL(**SETTINGS, random_state=seed, verbose=int(shows_progress(quiet=quiet)))
    return model.fit(known.X, known.y).set_params(verbose=0)


def conclusion(shown: Mapping[str, Mapping[str, float]], n_rows: int) -> str:
    """What the numbers say of the learned divergence, where it is ahead and where it is not."""
    ahead: list[str] = []
    level: list[str] = []
    behind: list[str] = []
    for measure, own in shown[LEARNED].items():
        rival = max((name for name in shown if name != LEARNED), key=lambda name: shown[name][measure])
        other = shown[rival][measure]
        said = f"{measure} ({own:.3f} against {other:.3f} of {rival})"
        if abs(own - other) < 1 / n_rows:  # less than a row
            level.append(said)
        else:
            (ahead if own > other else behind).append(said)
    ways = (("ahead", ahead), ("level", level), ("behind", behind))
    told = "; ".join(f"{way} in {', '.join(each)}" for way, each in ways if each)
    said = f"On {n_rows} rows it has not seen, the learned divergence is {told}. This is one split of one set."
    return click.wrap_text(said, 100)


def _farewell(report: Path, seconds: float) -> str:
    program = "bregnet" if Path(sys.argv[0]).name == "bregnet" else "python -m bregnet"
    return "\n".join(
        [
            f"The report is {shlex.quote(str(report.resolve()))} ({seconds:.0f} seconds in all). On your own table:",
            f"  {program} fit table.csv --target COLUMN -o model --holdout 0.2 --report fit.html",
            f"  {program} search model table.csv -k 5",
        ]
    )
