"""From an estimator and rows to one HTML page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet._core.files import whole_file
from bregnet._core.optional import require
from bregnet.divergences import divergence
from bregnet.plotting._fits import percent
from bregnet.plotting._shared import Measure, printable
from bregnet.reporting import numbers as numbers_of
from bregnet.reporting import regression, rivals, verdict
from bregnet.reporting import sections as sections_of
from bregnet.reporting.numbers import Retrieval, table
from bregnet.reporting.sections import Section
from bregnet.reporting.subject import Subject, baselines_of, subject_of
from bregnet.reporting.verdict import Scores, Verdict


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
    """A report: one HTML page with what a fit gains and loses, its certificate, plots, examples and all figures.

    Given known rows, it also compares with methods of scikit-learn that learn from these: linear discriminant analysis,
    neighborhood components analysis (on at most 1000 rows) and the class probabilities of a logistic regression; for a
    regression linear regression, boosted trees and nearest neighbors. It needs ``pip install 'bregnet[report]'``. The
    page needs no network and follows light and dark mode. At most 3000 rows and 10,000 known rows are used, evenly
    spaced in the order of the classes, or 10,000 evenly spaced rows of a regression. The page says so.

    Parameters
    ----------
    estimator : estimator or BregmanDivergence
        A fitted :class:`bregnet.PBDL`, search, nearest-neighbor estimator, ranker or regressor, a pipeline that ends in
        one of these, or a divergence, its generator or its name.
    X : array of shape (n_samples, n_features)
        Rows to report on, ideally not those of the fit. The index of a data frame names them.
    y : array of shape (n_samples,)
        Their class labels, or targets for a regressor.
    path : path, default=None
        Where to write the page, if anywhere.
    X_known : array of shape (n_known, n_features), default=None
        Rows in which each row of X is a query; by default the other rows of X. Methods to compare with learn from
        them: they should be those of the fit.
    y_known : array of shape (n_known,), default=None
        Their class labels, or targets for a regressor.
    feature_names : sequence of str, default=None
        Names of the features; by default those of the data frame, or numbers.
    class_names : sequence of str or dict, default=None
        A name for each class, in the order of the labels or by label; the labels themselves by default.
    title : str, default=None
    baseline : BregmanDivergence, Generator, str, estimator or None, default="sqeuclidean"
        What to compare with. "sqeuclidean" is shown for features of unit variance and, where scales differ much, for
        the features as they are; methods that learn from the known rows join it. None compares with nothing.
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
        parts, verdicts = _of_regression(subject, numbers, baseline)
    else:
        parts, verdicts = _of_divergence(subject, numbers, baseline)
    numbers["verdicts"] = {
        key: {"rival": each.rival, "value": each.other, "way": each.way} for key, each in verdicts.items()
    }
    parts = [*given, *parts, sections_of.everything(numbers)]
    made = Report(_page(subject, numbers, parts, title), numbers)
    if path is not None:
        made.save(path)
    return made


def _of_regression(
    subject: Subject, numbers: dict[str, Any], baseline: Any
) -> tuple[list[Section], dict[str, Verdict]]:
    """The sections and the verdicts; the scores are added to the numbers."""
    targets, own = subject.rows.targets, subject.name
    assert subject.predicted is not None
    numbers |= numbers_of.of_predictions(targets, subject.predicted)
    predicted = {own: subject.predicted}
    if subject.known is not None and baseline is not None and len(targets) > 1:
        predicted |= rivals.regression_rivals(subject.known, subject.rows.features)
    scores, measures = {}, {}
    if len(predicted) > 1:
        found = {name: numbers_of.of_predictions(targets, guess) for name, guess in predicted.items()}
        for key, measure, power in (("r2", "R²", 2), ("mean_absolute_error", "mean absolute error", 1)):
            losses = {name: np.abs(targets - guess) ** power for name, guess in predicted.items()}
            measures[key] = Scores(measure, {name: each[key] for name, each in found.items()}, losses)
        scores = {name: {each.measure: each.values[name] for each in measures.values()} for name in predicted}
        numbers["regression"] = scores
    numbers["summary"] = verdict.summary(own, len(targets), list(measures.values()), "linear regression")
    parts = regression.predictions(subject, table(scores) if scores else None)
    parts.append(regression.partial(subject))
    if subject.result is not None:
        parts += [sections_of.certificate(subject), sections_of.features(subject)]
    return parts, {key: each.best for key, each in measures.items()}


