"""Builds the sdist, a wheel from it, and tries the wheel: ``make dist-test``.

The wheel is installed through constraints.txt in a new environment. The README's first example and the console script
then run there, in a folder from which the checkout cannot be imported.
"""

import os
import re
import subprocess
import tempfile
import venv
from pathlib import Path

import bregnet

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """What a command prints; a failure of it is one of this script."""
    print("$", *command, flush=True)
    words = [str(part) for part in command]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it may name the checkout
    return subprocess.run(words, cwd=folder, env=settings, check=True, stdout=subprocess.PIPE, text=True).stdout


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist of the last commit, and the wheel that is built from it."""
    run("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), folder / "checkout")
    python = environment(folder / "building", "build")
    run(python, "-m", "build", "--outdir", folder / "dist", folder / "checkout")
    return next((folder / "dist").glob("*.tar.gz")), next((folder / "dist").glob("*.whl"))


def environment(folder: Path, package: str) -> Path:
    """The interpreter of a new environment with a package, in the versions of constraints.txt."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", package)
    return python


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sdist, wheel = built(folder)
        python = environment(folder / "using", f"{wheel}[cli]")
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        example = re.search(r"## Five lines\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        assert example is not None
        printed = run(python, "-c", example[1], folder=elsewhere)
        print(printed)
        assert "converged: certified gap" in printed
        where = run(
            python, "-c", "import bregnet; print(bregnet.__file__, bregnet.__version__)", folder=elsewhere
        ).split()
        assert where[0].startswith(str(folder)), where
        assert where[1] == bregnet.__version__, where
        output = run(python.parent / "bregnet", "--version", folder=elsewhere)
        assert output.split()[-1] == bregnet.__version__, output
        print(f"{sdist.name} and {wheel.name} work")


if __name__ == "__main__":
    main()
