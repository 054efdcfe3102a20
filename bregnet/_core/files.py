"""Files of tensors with a versioned header: complete when they appear, and read without running anything."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bregnet._core.version import __version__

# what reading a damaged file can raise; errors of the operating system are not among it
DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    AssertionError,
    SafetensorError,
)


class UnreadableFileError(ValueError):
    """A file that cannot be read: truncated, altered, of a later version, or of another kind."""


@contextmanager
def naming_damage(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors that reading a damaged file can raise into an `UnreadableFileError` that names the file."""
    try:
        yield
    except UnreadableFileError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error}") from error
    except DAMAGE as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise UnreadableFileError(f"{path} is not a {kind} of bregnet, or was damaged: {what}") from error


def write_tensors(path: Path, kind: str, version: int, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a file of tensors; its header says what it is."""
    about = {**header, "holds": kind, "version": version, "bregnet": __version__}
    try:
        save_file(tensors, path, metadata={"bregnet": json.dumps(about)})
    except SafetensorError as error:  # its own kind, also where a disk is full
        raise OSError(None, str(error)) from error


def read_tensors(path: Path, kind: str, *versions: int, mmap: bool = False) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file; with `mmap` the tensors stay in the file until they are used."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UnreadableFileError(f"{path} is not a file")
    with naming_damage(path, kind), safe_open(path, framework="pt") as file:
        header = json.loads((file.metadata() or {})["bregnet"])
        found, found_version = header["holds"], header["version"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if found != kind:
        raise UnreadableFileError(f"{path} must hold a {kind}, got a {found!r}")
    if found_version not in versions:
        raise UnreadableFileError(
            f"{path} has version {found_version!r} of its format (bregnet {header.get('bregnet')}), and bregnet"
            f" {__version__} reads version {' and '.join(map(str, versions))}"
        )
    return header, tensors if mmap else {name: tensor.clone() for name, tensor in tensors.items()}


def digest(content: dict[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A checksum against accidental changes, not against forgery."""
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():
            found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def expect_place(name: str, path: Path) -> None:
    """Raise an error where no file can be: at a folder, a device or a pipe, or in a folder that does not exist."""
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, got the folder {path}")
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"{name} must lie in a folder that exists, got {path}")
    if path.exists() and not path.is_file():  # it would be replaced by a plain one
        raise OSError(None, f"{name} must be a file, got {path}, a device or a pipe")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary file to write to, which is renamed to `path` when it is complete, and removed on an error."""
    path = path.resolve()
    expect_place("path", path)
    made = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with open(made, "xb") as file:
            mode = (path.stat() if path.exists() else os.fstat(file.fileno())).st_mode
        yield made
        os.chmod(made, mode)  # safetensors makes files that only their owner can read
        with open(made, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(made, path)
    except OSError as error:  # name the file that was asked for
        raise type(error)(error.errno, f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        made.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Flush the names in a folder to the disk, on systems that can."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def whole_folder(path: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """A temporary folder to write to, which is renamed to `path` when it is complete, and removed on an error.

    An existing folder is replaced if it holds only files of these names, and refused otherwise.
    """
    path = path.resolve()
    if path.exists() and not (path.is_dir() and {each.name for each in path.iterdir()} <= set(names)):
        raise FileExistsError(f"path must be new or a folder written by save, got {str(path)!r}, which is neither")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path must lie in a folder that exists, got {str(path)!r}")
    made, old = (path.parent / f".{path.name}.{secrets.token_hex(4)}" for _ in range(2))
    made.mkdir()
    try:
        yield made
        if path.exists():
            os.replace(path, old)
        os.replace(made, path)
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if old.exists() and not path.exists():
            os.replace(old, path)
        shutil.rmtree(old, ignore_errors=True)
