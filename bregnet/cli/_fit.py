"""`bregnet fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bregnet.cli import _options as options

LEARNERS = ("pbdl", "convex", "dc")
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


class Pieces(click.ParamType):
    """A number of pieces, "auto", or "all" for a piece of its own for every row."""

    name = "pieces"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value for `n_pieces`, except that None is "all" here: click means by None that nothing was given."""
        if value in ("auto", "all") or isinstance(value, int):
            return value
        if not value.isdecimal() or int(value) < 1:
            self.fail(f"{value!r} is not 'auto', 'all' or a positive number.", param, ctx)
        return int(value)


@click.command(
    epilog=options.examples(
        "bregnet fit flowers.csv --target species -o model",
        "bregnet fit flowers.csv --target species --drop notes -o model --holdout 0.2 --report flowers.html",
        "bregnet fit rows.parquet --pairs pairs.csv -o model       # columns i, j, similar",
        "bregnet fit houses.csv --target price --cv 5 -o model     # chooses alpha",
        "torchrun --nproc-per-node 2 -m bregnet fit X.npy --target y.npy -o model --checkpoint kept --resume",
    )
)
@click.argument("data", type=options.PATH)
@click.option("--target", metavar="COLUMN", help="Column of a table, array of an npz file (y), or a .npy file.")
@click.option("--pairs", type=options.PATH, metavar="FILE", help="Pairs of rows: columns i, j, similar (0 or 1).")
@click.option("--triplets", type=options.PATH, metavar="FILE", help="Rows: columns anchor, nearer, farther.")
@click.option("-o", "--output", type=options.PATH, required=True, metavar="MODEL", help="The file to write.")
@options.columns
@click.option(
    "--learner",
    type=click.Choice(LEARNERS),
    help="A divergence from labels, or convex or difference-of-convex regression. By default pbdl, and dc where the"
    " target is a column of floating-point numbers.",
)
@click.option("--alpha", type=options.POSITIVE, help="Weight of the penalty on the slopes.")
@click.option("--search-alpha", is_flag=True, help="Choose alpha and the temperature by cross-validation.")
@click.option("--cv", type=click.IntRange(min=2), help="The same, with so many folds (5).")
@click.option("--jobs", type=int, help="Fits of the cross-validation at the same time; -1 is one for each core.")
@click.option("--n-pieces", type=Pieces(), metavar="N|auto|all", help="Affine pieces; all is one for every row.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Smoothing of the learned function.")
@click.option("--tol", type=options.POSITIVE, help="Certified gap at which the fit stops.")
@click.option("--max-iter", type=options.COUNT, help="Iterations after which it stops all the same.")
@click.option("--standardize/--no-standardize", default=None, help="Whether alpha is for data of unit variance.")
@click.option("--balanced/--no-balanced", default=None, help="Whether both kinds of pairs weigh the same (pbdl).")
@click.option("--holdout", type=SHARE, metavar="SHARE", help="Keep a share of the rows out of the fit, and score them.")
@options.report
@click.option("--checkpoint", type=options.PATH, metavar="FOLDER", help="Where to keep the state of the fit meanwhile.")
@click.option("--resume", is_flag=True, help="Go on from the state in the checkpoint's folder, where there is one.")
@options.seed
@options.quiet
def fit(resume: bool, **given: Any) -> None:
    """Fit a model to DATA and write it to a file.

    DATA is a table (.csv, .parquet), an .npz archive with arrays X and y, or an .npy matrix, which is not read into
    memory, with its target in another .npy file. Rows of pairs and triplets are numbered from 0. Under torchrun all
    processes share the work.

    A report is about the rows that --holdout keeps out of the fit, and otherwise about those of the fit.
    """
    _check_usage(given, resume)
    from bregnet.cli._fitting import Job, run

    checkpoint: Path | None = given.pop("checkpoint")
    if checkpoint is not None:
        from bregnet.solver.checkpoints import Checkpoint

        given["checkpoint"] = Checkpoint(checkpoint, resume=resume)
    run(Job.of(given))


def _check_usage(given: dict[str, Any], resume: bool) -> None:
    """Raise an error where options do not go together."""
    if resume and given["checkpoint"] is None:
        raise click.UsageError("--resume needs --checkpoint")
    told = [name for name in ("target", "pairs", "triplets") if given[name] is not None]
    if len(told) > 1:
        raise click.UsageError(f"only one of --target, --pairs and --triplets can be learned from, got {_all(told)}")
    if told in (["pairs"], ["triplets"]):
        for name in ("search_alpha", "cv", "report", "holdout"):
            if given[name]:
                raise click.UsageError(f"{_all([name])} needs --target, got {_all(told)}")
        if given["learner"] not in (None, "pbdl"):
            raise click.UsageError(f"the learner {given['learner']} needs --target, got {_all(told)}")
    if given["search_alpha"] or given["cv"]:
        for name in ("alpha", "checkpoint"):
            if given[name] is not None:
                raise click.UsageError(f"{_all([name])} is for one fit, not for --search-alpha or --cv")
    elif given["jobs"] is not None:
        raise click.UsageError("--jobs is for --search-alpha or --cv")


def _all(names: list[str]) -> str:
    return " and ".join(f"--{name.replace('_', '-')}" for name in names)
