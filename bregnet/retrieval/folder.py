"""An index as a folder: `index.safetensors`, and the files of its engine, which can be memory-mapped."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bregnet._core.files import digest, naming_damage, read_tensors, whole_folder, write_tensors
from bregnet._core.state import Tensors
from bregnet.retrieval.engine import Settings
from bregnet.retrieval.engines import ENGINES
from bregnet.retrieval.ivf import CellEngine
from bregnet.retrieval.pieces import PieceEngine
from bregnet.retrieval.state import read_index, write_index

if TYPE_CHECKING:
    from bregnet.retrieval.index import BregmanIndex

KIND, TENSORS = "BregmanIndex", "index.safetensors"


def write_folder(index: BregmanIndex, path: Path) -> None:
    """Write an index; a folder that was saved before is replaced when the new one is complete."""
    known = {name for engines in ENGINES.values() for engine in engines for name in engine.files}
    with whole_folder(path, (TENSORS, *known)) as folder:
        tensors = Tensors()
        content = {"state": write_index("index", index, tensors, folder), "same": tensors.same}
        content["files"] = {file.name: _digest_of(file) for file in sorted(folder.iterdir())}
        header = {**content, "digest": digest(content, tensors.stored)}
        write_tensors(folder / TENSORS, KIND, 2, header, tensors.stored)


def read_header(path: Path, *, mmap: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header of the folder's file, and the tensors."""
    if not (path / TENSORS).is_file():
        raise FileNotFoundError(f"path must be a folder written by save, got {str(path)!r} without {TENSORS}")
    return read_tensors(path / TENSORS, KIND, 1, 2, mmap=mmap)


def read_folder(cls: type[BregmanIndex], path: Path, device: torch.device, *, mmap: bool) -> BregmanIndex:
    """Read what `write_folder` wrote."""
    header, stored = read_header(path, mmap=mmap)
    with naming_damage(path, KIND):
        about = {"digest", "holds", "version", "bregnet"}
        content = {name: value for name, value in header.items() if name not in about}
        if not mmap and header["digest"] != digest(content, stored):  # a check would read mapped files
            raise ValueError("its contents do not have the checksum that was written with them")
        if header["version"] == 1:
            content, stored = _from_version_1(content, stored)
        for name, expected in content["files"].items():
            file = path / Path(name).name
            if not mmap and file.is_file() and _digest_of(file) != expected:
                raise ValueError(f"{name} does not have the checksum that was written with it")
        tensors = Tensors(stored, content["same"], mapped=mmap)
        index = read_index(cls, "index", content["state"], tensors, device=device, folder=path)
        tensors.expect_all_read()
    return index


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _from_version_1(header: dict[str, Any], stored: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Content and tensors of a folder of 0.1.0, which held the name of the engine, and no lists of pieces."""
    pieces = header["engine"] == PieceEngine.__name__
    places = {"points": "index", "ids": "index", "generator": "index.divergence"}
    tensors = {}
    for name, tensor in stored.items():
        inside = name.removeprefix("generator.")
        tensors[f"{places.get(name.split('.')[0], 'index.engine')}.{inside}"] = tensor
    state = {
        **{name: header[name] for name in ("side", *Settings._fields, "next_id")},
        "kind": "flat" if pieces else header["kind"],
        "divergence": {"generator": header["generator"]},
        "items": "points" in stored,
        "engine": None if pieces or header["engine"] is None else {"type": header["engine"]},
        "n_trained": len(stored.get("points", ())),
    }
    files = {} if header["lists"] is None else {CellEngine.files[0]: header["lists"]}
    return {"state": state, "same": {}, "files": files}, tensors
