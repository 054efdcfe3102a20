"""One self-contained HTML page about a fit: figures, pictures and examples."""

from bregnet._report._page import Report, report

__all__ = ["Report", "report"]
