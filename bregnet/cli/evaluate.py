"""The work of `bregnet evaluate`."""

from __future__ import annotations

from pathlib import Path

import click

from bregnet.cli.data import Columns, Data
from bregnet.cli.models import Model
from bregnet.cli.output import check_outputs, table, tell, warnings_as_lines, write_json, write_report
from bregnet.cli.scores import divergence_scores, headed, regression_scores, warn_of_nothing
from bregnet.cli.usage import needed_target
from bregnet.divergences.resolve import side_of


def run(
    path: Path,
    data: Path,
    target: str | None,
    known: Path | None,
    columns: Columns,
    *,
    names: str | None,
    k: int,
    seed: int,
    as_json: bool,
    report: Path | None,
    quiet: bool,
) -> None:
    """Read, score, print and write the report."""
    check_outputs(report=report)
    model = Model.read(path)
    if model.is_regressor and known is not None:
        raise click.UsageError(f"--known is for divergences, got {path}, which holds a {model.kind}")
    rows = model.rows(data, columns, target=needed_target(data, target), names=names)
    others = None if known is None else model.rows(known, columns, target=needed_target(known, target), names=names)
    searched = "each against the others" if others is None else f"each against {len(others.X)} known ones"
    tell(f"{model.kind} in {path}: {len(rows.X)} rows of {data}, {searched}", quiet=quiet or model.is_regressor)
    if others is not None and known is not None and known.resolve() == data.resolve():
        tell(f"warning: {data} is searched in itself, so every row finds itself first; without --known it does not")
    n_others = len(rows.X) - 1 if others is None else len(others.X)
    if not model.is_regressor and k > n_others:
        raise ValueError(f"-k must be at most {n_others}, as many rows as a query can find, got {k}")
    with warnings_as_lines():
        scores = _scores(model, rows, others, k=k, seed=seed)
    if as_json:
        write_json({"model": str(path), "kind": model.kind, "rows": len(rows.X), "k": k, "scores": scores})
    else:
        click.echo(table({name: headed(row, k) for name, row in scores.items()}))
    if report is not None:
        write_report(report, model.holds, rows, others, title=f"{model.kind} on {data.name}", quiet=quiet)


def _scores(model: Model, rows: Data, others: Data | None, *, k: int, seed: int) -> dict[str, dict[str, float]]:
    if model.is_regressor:
        return {model.kind: regression_scores(model.holds, rows)}
    found = model.needed_divergence("evaluate")
    warn_of_nothing(found, rows)
    name = f"divergence of {model.kind}" if hasattr(model.holds, "predict") else model.kind
    return divergence_scores({name: found}, rows, others, k=k, seed=seed, side=side_of(model.holds))
