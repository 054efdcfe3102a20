"""An index, and its vectors for other stores, as plain values and tensors, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.state import Made, Tensors, mapping
from bregnet.divergences import BregmanDivergence
from bregnet.divergences.state import DIVERGENCE
from bregnet.retrieval.flat import FlatEngine
from bregnet.retrieval.folder import LIFT, check_lift, check_vectors
from bregnet.retrieval.index import BregmanIndex, Engine
from bregnet.retrieval.inner_product import InnerProductForm, Symmetry
from bregnet.retrieval.items import LARGEST_ID, Collection, Gallery, GrowingRows
from bregnet.retrieval.ivf import CellEngine
from bregnet.retrieval.lift import Lift
from bregnet.retrieval.pieces import PieceEngine, sharp_part
from bregnet.retrieval.vectors import Vectors

SETTINGS = ("side", "kind", "n_cells", "nprobe", "random_state")
LARGEST_SEED = 2**32 - 1  # that numpy takes
POINTS = (torch.float32, torch.float64)


@torch.no_grad()
def _write_index(name: str, index: BregmanIndex, tensors: Tensors) -> dict[str, Any]:
    with index._lock:
        random_cells = index.kind == "ivf" and index.random_state is None
        if len(index) and (index._engine is not None or random_cells):
            index._ready()  # with what was added last
        rows, engine = index._collection._rows, index._engine
        if rows is not None:
            for part, tensor in zip(("points", "ids"), rows.tensors, strict=True):
                tensors.put(f"{name}.{part}", tensor)
        return {
            **{each: getattr(index, each) for each in SETTINGS},
            "divergence": DIVERGENCE.write(f"{name}.divergence", index.divergence, tensors),
            "device": index.device.type,
            "next_id": index._collection.next_id,
            "items": rows is not None,
            "engine": None if engine is None else _write_engine(f"{name}.engine", engine, tensors),
            "n_trained": index._n_trained,
        }


@torch.no_grad()
def _read_index(name: str, state: Any, tensors: Tensors) -> BregmanIndex:
    settings = {each: mapping(name, state)[each] for each in SETTINGS}
    divergence = DIVERGENCE.read(f"{name}.divergence", state["divergence"], tensors)
    index = BregmanIndex(divergence, **settings, device="cpu" if state["device"] == "cpu" else "auto")
    if index.random_state is not None and index.random_state > LARGEST_SEED:
        raise ValueError(f"random_state must be at most {LARGEST_SEED}, got {index.random_state}")
    if check.boolean("items", state["items"]):
        index._collection = _collection(name, index, tensors)
    next_id = check.integer_at_least("next_id", state["next_id"], index._collection.next_id)
    if next_id > LARGEST_ID:
        raise ValueError(f"next_id must be at most {LARGEST_ID}, got {next_id}")
    index._collection.next_id = next_id
    if state["engine"] is not None:
        index._engine = _read_engine(f"{name}.engine", state["engine"], index._items(), tensors)
        index._n_trained = check.integer_at_least("n_trained", state["n_trained"], 1)
    return index


def _collection(name: str, index: BregmanIndex, tensors: Tensors) -> Collection:
    """The items of an index, which may all have been removed."""
    points = tensors.tensor(f"{name}.points", (None, index.divergence.n_features), *POINTS)
    ids = tensors.tensor(f"{name}.ids", (len(points),), torch.int64)
    if points.shape[1] == 0 or len(torch.unique(ids)) < len(ids):
        raise ValueError(f"{name} must have features, and ids that differ from each other")
    index.divergence.generator._check_domain(f"{name}.points", points, index.side == "right")
    made = Collection(index.divergence, index.side, index.device)
    made._rows = GrowingRows(points.to(index.device), ids.to(index.device))
    largest = int(ids.max()) if len(ids) else -1
    if largest >= LARGEST_ID:
        raise ValueError(f"{name}.ids must be below {LARGEST_ID}, got {largest}")
    made.next_id = max(0, largest + 1)
    return made


def _write_engine(name: str, engine: Engine, tensors: Tensors) -> dict[str, Any]:
    """What searches the items: made anew, it would round otherwise where items came and went since it was made."""
    if isinstance(engine, PieceEngine):
        tensors.put(f"{name}.pieces", engine._pieces())
        tensors.put(f"{name}.members", engine._members)
        flat = engine._flat
        if flat is not None:
            _write_vectors(name, flat.vectors, tensors)
        return {"type": PieceEngine.__name__, "vectors": flat is not None}
    _write_vectors(name, engine.vectors, tensors)
    if isinstance(engine, CellEngine):
        tensors.put(f"{name}.centres", engine.centres)
        tensors.put(f"{name}.cells", engine.cells())
    return {"type": type(engine).__name__}


def _read_engine(name: str, state: Any, gallery: Gallery, tensors: Tensors) -> Engine:
    kind = mapping(name, state)["type"]
    if not len(gallery):
        raise ValueError(f"{name} must have items, got none")
    if kind == FlatEngine.__name__:
        return FlatEngine(_read_vectors(name, gallery, tensors))
    if kind == PieceEngine.__name__:
        pieces, members = _read_lists(name, gallery, tensors)
        there = check.boolean("vectors", state["vectors"])
        return PieceEngine(
            gallery, pieces, members, FlatEngine(_read_vectors(name, gallery, tensors)) if there else None
        )
    if kind != CellEngine.__name__:
        raise ValueError(f"{name} must be one of those of an index, got {kind!r}")
    centres = tensors.tensor(f"{name}.centres", (None, gallery.points.shape[1]), torch.float64)
    gallery.divergence.generator._check_domain(f"{name}.centres", centres, True)
    cells = tensors.tensor(f"{name}.cells", (len(gallery),), torch.int64)
    _expect_below(f"{name}.cells", cells, len(centres))
    return CellEngine(_read_vectors(name, gallery, tensors), centres, cells=cells)


def _read_lists(name: str, gallery: Gallery, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """Pieces and rows of the items in lists: every item in one, or in several on the left side."""
    sharp = sharp_part(gallery.divergence.generator)
    right = gallery.side == "right"
    if sharp is None or sharp.weight == 0 or not (right or sharp.function._bowl is None):
        raise ValueError(f"{name} cannot be lists of pieces of {gallery.divergence!r}")
    pieces = tensors.tensor(f"{name}.pieces", (None,), torch.int64)
    members = tensors.tensor(f"{name}.members", (len(pieces),), torch.int64)
    _expect_below(f"{name}.pieces", pieces, sharp.function.n_pieces)
    _expect_below(f"{name}.members", members, len(gallery))
    counts = torch.bincount(members, minlength=len(gallery))
    distinct = len(torch.unique(torch.stack([pieces, members]), dim=1)[0])
    if counts.min() < 1 or distinct < len(members) or (right and counts.max() > 1):
        raise ValueError(f"{name}.members must hold every item once, got others")
    return pieces, members


def _expect_below(name: str, numbers: Tensor, bound: int) -> None:
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < bound:
        raise ValueError(f"{name} must be from 0 to {bound - 1}, got {numbers.min()} to {numbers.max()}")


def _write_vectors(name: str, vectors: Vectors, tensors: Tensors) -> None:
    _write_lift(name, vectors.lift, tensors)
    tensors.put(f"{name}.coarse", vectors.coarse)
    tensors.put(f"{name}.fine", vectors.fine)


def _read_vectors(name: str, gallery: Gallery, tensors: Tensors) -> Vectors:
    count, n_features = gallery.points.shape
    device = gallery.points.device
    lift = _read_lift(name, gallery.divergence, gallery.side, n_features, tensors, device)
    shape = (count, n_features + 1)
    coarse, fine = (tensors.tensor(f"{name}.{part}", shape, torch.float32).to(device) for part in ("coarse", "fine"))
    vectors = Vectors(gallery, lift, coarse, fine)
    check_vectors(vectors)
    return vectors


def _write_lift(name: str, lift: Lift, tensors: Tensors) -> None:
    for part in LIFT:
        tensors.put(f"{name}.lift.{part}", getattr(lift, part))


def _read_lift(
    name: str, divergence: BregmanDivergence, side: str, n_features: int, tensors: Tensors, device: torch.device
) -> Lift:
    parts = [tensors[f"{name}.lift.{part}"].clone().to(device) for part in LIFT]
    lift = Lift(divergence, side, *parts)
    check_lift(lift, n_features)
    return lift


def _write_form(name: str, form: InnerProductForm, tensors: Tensors) -> dict[str, Any]:
    tensors.put(f"{name}.items", torch.as_tensor(form.items))
    tensors.put(f"{name}.ids", torch.as_tensor(form.ids))
    _write_lift(name, form.lift, tensors)
    if form.symmetry is not None:
        for part, tensor in vars(form.symmetry).items():
            tensors.put(f"{name}.symmetry.{part}", tensor)
    return {
        "side": form.lift.side,
        "divergence": DIVERGENCE.write(f"{name}.divergence", form.lift.divergence, tensors),
        "symmetric": form.symmetry is not None,
    }


def _read_form(name: str, state: Any, tensors: Tensors) -> InnerProductForm:
    side = check.one_of("side", mapping(name, state)["side"], ("right", "left"))
    divergence = DIVERGENCE.read(f"{name}.divergence", state["divergence"], tensors)
    items = tensors.tensor(f"{name}.items", (None, None), torch.float32)
    ids = tensors.tensor(f"{name}.ids", (len(items),), torch.int64)
    symmetric = check.boolean("symmetric", state["symmetric"])
    width = items.shape[1] - symmetric
    if len(items) == 0 or width < 2 or divergence.n_features not in (None, width - 1):
        raise ValueError(f"{name}.items cannot have shape {tuple(items.shape)}")
    divergence = divergence.to(torch.float64)
    lift = _read_lift(name, divergence, side, width - 1, tensors, torch.device("cpu"))
    symmetry = None
    if symmetric:
        shapes = {"root": (width, width), "inverse_root": (width, width), "longest": ()}
        parts = [tensors.tensor(f"{name}.symmetry.{part}", shapes[part], torch.float64) for part in shapes]
        symmetry = Symmetry(*parts)
        if not symmetry.longest > 0:
            raise ValueError(f"{name}.symmetry.longest must be positive, got {symmetry.longest:g}")
    return InnerProductForm(items.numpy(), ids.numpy(), lift, symmetry)


INDEX, FORM = Made(_write_index, _read_index), Made(_write_form, _read_form)
