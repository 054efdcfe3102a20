"""From an estimator and rows to one HTML page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet._core.files import whole_file
from bregnet._core.optional import require
from bregnet.plotting._fits import percent
from bregnet.plotting._shared import printable
from bregnet.reporting import numbers as numbers_of
from bregnet.reporting import sections as sections_of
from bregnet.reporting.numbers import Retrieval, table
from bregnet.reporting.sections import Section
from bregnet.reporting.subject import Subject, baselines_of, subject_of


@dataclass(frozen=True)
class Report:
    """A page about a fit, made by :func:`bregnet.report`.

    Attributes
    ----------
    html : str
        The page, which needs no other file.
    numbers : dict
        All figures on it.

    Examples
    --------
    >>> import bregnet
    >>> made = bregnet.report("sqeuclidean", [[0.0], [0.1], [1.0], [1.2]], ["a", "a", "b", "b"])
    >>> made.numbers["map"]
    1.0
    """

    html: str
    numbers: dict[str, Any]

    def save(self, path: str | os.PathLike) -> None:
        """Write the page to a file.

        Parameters
        ----------
        path : path

        Examples
        --------
        >>> import bregnet, tempfile, pathlib
        >>> made = bregnet.report("sqeuclidean", [[0.0], [0.1], [1.0], [1.2]], ["a", "a", "b", "b"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made.save(pathlib.Path(folder) / "report.html")
        ...     print((pathlib.Path(folder) / "report.html").read_text()[:15])
        <!DOCTYPE html>
        """
        with whole_file(check.folder("path", path)) as file:
            file.write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"Report({len(self.html) / 1000:.0f} kB about {self.numbers['estimator']})"

    def _repr_html_(self) -> str:
        """The page in an iframe of a notebook, apart from its styles."""
        frame = 'style="width: 100%; height: 80vh; border: 1px solid #8888" title="bregnet report"'
        return f'<iframe sandbox {frame} srcdoc="{escape(self.html)}"></iframe>'


def report(
    estimator: Any,
    X: Array,
    y: Array,
    path: str | os.PathLike | None = None,
    *,
    X_known: Array | None = None,
    y_known: Array | None = None,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | Mapping[Any, str] | None = None,
    title: str | None = None,
    baseline: Any = "sqeuclidean",
    comparison: Mapping[str, Mapping[str, Any]] | Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """A report: one HTML page with the certificate, plots, examples and all figures of a fit.

    It needs ``pip install 'bregnet[report]'``. The page needs no network and follows light and dark mode. At most 3000
    rows and 10,000 known rows are used, evenly spaced in the order of the classes, or 10,000 evenly spaced rows of a
    regression. The page says so.

    Parameters
    ----------
    estimator : estimator or BregmanDivergence
        A fitted :class:`bregnet.PBDL`, search, nearest-neighbor estimator, ranker or regressor, a pipeline that ends in
        one of these, or a divergence, its generator or its name.
    X : array of shape (n_samples, n_features)
        Rows to report on, ideally not those of the fit.
    y : array of shape (n_samples,)
        Their class labels, or targets for a regressor.
    path : path, default=None
        Where to write the page, if anywhere.
    X_known : array of shape (n_known, n_features), default=None
        Rows in which each row of X is a query; by default the other rows of X.
    y_known : array of shape (n_known,), default=None
        Their class labels.
    feature_names : sequence of str, default=None
        Names of the features; by default those of the data frame, or numbers.
    class_names : sequence of str or dict, default=None
        A name for each class, in the order of the labels or by label; the labels themselves by default.
    title : str, default=None
    baseline : BregmanDivergence, Generator, str, estimator or None, default="sqeuclidean"
        What to compare with. Where features have very different scales, "sqeuclidean" is also shown for features of
        unit variance, which is the fairer comparison.
    comparison : dict of dicts or list of dicts, default=None
        A table to show, such as ``{"NCA": {"accuracy": 0.9}}``.

    Returns
    -------
    report : Report

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import bregnet
    >>> X, y = load_iris(return_X_y=True)
    >>> model = bregnet.PBDL(temperature=0.1, tol=0.1).fit(X[::2], y[::2])
    >>> made = bregnet.report(model, X[1::2], y[1::2], class_names=["setosa", "versicolor", "virginica"])
    >>> made.numbers["map"] > made.numbers["baseline_map"]
    True
    """
    require("bregnet.report", "jinja2", "matplotlib", extra="report")
    subject = subject_of(estimator, X, y, X_known, y_known, feature_names, class_names)
    given = [] if comparison is None else [sections_of.compared(table(comparison))]
    numbers = numbers_of.of_fit(subject)
    if subject.by is None:
        numbers |= numbers_of.of_predictions(subject)
        parts = [sections_of.targets(subject)]
        if subject.result is not None:
            parts += [sections_of.certificate(subject), sections_of.features(subject)]
    else:
        parts = _of_divergence(subject, numbers, baseline)
    parts = [*given, *parts, sections_of.everything(numbers)]
    made = Report(_page(subject, numbers, parts, title), numbers)
    if path is not None:
        made.save(path)
    return made


def _of_divergence(subject: Subject, numbers: dict[str, Any], baseline: Any) -> list[Section]:
    """The sections; the scores of retrieval are added to the numbers."""
    assert subject.by is not None
    baselines = baselines_of(baseline, subject)
    found: dict[str, Retrieval] = {
        name: numbers_of.retrieval(by, subject.rows, subject.known)
        for name, by in {subject.name: subject.by, **baselines}.items()
    }
    ours = found[subject.name]
    numbers |= {"map": ours.curve.map, "accuracy": ours.accuracy, "neighbours": ours.ids.shape[1]}
    best = max(baselines, key=lambda name: found[name].curve.map, default=None)
    if best is not None:
        numbers |= {"baseline": best, "baseline_map": found[best].curve.map, "baseline_accuracy": found[best].accuracy}
    numbers["retrieval"] = {name: {"mAP": each.curve.map, "accuracy": each.accuracy} for name, each in found.items()}
    parts = [sections_of.precision(subject, found, table(numbers["retrieval"]))]
    if subject.result is not None:
        parts.append(sections_of.certificate(subject))
    before = None if best is None else (best, baselines[best])
    parts += sections_of.before_and_after(subject, before)
    if subject.result is not None:
        parts.append(sections_of.features(subject))
    return [*parts, sections_of.examples(subject, found)]


def _page(subject: Subject, numbers: dict[str, Any], parts: list[Section], title: str | None) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("bregnet.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("report.html").render(
        title=printable(f"{subject.name} report" if title is None else title),
        subject=subject,
        tiles=_tiles(numbers),
        sections=parts,
        versions=numbers["versions"],
    )


def _tiles(numbers: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The figures at the top: name, value, and the value of the baseline."""
    tiles = {
        "map": "mean average precision",
        "accuracy": f"{numbers.get('neighbours')}-NN accuracy",
        "r2": "R²",
        "mean_absolute_error": "mean absolute error",
    }
    shown = []
    for key, name in tiles.items():
        if numbers.get(key) is not None:
            other = numbers.get(f"baseline_{key}")
            beside = "" if other is None else f"{numbers['baseline']}: {numbers_of.shown(other)}"
            shown.append((name, numbers_of.shown(numbers[key]), beside))
    if "gap" in numbers:
        shown.append(("certified gap", percent(numbers["gap"]), f"{numbers['iterations']:,} iterations"))
        used = f"{numbers['features_used']} of {numbers['features']}"
        shown.append(("features used", used, f"{numbers['pieces']:,} affine pieces" if "pieces" in numbers else ""))
    return shown
