"""`bregnet fit`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from bregnet.checkpoints import Checkpoint
from bregnet.cli._data import PATH, Data, read_training
from bregnet.distributed import joined
from bregnet.metric_learning import PBDL
from bregnet.persistence import save
from bregnet.regression import ConvexRegressor, DCRegressor

LEARNERS: dict[str, Callable[..., Any]] = {"pbdl": PBDL, "convex": ConvexRegressor, "dc": DCRegressor}
POSITIVE = click.FloatRange(min=0, min_open=True)


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


@click.command()
@click.argument("data", type=PATH)
@click.option("--target", metavar="COLUMN", help="Column of a table, array of an npz file (y), or a .npy file.")
@click.option("-o", "--output", type=PATH, required=True, metavar="MODEL", help="The file to write.")
@click.option(
    "--learner",
    type=click.Choice(list(LEARNERS)),
    help="A divergence from labels, or convex or difference-of-convex regression. By default pbdl, and dc where the"
    " target is a column of floating-point numbers.",
)
@click.option("--alpha", type=POSITIVE, help="Weight of the penalty on the slopes.")
@click.option("--n-pieces", type=Pieces(), metavar="N|auto|all", help="Affine pieces; all is one for every row.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Smoothing of the learned function.")
@click.option("--tol", type=POSITIVE, help="Certified gap at which the fit stops.")
@click.option("--max-iter", type=click.IntRange(min=1), help="Iterations after which it stops all the same.")
@click.option("--seed", "random_state", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--standardize/--no-standardize", default=None, help="Whether alpha is for data of unit variance.")
@click.option("--balanced/--no-balanced", default=None, help="Whether both kinds of pairs weigh the same (pbdl).")
@click.option("--checkpoint", type=PATH, metavar="FOLDER", help="Where to keep the state of the fit meanwhile.")
@click.option("--resume", is_flag=True, help="Go on from the state in the checkpoint's folder, where there is one.")
@click.option("--scratch", type=PATH, metavar="FOLDER", help="Where to put what does not fit in memory.")
@click.option("--quiet", is_flag=True, help="Print warnings and errors only.")
def fit(
    data: Path,
    target: str | None,
    output: Path,
    learner: str | None,
    checkpoint: Path | None,
    resume: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Fit a model to DATA and write it to a file.

    DATA is a table (.csv, .parquet), an .npz archive with arrays X and y, or an .npy matrix, which is not read into
    memory, with its target in another .npy file. Under torchrun all processes share the work.
    """
    if resume and checkpoint is None:
        raise click.UsageError("--resume needs --checkpoint")
    if checkpoint is not None:
        options["checkpoint"] = Checkpoint(checkpoint, resume=resume)
    with joined() as ranks:
        speaks = ranks.rank == 0
        tells = speaks and not quiet
        if speaks:
            _check_output(output)
        read = read_training(data, target)
        name = learner or ("dc" if read.is_float else "pbdl")
        _check_target(name, read)
        model = _unfitted(name, options, verbose=int(tells and sys.stderr.isatty()))
        if tells:
            click.echo(_intention(model, data, read, chosen=learner is None))
        with _warnings_as_lines(speaks):
            model.fit(read.X, read.y)
        if speaks:
            save(model.set_params(verbose=0), output)
        if tells:
            result = model.result_
            click.echo(result.status)
            click.echo(f"objective {result.objective:.6g}, gap {result.gap:.3g}, {result.seconds:.1f} seconds")
            click.echo(f"written to {output}")


def _unfitted(name: str, options: dict[str, Any], *, verbose: int) -> Any:
    """The estimator with the options that were given; others have its own defaults."""
    given = {option: value for option, value in options.items() if value is not None}
    if name != "pbdl" and "balanced" in given:
        raise click.UsageError(f"--balanced is for the learner pbdl, not for {name}")
    if given.get("n_pieces") == "all":
        given["n_pieces"] = None
    return LEARNERS[name](**given, verbose=verbose)


def _check_output(output: Path) -> None:
    """Say now, not after hours, that the model could not be written."""
    if output.is_dir():
        raise IsADirectoryError(f"the output must be a file, got the folder {output}")
    if not output.resolve().parent.is_dir():
        raise FileNotFoundError(f"the output must lie in a folder that exists, got {output}")


def _check_target(name: str, data: Data) -> None:
    if name != "pbdl" and np.asarray(data.y).dtype.kind not in "biuf":
        raise ValueError(f"the learner {name} needs a target of numbers, but {data.target!r} holds labels")


def _intention(model: Any, path: Path, data: Data, *, chosen: bool) -> str:
    rows, features = data.X.shape
    what = f"fitting {type(model).__name__} to {path}: {rows} rows, {features} features"
    if isinstance(model, PBDL):
        what += f", {len(np.unique(np.asarray(data.y)))} classes"
    why = "floating-point numbers" if data.is_float else "labels"
    return f"{what} (the target {data.target!r} holds {why})" if chosen else what


@contextmanager
def _warnings_as_lines(speaks: bool) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    if speaks:
        for message in dict.fromkeys(str(each.message) for each in caught):
            click.echo(f"warning: {message.splitlines()[0]}", err=True)
