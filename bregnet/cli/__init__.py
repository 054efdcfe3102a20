"""The command line `bregnet`: one module a command."""

from __future__ import annotations

import click

from bregnet._version import __version__
from bregnet.cli._errors import Commands
from bregnet.cli._fit import fit
from bregnet.cli._info import info
from bregnet.cli._predict import predict


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="bregnet")
def main(debug: bool) -> None:
    """Metric learning with Bregman divergences, and convex regression, with a certificate on every fit.

    Exit codes: 0 all went well, 1 the data or a file are at fault, 2 the command is, 3 another process was lost.
    """


main.add_command(fit)
main.add_command(predict)
main.add_command(info)
