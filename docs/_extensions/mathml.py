"""Formulas as MathML, converted by docutils while the pages are built: browsers show it without any script."""

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def _converted(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    try:
        return latex2mathml.tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logger.warning("a formula cannot be converted: %s", error, location=node)
        return f"<code>{node.astext()}</code>"


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """``$...$`` in a sentence."""
    self.body.append(_converted(node, as_block=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """A formula of its own, with its number where it has a label."""
    number = ""
    if node["number"]:
        number = f'<span class="eqno">({get_node_equation_number(self, node)})</span>'
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(number + _converted(node, as_block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name "mathml"."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
