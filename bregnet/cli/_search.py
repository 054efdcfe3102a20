"""`bregnet search`."""

from __future__ import annotations

from pathlib import Path

import click

from bregnet.cli import _options as options


@click.command(
    epilog=options.examples(
        "bregnet search model flowers.csv -k 5 -o neighbours.csv           # of each row, the nearest others",
        "bregnet search model flowers.csv --queries new.csv --id name      # names in place of row numbers",
        "bregnet search index --queries new.npy --format jsonl | head      # a folder that BregmanIndex.save wrote",
    )
)
@click.argument("model", type=options.PATH)
@click.argument("items", type=options.PATH, required=False)
@click.option("--queries", type=options.PATH, metavar="FILE", help="What to look for; by default every item.")
@click.option("-k", "--k", type=options.COUNT, help="Neighbours of each query; by default 10, or all items if fewer.")
@click.option("--side", type=click.Choice(["right", "left"]), help="Search by D(query, item), or D(item, query).")
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), help="By default as the output's name says.")
@click.option("--id", "names", metavar="COLUMN", help="What items and queries are called; by default row numbers.")
@click.option("-o", "--output", type=options.PATH, metavar="OUT", help="A file; by default the standard output.")
@options.columns
@options.quiet
def search(
    model: Path,
    items: Path | None,
    queries: Path | None,
    k: int | None,
    side: str | None,
    form: str | None,
    names: str | None,
    output: Path | None,
    features: tuple[str, ...] | None,
    drop: tuple[str, ...] | None,
    quiet: bool,
) -> None:
    """Find the nearest ITEMS by the divergence of a MODEL.

    A line for each neighbour: query, rank, id and divergence. MODEL is anything that has a divergence; one that has
    items of its own (a saved index, a nearest-neighbour estimator) searches these if no ITEMS are given. Without
    --queries every item is a query, and does not find itself. Rows are numbered from 0.
    """
    from bregnet.cli._data import Columns
    from bregnet.cli._output import check_outputs
    from bregnet.cli._searching import neighbours, plan, write

    check_outputs(stream=output)
    wanted = plan(model, items, queries, Columns(features, drop), k=k, side=side, names=names)
    is_lines = form == "jsonl" or (form is None and output is not None and output.suffix in (".jsonl", ".json"))
    write(neighbours(wanted, quiet=quiet), output, as_lines=is_lines, quiet=quiet)
