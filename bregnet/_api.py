# ruff: noqa: F401, F403
"""All public names, among them all that subpackages have in their `__all__`; `bregnet` has its names from here."""

from bregnet import datasets, distributed, metrics, nn, plotting
from bregnet._core.files import UnreadableFileError
from bregnet.clustering import *
from bregnet.divergences import *
from bregnet.io import *
from bregnet.learners import *
from bregnet.reporting import *
from bregnet.retrieval import *
from bregnet.selection import *
from bregnet.solver.checkpoints import Checkpoint
from bregnet.solver.result import Check, Result
