"""The command line `bregnet`: `commands` declares the commands, and each has a module of its own.

Importing this imports click and nothing heavy, so that help and shell completion are fast; the rest is imported when a
command runs.
"""

from __future__ import annotations

import click

from bregnet._core.version import __version__
from bregnet.cli import commands
from bregnet.cli.errors import Commands


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\
\b
Examples:
  bregnet demo
  bregnet fit flowers.csv --target species -o model --holdout 0.2 --report flowers.html
  bregnet evaluate model new-flowers.csv --target species
  bregnet search model flowers.csv --queries new-flowers.csv -k 5

Results go to the standard output or to a file, messages to the standard error. Exit codes: 0 success, 1 an error in the
data or a file, 2 an error in the command, 3 another process was lost, 130 interrupted.

Shell completion: eval "$(_BREGNET_COMPLETE=bash_source bregnet)" (or zsh_source, or fish_source).
""",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="bregnet")
def main(debug: bool) -> None:
    """Metric learning with Bregman divergences, and convex regression, with a certificate on every fit."""


for name in ("demo", "fit", "evaluate", "search", "cluster", "predict", "info"):
    main.add_command(getattr(commands, name))
