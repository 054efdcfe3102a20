"""The sections of a report about a regression."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from bregnet.divergences import DifferenceOfConvex
from bregnet.plotting._regression import dependence, draw_dependence, draw_predictions, draw_residuals, predicted_by
from bregnet.plotting._shared import shown_name, shown_number
from bregnet.reporting.figures import drawn
from bregnet.reporting.numbers import Table, piece_counts, shown
from bregnet.reporting.sections import WIDE, Section
from bregnet.reporting.subject import Subject

SMALL = (3.6, 2.7)  # inches
MOST_FEATURES = 12


def predictions(subject: Subject, scores: Table | None) -> list[Section]:
    """Predicted against true targets, with the scores of rivals, and the residuals, with the largest errors."""
    rows, found = subject.rows, subject.predicted
    assert found is not None
    tips = {
        "rows": [
            f"{name}: true {shown(float(true))}, predicted {shown(float(guess))}"
            for name, true, guess in zip(rows.names, rows.targets, found, strict=True)
        ]
    }
    svg = drawn(
        "predictions",
        "Predicted against true targets",
        "A dot for each row; on the dashed line the prediction is exact.",
        lambda ax: draw_predictions(rows.targets, found, ax),
        WIDE,
        tips,
    )
    text = (
        f"Predictions for {len(rows.features):,} rows. On the dashed line they are exact. Point at a dot for its row."
    )
    if scores is not None:
        text += " The rivals are of scikit-learn and have learned from the known rows, with features of unit variance."
    made = [Section("predictions", "Predictions", text, [(svg, "")], scores, "Scores on these rows")]
    svg = drawn(
        "residuals",
        "Residuals against predictions",
        "A dot for each row, at the true target less the predicted one; on the dashed line the prediction is exact.",
        lambda ax: draw_residuals(rows.targets, found, ax),
        WIDE,
        tips,
    )
    text = (
        "What the predictions leave over. A good fit has no pattern here: a bow says that the form is wrong, a funnel"
        " that the noise grows with the target."
    )
    worst = np.argsort(-np.abs(rows.targets - found), kind="stable")[:8]
    figures = [(rows.names[at], [(shown(float(each[at])), False) for each in (rows.targets, found)]) for at in worst]
    table = Table(["true", "predicted"], figures)
    return [*made, Section("residuals", "Residuals", text, [(svg, "")], table, "The largest errors")]


def partial(subject: Subject) -> Section:
    """How predictions change along each feature, and by which part of the function."""
    rows, estimator = subject.rows.features, subject.estimator
    function = getattr(estimator, "function_", None)
    steep = subject.relevance if hasattr(subject.fit, "feature_bounds_") else np.zeros(rows.shape[1])
    chosen = np.argsort(-steep, kind="stable")[:MOST_FEATURES]

    def predict(given: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            return predicted_by("estimator", estimator, given, len(given))

    found = {at: dependence(predict, function, rows, at) for at in chosen}
    ends = np.concatenate([line for each in found.values() for line in each.lines.values()])
    room = 0.08 * float(np.ptp(ends)) or 1.0
    limits = float(ends.min()) - room, float(ends.max()) + room

    def picture(at: int) -> tuple[str, str]:
        name, line = subject.feature_names[at], found[at].lines["prediction"]
        about = f"The mean prediction changes by {shown_number(np.ptp(line), 3)} along {shown_name(name)}."
        return (
            drawn(
                f"partial-{at}",
                f"Partial dependence on {shown_name(name)}",
                about,
                lambda ax: draw_dependence(found[at], ax, name, limits),
                SMALL,
            ),
            "",
        )

    text = (
        "The mean prediction as one feature changes and all others stay as they are in the rows: partial dependence."
        " Every line is shown less its mean, and all pictures have one scale."
    )
    if len(chosen) < rows.shape[1]:
        text += f" The {len(chosen)} features with the steepest slopes of {rows.shape[1]} are shown."
    return Section("partial", "Partial dependence", text + _parts(function), [picture(at) for at in chosen], small=True)


def _parts(function: Any) -> str:
    """About the two parts of a difference of convex functions."""
    if not isinstance(function, DifferenceOfConvex):
        return ""
    convex, concave = (sum(piece_counts(part)) for part in (function.convex, function.concave))
    return (
        f" The prediction is the sum of a convex part ({convex:,} affine pieces), which bends upward everywhere, and a"
        f" concave part ({concave:,} affine pieces), which bends downward everywhere."
    )
