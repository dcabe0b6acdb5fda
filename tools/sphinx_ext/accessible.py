"""Say to screen readers what the page shows, where the writer should not have to.

A table of facts is written with an empty row of heads, since Markdown knows no table
without: the row is dropped, and a single empty head is a plain cell. docutils gives the
entries of the bibliography a role that is no longer one: they become items of the list
that they stand in. What opens hidden code is named by the words that it shows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def drop_empty_heads(app: Sphinx, doctree: nodes.document) -> None:
    for head in list(doctree.findall(nodes.thead)):
        if not head.astext().strip() and not list(head.findall(nodes.image)):
            head.parent.remove(head)


# What extensions write, and what it ought to be.
MENDED = (
    (re.compile(r' role="doc-biblioentry"'), ' role="listitem"'),
    (re.compile(r'(<summary\b[^>]*?) aria-label="Toggle hidden content"'), r"\1"),
    (re.compile(r'<th class="head[^"]*">(?:<p>\s*</p>)?</th>'), "<td></td>"),
)


def mend(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = mended = page.read_text(encoding="utf-8")
        for pattern, instead in MENDED:
            mended = pattern.sub(instead, mended)
        if mended != text:
            page.write_text(mended, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", drop_empty_heads)
    app.connect("build-finished", mend)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
