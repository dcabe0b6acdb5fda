"""Keep every page free of files from other servers.

Sphinx and its extensions point at public CDNs for formulas, widgets and a live-code
button. `_config.yml` names local copies instead. This extension does what settings
cannot: it drops the live-code script and any stylesheet from elsewhere, and where the
local copies are missing (see tools/vendor.py) it goes back to the CDNs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

CDN = "https://cdn.jsdelivr.net/npm"
NOTE = (
    "book/assets/vendor is missing: formulas and widgets will be loaded from a CDN. "
    "`make vendor` fetches them."
)


def choose_source(app: Sphinx, config: Config) -> None:
    """Without the local copies, load formulas and widgets from a CDN."""
    if (Path(app.confdir) / "book/assets/vendor/complete.json").exists():
        return
    logging.getLogger(__name__).info(NOTE)
    config.mathjax_path = f"{CDN}/mathjax@3.2.2/es5/tex-mml-chtml.js"
    config.nb_ipywidgets_js = {
        f"{CDN}/requirejs@2.3.7/require.js": {},
        f"{CDN}/@jupyter-widgets/html-manager@1.0.14/dist/embed-amd.js": {
            "data-jupyter-widgets-cdn": f"{CDN}/"
        },
    }


def _address(item: Any) -> str:
    return str(getattr(item, "filename", None) or item or "")


def drop_foreign(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Drop the live-code scripts and stylesheets that come from another server."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in _address(script)
        and "thebe" not in str(getattr(script, "attributes", {}).get("body") or "")
    ]
    context["css_files"] = [
        sheet
        for sheet in context.get("css_files", [])
        if not _address(sheet).startswith(("http:", "https:", "//"))
        and "thebe" not in _address(sheet)
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", choose_source)
    app.connect("html-page-context", drop_foreign, priority=999)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
