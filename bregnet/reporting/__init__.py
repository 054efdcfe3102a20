"""One self-contained HTML page about a fit: figures, pictures and examples."""

from bregnet.reporting.page import Report, report

__all__ = ["Report", "report"]
