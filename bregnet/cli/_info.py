"""`bregnet info`."""

from __future__ import annotations

from pathlib import Path

import click

from bregnet.cli import _options as options


@click.command(epilog=options.examples("bregnet info model", "bregnet info model --json"))
@click.argument("model", type=options.PATH)
@options.as_json
def info(model: Path, as_json: bool) -> None:
    """Say what a MODEL file, or the folder of an index, holds."""
    from bregnet.cli._describing import describe, for_people
    from bregnet.cli._models import Model
    from bregnet.cli._output import write_json

    found = describe(Model.at(model))
    if as_json:
        write_json(found)
        return
    width = max(map(len, found))
    for key, value in found.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {for_people(value)}")
