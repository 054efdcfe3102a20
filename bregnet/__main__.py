"""`python -m bregnet` is the command line."""

from bregnet.cli import main

if __name__ == "__main__":
    main()
