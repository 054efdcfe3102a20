"""`python -m bregnet` and the program `bregnet` are the command line."""

import sys

from bregnet._core.optional import require


def main() -> None:
    """Run the command line, or say what to install where its packages are missing."""
    try:
        require("the command line", "click", extra="cli")
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error}")
    from bregnet.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
