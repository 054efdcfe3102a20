"""What notebooks show of fitted estimators, results, divergences and indices, beside their plain `repr`.

It follows ``sklearn.set_config(display=...)``: with "text" there is nothing but the `repr`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from sklearn import get_config
from sklearn.pipeline import Pipeline
from sklearn.utils import estimator_html_repr

SETTLED = 0.15  # share of the iterations after which a fit is not far off any more
WIDTH, HEIGHT, MARGIN = 150, 44, 3  # of the small plot, in pixels
OBJECTIVE, BOUND = "#0f7fc4", "#d86a10"  # that are seen on light and on dark ground
CARD = (
    "display: inline-flex; flex-wrap: wrap; gap: .3em 1.4em; align-items: center; margin: .4em 0; padding: .5em .9em;"
    " border: 1px solid #8886; border-radius: .5em; color: inherit; font: 13px/1.5 system-ui, sans-serif"
)


class NotebookCard:
    """Something with an HTML form for notebooks, which subclasses write."""

    @abstractmethod
    def _notebook_html(self) -> str:
        """The form to show."""

    @property
    def _repr_html_(self) -> Callable[[], str]:
        if get_config()["display"] != "diagram":
            raise AttributeError("_repr_html_ is there for sklearn.set_config(display='diagram') only")
        return self._notebook_html

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            bundle["text/html"] = self._notebook_html()
        return bundle


class EstimatorCard(NotebookCard):
    """An estimator: its parameters as scikit-learn shows them and, once it is fitted, its certificate."""

    def _notebook_html(self) -> str:
        shown: str = estimator_html_repr(self)
        fit = next((each for each in held_fits(self) if getattr(each, "result_", None) is not None), None)
        if fit is None:
            return shown
        result, facts = fit.result_, [("gap", percent(fit.result_.gap))]
        for name in ("alpha", "temperature"):
            if hasattr(fit, f"{name}_"):  # chosen by a search
                facts.append((name, f"{getattr(fit, f'{name}_'):.3g}"))
        facts += [fact for fact in _shape(getattr(fit, "function_", None)) if fact[0] not in dict(facts)]
        return f"<div>{shown}{card(type(fit).__name__, result.status, facts, result.history)}</div>"


class ResultCard(NotebookCard):
    """The certificate of a fit."""

    def _notebook_html(self: Any) -> str:
        facts = [
            ("objective", f"{self.objective:.4g}"),
            ("certified lower bound", f"{self.dual_bound:.4g}"),
            ("gap", percent(self.gap)),
            ("seconds", f"{self.seconds:.3g}"),
        ]
        return card("Result", self.status, facts, self.history)


class DivergenceCard(NotebookCard):
    """A divergence and its generator."""

    def _notebook_html(self: Any) -> str:
        return card("BregmanDivergence", f"of {self.generator!r}", _shape(self.generator))


class IndexCard(NotebookCard):
    """A collection and how it is searched."""

    def _notebook_html(self: Any) -> str:
        by = "D(query, item)" if self.side == "right" else "D(item, query)"
        kind = "exact" if self.kind == "flat" else "approximate"
        facts = [("items", f"{len(self):,}"), ("features", str(self.n_features or "any")), ("kind", self.kind)]
        return card("BregmanIndex", f"{kind} search by {by} of {self.divergence.generator!r}", facts)


def held_fits(estimator: Any) -> Iterator[Any]:
    """An estimator and the fitted ones that it holds, outermost first."""
    yield estimator
    held = [getattr(estimator, name, None) for name in ("learner_", "best_estimator_")]
    if isinstance(estimator, Pipeline):
        held.append(estimator.steps[-1][1])
    for each in held:
        if each is not None:
            yield from held_fits(each)


def card(name: str, status: str, facts: Sequence[tuple[str, str]], history: Sequence[Any] = ()) -> str:
    """A frame with a name, a sentence, some figures, and a small plot of how the certified gap closed."""
    figures = " · ".join(f"{escape(key)} <b>{escape(value)}</b>" for key, value in facts)
    told = f"<div><b>{escape(name)}</b> {escape(status)}<br>{figures}</div>"
    return f'<div style="{CARD}">{told}{sparkline(history)}</div>'


def sparkline(history: Sequence[Any]) -> str:
    """Objective and bound of each look at the certificate as a small SVG; nothing for fewer than two."""
    history = finite_looks(history)
    if len(history) < 2:
        return ""
    first, last = history[0].iteration, history[-1].iteration
    lowest, highest = level_range(history)

    def place(look: Any, value: float) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * (look.iteration - first) / max(last - first, 1)
        share = (min(max(value, lowest), highest) - lowest) / (highest - lowest)
        return f"{x:.1f},{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share:.1f}"

    upper = [place(look, look.objective) for look in history]
    lower = [place(look, look.dual_bound) for look in history]
    lines = "".join(
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>'
        for points, colour, dashes in ((upper, OBJECTIVE, ""), (lower, BOUND, ' stroke-dasharray="4 2"'))
    )
    told = f"Objective and certified lower bound over {last:,} iterations"
    between = f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{OBJECTIVE}" fill-opacity=".15"/>'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg {size} role="img" aria-label="{told}"><title>{told}</title>{between}{lines}</svg>'


def finite_looks(history: Sequence[Any]) -> list[Any]:
    """The looks that can be drawn."""
    return [look for look in history if math.isfinite(look.objective) and math.isfinite(look.dual_bound)]


def level_range(history: Sequence[Any]) -> tuple[float, float]:
    """Levels between which one sees how the certified gap closed: first looks that are far off may lie outside."""
    last = history[-1]
    settled = next((look for look in history if look.iteration >= SETTLED * last.iteration), last)
    room = 1.5 * max(settled.objective - settled.dual_bound, last.objective - last.dual_bound)
    lowest = max(min(look.dual_bound for look in history), last.dual_bound - room)
    highest = min(max(look.objective for look in history), last.objective + room)
    if highest <= lowest:
        lowest, highest = lowest - 0.5, lowest + 0.5
    return lowest, highest


def _shape(function: Any) -> list[tuple[str, str]]:
    """Pieces, features and smoothing of a learned function, as far as it has them."""
    parts = [getattr(function, name) for name in ("convex", "concave") if hasattr(function, name)] or [function]
    facts = []
    pieces = [part.n_pieces for part in parts if hasattr(part, "n_pieces")]
    if pieces:
        facts.append(("pieces", " + ".join(f"{count:,}" for count in pieces)))
    n_features = getattr(function, "n_features", None)
    if n_features is not None:
        facts.append(("features", f"{n_features:,}"))
    temperature = getattr(parts[0], "temperature", None)
    if temperature is not None:
        facts.append(("temperature", f"{temperature:.3g}"))
    return facts


def percent(share: float) -> str:
    """A share in percent, with two digits."""
    return f"{100 * share:.2g}%" if 100 * share < 99.5 else f"{100 * share:.0f}%"
