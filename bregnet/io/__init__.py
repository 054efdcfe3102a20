"""Models in files: generators, divergences, indexes and fitted estimators."""

from bregnet.io.model_files import load, save
from bregnet.io.onnx_export import to_onnx

__all__ = ["save", "load", "to_onnx"]
