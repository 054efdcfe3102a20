"""`bregnet evaluate`."""

from __future__ import annotations

from pathlib import Path

import click

from bregnet.cli import _options as options


@click.command(
    epilog=options.examples(
        "bregnet evaluate model new-flowers.csv --target species",
        "bregnet evaluate model new-flowers.csv --target species --known flowers.csv --json",
        "bregnet evaluate prices new-houses.csv --target price --report prices.html",
    )
)
@click.argument("model", type=options.PATH)
@click.argument("data", type=options.PATH)
@click.option("--target", metavar="COLUMN", help="Column of a table, array of an npz file (y), or a .npy file.")
@click.option(
    "--known", type=options.PATH, metavar="TABLE", help="Rows to search, with the same target (not for .npy)."
)
@click.option("-k", "--k", type=options.COUNT, default=5, show_default=True, help="Neighbours that classify.")
@options.columns
@options.seed
@options.as_json
@options.report
@options.quiet
def evaluate(
    model: Path,
    data: Path,
    target: str | None,
    known: Path | None,
    k: int,
    features: tuple[str, ...] | None,
    drop: tuple[str, ...] | None,
    seed: int,
    as_json: bool,
    report: Path | None,
    quiet: bool,
) -> None:
    """Score a MODEL on the rows of DATA.

    A divergence is scored beside Euclid (of features with unit variance): by the accuracy of nearest neighbours, by
    mean average precision, R-precision and the area under the ROC curve of retrieval, where every row is a query
    against the others, or against the rows of --known; and by k-means with as many clusters as classes: normalised
    mutual information, adjusted Rand index and purity. A regression is scored by R^2 and mean errors.
    """
    from bregnet.cli._data import Columns
    from bregnet.cli._evaluating import run

    columns = Columns(features, drop)
    run(model, data, target, known, columns, k=k, seed=seed, as_json=as_json, report=report, quiet=quiet)
