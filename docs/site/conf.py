"""How Sphinx makes the site; docs/site/build.py calls it."""

from typing import Any

import links
from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.builders.html import StandaloneHTMLBuilder

import advisor

project = "advisor"
version = release = advisor.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"advisor {version}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
myst_heading_anchors = 6
myst_ref_domains = ["std"]  # a path is no name of Python's
autodoc_typehints = "description"
autodoc_member_order = "bysource"


class Pages(StandaloneHTMLBuilder):
    """Looks at all pages, and writes those of `written_pages`; all where it names none."""

    def write_doc(self, docname: str, doctree: nodes.document) -> None:
        """Its links were followed before, whether it is written or not."""
        wanted = self.config.written_pages
        if not wanted or docname in wanted:
            super().write_doc(docname, doctree)


def setup(app: Any) -> None:
    """Links to files that are no pages, and languages that Pygments does not colour."""
    app.add_config_value("written_pages", [], "env", list)
    app.add_builder(Pages, override=True)
    app.connect("autodoc-skip-member", _is_of_others)
    app.add_post_transform(links.LinksToSources)
    for language in ("csv", "mermaid"):  # shown as they are written
        app.add_lexer(language, TextLexer)


def _is_of_others(_app: Any, _what: str, _name: str, member: Any, *_: Any) -> bool | None:
    """Methods that a base class of another library brings; None: as autodoc has it."""
    module = getattr(member, "__module__", None) or "advisor"
    return None if module.startswith("advisor") else True
