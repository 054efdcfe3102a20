"""An index, and its vectors for other stores, as plain values and tensors for files.

The file of :func:`bregnet.save` and the folder of :meth:`bregnet.BregmanIndex.save` hold the same description.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bregnet._core import validation as check
from bregnet._core.state import Tensors, mapping
from bregnet.divergences import MappedDivergence
from bregnet.divergences.state import read_divergence, write_divergence
from bregnet.retrieval.collection import LARGEST_ID, Collection, pack_names, unpack_names
from bregnet.retrieval.engine import Engine, Settings
from bregnet.retrieval.engines import ENGINES, is_seeded
from bregnet.retrieval.inner_product import InnerProductForm, Symmetry
from bregnet.retrieval.items import Gallery, GrowingRows
from bregnet.retrieval.lift import Lift
from bregnet.retrieval.pieces import PieceEngine

if TYPE_CHECKING:
    from bregnet.retrieval.index import BregmanIndex


@torch.no_grad()
def write_index(name: str, index: BregmanIndex, tensors: Tensors, folder: Path | None = None) -> dict[str, Any]:
    """An index as plain values and tensors; a folder always has an engine, which may write files to it."""
    collection = index._collection
    with collection.lock:
        drawn = index.random_state is None and is_seeded(index.kind)
        if len(index) and (collection.engine is not None or drawn or folder is not None):
            index._ready()  # with what was added last
        rows, engine = collection.rows, collection.engine
        if rows is not None:
            for part, tensor in zip(("points", "ids"), rows.tensors, strict=True):
                tensors.put(f"{name}.{part}", tensor)
        if collection.names:
            tensors.put(f"{name}.names", pack_names(collection.names))
        return {
            "side": index.side,
            **index._settings()._asdict(),
            "divergence": write_divergence(f"{name}.divergence", index.divergence, tensors),
            "device": index.device.type,
            "next_id": collection.next_id,
            "items": rows is not None,
            "names": bool(collection.names),
            "engine": None if engine is None else _write_engine(f"{name}.engine", engine, tensors, folder),
            "n_trained": collection.n_built,
        }


@torch.no_grad()
def read_index(
    cls: type[BregmanIndex],
    name: str,
    state: Any,
    tensors: Tensors,
    *,
    device: torch.device | None = None,
    folder: Path | None = None,
) -> BregmanIndex:
    """Read what `write_index` wrote."""
    settings = {each: mapping(name, state)[each] for each in ("side", *Settings._fields)}
    engine = state["engine"]
    if engine is not None and mapping("engine", engine)["type"] == PieceEngine.__name__:
        settings["kind"] = "flat"  # 0.1.0 gave kind "ivf" exact lists of pieces where it could
    divergence = read_divergence(f"{name}.divergence", state["divergence"], tensors)
    index = cls(divergence, **settings, device=device or ("cpu" if state["device"] == "cpu" else "auto"))
    if index.random_state is not None and index.random_state >= 2**32:
        raise ValueError(f"random_state must be below 2**32, got {index.random_state}")
    collection = index._collection
    if check.boolean("items", state["items"]):
        _read_items(name, index, tensors)
        if check.boolean("names", state.get("names", False)):
            collection.names = _read_names(f"{name}.names", len(collection), tensors)
    collection.next_id = check.integer_at_least("next_id", state["next_id"], collection.next_id)
    if collection.next_id > LARGEST_ID:
        raise ValueError(f"next_id must be at most {LARGEST_ID}, got {collection.next_id}")
    if engine is not None:
        collection.engine = _read_engine(f"{name}.engine", engine, index.kind, collection.gallery(), tensors, folder)
        collection.n_built = check.integer_at_least("n_trained", state["n_trained"], 1)
    return index


def _read_items(name: str, index: BregmanIndex, tensors: Tensors) -> None:
    collection: Collection = index._collection
    points = tensors.tensor(f"{name}.points", (None, index.divergence.base.n_features), torch.float32, torch.float64)
    ids = tensors.tensor(f"{name}.ids", (len(points),), torch.int64)
    if points.shape[1] == 0 or len(torch.unique(ids)) < len(ids):
        raise ValueError(f"{name} must have features, and ids that differ from each other")
    if not tensors.mapped:
        index.divergence.generator._check_domain(f"{name}.points", points, index.side == "right")
    largest = int(ids.max()) if len(ids) else -1
    if largest >= LARGEST_ID:
        raise ValueError(f"{name}.ids must be below {LARGEST_ID}, got {largest}")
    collection.rows = GrowingRows(points.to(index.device), ids.to(index.device))
    collection.next_id = max(0, largest + 1)


def _read_names(name: str, count: int, tensors: Tensors) -> list[str]:
    names = unpack_names(tensors.tensor(name, (None,), torch.uint8))
    if len(names) != count or len(set(names)) < count:
        raise ValueError(
            f"{name} must hold {count} different ids, got {len(names)}, {len(set(names))} of them different"
        )
    return names


def _write_engine(name: str, engine: Engine, tensors: Tensors, folder: Path | None) -> dict[str, Any]:
    return {"type": type(engine).__name__, **engine.state(name, tensors, folder)}


def _read_engine(
    name: str, state: dict[str, Any], kind: str, gallery: Gallery, tensors: Tensors, folder: Path | None
) -> Engine:
    known = {engine.__name__: engine for engine in ENGINES[kind]}
    if not len(gallery) or state["type"] not in known:
        raise ValueError(f"{name} of {len(gallery)} items must be one of {', '.join(known)}, got {state['type']!r}")
    return known[state["type"]].from_state(name, state, gallery, tensors, folder)


def write_form(name: str, form: InnerProductForm, tensors: Tensors) -> dict[str, Any]:
    """Vectors for other stores as plain values and tensors."""
    tensors.put(f"{name}.items", torch.as_tensor(form.items))
    named = form.ids.dtype.kind == "U"
    tensors.put(f"{name}.ids", pack_names(form.ids.tolist()) if named else torch.as_tensor(form.ids))
    form.lift.write(name, tensors)
    divergence = form.lift.divergence
    if form.feature_map is not None:
        divergence = MappedDivergence(divergence.generator, form.feature_map)
    if form.symmetry is not None:
        for part, tensor in vars(form.symmetry).items():
            tensors.put(f"{name}.symmetry.{part}", tensor)
    return {
        "side": form.lift.side,
        "divergence": write_divergence(f"{name}.divergence", divergence, tensors),
        "symmetric": form.symmetry is not None,
        "names": named,
    }


def read_form(name: str, state: Any, tensors: Tensors) -> InnerProductForm:
    """Read what `write_form` wrote."""
    side = check.one_of("side", mapping(name, state)["side"], ("right", "left"))
    divergence = read_divergence(f"{name}.divergence", state["divergence"], tensors)
    feature_map, divergence = getattr(divergence, "feature_map", None), divergence.base
    items = tensors.tensor(f"{name}.items", (None, None), torch.float32)
    if check.boolean("names", state.get("names", False)):
        ids = np.array(_read_names(f"{name}.ids", len(items), tensors))
    else:
        ids = tensors.tensor(f"{name}.ids", (len(items),), torch.int64).numpy()
    symmetric = check.boolean("symmetric", state["symmetric"])
    width = items.shape[1] - symmetric
    if len(items) == 0 or width < 2 or divergence.n_features not in (None, width - 1):
        raise ValueError(f"{name}.items cannot have shape {tuple(items.shape)}")
    lift = Lift.read(name, divergence.to(torch.float64), side, width - 1, tensors)
    symmetry = None
    if symmetric:
        shapes = {"root": (width, width), "inverse_root": (width, width), "longest": ()}
        parts = [tensors.tensor(f"{name}.symmetry.{part}", shapes[part], torch.float64) for part in shapes]
        symmetry = Symmetry(*parts)
        if not symmetry.longest > 0:
            raise ValueError(f"{name}.symmetry.longest must be positive, got {symmetry.longest:g}")
    return InnerProductForm(items.numpy(), ids, lift, symmetry, feature_map)
