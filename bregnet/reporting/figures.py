"""Matplotlib's pictures as inline SVG whose colors follow the page."""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from bregnet.plotting._shared import COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "savefig.dpi": 144.0,
    "figure.dpi": 144.0,
    "svg.fonttype": "none",  # letters stay text: they can be read aloud, selected and colored
}
_drawing = threading.Lock()  # matplotlib's settings are global


def drawn(
    name: str,
    title: str,
    description: str,
    draw: Callable[[Axes], Any],
    size: tuple[float, float],
    tips: Mapping[str, str | Sequence[str]] | None = None,
) -> str:
    """A picture as an `svg` element.

    Parameters
    ----------
    name : str
        Unique on the page; ids begin with it.
    title, description : str
        For readers who do not see the picture.
    draw : callable
        Draws on the axes that it is given.
    size : tuple of float
        Width and height in inches.
    tips : mapping, default=None
        Tooltips by the `gid` of what is drawn: a text, or one for each marker.
    """
    import matplotlib
    from matplotlib.figure import Figure

    text = io.StringIO()
    with _drawing, matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from")  # the browser has fonts of its own
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**STYLE, "svg.hashsalt": name})
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _inlined(text.getvalue(), name, title, description, tips or {})


def _inlined(text: str, name: str, title: str, description: str, tips: Mapping[str, str | Sequence[str]]) -> str:
    """An SVG file as an element of a page: ids of its own, colors of the page, a title and a description."""
    root = ElementTree.fromstring(text)
    for element in list(root.iter()):
        if (tip := tips.get(element.get("id", ""))) is not None:
            _add_tips(element, tip)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: _changed(key, value, name) for key, value in element.attrib.items()}
    for defs in root.findall("defs"):  # a style that would be that of the whole page
        for style in defs.findall("style"):
            defs.remove(style)
    root.attrib = {
        "class": "plot",
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-about",
    }
    for place, (tag, key, words) in enumerate([("title", "title", title), ("desc", "about", description)]):
        element = ElementTree.Element(tag, {"id": f"{name}-{key}"})
        element.text = words
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _add_tips(group: ElementTree.Element, tip: str | Sequence[str]) -> None:
    """Titles, which browsers show as tooltips: one for a group, or one for each of its markers."""
    if isinstance(tip, str):
        group.set("pointer-events", "all")  # nothing is to be seen of it
        ElementTree.SubElement(group, "title").text = tip
        return
    markers = [element for element in group.iter() if element.tag.endswith("}use")]
    for marker, text in zip(markers, tip, strict=False):  # a rasterized group has none
        ElementTree.SubElement(marker, "title").text = text


def _changed(key: str, value: str, name: str) -> str:
    """An attribute as the page needs it."""
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href") and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    value = re.sub(r"url\(#", f"url(#{name}-", value)
    if key == "style":
        value = re.sub(r"font-family:[^;]*;?", "", value)
        value = value.replace("#000000", "currentColor")  # matplotlib's own, which no picture uses otherwise
        for number, color in enumerate(COLORS):
            value = value.replace(color, f"var(--series-{number})")
    return value
