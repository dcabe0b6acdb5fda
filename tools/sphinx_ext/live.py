"""A bar below each chapter's title: run it in the browser, download it, and so on.

"Run in the browser" is there where JupyterLite was built from the files as they are
(`make lite`). Colab and Binder are there where `_config.yml` names the repository. The
directive `live-runs` makes a table of what was measured of the chapters in the browser.
"""

from __future__ import annotations

import html
import sys
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import live_chapters

COLAB_BRANCH = "colab"  # see tools/colab_notebooks.py


@cache
def lite_is_there() -> bool:
    """Whether build_site.py will put JupyterLite beside these pages."""
    return live_chapters.is_current()


def seconds(value: float) -> str:
    """A measured time as it is said: 8 s, 75 s, 3 min."""
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"


def measured(name: str) -> str:
    """What a run of this chapter took, in a sentence; empty where not measured."""
    found = live_chapters.runs()
    if name not in found.get("chapters", {}):
        return ""
    run = found["chapters"][name]
    return (
        f"Measured: first output after {seconds(run['first_output'])}, all of it after "
        f"{seconds(run['whole'])}; {run['megabytes']:.0f} MB are loaded, once."
    )


def link(
    address: str,
    text: str,
    *,
    new_tab: bool = False,
    download: str = "",
    style: str = "",
) -> str:
    """A link as HTML."""
    extra = f' class="{style}"' if style else ""
    extra += ' target="_blank" rel="noopener"' if new_tab else ""
    extra += f' download="{html.escape(download)}"' if download else ""
    tab = '<span class="sd-unseen"> (opens a new tab)</span>' if new_tab else ""
    return f'<a href="{html.escape(address)}"{extra}>{html.escape(text)}{tab}</a>'


def elsewhere(root: Path, name: str) -> list[str]:
    """Links to Colab and Binder; none where the repository has no known address."""
    known = live_chapters.repository(root)
    host = "https://github.com/"
    if known is None or not known[0].startswith(host):
        return []
    repository, branch = known[0].removeprefix(host), known[1]
    colab = f"https://colab.research.google.com/github/{repository}/blob/{COLAB_BRANCH}"
    binder = f"https://mybinder.org/v2/gh/{repository}/{branch}?urlpath=lab/tree"
    return [
        link(f"{colab}/{name}.ipynb", "Open in Colab", new_tab=True),
        link(f"{binder}/{name}.ipynb", "Open in Binder", new_tab=True),
    ]


def bar(app: Sphinx, name: str) -> str:
    """The bar of one chapter, as HTML."""
    file = f"{Path(name).name}.ipynb"
    up = "../" * name.count("/")
    lines = []
    if lite_is_there():
        reason = live_chapters.elsewhere().get(name)
        if reason is None:
            address = f"{up}lite/notebooks/index.html?path={file}"
            button = link(
                address, "Run in the browser", new_tab=True, style="sd-run-button"
            )
            lines.append(
                f"<p>{button} <span>Nothing is installed; Python runs in the page. "
                f"{html.escape(measured(name))}</span></p>"
            )
        else:
            how = f"{up}book/how_to_read.html"
            lines.append(
                '<p><span class="sd-run-button sd-run-not">Not in the browser</span> '
                f"<span>This chapter needs {html.escape(reason)}: run it on "
                f'<a href="{how}">your own machine</a>, with <code>make lab</code>.'
                "</span></p>"
            )
    links = [
        link(f"{up}_sources/{name}.ipynb", "Download as a notebook", download=file)
    ]
    links += elsewhere(Path(app.confdir), name)
    lines.append(f"<p>{' · '.join(links)}</p>")
    return (
        '<div class="sd-run" role="group" aria-label="Run this chapter">'
        + "".join(lines)
        + "</div>"
    )


def add_bar(app: Sphinx, doctree: nodes.document, name: str) -> None:
    """Put the bar below the title of a chapter."""
    if app.builder.name != "html" or not name.startswith("notebooks/"):
        return
    title = next(iter(doctree.findall(nodes.title)), None)
    if title is not None:
        raw = nodes.raw("", bar(app, name), format="html")
        title.parent.insert(title.parent.index(title) + 1, raw)


class LiveRuns(SphinxDirective):
    """The table of what was measured, and how."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(live_chapters.RUNS))
        found = live_chapters.runs()
        if not found:
            return []
        heads = ("Chapter", "First output", "All of it", "Memory")
        table = nodes.table()
        group = nodes.tgroup(cols=len(heads))
        table += group
        group += [nodes.colspec(colwidth=width) for width in (40, 20, 20, 20)]
        group += nodes.thead("", self.row([nodes.Text(head) for head in heads]))
        body = nodes.tbody()
        group += body
        for run in found["chapters"].values():
            cells = [
                f"{run['first_output']:.0f} s",
                f"{run['whole']:.0f} s",
                f"{run['memory']:.0f} MB",
            ]
            body += self.row([nodes.Text(run["title"]), *map(nodes.Text, cells)])
        loads = [run["load"] for run in found["chapters"].values()]
        said = (
            f"{found['browser']}, on {found['machine']}, {found['date']}; the files "
            "came from the same machine, so that no network is in these times. They "
            "begin when the page is opened. Memory is that of the page and its Python. "
            "The machine had other work too: on average, from "
            f"{min(loads):.0f} to {max(loads):.0f} programs wanted its cores, the "
            "browser's own among them."
        )
        return [table, nodes.paragraph("", said)]

    @staticmethod
    def row(cells: list[nodes.Text]) -> nodes.row:
        return nodes.row(
            "", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells)
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("live_elsewhere", {}, "env")
    app.add_directive("live-runs", LiveRuns)
    app.connect("doctree-resolved", add_bar)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
