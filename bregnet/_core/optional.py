"""Packages that only parts of the library need, and that extras of the installation bring."""

from __future__ import annotations

from importlib.util import find_spec


def require(what: str, *packages: str, extra: str) -> None:
    """Raise an error that names the extra to install where packages are missing that something needs.

    Examples
    --------
    >>> require("bregnet.plotting", "numpy", "no_such_package", extra="report")
    Traceback (most recent call last):
    ModuleNotFoundError: bregnet.plotting needs the package no_such_package: pip install 'bregnet[report]'
    """
    for package in packages:
        if find_spec(package) is None:
            message = f"{what} needs the package {package}: pip install 'bregnet[{extra}]'"
            raise ModuleNotFoundError(message, name=package)
