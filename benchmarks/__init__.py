"""Speed and quality, measured: run a module with ``python -m benchmarks.NAME``."""
