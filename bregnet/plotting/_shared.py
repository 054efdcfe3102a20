"""What the plots share: arguments, axes, colors, and which rows are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data

from bregnet._core.arrays import Array, refuse_strange, to_numpy
from bregnet._core.optional import require
from bregnet.divergences import BregmanDivergence
from bregnet.divergences.resolve import divergence_of, side_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

# Color-blind readers can distinguish the first eight; the report has a lighter shade of each for dark pages.
COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#aa4499",
    "#b8860b",
    "#56a3d9",
    "#882255",
    "#6b6b6b",
    "#5b4fc4",
    "#6f8f00",
)
NEUTRAL = "#8a8a8a"  # of frames and guide lines


@dataclass(frozen=True)
class Measure:
    """A divergence, and which argument of it the items are."""

    divergence: BregmanDivergence
    side: str = "right"


def measure(given: Any, name: str = "divergence") -> Measure:
    """The divergence of an estimator, a generator or a name, with the side that the estimator searches."""
    if isinstance(given, Measure):
        return given
    return Measure(divergence_of(given, name), side_of(given))


def rows_of(name: str, values: Array, n_features: int | None = None, fitted: Any = None) -> np.ndarray:
    """Finite rows in double precision, at least one; a data frame must have the columns of the fitted estimator."""
    if hasattr(fitted, "feature_names_in_") and hasattr(values, "columns"):
        validate_data(fitted, values, reset=False, skip_check_array=True)
    rows = real_numbers(name, values)
    if rows.ndim != 2 or n_features not in (None, rows.shape[1]):
        expected = "n_features" if n_features is None else n_features
        raise ValueError(f"{name} must have shape (n_samples, {expected}), got {rows.shape}")
    if len(rows) == 0:
        raise ValueError(f"{name} must have at least one row, got none")
    return rows


def real_numbers(name: str, values: Array) -> np.ndarray:
    """Finite numbers in double precision."""
    refuse_strange(name, values)
    try:
        found = np.asarray(to_numpy(values, name))
        if found.dtype.kind == "c":  # numpy would take the real parts
            raise TypeError(f"dtype {found.dtype}")
        found = found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must hold real numbers, got {type(values).__name__}: {error}") from None
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return found


def same_columns(name: str, values: Any, X: Any) -> None:
    """Check that a data frame has the columns of the data frame X in the same order; other arrays have none."""
    found, expected = (list(getattr(frame, "columns", ())) for frame in (values, X))
    named = [bool(names) and all(isinstance(each, str) for each in names) for names in (found, expected)]
    if all(named) and found != expected:
        raise ValueError(f"{name} must have the columns of X in their order, {expected}, got {found}")


def label_array(name: str, labels: Any) -> np.ndarray:
    """Labels as an array; strings that came as objects, as from data frames, as strings."""
    if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels):
        labels = labels.tolist()  # None where it is masked
    if isinstance(labels, list | tuple) and any(map(_is_missing, labels)):
        return np.asarray(labels, dtype=object)  # numpy would make a string of a missing one among strings
    values = np.asarray(to_numpy(labels, name))
    strings = values.dtype == object and values.ndim == 1 and all(isinstance(each, str) for each in values)
    return values.astype(np.str_) if strings else values


def classes_of(name: str, labels: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes and the number of each row's."""
    values = label_array(name, labels)
    if values.shape != (n_rows,):
        raise ValueError(f"{name} must have shape ({n_rows},), a label for each row, got {values.shape}")
    n_missing = sum(map(_is_missing, values)) if values.dtype == object else int((values != values).sum())
    if n_missing:  # they would make up a class
        raise ValueError(f"{name} must have a label for each row, got none in {n_missing} of {len(values)} rows")
    try:
        classes, numbers = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise TypeError(f"{name} must hold labels of one kind, got an array where {error}") from None
    return classes, numbers


def labels_of(name: str, labels: Any, n_rows: int) -> np.ndarray:
    """A label of one kind for each row."""
    classes, numbers = classes_of(name, labels, n_rows)
    return classes[numbers]


def _is_missing(value: Any) -> bool:
    """Whether it is None, NaN, or a missing value of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | np.datetime64) and bool(value != value)


def shown_rows(classes: np.ndarray | None, n_rows: int, most: int) -> np.ndarray:
    """Numbers of the rows that a plot shows, in the order of their classes (of the rows, without classes).

    Up to `most` all are shown; of more, evenly spaced ones in that order, so that classes keep their shares.
    """
    order = np.arange(n_rows) if classes is None else np.argsort(classes, kind="stable")
    if n_rows <= most:
        return order
    return order[np.linspace(0, n_rows - 1, most).round().astype(int)]


def axes(ax: Axes | None) -> Axes:
    """The axes that were given, or new ones of pyplot."""
    if ax is None:
        require("bregnet.plotting", "matplotlib", extra="report")
        from matplotlib import pyplot

        return pyplot.subplots(layout="constrained")[1]
    if not hasattr(ax, "get_figure") or not hasattr(ax, "plot"):
        raise TypeError(f"ax must be matplotlib axes or None, got {ax!r}")
    return ax


def printable(value: Any) -> str:
    """Text in one line, with spaces in place of control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in str(value)).strip()


def shown_name(value: Any, length: int = 28) -> str:
    """A name in one line that is not too long: of long ones begin and end, for names are often numbered."""
    text = printable(value)
    end = length // 3
    return text if len(text) <= length else f"{text[: length - 1 - end]}…{text[-end:]}"


def shown_number(value: float, digits: int = 4) -> str:
    """A number in few characters; whole where it is large, with a power of ten only where it is huge or tiny."""
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e7 else text


def shown_distance(value: float) -> str:
    """A divergence in few characters."""
    return f"{value:.3g}" if value == 0 or value >= 0.001 else "< 0.001"


def color(number: int) -> str:
    """The color of a class or a curve; they repeat."""
    return COLORS[number % len(COLORS)]


def legend(ax: Axes, handles: list[Any], names: list[str], **options: Any) -> Legend:
    """A legend in which dollar signs and leading underscores of names have no special meaning."""
    made = ax.legend(
        handles, [str(number) for number in range(len(names))], **{"frameon": False, "fontsize": "small", **options}
    )
    for text, name in zip(made.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
    return made
