"""`bregnet demo`."""

from __future__ import annotations

from pathlib import Path

import click

from bregnet.cli import _options as options

SETS = ("breast_cancer", "wine", "digits", "iris")


@click.command(
    epilog=options.examples(
        "bregnet demo", "bregnet demo --data wine --report wine.html", "bregnet demo --json --quiet"
    )
)
@click.option("--data", type=click.Choice(SETS), default=SETS[0], show_default=True, help="A set of scikit-learn's.")
@click.option(
    "--report",
    type=options.PATH,
    metavar="HTML",
    default=Path("bregnet-demo.html"),
    show_default=True,
    help="Where to write the report.",
)
@options.seed
@options.as_json
@options.quiet
def demo(data: str, report: Path, seed: int, as_json: bool, quiet: bool) -> None:
    """Learn a divergence and compare it with Euclid and NCA.

    Seven tenths of the rows are learned from, the others are classified and found by them, and clustered. All settings
    are the same for all sets: nothing is chosen by the rows that are scored.
    """
    from bregnet.cli._demonstration import run

    run(data, report, seed=seed, as_json=as_json, quiet=quiet)
