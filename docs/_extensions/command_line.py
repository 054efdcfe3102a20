"""The directive ``command-help``: the help text of every command, as the installed program prints it."""

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bregnet.cli import main

WIDTH = 84
SETTINGS = {**main.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}


class CommandHelp(SphinxDirective):
    """A section for each command, with its help text."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        context = click.Context(main, info_name="bregnet", **SETTINGS)
        sections = [_section("bregnet", main.get_help(context))]
        for name in main.list_commands(context):
            command = main.get_command(context, name)
            assert command is not None
            inner = click.Context(command, info_name=name, parent=context, **SETTINGS)
            sections.append(_section(f"bregnet {name}", command.get_help(inner)))
        return sections


def _section(title: str, text: str) -> nodes.section:
    section = nodes.section("", nodes.title(text=title), ids=[nodes.make_id(title)], names=[title])
    section += nodes.literal_block(text, text, language="none")
    return section


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
