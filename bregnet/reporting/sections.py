"""The sections of a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bregnet import plotting
from bregnet.plotting._fits import draw_predictions, percent
from bregnet.plotting._matrices import Shown, draw_map, draw_matrix, shown_divergences
from bregnet.plotting._retrieval import draw_curves, query_rows
from bregnet.plotting._shared import Measure, shown_distance, shown_name
from bregnet.reporting.figures import drawn
from bregnet.reporting.numbers import Retrieval, Table, n_used, shown
from bregnet.reporting.subject import Subject

WIDE, SQUARE = (5.0, 3.3), (4.6, 3.9)  # inches


@dataclass(frozen=True)
class Section:
    """A section of the page; empty parts are left out. Pictures are SVG with a caption each."""

    name: str
    heading: str
    text: str
    pictures: list[tuple[str, str]] = field(default_factory=list)
    table: Table | None = None
    caption: str = ""
    examples: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    measures: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)


def certificate(subject: Subject) -> Section:
    """How the certified gap closed."""
    result = subject.result
    assert result is not None
    ends = f"The objective fell to {result.objective:.4g}, and the lower bound rose to {result.dual_bound:.4g}."
    svg = drawn(
        "convergence",
        "Certified convergence",
        f"Objective and certified lower bound against iterations. {ends} Certified gap {percent(result.gap)}.",
        lambda ax: plotting.convergence(result, ax),
        WIDE,
    )
    text = (
        "The lower bound is computed from a feasible point of the dual program and holds whatever the solver did: no"
        " function of the program has an objective below it. The optimum lies in the shaded part."
    )
    values = {
        "objective": f"{result.objective:.5g}",
        "certified lower bound": f"{result.dual_bound:.5g}",
        "certified gap": percent(result.gap),
        "iterations": f"{result.n_iter:,}",
        "of them interior-point": f"{result.n_interior:,}",
        "seconds": f"{result.seconds:.3g}",
    }
    figures = Table(["value"], [(name, [(value, False)]) for name, value in values.items()])
    return Section("certificate", "Certificate", text, [(svg, ends)], figures, "The certificate")


def features(subject: Subject) -> Section:
    """Which features matter."""
    bounds = subject.relevance
    used = n_used(bounds)
    order = np.argsort(-bounds, kind="stable")[:10]
    names = [subject.feature_names[number] for number in order[:3]]
    n_bars = min(len(bounds), 15)
    svg = drawn(
        "features",
        "Relevance of the features",
        f"Bars of the largest slope in each feature, largest first: {', '.join(map(shown_name, names))}.",
        lambda ax: plotting.feature_bounds(subject.fit, subject.feature_names, n_bars, ax, scales=subject.scales),
        (5.0, 1.0 + 0.2 * n_bars),
    )
    caption = f"{used} of {len(bounds)} features are used: their slope is more than 1% of the largest."
    text = "How steep the learned function is at most in each feature. A larger alpha switches more features off."
    largest = Table(["largest slope"], [(subject.feature_names[at], [(shown(bounds[at]), False)]) for at in order])
    title = "The features" if len(order) == len(bounds) else f"The first {len(order)} of {len(bounds)} features"
    return Section("features", "Features", text, [(svg, caption)], largest, title)


def precision(subject: Subject, found: dict[str, Retrieval], figures: Table) -> Section:
    """How precise retrieval is, against the baselines."""
    rows, known = subject.rows, subject.known
    svg = drawn(
        "retrieval",
        "Precision and recall of retrieval",
        "Interpolated precision at levels of recall, a curve for each divergence; the table has their means.",
        lambda ax: draw_curves({name: each.curve for name, each in found.items()}, ax),
        WIDE,
    )
    searched = "the other rows" if known is None else f"{len(known.features):,} known rows"
    text = (
        f"Each of {len(rows.features):,} rows is a query against {searched}; rows of its class are relevant. A high"
        " curve means that rows of the class are found before others."
    )
    k = found[subject.name].ids.shape[1]
    caption = f"Mean average precision, and accuracy of {k} nearest {'neighbor' if k == 1 else 'neighbors'}"
    return Section("retrieval", "Retrieval", text, [(svg, "")], figures, caption)


def before_and_after(subject: Subject, before: tuple[str, Measure] | None) -> list[Section]:
    """Heat maps and maps by the baseline and by the divergence."""
    assert subject.by is not None
    compared = {**({} if before is None else dict([before])), subject.name: subject.by}
    names, rows = np.asarray(subject.class_names, dtype=object), subject.rows
    found = {name: shown_divergences(by, rows.features, names, rows.targets) for name, by in compared.items()}
    order = "of all rows" if before is None else "before and after"
    matrices = (
        "Every pixel is the divergence of one row from another, dark where they are near. Rows are in the order of"
        " their classes: what is wanted is dark squares along the diagonal, and light everywhere else."
    )
    maps = (
        "Distances on the map follow the square root of the divergences, symmetrized, as well as two dimensions allow."
        " It is drawn without the classes: they lie apart where the divergence sets them apart."
    )
    return [
        Section("matrix", f"Divergences, {order}", matrices, _pictures("matrix", "Heat map", draw_matrix, found)),
        Section("map", f"Map, {order}", maps, _pictures("map", "Map", draw_map, found)),
    ]


def _pictures(
    name: str, kind: str, draw: Callable[[Shown, Any], None], found: dict[str, Shown]
) -> list[tuple[str, str]]:
    """The same picture by each divergence."""

    def picture(place: int, by: str, rows: Shown) -> tuple[str, str]:
        def draw_titled(ax: Any) -> None:
            draw(rows, ax)
            ax.set_title(shown_name(by, 48) + rows.share, parse_math=False)

        about = f"{kind} of the divergences among {len(rows.divergences)} rows by {by}, with their classes."
        return drawn(f"{name}-{place}", f"{kind} by {by}", about, draw_titled, SQUARE), ""

    return [picture(place, by, rows) for place, (by, rows) in enumerate(found.items())]


def examples(subject: Subject, found: dict[str, Retrieval]) -> Section:
    """Queries with their neighbors: evenly spaced ones, and the hardest."""
    ours = found[subject.name]
    even = query_rows(6, subject.rows.targets)
    scores = ours.curve.per_query
    order = [row for row in np.argsort(scores, kind="stable") if not np.isnan(scores[row]) and row not in even]
    hardest = np.array(order[:3])
    groups = [("Evenly spaced in the order of the classes", even), ("The hardest: least average precision", hardest)]
    k = ours.ids.shape[1]
    text = (
        f"The {k} nearest rows of some queries, nearest first, with their divergences: ✓ is of the query's class, ✗ is"
        " not."
    )
    filled = [(heading, [_example(subject, found, row) for row in rows]) for heading, rows in groups if len(rows)]
    return Section("examples", "Examples", text, examples=filled, measures=list(found))


def _example(subject: Subject, found: dict[str, Retrieval], row: int) -> dict[str, Any]:
    """A query, its neighbours, and how many are of its class, by each divergence."""
    rows, searched = subject.rows, subject.known or subject.rows
    own = rows.targets[row]
    ours = found[subject.name]
    neighbours = [
        (
            shown_name(subject.class_names[searched.targets[item]]),
            int(searched.numbers[item]),
            shown_distance(distance),
            bool(searched.targets[item] == own),
        )
        for distance, item in zip(ours.distances[row], ours.ids[row], strict=True)
    ]
    hits = [f"{int((searched.targets[each.ids[row]] == own).sum())} of {each.ids.shape[1]}" for each in found.values()]
    label, number = shown_name(subject.class_names[own]), int(rows.numbers[row])
    return {"label": label, "row": number, "neighbours": neighbours, "hits": hits}


def targets(subject: Subject) -> Section:
    """Predicted against true targets."""
    rows, predicted = subject.rows, subject.predicted
    assert predicted is not None
    svg = drawn(
        "predictions",
        "Predicted against true targets",
        "A dot for each row; on the dashed line the prediction is exact.",
        lambda ax: draw_predictions(rows.targets, predicted, ax),
        SQUARE,
    )
    text = f"Predictions for {len(rows.features):,} rows. On the dashed line they are exact."
    return Section("predictions", "Predictions", text, [(svg, "")])


def compared(table: Table) -> Section:
    """A table that was given."""
    text = "The best of a column is marked ★."
    return Section("comparison", "Comparison", text, table=table, caption="Comparison of methods")


def everything(numbers: dict[str, Any]) -> Section:
    """All figures that are single values."""
    flat = {name: value for name, value in numbers.items() if not isinstance(value, dict)}
    flat |= {f"version of {name}": version for name, version in numbers["versions"].items()}
    facts = [(name.replace("_", " "), shown(value)) for name, value in flat.items()]
    return Section("numbers", "All figures", "", facts=facts)
