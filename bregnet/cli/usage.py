"""Errors of the command that show before anything heavy is imported: files that are not there, options at odds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bregnet.cli.options import STANDARD, kind_of

OTHER_FORMATS = (".parquet", ".pq", ".xlsx", ".npy", ".npz", ".gz", ".zip")  # of what is no text
READ = ("data", "items", "queries", "known", "pairs", "triplets")  # arguments and options that name a data file


def check_usage(command: str, given: dict[str, Any]) -> None:
    """Raise an error for a file that is not there, or for options that do not go together."""
    if command == "fit":
        _check_fit(given)
    path = given.get("path")
    if path is not None:
        _check_model(path)
    for name in READ:
        if isinstance(given.get(name), Path):
            kind_of(given[name])
    target = given.get("target")
    if command == "evaluate" or (command == "fit" and given["pairs"] is None and given["triplets"] is None):
        needed_target(given["data"], target)
    if target is not None and target.endswith(".npy") and kind_of(given["data"]) == ".npy":
        kind_of(Path(target))
    output = given.get("output")
    if output not in (None, STANDARD):
        if command == "predict" and output.suffix not in (".csv", ".npy"):
            raise click.UsageError(f"--output must end in .csv or .npy, got {str(output)!r}")
        if command in ("search", "cluster") and output.suffix in OTHER_FORMATS:
            lines = ", .jsonl or .json" if command == "search" else ""
            raise click.UsageError(f"--output must be a file of text, such as .csv{lines}, got {str(output)!r}")
    if target is not None and target == given.get("names"):
        raise click.UsageError(f"--id must not be the target, got {target!r} for both")


def _check_model(path: Path) -> None:
    """Raise an error for a file that is not there, or does not begin with a header of JSON after its length."""
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if path.is_file():
        with open(path, "rb") as file:
            begins = file.read(9)
        if begins[8:] != b"{" or int.from_bytes(begins[:8], "little") > path.stat().st_size:
            raise ValueError(f"{path} is not a model of bregnet, or was damaged: it does not begin as one")


def needed_target(path: Path, target: str | None) -> str:
    """The name of the target: "y" by default in an archive, and required for other files."""
    kind = kind_of(path)
    if target is None and kind != ".npz":
        what = "be a .npy file beside" if kind == ".npy" else "name a column of"
        raise click.UsageError(f"--target must {what} {path.name}")
    return target or "y"


def _check_fit(given: dict[str, Any]) -> None:
    if given["resume"] and given["checkpoint"] is None:
        raise click.UsageError("--resume needs --checkpoint")
    named = [name for name in ("target", "pairs", "triplets") if given[name] is not None]
    if len(named) > 1:
        raise click.UsageError(f"only one of --target, --pairs and --triplets can be learned from, got {_all(named)}")
    if named in (["pairs"], ["triplets"]):
        for name in ("search_alpha", "cv", "report", "holdout", "keep_rows"):
            if given[name]:
                raise click.UsageError(f"{_all([name])} needs --target, got {_all(named)}")
        if given["learner"] not in (None, "pbdl"):
            raise click.UsageError(f"the learner {given['learner']} needs --target, got {_all(named)}")
    if given["search_alpha"] or given["cv"]:
        for name in ("alpha", "checkpoint"):
            if given[name] is not None:
                raise click.UsageError(f"{_all([name])} is for one fit, not for --search-alpha or --cv")
    elif given["jobs"] is not None:
        raise click.UsageError("--jobs is for --search-alpha or --cv")
    if "auto" in (given["one_hot"] or ()) and "auto" in given["ordinal"]:
        raise click.UsageError("only one of --one-hot and --ordinal can be auto")


def _all(names: list[str]) -> str:
    return " and ".join(f"--{name.replace('_', '-')}" for name in names)
