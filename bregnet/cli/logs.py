"""What the library logs, on the standard error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(record.getMessage(), err=True)


@contextmanager
def log_as_lines(*, quiet: bool) -> Iterator[None]:
    """Print what the library logs, such as that it compiles, unless the command is to be quiet."""
    logger, lines = logging.getLogger("bregnet"), _Lines()
    level = logger.level
    if not quiet:
        logger.addHandler(lines)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
