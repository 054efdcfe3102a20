"""The work of `bregnet demo`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import sklearn.datasets
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from bregnet import metrics
from bregnet.cli.data import Data
from bregnet.cli.output import check_outputs, shows_progress, table, tell, warnings_as_lines, write_json, write_report
from bregnet.cli.scores import agreement, divergence_scores, headed
from bregnet.divergences import BregmanDivergence, Quadratic
from bregnet.learners import PBDL
from bregnet.solver.admm import single_threaded_torch

ABOUT_LOGISTIC = (
    '"logistic" ranks by the class probabilities of a logistic regression, and predicts by itself. Where all classes'
    " are known this is hard to beat; it does not search an index, and cannot learn from pairs."
)
# the library's defaults: none is chosen here
SETTINGS: dict[str, Any] = {name: PBDL().get_params()[name] for name in ("alpha", "temperature", "tol")}


def run(name: str, report: Path, *, seed: int, as_json: bool, quiet: bool) -> None:
    """Learn, compare, print and write the report."""
    began = time.perf_counter()
    check_outputs(report=report)
    known, new, class_names = _parts(name, seed)
    size = f"{len(known.X) + len(new.X)} rows, {new.X.shape[1]} features, {len(class_names)} classes"
    tell(f"{name}: {size}; {len(known.X)} to learn from, {len(new.X)} held out", quiet=quiet)
    with _one_thread(), warnings_as_lines():
        linear = _linear(known, seed)
        probable = _by_probabilities(known, new)
        model = PBDL(**SETTINGS, random_state=seed, verbose=int(shows_progress(quiet=quiet)))
        model.fit(known.X, known.y).set_params(verbose=0)
        compared = {**linear, "PBDL": model.divergence_}
        scores = divergence_scores(compared, new, known, k=5, seed=seed)
        scores = {"logistic": probable, **scores}
    measures = ("accuracy", "map", "nmi", "purity")
    shown = {row: headed({each: found[each] for each in measures}) for row, found in scores.items()}
    if as_json:
        fit = {**SETTINGS, "gap": model.gap_, "status": model.result_.status, "seconds": model.result_.seconds}
        rows = {"known": len(known.X), "held_out": len(new.X)}
        write_json({"data": name, "rows": rows, "scores": scores, "fit": fit, "report": str(report)})
    else:
        click.echo(f"\n{table(shown)}\n\n{conclusion(shown, len(new.X))}\nThe fit of PBDL {model.result_.status}.")
        click.echo(click.wrap_text(ABOUT_LOGISTIC, 100))
    title = f"bregnet demo: {name}, {len(new.X)} held-out rows"
    about: dict[str, Any] = {"class_names": class_names, "comparison": shown}
    with _one_thread():
        write_report(report, model, new, known, title=title, quiet=True, **about)
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


def _linear(known: Data, seed: int) -> dict[str, BregmanDivergence]:
    """The linear metrics of scikit-learn's LDA and NCA, learned on features of unit variance."""
    scaler = StandardScaler().fit(known.X)
    X = scaler.transform(known.X)
    lda = LinearDiscriminantAnalysis().fit(X, known.y)
    nca = NeighborhoodComponentsAnalysis(random_state=seed).fit(X, known.y)
    found = {"LDA": lda.scalings_.T[: len(lda.classes_) - 1], "NCA": nca.components_}
    scaled = {name: components / scaler.scale_ for name, components in found.items()}
    return {name: BregmanDivergence(Quadratic(each.T @ each)) for name, each in scaled.items()}


def _by_probabilities(known: Data, new: Data) -> dict[str, float]:
    """Scores of a logistic regression: ranking by the probability of the same class, and its own classes."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(known.X, known.y)
    same = model.predict_proba(new.X) @ model.predict_proba(known.X).T
    relevant = np.asarray(new.y)[:, None] == np.asarray(known.y)
    predicted = model.predict(new.X)
    precision = metrics.mean_average_precision(-same, relevant)
    return {"accuracy": float(np.mean(predicted == new.y)), "map": precision, **agreement(new.y, predicted)}


def conclusion(shown: Mapping[str, Mapping[str, float]], n_rows: int) -> str:
    """In which measures the learned divergence is ahead, level or behind."""
    ways: dict[str, list[str]] = {"ahead": [], "level": [], "behind": []}
    for measure, own in shown["PBDL"].items():
        rival = max((name for name in shown if name != "PBDL"), key=lambda name: shown[name][measure])
        other = shown[rival][measure]
        said = f"{measure} ({own:.3f} against {other:.3f} of {rival})"
        is_level = abs(own - other) < 1 / n_rows  # less than a row
        ways["level" if is_level else "ahead" if own > other else "behind"].append(said)
    found = "; ".join(f"{way} in {', '.join(each)}" for way, each in ways.items() if each)
    said = f"On {n_rows} rows it has not seen, the learned divergence is {found}. This is one split of one set."
    return click.wrap_text(said, 100)


def _farewell(report: Path, seconds: float) -> str:
    program = "bregnet" if Path(sys.argv[0]).name == "bregnet" else "python -m bregnet"
    return (
        f"The report is {shlex.quote(str(report.resolve()))} ({seconds:.0f} seconds in all). On your own table:\n"
        f"  {program} fit table.csv --target COLUMN -o model --holdout 0.2 --report fit.html\n"
        f"  {program} search model table.csv -k 5"
    )
