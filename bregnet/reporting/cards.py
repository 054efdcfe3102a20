"""What notebooks show of estimators, results, divergences and indexes in addition to their plain `repr`.

:func:`html_card` has a form for each class, registered here: another class is shown by registering a form for it and
decorating it with `bregnet._core.notebook.shown_in_notebooks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from html import escape
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr

from bregnet.divergences import BregmanDivergence
from bregnet.learners import BregmanNCA
from bregnet.plotting._fits import finite_checks, fit_with_result, level_range, percent
from bregnet.plotting._shared import shown_number
from bregnet.reporting.numbers import piece_counts
from bregnet.retrieval import BregmanIndex
from bregnet.retrieval.engines import is_exact
from bregnet.solver.result import Result


@singledispatch
def html_card(shown: Any) -> str:
    """The HTML form of an object."""
    raise TypeError(f"shown must be of a class with a registered form, got {shown!r}")


@html_card.register
def _(shown: BaseEstimator) -> str:
    """An estimator: its parameters as scikit-learn shows them and, once it is fitted, its certificate."""
    parameters: str = estimator_html_repr(shown)
    fit = fit_with_result(shown)
    if fit is None:
        return parameters
    facts = {"gap": percent(fit.result_.gap)}
    for name in ("alpha", "temperature"):
        if hasattr(fit, f"{name}_"):  # chosen by a search
            facts[name] = f"{getattr(fit, f'{name}_'):.3g}"
    for name, value in _shape(getattr(fit, "function_", None)).items():
        facts.setdefault(name, value)
    return f"<div>{parameters}{card(type(fit).__name__, fit.result_.status, facts, fit.result_.history)}</div>"


@html_card.register
def _(shown: BregmanNCA) -> str:
    """Its parameters and, once it is fitted, the likelihood of the rows that were held out."""
    parameters: str = estimator_html_repr(shown)
    if not hasattr(shown, "divergence_"):
        return parameters
    first, best = (f"{value:.3g}" for value in (shown.log_likelihoods_[0], shown.log_likelihoods_.max()))
    status = f"took the mean log-likelihood from {first} to {best} in {shown.n_iter_} passes"
    return f"<div>{parameters}{card('BregmanNCA', status, _shape(shown.function_))}</div>"


@html_card.register
def _(shown: Result) -> str:
    """The certificate of a fit."""
    facts = {
        "objective": f"{shown.objective:.4g}",
        "certified lower bound": f"{shown.dual_bound:.4g}",
        "gap": percent(shown.gap),
        "seconds": shown_number(shown.seconds, 3),
    }
    return card("Result", shown.status, facts, shown.history)


@html_card.register
def _(shown: BregmanDivergence) -> str:
    """A divergence and its generator."""
    return card("BregmanDivergence", f"of {shown.generator!r}", _shape(shown.generator))


@html_card.register
def _(shown: BregmanIndex) -> str:
    """A collection and how it is searched."""
    by = "D(query, item)" if shown.side == "right" else "D(item, query)"
    kind = "exact" if is_exact(shown.kind) else "approximate"
    facts = {"items": f"{len(shown):,}", "features": str(shown.n_features or "any"), "kind": shown.kind}
    return card("BregmanIndex", f"{kind} search by {by} of {shown.divergence.generator!r}", facts)


def card(name: str, status: str, facts: Mapping[str, str], history: Sequence[Any] = ()) -> str:
    """A frame with a name, a sentence, some figures, and a small plot of how the certified gap closed."""
    style = (
        "display: inline-flex; flex-wrap: wrap; gap: .3em 1.4em; align-items: center; margin: .4em 0; padding: .5em"
        " .9em; border: 1px solid #8886; border-radius: .5em; color: inherit; font: 13px/1.5 system-ui, sans-serif"
    )
    figures = " · ".join(f"{escape(key)} <b>{escape(value)}</b>" for key, value in facts.items())
    text = f"<div><b>{escape(name)}</b> {escape(status)}<br>{figures}</div>"
    return f'<div style="{style}">{text}{sparkline(history)}</div>'


def sparkline(history: Sequence[Any]) -> str:
    """Objective and bound of each check as a small SVG; nothing for fewer than two checks."""
    history = finite_checks(history)
    if len(history) < 2:
        return ""
    width, height, margin = 150, 44, 3
    blue, orange = "#0f7fc4", "#d86a10"  # visible on light and on dark backgrounds
    first, last = history[0].iteration, history[-1].iteration
    lowest, highest = level_range(history)

    def place(check: Any, value: float) -> str:
        x = margin + (width - 2 * margin) * (check.iteration - first) / max(last - first, 1)
        share = (min(max(value, lowest), highest) - lowest) / (highest - lowest)
        return f"{x:.1f},{height - margin - (height - 2 * margin) * share:.1f}"

    upper = [place(check, check.objective) for check in history]
    lower = [place(check, check.dual_bound) for check in history]
    lines = "".join(
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="1.6"{dashes}/>'
        for points, color, dashes in ((upper, blue, ""), (lower, orange, ' stroke-dasharray="4 2"'))
    )
    title = f"Objective and certified lower bound over {last:,} iterations"
    between = f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{blue}" fill-opacity=".15"/>'
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img" aria-label="{title}"><title>{title}</title>{between}{lines}</svg>'


def _shape(function: Any) -> dict[str, str]:
    """Pieces, features and temperature of a learned function, as far as it has them."""
    facts = {}
    if counts := piece_counts(function):
        facts["pieces"] = " + ".join(f"{count:,}" for count in counts)
    if (n_features := getattr(function, "n_features", None)) is not None:
        facts["features"] = f"{n_features:,}"
    if (temperature := getattr(getattr(function, "convex", function), "temperature", None)) is not None:
        facts["temperature"] = f"{temperature:.3g}"
    return facts
