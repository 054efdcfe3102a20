"""The work of `bregnet fit`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline

from bregnet.cli.data import Data, read_pairs, read_rows, read_triplets
from bregnet.cli.features import Encoding, described, fitted_transformer, id_like, option, transformed
from bregnet.cli.options import STANDARD
from bregnet.cli.output import check_outputs, shows_progress, table, tell, warnings_as_lines, write_csv, write_report
from bregnet.cli.scores import divergence_scores, headed, regression_scores, warn_of_nothing
from bregnet.cli.tables import listed
from bregnet.cli.usage import needed_target
from bregnet.distributed import joined
from bregnet.io import save
from bregnet.learners import PBDL, ConvexRegressor, DCRegressor
from bregnet.retrieval import BregmanKNeighborsClassifier
from bregnet.selection import PBDLCV, ConvexRegressorCV, DCRegressorCV
from bregnet.solver.checkpoints import Checkpoint


def run(*, search_alpha: bool, cv: int | None, checkpoint: Path | None, resume: bool, **given: Any) -> None:
    """Fit, write the model and print the result."""
    own = ("alpha", "n_pieces", "temperature", "tol", "max_iter", "standardize", "balanced", "feature_map")
    parameters = {name: value for name in own if (value := given.pop(name)) is not None}
    if checkpoint is not None:
        parameters["checkpoint"] = Checkpoint(checkpoint, resume=resume)
    encoding = Encoding(given.pop("one_hot") or (), given.pop("ordinal"), given.pop("impute"))
    folds = cv or (5 if search_alpha else None)
    _fit_and_write(SimpleNamespace(**given, folds=folds, parameters=parameters, encoding=encoding))


def _fit_and_write(job: Any) -> None:
    """`job` has the options of the command; `folds` are of a search for alpha, `parameters` those of the estimator."""
    with joined() as ranks:
        is_first = ranks.rank == 0
        quiet = job.quiet or not is_first
        if job.folds is not None and ranks.size > 1:
            raise click.UsageError("alpha is searched for by one process, got several that share the points")
        if is_first:
            check_outputs(job.output, _held_out_list(job), report=job.report)
        read = _read(job)
        name = _learner(job, read)
        model = _unfitted(name, job, verbose=int(shows_progress(quiet=quiet)))
        tell(_intention(model, job, read), quiet=quiet)
        _point_out_ids(read, quiet=quiet)
        fitted_to, held_out = _parts(name, job, read)
        with warnings_as_lines(silent=not is_first):
            columns = fitted_transformer(read.encoding, fitted_to.X)
            if columns is not None:
                tell(described(columns), quiet=quiet)
                fitted_to = _encoded(columns, fitted_to, job)
                held_out = None if held_out is None else _encoded(columns, held_out, job)
            _fit(model, fitted_to, job)
            if name == "pbdl" and job.folds is not None:  # a single fit says so itself
                warn_of_nothing(model.divergence_, fitted_to)
        if is_first:
            with warnings_as_lines(silent=True):
                _write(model.set_params(verbose=0), columns, read, job)
            _print_result(model, job)
            _about_rows(name, model, fitted_to, held_out, job)


def _read(job: Any) -> Data:
    supervision = job.pairs or job.triplets
    how = {"columns": job.columns, "label": job.names, "encoding": job.encoding}
    if supervision is None:
        return read_rows(job.data, target=needed_target(job.data, job.target), **how)
    if supervision == job.data == STANDARD:
        raise click.UsageError("DATA and its pairs or triplets must not both be the standard input")
    return read_rows(job.data, **how)


def _learner(job: Any, read: Data) -> str:
    """The name of the learner: the given one, or that for a target like this."""
    name = job.learner or ("dc" if read.is_float or _mostly_distinct(read) else "pbdl")
    if name != "pbdl" and np.asarray(read.y).dtype.kind not in "biuf":
        raise ValueError(f"the learner {name} needs a target of numbers, but {read.target!r} holds labels")
    if name != "pbdl" and job.keep_rows:
        raise click.UsageError(f"--keep-rows is for the learner pbdl, not for {name}")
    return str(name)


def _mostly_distinct(read: Data) -> bool:
    """Whether most rows have a whole number of their own as target, so that hardly any two are of a class."""
    y = None if read.y is None else np.asarray(read.y)
    return y is not None and y.dtype.kind in "iu" and 2 * len(np.unique(y)) > len(y)


def _unfitted(name: str, job: Any, *, verbose: int) -> Any:
    """The estimator with the given options."""
    given = dict(job.parameters)
    for each in ("balanced", "feature_map"):
        if name != "pbdl" and each in given:
            raise click.UsageError(f"--{each.replace('_', '-')} is for the learner pbdl, not for {name}")
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
    what = f"fitting {type(model).__name__} to {job.data}: {rows} rows, {features} feature{'s' * (features > 1)}"
    if data.y is None:
        return f"{what}, {f'pairs of {job.pairs}' if job.pairs else f'triplets of {job.triplets}'}"
    values, is_pbdl = np.asarray(data.y), isinstance(model, PBDL | PBDLCV)
    distinct = len(np.unique(values))
    if is_pbdl:
        what += f", {distinct} {'class' if distinct == 1 else 'classes'}"
    if job.learner is not None:
        return what
    if values.dtype.kind in "iu":
        taken = "labels" if is_pbdl else "numbers to predict"
        why = f"{'a single whole number' if distinct == 1 else f'{distinct} distinct whole numbers'}, taken for {taken}"
    else:
        why = "labels" if is_pbdl else "floating-point numbers"
    way_out = f"; --learner {'dc' if is_pbdl else 'pbdl'} takes it otherwise" if values.dtype.kind in "iuf" else ""
    return f"{what} (the target {data.target!r} holds {why}{way_out})"


def _point_out_ids(read: Data, *, quiet: bool) -> None:
    found = [] if isinstance(read.X, np.ndarray) else id_like(read.X)
    if found:
        one = len(found) == 1
        are = "looks like an id and is a feature" if one else "look like ids and are features"
        out = "it" if one else "them"
        ways = f"--id {option(found[:1])} takes it for names of the rows, --drop {option(found)} leaves {out} out"
        tell(f"note: {listed(found)} {are}: {ways}", quiet=quiet)


def _parts(name: str, job: Any, read: Data) -> tuple[Data, Data | None]:
    """Rows to fit, and held-out rows: of every class as large a share as possible, and no class of one row."""
    if job.holdout is None:
        return read, None
    rows, classes = np.arange(len(read.X)), None
    alone = np.empty(0, dtype=np.int64)
    if name == "pbdl":
        _, codes, counts = np.unique(np.asarray(read.y), return_inverse=True, return_counts=True)
        is_alone = counts[codes] == 1
        rows, alone = rows[~is_alone], rows[is_alone]
        if len(rows) == 0:
            raise ValueError(f"--holdout needs a class with at least 2 rows, but {read.target!r} has none")
        n_out = int(np.ceil(job.holdout * len(rows)))
        n_classes = int((counts > 1).sum())
        classes = codes[rows] if n_classes <= min(n_out, len(rows) - n_out) else None
    inside, out = train_test_split(rows, test_size=job.holdout, random_state=job.seed, stratify=classes)
    return read.part(np.sort(np.concatenate([inside, alone]))), read.part(np.sort(out))


def _encoded(columns: ColumnTransformer, rows: Data, job: Any) -> Data:
    return replace(rows, X=transformed(columns, rows.X, str(job.data)))


def _fit(model: Any, read: Data, job: Any) -> None:
    if job.pairs is not None:
        model.fit_pairs(read.X, *read_pairs(job.pairs))
    elif job.triplets is not None:
        model.fit_triplets(read.X, read_triplets(job.triplets))
    else:
        model.fit(read.X, read.y)


def _write(model: Any, columns: ColumnTransformer | None, read: Data, job: Any) -> None:
    """Write the model, with all rows of the file if they are to be kept, and what makes numbers of a table."""
    kept = model
    if job.keep_rows:
        rows = read if columns is None else _encoded(columns, read, job)
        kept = BregmanKNeighborsClassifier(model).fit(rows.X, rows.y)
    save(kept if columns is None else Pipeline([("table", columns), ("model", kept)]), job.output)


def _print_result(model: Any, job: Any) -> None:
    if not job.quiet:
        result = model.result_
        if hasattr(model, "best_score_"):
            score = f"score {model.best_score_:.4g} in {model.n_splits_} folds"
            chosen = f"alpha {model.alpha_:.4g}, temperature {model.temperature_:.4g}"
            if getattr(model, "companion_", None) is not None:
                chosen += f", companion {model.companion_} of weight {model.companion_weight_:.4g}"
            for name, words in (("feature_map", "feature map"), ("n_pieces", "n_pieces")):
                value = model.best_params_.get(name)
                if value is not None:
                    chosen += f", {words} {value}"
            click.echo(f"chosen: {chosen} ({score})")
        click.echo(result.status)
        seconds = f"{result.seconds:.1f} seconds{' of the last fit' * hasattr(model, 'best_score_')}"
        click.echo(f"objective {result.objective:.6g}, gap {result.gap:.3g}, {seconds}")
    tell(f"written to {job.output}", quiet=job.quiet)


def _held_out_list(job: Any) -> Path | None:
    """The file that says which rows were held out."""
    return None if job.holdout is None else job.output.with_name(f"{job.output.name}.held-out.csv")


def _about_rows(name: str, model: Any, known: Data, new: Data | None, job: Any) -> None:
    """Scores of held-out rows, which rows these are, and the report."""
    written = _held_out_list(job)
    if new is not None and written is not None:
        names = [] if new.labels is None else [new.labels.tolist()]
        columns = [new.row_numbers.tolist(), *names]
        write_csv(written, ["row", job.names][: len(columns)], zip(*columns, strict=True))
        tell(f"{len(new.X)} rows were held out; {written} has their numbers, from 0", quiet=job.quiet)
        with warnings_as_lines():
            scores = _held_out_scores(name, model, known, new, job)
        click.echo(scores)
    if job.report is not None:
        rows = "the rows it was fitted to," if new is None else "held-out rows of"
        title = f"{type(model).__name__} on {rows} {job.data.name}"
        write_report(job.report, model, new or known, known if new else None, title=title, quiet=job.quiet)
        if new is None:
            tell("the report shows the rows of the fit; --holdout 0.2 would show new ones", quiet=job.quiet)


def _held_out_scores(name: str, model: Any, known: Data, new: Data, job: Any) -> str:
    head = f"{len(new.X)} held out"
    if name != "pbdl":
        return table({type(model).__name__: headed(regression_scores(model, new))}, head)
    found = divergence_scores({type(model).__name__: model.divergence_}, new, known, k=5, seed=job.seed)
    return table({row: headed(scores, 5) for row, scores in found.items()}, head)
