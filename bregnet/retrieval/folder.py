"""An index as a folder: `index.safetensors`, and for cells `cells.faiss`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bregnet._core.files import DAMAGE, UnreadableFileError, digest, read_tensors, whole_folder, write_tensors
from bregnet.divergences import BregmanDivergence
from bregnet.divergences.state import generator_from, generator_state
from bregnet.retrieval.flat import FlatEngine
from bregnet.retrieval.items import Gallery
from bregnet.retrieval.ivf import CellEngine
from bregnet.retrieval.lift import Lift
from bregnet.retrieval.vectors import Vectors

KIND, VERSION = "BregmanIndex", 1
TENSORS, LISTS = "index.safetensors", "cells.faiss"
CHECKED_ROWS = 16
LIFT = ("centre", "mean", "weights", "unit", "typical", "plain")


def write_index(
    path: Path, header: dict[str, Any], divergence: BregmanDivergence, gallery: Gallery | None, engine: Any
) -> None:
    """Write an index; a folder that was written so before is replaced, when all is there."""
    state, tensors = generator_state(divergence.generator)
    header = {**header, "generator": state, "engine": None if engine is None else type(engine).__name__}
    if gallery is not None:
        tensors |= {"points": gallery.points, "ids": gallery.ids}
    vectors = getattr(engine, "vectors", None)
    if vectors is not None:
        tensors |= {f"lift.{name}": getattr(vectors.lift, name) for name in LIFT}
        tensors |= {"coarse": vectors.coarse, "fine": vectors.fine}
    if isinstance(engine, CellEngine):
        tensors["centres"] = engine.centres
    with whole_folder(path, (TENSORS, LISTS)) as folder:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        header["lists"] = None
        if isinstance(engine, CellEngine):
            engine.write_lists(folder / LISTS)
            header["lists"] = _digest_of(folder / LISTS)
        write_tensors(folder / TENSORS, KIND, VERSION, {**header, "digest": digest(header, tensors)}, tensors)


def read_index(
    path: Path, device: torch.device, *, mmap: bool
) -> tuple[dict[str, Any], BregmanDivergence, Gallery | None, Any]:
    """What `write_index` was given."""
    file = path / TENSORS
    if not file.is_file():
        raise FileNotFoundError(f"path must be a folder written by save, got {str(path)!r} without {TENSORS}")
    header, tensors = read_tensors(file, KIND, VERSION, mmap=mmap)
    try:
        if not mmap:  # what is mapped is not read before it is needed
            _check_digests(header, tensors, path / LISTS)
        device = torch.device("cpu") if header["kind"] == "ivf" else device
        divergence = BregmanDivergence(generator_from(header["generator"], tensors))
        gallery = _gallery(divergence, header["side"], tensors, device, checked=not mmap)
        engine = None if gallery is None else _engine(header["engine"], gallery, tensors, path / LISTS, mmap)
    except DAMAGE as error:
        raise UnreadableFileError(f"{path} is not a {KIND} of bregnet, or was damaged: {error}") from error
    return header, divergence, gallery, engine


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_digests(header: dict[str, Any], tensors: dict[str, Tensor], lists: Path) -> None:
    """Raise an error where the files are not as they were written."""
    content = {name: value for name, value in header.items() if name not in ("digest", "holds", "version", "bregnet")}
    if header["digest"] != digest(content, tensors):
        raise ValueError("its contents do not have the checksum that was written with them")
    if header["lists"] is not None and lists.is_file() and header["lists"] != _digest_of(lists):
        raise ValueError(f"{lists.name} does not have the checksum that was written with it")


def _gallery(
    divergence: BregmanDivergence, side: str, tensors: dict[str, Tensor], device: torch.device, *, checked: bool
) -> Gallery | None:
    if not len(tensors.get("points", ())):
        return None
    points, ids = tensors["points"].to(device), tensors["ids"].to(device)
    known = divergence.n_features
    expect("points", points, (len(points), known or points.shape[1]), (torch.float32, torch.float64))
    expect("ids", ids, (len(points),), (torch.int64,))
    if len(torch.unique(ids)) < len(ids):
        raise ValueError("ids must differ from each other, got some twice")
    if checked and not torch.isfinite(points).all():
        raise ValueError("points must be finite, got NaN or infinity")
    return Gallery(divergence.to(torch.float64).to(device), side, points, ids)


def _engine(name: str | None, gallery: Gallery, tensors: dict[str, Tensor], lists: Path, mmap: bool) -> Any:
    """The engine, or None where it is made anew: lists of pieces take no longer than reading them."""
    if name not in (FlatEngine.__name__, CellEngine.__name__):
        return None
    device, (count, width) = gallery.points.device, gallery.points.shape
    lift = Lift(gallery.divergence, gallery.side, *(tensors[f"lift.{part}"].to(device) for part in LIFT))
    for part in ("coarse", "fine"):
        expect(part, tensors[part], (count, width + 1), (torch.float32,))
    check_lift(lift, width)
    vectors = Vectors(gallery, lift, tensors["coarse"].to(device), tensors["fine"].to(device))
    check_vectors(vectors)
    if name == FlatEngine.__name__:
        return FlatEngine(vectors)
    expect("centres", tensors["centres"], (len(tensors["centres"]), width), (torch.float64,))
    return CellEngine.read(vectors, tensors["centres"], lists, mmap=mmap)


def check_vectors(vectors: Vectors) -> None:
    """Raise an error where the vectors of the first items are not those of their points."""
    some, coarse = vectors.gallery.points[:CHECKED_ROWS], vectors.coarse[:CHECKED_ROWS]
    away = (vectors.lift.items(some).float() - coarse).abs().max()
    if not away <= 1e-4 * coarse.abs().max():
        raise ValueError("vectors do not belong to the points")


def check_lift(lift: Lift, n_features: int) -> None:
    """Raise an error where the parts of a lift are not for so many features, or not numbers that can be used."""
    shapes = {"centre": (n_features,), "mean": (n_features + 1,), "weights": (n_features + 1,)}
    for name in LIFT:
        part = getattr(lift, name)
        expect(f"lift.{name}", part, shapes.get(name, ()), (torch.float64,))
        if not torch.isfinite(part).all() or (name in ("weights", "unit") and not (part > 0).all()):
            raise ValueError(f"lift.{name} must be finite, and positive where it divides")


def expect(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
    """Raise an error for a tensor that is not as it should be."""
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
        wanted = f"{shape} and {' or '.join(map(str, dtypes))}"
        raise ValueError(f"{name} must have {wanted}, got {tuple(tensor.shape)} and {tensor.dtype}")
