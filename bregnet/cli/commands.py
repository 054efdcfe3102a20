"""The seven commands: their arguments, options and help.

This module imports click and nothing heavy. What a command works with is imported when it runs, so that help and the
completion of the shell come at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bregnet.cli import options

SETS = ("breast_cancer", "wine", "digits", "iris")
LEARNERS = ("pbdl", "convex", "dc")
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


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
    from bregnet.cli.demo import run

    run(data, report, seed=seed, as_json=as_json, quiet=quiet)


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
    from bregnet.cli.fit import Job, run

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
    from bregnet.cli.data import Columns
    from bregnet.cli.evaluate import run

    columns = Columns(features, drop)
    run(model, data, target, known, columns, k=k, seed=seed, as_json=as_json, report=report, quiet=quiet)


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
    from bregnet.cli.data import Columns
    from bregnet.cli.output import check_outputs
    from bregnet.cli.search import neighbours, plan, write

    check_outputs(stream=output)
    wanted = plan(model, items, queries, Columns(features, drop), k=k, side=side, names=names)
    is_lines = form == "jsonl" or (form is None and output is not None and output.suffix in (".jsonl", ".json"))
    write(neighbours(wanted, quiet=quiet), output, as_lines=is_lines, quiet=quiet)


@click.command(
    epilog=options.examples(
        "bregnet cluster model new-flowers.csv -k 3 -o clusters.csv",
        "bregnet cluster model new-flowers.csv -k 3 --target species --save clusters.bregnet",
    )
)
@click.argument("model", type=options.PATH)
@click.argument("data", type=options.PATH)
@click.option("-k", "--k", type=options.COUNT, required=True, help="Number of clusters.")
@click.option("--target", metavar="COLUMN", help="Known classes, to compare the clusters with.")
@click.option("--id", "names", metavar="COLUMN", help="What the rows are called; by default their numbers, from 0.")
@click.option("--starts", type=options.COUNT, default=5, show_default=True, help="The best of so many is kept.")
@click.option("-o", "--output", type=options.PATH, metavar="OUT", help="A CSV file; by default the standard output.")
@click.option("--save", "saved", type=options.PATH, metavar="MODEL", help="Write the clusters as a model.")
@options.columns
@options.seed
@options.quiet
def cluster(
    model: Path,
    data: Path,
    k: int,
    target: str | None,
    names: str | None,
    starts: int,
    output: Path | None,
    saved: Path | None,
    features: tuple[str, ...] | None,
    drop: tuple[str, ...] | None,
    seed: int,
    quiet: bool,
) -> None:
    """Cluster the rows of DATA by the divergence of a MODEL.

    A line for each row, with the number of its cluster, by k-means under the divergence. The sizes of the clusters, and
    how they agree with a --target, go to the standard error.
    """
    import csv

    import numpy as np

    from bregnet.cli.data import Columns
    from bregnet.cli.models import Model
    from bregnet.cli.output import check_outputs, tell, warnings_as_lines, writing
    from bregnet.cli.scores import agreement
    from bregnet.clustering import BregmanKMeans
    from bregnet.io import save

    check_outputs(saved, stream=output)
    opened = Model.at(model)
    divergence = opened.needed_divergence("cluster")
    rows = opened.rows(data, Columns(features, drop), target=target, names=names)
    if k > len(rows.X):
        raise ValueError(f"-k must be at most the {len(rows.X)} rows of {data}, got {k}")
    means = BregmanKMeans(k, divergence=divergence, n_init=starts, random_state=seed)
    with warnings_as_lines():
        found = means.fit_predict(rows.X)
    called = np.arange(len(found)) if rows.labels is None else rows.labels
    with writing(output) as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([names or "row", "cluster"])
        lines.writerows(zip(called.tolist(), found.tolist(), strict=True))
    if saved is not None:
        save(means, saved)
    sizes = ", ".join(map(str, np.bincount(found, minlength=k)))
    tell(f"{k} clusters of {sizes} rows, inertia {means.inertia_:.6g}", quiet=quiet)
    if rows.y is not None:
        said = "NMI {nmi:.3f}, adjusted Rand {rand:.3f}, purity {purity:.3f}".format(**agreement(rows.y, found))
        tell(f"agreement with {target!r}: {said}", quiet=quiet)


@click.command(
    epilog=options.examples(
        "bregnet predict prices new-houses.csv -o predictions.csv",
        "bregnet predict prices - < new-houses.csv > predictions.csv",
        "bregnet predict prices X.npy -o predictions.npy",
    )
)
@click.argument("model", type=options.PATH)
@click.argument("data", type=options.PATH)
@click.option(
    "-o", "--output", type=options.PATH, metavar="OUT", help="A .csv or .npy file; by default the standard output."
)
@options.columns
@options.quiet
def predict(
    model: Path,
    data: Path,
    output: Path | None,
    features: tuple[str, ...] | None,
    drop: tuple[str, ...] | None,
    quiet: bool,
) -> None:
    """Predict the rows of DATA with a regression MODEL, a classifier or clusters.

    The columns of a table are found by the names the model was fitted with; others are left out. DATA may be "-", for a
    CSV table on the standard input.
    """
    if output not in (None, options.STANDARD) and output.suffix not in (".csv", ".npy"):
        raise click.UsageError(f"--output must end in .csv or .npy, got {str(output)!r}")
    import csv

    import numpy as np

    from bregnet._core.files import whole_file
    from bregnet.cli.data import Columns
    from bregnet.cli.models import Model
    from bregnet.cli.output import check_outputs, tell, warnings_as_lines, writing

    check_outputs(stream=output)
    opened = Model.at(model)
    if not hasattr(opened.holds, "predict"):
        kinds = "a regression, a classifier or clusters"
        raise ValueError(f"predict needs {kinds}, got {model}, which holds a {opened.kind}")
    rows = opened.rows(data, Columns(features, drop))
    with warnings_as_lines():
        predictions = np.asarray(opened.holds.predict(rows.X))
    if output is not None and output.suffix == ".npy":
        with whole_file(output) as made, open(made, "wb") as file:
            np.save(file, predictions.astype(str) if predictions.dtype == object else predictions)
    else:
        with writing(output) as lines:
            writer = csv.writer(lines, lineterminator="\n")
            columns = predictions.reshape(len(predictions), -1)
            several = [f"prediction {each}" for each in range(columns.shape[1])]
            writer.writerow(several if predictions.ndim > 1 else ["prediction"])
            writer.writerows(columns.tolist())
    if output not in (None, options.STANDARD):
        tell(f"{len(predictions)} predictions written to {output}", quiet=quiet)


@click.command(epilog=options.examples("bregnet info model", "bregnet info model --json"))
@click.argument("model", type=options.PATH)
@options.as_json
def info(model: Path, as_json: bool) -> None:
    """Say what a MODEL file, or the folder of an index, holds."""
    from bregnet.cli.info import describe, for_people
    from bregnet.cli.models import Model
    from bregnet.cli.output import write_json

    found = describe(Model.at(model))
    if as_json:
        write_json(found)
        return
    width = max(map(len, found))
    for key, value in found.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {for_people(value)}")
