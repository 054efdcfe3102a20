"""Models in files: generators, divergences, indexes and fitted estimators."""

from bregnet.io.model_files import load, load_with_header, save

__all__ = ["save", "load", "load_with_header"]
