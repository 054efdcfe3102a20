"""The arguments, options and help of the seven commands; `run` in the module of its name does the work of each.

This module imports click and nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from bregnet._core.importing import imported
from bregnet.cli import options
from bregnet.cli.logs import log_as_lines
from bregnet.cli.usage import check_usage


def _command(*examples: str) -> Callable[[Callable[[], None]], click.Command]:
    """A command with examples in its help; the options that choose columns go together to its `run`."""

    def declared(about: Callable[[], None]) -> click.Command:
        def work(**given: Any) -> None:
            check_usage(about.__name__, given)
            if "features" in given:
                names = ("features", "drop", "sep", "missing", "decimal")
                given["columns"] = imported("bregnet.cli.data").Columns(*(given.pop(name) for name in names))
            with log_as_lines(quiet=given.get("quiet", False)):
                imported(f"bregnet.cli.{about.__name__}").run(**given)

        epilog = "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])
        return click.command(about.__name__, epilog=epilog)(update_wrapper(work, about))

    return declared


@_command(
    "bregnet demo",
    "bregnet demo --data wine --report wine.html",
    "bregnet demo --json --quiet",
)
@click.option(
    "--data",
    "name",
    type=click.Choice(["breast_cancer", "wine", "digits", "iris"]),
    default="breast_cancer",
    show_default=True,
    help="A data set of scikit-learn.",
)
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
def demo() -> None:
    """Learn a divergence and compare it with Euclid, LDA, NCA and class probabilities.

    Seven tenths of the rows are for learning. The others are classified, used as queries against them, and clustered.
    All settings are the same for all sets: nothing is chosen by the rows that are scored. The report has more.
    """


@_command(
    "bregnet fit flowers.csv --target species -o model",
    "bregnet fit flowers.csv --target species --drop notes -o model --holdout 0.2 --report flowers.html",
    "bregnet fit cars.csv --target maker --id plate --one-hot auto --impute median -o model",
    "bregnet fit rows.parquet --pairs pairs.csv -o model       # columns i, j, similar",
    "bregnet fit houses.csv --target price --cv 5 -o model     # chooses alpha",
    "torchrun --nproc-per-node 2 -m bregnet fit X.npy --target y.npy -o model --checkpoint state --resume",
)
@options.data
@options.target
@click.option("--pairs", type=options.PATH, metavar="FILE", help="Pairs of rows: columns i, j, similar (0 or 1).")
@click.option("--triplets", type=options.PATH, metavar="FILE", help="Rows: columns anchor, nearer, farther.")
@click.option("-o", "--output", type=options.PATH, required=True, metavar="MODEL", help="The file to write.")
@options.ids
@options.columns
@options.encoding
@click.option(
    "--learner",
    type=click.Choice(["pbdl", "convex", "dc"]),
    help="A divergence from labels, or convex or difference-of-convex regression. By default pbdl, and dc where the"
    " target holds floating-point numbers, or whole numbers of which most are different.",
)
@click.option("--alpha", type=options.POSITIVE, help="Weight of the penalty on the slopes.")
@click.option(
    "--search-alpha",
    is_flag=True,
    help="Choose alpha, temperature and, by the learner, feature map and"
    " companion or the number of pieces, by cross-validation.",
)
@click.option("--cv", type=click.IntRange(min=2), help="The same, with this number of folds (5).")
@click.option("--jobs", type=int, help="Fits of the cross-validation at the same time; -1 is one for each core.")
@click.option(
    "--n-pieces", callback=options.pieces, metavar="N|auto|all", help="Affine pieces; all is one for every row."
)
@click.option("--temperature", type=click.FloatRange(min=0), help="Smoothing of the learned function.")
@click.option(
    "--feature-map",
    type=click.Choice(["lda", "rbf", "rbf+lda"]),
    help="Learn from discriminant coordinates, features of a Gaussian kernel, or both one after the other (pbdl).",
)
@click.option("--tol", type=options.POSITIVE, help="Certified gap at which the fit stops.")
@click.option("--max-iter", type=options.COUNT, help="The largest number of iterations.")
@click.option("--standardize/--no-standardize", default=None, help="Whether alpha is for data of unit variance.")
@click.option("--balanced/--no-balanced", default=None, help="Whether both kinds of pairs have equal weight (pbdl).")
@click.option(
    "--holdout",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="A share of the rows to hold out of the fit and score; MODEL.held-out.csv has their numbers.",
)
@click.option("--keep-rows", is_flag=True, help="Keep all rows and their labels in the model, for predict and search.")
@options.report
@click.option("--checkpoint", type=options.PATH, metavar="FOLDER", help="Where to write the state of the fit.")
@click.option("--resume", is_flag=True, help="Go on from the state in the checkpoint's folder, if there is one.")
@options.seed
@options.quiet
def fit() -> None:
    """Fit a model to DATA and write it to a file.

    DATA is a table (.csv, .tsv, .txt, each also as .gz, .parquet, .xlsx), an .npz archive with arrays X and y, or an
    .npy matrix, which is memory-mapped, with its target in another .npy file. Rows are numbered from 0, in pairs and
    triplets too. Under torchrun all processes share the work.

    Features must be numbers. Columns of categories are encoded by --one-hot or --ordinal, and gaps are filled by
    --impute. The model keeps how, so that all commands take tables like DATA.

    A report is about the held-out rows, or without --holdout about those of the fit.
    """


@_command(
    "bregnet evaluate model new-flowers.csv --target species",
    "bregnet evaluate model new-flowers.csv --target species --known flowers.csv --json",
    "bregnet evaluate prices new-houses.csv --target price --report prices.html",
)
@options.model
@options.data
@options.target
@click.option(
    "--known", type=options.PATH, metavar="TABLE", help="Rows to search, with the same target (not for .npy)."
)
@click.option("-k", "--k", type=options.COUNT, default=5, show_default=True, help="Neighbors of the classifier.")
@options.ids
@options.columns
@options.seed
@options.as_json
@options.report
@options.quiet
def evaluate() -> None:
    """Score a MODEL on the rows of DATA.

    A divergence is compared with Euclid (of features with unit variance): by the accuracy of nearest neighbors; by mean
    average precision, R-precision and the area under the ROC curve of retrieval, where every row is a query against the
    others, or against the rows of --known; and by k-means with as many clusters as classes: normalized mutual
    information, adjusted Rand index and purity. A regression is scored by R^2 and mean errors.
    """


@_command(
    "bregnet search model flowers.csv -k 5 -o neighbors.csv            # the nearest other rows of each row",
    "bregnet search model flowers.csv --queries new.csv --id name      # names in place of row numbers",
    "bregnet search index --queries new.npy --format jsonl | head      # a folder that BregmanIndex.save wrote",
)
@options.model
@click.argument("items", type=options.PATH, required=False)
@click.option("--queries", type=options.PATH, metavar="FILE", help="The queries; by default every item.")
@click.option("-k", "--k", type=options.COUNT, help="Neighbors of each query; by default 10, or all items if fewer.")
@click.option("--side", type=click.Choice(["right", "left"]), help="Search by D(query, item), or D(item, query).")
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), help="By default by the name of the output.")
@click.option(
    "--id",
    "names",
    metavar="COLUMN",
    help="Names of items and queries; by default row numbers. Items of the model itself have numbers or ids.",
)
@click.option("-o", "--output", type=options.PATH, metavar="OUT", help="A file; by default the standard output.")
@options.columns
@options.quiet
def search() -> None:
    """Find the nearest ITEMS by the divergence of a MODEL.

    The output has a line for each neighbor: query, rank, id and divergence. MODEL is anything that has a divergence;
    one that has items of its own (a saved index, a nearest-neighbor estimator) searches these if no ITEMS are given.
    Without --queries every item is a query against all others. Rows are numbered from 0.
    """


@_command(
    "bregnet cluster model new-flowers.csv -k 3 -o clusters.csv",
    "bregnet cluster model new-flowers.csv -k 3 --target species --save clusters.bregnet",
)
@options.model
@options.data
@click.option("-k", "--k", type=options.COUNT, required=True, help="Number of clusters.")
@click.option("--target", metavar="COLUMN", help="Known classes, to compare the clusters with.")
@options.ids
@click.option("--starts", type=options.COUNT, default=5, show_default=True, help="Starts, of which the best counts.")
@click.option("-o", "--output", type=options.PATH, metavar="OUT", help="A CSV file; by default the standard output.")
@click.option("--save", "saved", type=options.PATH, metavar="MODEL", help="Write the clusters as a model.")
@options.columns
@options.seed
@options.quiet
def cluster() -> None:
    """Cluster the rows of DATA by the divergence of a MODEL.

    The output has a line for each row, with the number of its cluster, by k-means under the divergence. The sizes of
    the clusters, and their agreement with a --target, go to the standard error.
    """


@_command(
    "bregnet predict prices new-houses.csv -o predictions.csv",
    "bregnet predict prices - < new-houses.csv > predictions.csv",
    "bregnet predict prices X.npy -o predictions.npy",
    "bregnet predict model new-flowers.csv --known flowers.csv --target species",
)
@options.model
@options.data
@click.option("--known", type=options.PATH, metavar="TABLE", help="Rows with labels, for a divergence (not for .npy).")
@click.option("--target", metavar="COLUMN", help="The labels in --known.")
@click.option("-k", "--k", type=options.COUNT, help="Neighbors that vote; by default 5, or those of the classifier.")
@options.ids
@click.option(
    "-o", "--output", type=options.PATH, metavar="OUT", help="A .csv or .npy file; by default the standard output."
)
@options.columns
@options.quiet
def predict() -> None:
    """Predict the rows of DATA with a regression MODEL, a classifier or clusters.

    A MODEL of labels predicts the label of most of the nearest rows of --known, or of the rows that bregnet fit
    --keep-rows has kept in it.

    The columns of a table are found by the names the model was fitted with; others are left out. DATA may be "-", for a
    CSV table on the standard input.
    """


@_command("bregnet info model", "bregnet info model --json")
@options.model
@options.as_json
def info() -> None:
    """Say what a MODEL file, or the folder of an index, holds."""
