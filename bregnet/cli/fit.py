"""The work of `bregnet fit`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

from bregnet.cli.data import Data, needed_target, read_pairs, read_rows, read_triplets
from bregnet.cli.options import STANDARD
from bregnet.cli.output import check_outputs, shows_progress, table, tell, warnings_as_lines, write_report
from bregnet.cli.scores import divergence_scores, headed, regression_scores, warn_of_nothing
from bregnet.distributed import joined
from bregnet.io import save
from bregnet.learners import PBDL, ConvexRegressor, DCRegressor
from bregnet.selection import PBDLCV, ConvexRegressorCV, DCRegressorCV
from bregnet.solver.checkpoints import Checkpoint


def run(*, search_alpha: bool, cv: int | None, checkpoint: Path | None, resume: bool, **given: Any) -> None:
    """Fit, write the model and print the result."""
    _check_usage({"search_alpha": search_alpha, "cv": cv, "checkpoint": checkpoint, **given}, resume)
    own = ("alpha", "n_pieces", "temperature", "tol", "max_iter", "standardize", "balanced")
    parameters = {name: value for name in own if (value := given.pop(name)) is not None}
    if checkpoint is not None:
        parameters["checkpoint"] = Checkpoint(checkpoint, resume=resume)
    _fit_and_write(SimpleNamespace(**given, folds=cv or (5 if search_alpha else None), parameters=parameters))


def _check_usage(given: dict[str, Any], resume: bool) -> None:
    """Raise an error where options do not go together."""
    if resume and given["checkpoint"] is None:
        raise click.UsageError("--resume needs --checkpoint")
    named = [name for name in ("target", "pairs", "triplets") if given[name] is not None]
    if len(named) > 1:
        raise click.UsageError(f"only one of --target, --pairs and --triplets can be learned from, got {_all(named)}")
    if named in (["pairs"], ["triplets"]):
        for name in ("search_alpha", "cv", "report", "holdout"):
            if given[name]:
                raise click.UsageError(f"{_all([name])} needs --target, got {_all(named)}")
        if given["learner"] not in (None, "pbdl"):
            raise click.UsageError(f"the learner {given['learner']} needs --target, got {_all(named)}")
    if given["search_alpha"] or given["cv"]:
        for name in ("alpha", "checkpoint"):
            if given[name] is not None:
                raise click.UsageError(f"{_all([name])} is for one fit, not for --search-alpha or --cv")
    elif given["jobs"] is not None:
        raise click.UsageError("--jobs is for --search-alpha or --cv")


def _all(names: list[str]) -> str:
    return " and ".join(f"--{name.replace('_', '-')}" for name in names)


def _fit_and_write(job: Any) -> None:
    """`job` has the options of the command; `folds` are of a search for alpha, `parameters` those of the estimator."""
    with joined() as ranks:
        is_first = ranks.rank == 0
        quiet = job.quiet or not is_first
        if job.folds is not None and ranks.size > 1:
            raise click.UsageError("alpha is searched for by one process, got several that share the points")
        if is_first:
            check_outputs(job.output, report=job.report)
        read = _read(job)
        name = job.learner or ("dc" if read.is_float else "pbdl")
        if name != "pbdl" and np.asarray(read.y).dtype.kind not in "biuf":
            raise ValueError(f"the learner {name} needs a target of numbers, but {read.target!r} holds labels")
        model = _unfitted(name, job, verbose=int(shows_progress(quiet=quiet)))
        tell(_intention(model, job, read), quiet=quiet)
        fitted_to, held_out = _parts(name, job, read)
        with warnings_as_lines(silent=not is_first):
            _fit(model, fitted_to, job)
            if name == "pbdl" and job.folds is not None:  # a single fit says so itself
                warn_of_nothing(model.divergence_, fitted_to)
        if not is_first:
            return
        save(model.set_params(verbose=0), job.output)
        if not quiet:
            result = model.result_
            if hasattr(model, "best_score_"):
                score = f"score {model.best_score_:.4g} in {model.n_splits_} folds"
                chosen = f"alpha {model.alpha_:.4g}, temperature {model.temperature_:.4g}"
                if getattr(model, "companion_", None) is not None:
                    chosen += f", companion {model.companion_} of weight {model.companion_weight_:.4g}"
                click.echo(f"chosen: {chosen} ({score})")
            click.echo(result.status)
            click.echo(f"objective {result.objective:.6g}, gap {result.gap:.3g}, {result.seconds:.1f} seconds")
        tell(f"written to {job.output}", quiet=quiet)
        if held_out is not None:
            with warnings_as_lines():
                scores = _held_out_scores(name, model, fitted_to, held_out, job)
            click.echo(scores)
        if job.report is not None:
            _report(model, fitted_to, held_out, job)


def _read(job: Any) -> Data:
    supervision = job.pairs or job.triplets
    if supervision is None:
        return read_rows(job.data, columns=job.columns, target=needed_target(job.data, job.target))
    if supervision == job.data == STANDARD:
        raise click.UsageError("DATA and its pairs or triplets must not both be the standard input")
    return read_rows(job.data, columns=job.columns)


def _unfitted(name: str, job: Any, *, verbose: int) -> Any:
    """The estimator with the given options."""
    given = dict(job.parameters)
    if name != "pbdl" and "balanced" in given:
        raise click.UsageError(f"--balanced is for the learner pbdl, not for {name}")
    if given.get("n_pieces") == "all":
        given["n_pieces"] = None
    if job.folds is None:
        learner: Any = {"pbdl": PBDL, "convex": ConvexRegressor, "dc": DCRegressor}[name]
        return learner(**given, random_state=job.seed, verbose=verbose)
    if "temperature" in given:
        given["temperatures"] = (given.pop("temperature"),)
    # rows of tables often come in an order: folds of consecutive rows would be unlike each other
    folds = (StratifiedKFold if name == "pbdl" else KFold)(job.folds, shuffle=True, random_state=job.seed)
    search: Any = {"pbdl": PBDLCV, "convex": ConvexRegressorCV, "dc": DCRegressorCV}[name]
    return search(**given, cv=folds, n_jobs=job.jobs, random_state=job.seed, verbose=verbose)


def _intention(model: Any, job: Any, data: Data) -> str:
    rows, features = data.X.shape
    what = f"fitting {type(model).__name__} to {job.data}: {rows} rows, {features} features"
    if data.y is None:
        return f"{what}, {f'pairs of {job.pairs}' if job.pairs else f'triplets of {job.triplets}'}"
    if isinstance(model, PBDL | PBDLCV):
        what += f", {len(np.unique(np.asarray(data.y)))} classes"
    why, other = ("floating-point numbers", "pbdl") if data.is_float else ("labels", "dc")
    way_out = f"; --learner {other} takes it otherwise"
    return f"{what} (the target {data.target!r} holds {why}{way_out})" if job.learner is None else what


def _parts(name: str, job: Any, read: Data) -> tuple[Data, Data | None]:
    """Rows to fit, and held-out rows."""
    if job.holdout is None:
        return read, None
    classes = read.y if name == "pbdl" else None
    rows = np.arange(len(read.X))
    inside, out = train_test_split(rows, test_size=job.holdout, random_state=job.seed, stratify=classes)
    return read.part(np.sort(inside)), read.part(np.sort(out))


def _fit(model: Any, read: Data, job: Any) -> None:
    if job.pairs is not None:
        model.fit_pairs(read.X, *read_pairs(job.pairs))
    elif job.triplets is not None:
        model.fit_triplets(read.X, read_triplets(job.triplets))
    else:
        model.fit(read.X, read.y)


def _held_out_scores(name: str, model: Any, known: Data, new: Data, job: Any) -> str:
    head = f"{len(new.X)} held out"
    if name != "pbdl":
        return table({type(model).__name__: headed(regression_scores(model, new))}, head)
    found = divergence_scores({type(model).__name__: model.divergence_}, new, known, k=5, seed=job.seed)
    return table({row: headed(scores, 5) for row, scores in found.items()}, head)


def _report(model: Any, known: Data, new: Data | None, job: Any) -> None:
    rows = "the rows it was fitted to," if new is None else "held-out rows of"
    title = f"{type(model).__name__} on {rows} {job.data.name}"
    write_report(job.report, model, new or known, known if new else None, title=title, quiet=job.quiet)
    if new is None:
        tell("the report shows the rows of the fit; --holdout 0.2 would show new ones", quiet=job.quiet)
