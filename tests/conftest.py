"""One thread a test process: several processes share the machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
