"""The sections of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bregnet import plotting
from bregnet.plotting._fits import percent
from bregnet.plotting._matrices import Shown, apart, blocks, draw_map, draw_matrix, mapped, shown_divergences
from bregnet.plotting._retrieval import draw_curves, query_rows
from bregnet.plotting._shared import Measure, shown_distance, shown_name, shown_number
from bregnet.reporting.figures import drawn
from bregnet.reporting.numbers import Retrieval, Table, n_used, shown
from bregnet.reporting.rivals import ABOUT
from bregnet.reporting.subject import EUCLID, Subject

WIDE, SQUARE = (5.0, 3.3), (4.6, 4.0)  # inches
READABLE = {  # names of figures, where they are not the key itself
    "gap": "certified gap",
    "dual_bound": "certified lower bound",
    "interior_point_steps": "of them interior-point steps",
    "seconds": "seconds of the fit",
    "alpha": "penalty, alpha",
    "cross_validation_score": "score of cross-validation",
    "cross_validation_fits": "fits of cross-validation",
    "features_used": "features that are used",
    "function": "learned function",
    "pieces": "affine pieces",
    "threshold": "threshold of similar pairs",
    "rows": "rows reported on",
    "known_rows": "rows that were known before",
    "map": "mean average precision (mAP)",
    "accuracy": "accuracy of nearest neighbors",
    "neighbors": "neighbors that vote",
    "baseline": "best baseline, learned rivals left out",
    "baseline_map": "its mean average precision",
    "baseline_accuracy": "its accuracy of nearest neighbors",
    "r2": "R², share of the variance that is explained",
}


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
    small: bool = False  # several pictures beside each other
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
        "seconds": shown_number(result.seconds, 3),
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
    unit = "" if subject.scales is None else ", for a change of the feature by one standard deviation"
    text = f"How steep the learned function is at most in each feature{unit}."
    text += " A larger alpha switches more features off."
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
        " curve means that rows of the class are found before others. Mean average precision (mAP) is 1 where all rows"
        " of the class come first. Normalized mutual information (NMI) is 1 where k-means, which does not see the"
        f" classes, finds them as its clusters, and about 0 where clusters say nothing of them.{_about_rivals(found)}"
    )
    k = found[subject.name].ids.shape[1]
    caption = f"Ranking (mAP), accuracy of {k} nearest {'neighbor' if k == 1 else 'neighbors'}, clusters (NMI)"
    return Section("retrieval", "Retrieval", text, [(svg, "")], figures, caption)


def _about_rivals(found: Mapping[str, Retrieval]) -> str:
    """What the rivals are, and what they have learned from."""
    raw = f"{EUCLID}, raw features"
    text = ""
    if EUCLID in found:
        text += f" {EUCLID} is the squared Euclidean distance of features of unit variance"
        text += f', "{raw}" that of the features as they are given.' if raw in found else "."
    if learned := [f"{name} ({about})" for name, about in ABOUT.items() if name in found]:
        text += f" {', '.join(learned[:-1])} and {learned[-1]} of scikit-learn have learned from the known rows."
    return text


def before_and_after(subject: Subject, before: tuple[str, Measure] | None) -> list[Section]:
    """Heat maps and maps by the baseline and by the divergence, each pair of one scale."""
    assert subject.by is not None
    compared = {**({} if before is None else dict([before])), subject.name: subject.by}
    names, rows = np.asarray(subject.class_names, dtype=object), subject.rows
    found = {
        name: shown_divergences(by, rows.features, names, rows.targets).in_mean_units for name, by in compared.items()
    }
    order = "of all rows" if before is None else "before and after"
    matrices = (
        "Every pixel is the divergence of one row from another, dark where they are near. Rows are in the order of"
        " their classes: what is wanted is dark squares along the diagonal, and light everywhere else. The color bar"
        " counts in multiples of the mean divergence of all pairs, with ticks evenly spaced in the square root; the"
        " largest 2% have the color of its end. Point at a block for its figures."
    )
    maps = (
        "Distances on the map follow the square root of the divergences, symmetrized, as well as two dimensions allow;"
        " those of a mean divergence have one length in all maps. It is drawn without the classes: they lie apart where"
        " the divergence sets them apart. Where everything lies near one line, points are moved across it so that none"
        " covers another. Point at a dot for its row."
    )
    return [
        Section("matrix", f"Divergences, {order}", matrices, _matrices(found)),
        Section("map", f"Map, {order}", maps, _maps(found, subject.rows.names)),
    ]


def _matrices(found: dict[str, Shown]) -> list[tuple[str, str]]:
    """Heat maps by each divergence, with one color bar."""
    highest = max(each.highest for each in found.values())

    def draw(rows: Shown, ax: Any) -> None:
        draw_matrix(rows, ax, highest, "divergence / mean of all pairs")

    return [_picture("matrix", "Heat map", place, by, draw, _block_tips) for place, by in enumerate(found.items())]


def _block_tips(found: Shown) -> dict[str, str]:
    """For each pair of classes, how far they are."""
    assert found.numbers is not None
    present, starts, ends = blocks(found.numbers)
    tips = {}
    for row, (x, top, bottom) in enumerate(zip(present, starts, ends, strict=True)):
        for column, (y, left, right) in enumerate(zip(present, starts, ends, strict=True)):
            block = found.divergences[top:bottom, left:right]
            middle = f"median {np.median(block):.3g}, largest {block.max():.3g} times the mean of all pairs"
            tips[f"block-{row}-{column}"] = f"{found.classes[x]} from {found.classes[y]}: {middle}"
    return tips


def _maps(found: dict[str, Shown], names: list[str]) -> list[tuple[str, str]]:
    """Maps by each divergence, of one scale."""
    places = {by: mapped(each.divergences) for by, each in found.items()}
    width = 2 * max(float(np.abs(each).max()) for each in places.values()) or 1.0
    places = {by: apart(each, width) for by, each in places.items()}
    limits = 1.08 * np.max([np.abs(each).max(0) for each in places.values()], axis=0)
    limits = np.maximum(limits, 0.78 * limits.max() or 1.0)  # the picture is filled

    def draw(by: str) -> Any:
        return lambda rows, ax: draw_map(rows, ax, places[by], limits)

    def tips(rows: Shown) -> dict[str, list[str]]:
        assert rows.numbers is not None
        return {
            f"class-{number}": [f"{names[row]}: {rows.classes[number]}" for row in rows.rows[rows.numbers == number]]
            for number in np.unique(rows.numbers)
        }

    return [_picture("map", "Map", place, each, draw(each[0]), tips) for place, each in enumerate(found.items())]


def _picture(name: str, kind: str, place: int, of: tuple[str, Shown], draw: Any, tips: Any) -> tuple[str, str]:
    """One of a pair of pictures."""
    by, rows = of

    def draw_titled(ax: Any) -> None:
        draw(rows, ax)
        ax.set_title(shown_name(by, 48) + rows.share, parse_math=False)

    about = f"{kind} of the divergences among {len(rows.divergences)} rows by {by}, with their classes."
    return drawn(f"{name}-{place}", f"{kind} by {by}", about, draw_titled, SQUARE, tips(rows)), ""


def examples(subject: Subject, found: dict[str, Retrieval]) -> Section:
    """Queries with their neighbors: evenly spaced ones, and the hardest; beside them the hits of the best rival."""
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
    """A query, its neighbors, and how many are of its class, by each divergence."""
    rows, searched = subject.rows, subject.known or subject.rows
    own = rows.targets[row]
    ours = found[subject.name]
    neighbors = [
        (
            shown_name(subject.class_names[searched.targets[item]]),
            searched.names[item],
            shown_distance(distance),
            bool(searched.targets[item] == own),
        )
        for distance, item in zip(ours.distances[row], ours.ids[row], strict=True)
    ]
    hits = [f"{int((searched.targets[each.ids[row]] == own).sum())} of {each.ids.shape[1]}" for each in found.values()]
    label = shown_name(subject.class_names[own])
    return {"label": label, "row": rows.names[row], "neighbors": neighbors, "hits": hits}


def compared(table: Table) -> Section:
    """A table that was given."""
    text = "The best of a column is marked ★."
    return Section("comparison", "Comparison", text, table=table, caption="Comparison of methods")


def everything(numbers: dict[str, Any]) -> Section:
    """All figures that are single values."""
    left_out = ("summary", "neighbours")  # a sentence, and an earlier spelling
    flat = {name: value for name, value in numbers.items() if not isinstance(value, dict) and name not in left_out}
    flat |= {f"version of {name}": version for name, version in numbers["versions"].items()}
    facts = [
        (READABLE.get(name, name.replace("_", " ")), percent(value) if name == "gap" else shown(value))
        for name, value in flat.items()
    ]
    return Section("numbers", "All figures", "", facts=facts)
