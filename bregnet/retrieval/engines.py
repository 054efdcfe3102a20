"""The engines of an index by its `kind`; a new one is a subclass of `Engine` in its own module, and an entry here."""

from __future__ import annotations

from bregnet.retrieval.engine import Engine, Settings
from bregnet.retrieval.flat import FlatEngine
from bregnet.retrieval.items import Gallery
from bregnet.retrieval.ivf import CellEngine
from bregnet.retrieval.pieces import PieceEngine

# the first that suits the items is taken; all of a kind must answer as its documentation says
ENGINES: dict[str, tuple[type[Engine], ...]] = {"flat": (PieceEngine, FlatEngine), "ivf": (CellEngine,)}


def is_seeded(kind: str) -> bool:
    """Whether building an index of this kind may draw random numbers."""
    return any(each.seeded for each in ENGINES.get(kind, ()))


def is_exact(kind: str) -> bool:
    """Whether an index of this kind never misses a nearer item."""
    return all(each.exact for each in ENGINES[kind])


def build_engine(gallery: Gallery, settings: Settings) -> Engine:
    """The engine for these items."""
    return next(each for each in ENGINES[settings.kind] if each.suits(gallery)).build(gallery, settings)
