"""Links of pages to files of the checkout that are no pages: sources, data, folders."""

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform

from hatch_build import source_address

ROOT = Path(__file__).parents[2]


class LinksToSources(SphinxPostTransform):
    """To the address of the sources where there is one, else the text alone.

    A link to what is not there stays, and fails the build.
    """

    default_priority = 8  # before MyST looks for pages

    def run(self, **_: Any) -> None:
        """Replace such links of one page."""
        address = source_address(os.environ)
        for link in [*self.document.findall(pending_xref)]:
            path = Path(
                os.path.normpath((ROOT / link.get("refdoc", "")).parent / link["reftarget"])
            )
            if link["reftype"] != "myst" or link.get("refdomain") == "doc" or not path.exists():
                continue
            shown = link[0].deepcopy()
            where = path.relative_to(ROOT).as_posix()
            whole = nodes.reference("", "", shown, refuri=f"{address}{where}")
            link.replace_self(whole if address else shown)
