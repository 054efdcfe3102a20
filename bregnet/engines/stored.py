"""An index as a folder: `index.safetensors`, and for cells `cells.faiss`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bregnet._files import UnreadableFileError, read_tensors, whole_folder, write_tensors
from bregnet._states import generator_from, generator_state
from bregnet.divergences import BregmanDivergence
from bregnet.engines.cells import CellEngine
from bregnet.engines.flat import FlatEngine
from bregnet.engines.gallery import Gallery
from bregnet.engines.lift import Lift
from bregnet.engines.vectors import Vectors

KIND, VERSION = "BregmanIndex", 1
TENSORS, LISTS = "index.safetensors", "cells.faiss"
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
    with whole_folder(path, TENSORS) as folder:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_tensors(folder / TENSORS, KIND, VERSION, header, tensors)
        if isinstance(engine, CellEngine):
            engine.write_lists(folder / LISTS)


def read_index(
    path: Path, device: torch.device, *, mmap: bool
) -> tuple[dict[str, Any], BregmanDivergence, Gallery | None, Any]:
    """What `write_index` was given."""
    file = path / TENSORS
    if not file.is_file():
        raise FileNotFoundError(f"path must be a folder written by save, got {str(path)!r} without {TENSORS}")
    header, tensors = read_tensors(file, KIND, VERSION, mmap=mmap)
    try:
        divergence = BregmanDivergence(generator_from(header["generator"], tensors))
        gallery = _gallery(divergence, header["side"], tensors, device)
        engine = None if gallery is None else _engine(header["engine"], gallery, tensors, path / LISTS, mmap)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        raise UnreadableFileError(f"{path} is not a {KIND} of bregnet, or was damaged: {error}") from error
    return header, divergence, gallery, engine


def _gallery(
    divergence: BregmanDivergence, side: str, tensors: dict[str, Tensor], device: torch.device
) -> Gallery | None:
    if "points" not in tensors:
        return None
    points, ids = tensors["points"].to(device), tensors["ids"].to(device)
    known = divergence.n_features
    expect("points", points, (len(points), known or points.shape[1]), (torch.float32, torch.float64))
    expect("ids", ids, (len(points),), (torch.int64,))
    return Gallery(divergence.to(torch.float64).to(device), side, points, ids)


def _engine(name: str | None, gallery: Gallery, tensors: dict[str, Tensor], lists: Path, mmap: bool) -> Any:
    """The engine, or None where it is made anew: lists of pieces take no longer than reading them."""
    if name not in (FlatEngine.__name__, CellEngine.__name__):
        return None
    device, (count, width) = gallery.points.device, gallery.points.shape
    lift = Lift(gallery.divergence, gallery.side, *(tensors[f"lift.{part}"].to(device) for part in LIFT))
    for part in ("coarse", "fine"):
        expect(part, tensors[part], (count, width + 1), (torch.float32,))
    vectors = Vectors(gallery, lift, tensors["coarse"].to(device), tensors["fine"].to(device))
    if name == FlatEngine.__name__:
        return FlatEngine(vectors)
    expect("centres", tensors["centres"], (len(tensors["centres"]), width), (torch.float64,))
    return CellEngine.read(vectors, tensors["centres"], lists, mmap=mmap)


def expect(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
    """Raise an error for a tensor that is not as it should be."""
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
        wanted = f"{shape} and {' or '.join(map(str, dtypes))}"
        raise ValueError(f"{name} must have {wanted}, got {tuple(tensor.shape)} and {tensor.dtype}")