def _of_divergence(
    subject: Subject, numbers: dict[str, Any], baseline: Any
) -> tuple[list[Section], dict[str, Verdict]]:
    """The sections and the verdicts; the scores of retrieval are added to the numbers."""
    assert subject.by is not None
    own, baselines = subject.name, baselines_of(baseline, subject)
    found: dict[str, Retrieval] = {
        name: numbers_of.retrieval(by, subject.rows, subject.known)
        for name, by in {own: subject.by, **baselines}.items()
    }
    if subject.known is not None and isinstance(baseline, str) and baseline == "sqeuclidean":
        found |= _of_rivals(subject)
    ours = found[own]
    k = ours.ids.shape[1]
    numbers |= {"map": ours.curve.map, "accuracy": ours.accuracy, "neighbors": k, "neighbours": k}
    best = max(baselines, key=lambda name: found[name].curve.map, default=None)
    if best is not None:
        numbers |= {"baseline": best, "baseline_map": found[best].curve.map, "baseline_accuracy": found[best].accuracy}
    numbers["retrieval"] = {name: each.scores for name, each in found.items()}
    measures = verdict.retrieval_scores(own, found)
    verdicts = {key: each.best for key, each in measures.items()}
    first = next(iter(baselines), "")
    numbers["summary"] = verdict.summary(own, len(subject.rows.features), list(measures.values()), first)
    examined = {own: ours}
    if verdicts:
        rival = verdicts["map"].rival
        examined[rival] = found[rival]
        numbers["summary"] += verdict.lost_class(ours, found[rival], subject.rows.targets, subject.class_names, rival)
    parts = [sections_of.precision(subject, found, table(numbers["retrieval"]))]
    if subject.result is not None:
        parts.append(sections_of.certificate(subject))
    before = None if best is None else (best, baselines[best])
    parts += sections_of.before_and_after(subject, before)
    if subject.result is not None:
        parts.append(sections_of.features(subject))
    return [*parts, sections_of.examples(subject, examined)], verdicts


def _of_rivals(subject: Subject) -> dict[str, Retrieval]:
    """How methods retrieve that learned from the known rows."""
    rows, known = subject.rows, subject.known
    assert known is not None
    by = Measure(divergence("sqeuclidean"))
    return {
        name: numbers_of.retrieval(
            by,
            replace(rows, features=rival.of_queries(rows.features)),
            replace(known, features=rival.of_items(known.features)),
        )
        for name, rival in rivals.retrieval_rivals(known).items()
    }


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
        summary=numbers["summary"],
        tiles=_tiles(numbers),
        sections=parts,
        versions=numbers["versions"],
    )


def _tiles(numbers: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The figures at the top: name, value, the best rival beside it, and whether it is ahead, level or behind."""
    tiles = {
        "map": "mean average precision",
        "accuracy": f"{numbers.get('neighbors')}-NN accuracy",
        "r2": "R²",
        "mean_absolute_error": "mean absolute error",
    }
    words = {"ahead": "▲ ahead of", "level": "≈ level with", "behind": "▼ behind"}
    shown = []
    for key, name in tiles.items():
        if numbers.get(key) is not None:
            rival = numbers["verdicts"].get(key)
            beside = f"{words[rival['way']]} {rival['rival']}: {numbers_of.shown(rival['value'])}" if rival else ""
            shown.append((name, numbers_of.shown(numbers[key]), beside, rival["way"] if rival else ""))
    if "gap" in numbers:
        way = "" if numbers["converged"] else "behind"
        shown.append(("certified gap", percent(numbers["gap"]), f"{numbers['iterations']:,} iterations", way))
        used = f"{numbers['features_used']} of {numbers['features']}"
        shown.append(("features used", used, f"{numbers['pieces']:,} affine pieces" if "pieces" in numbers else "", ""))
    return shown
