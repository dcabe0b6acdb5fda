"""Keep every page free of files from other servers, and of files it has no use for.

Sphinx and its extensions point at public CDNs for formulas, widgets and a live-code
button. `_config.yml` names local copies instead. This extension does what settings
cannot: it drops the live-code script, the script that draws icons (a font of the theme
does too, see lean.py) and any stylesheet from elsewhere; it refuses widgets that the
page's own script (book/assets/widgets.js) does not draw; and where the local copies are
missing (see tools/vendor.py) formulas go back to the CDN.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

logger = logging.getLogger(__name__)

TEMPLATES = Path(__file__).parent / "templates"
CDN = "https://cdn.jsdelivr.net/npm"
NOTE = (
    "book/assets/vendor is missing: formulas will be loaded from a CDN. "
    "`make vendor` fetches it."
)
STATE = "application/vnd.jupyter.widget-state+json"
DRAWN = {"anywidget", "@jupyter-widgets/base"}  # of the latter only layouts
FOREIGN = re.compile(
    r'<script\b[^>]*/fontawesome\.js[^>]*></script>|<link\b[^>]*href="(?:https?:)?//[^>]*>'
)


def choose_source(app: Sphinx, config: Config) -> None:
    """Our templates before the theme's; without local copies, formulas from a CDN."""
    config.templates_path = [str(TEMPLATES), *config.templates_path]
    if not (Path(app.confdir) / "book/assets/vendor/complete.json").exists():
        logger.info(NOTE)
        config.mathjax_path = f"{CDN}/mathjax@3.2.2/es5/tex-mml-chtml.js"


def _address(item: Any) -> str:
    return str(getattr(item, "filename", None) or item or "")


def _body(script: Any) -> str:
    return str(getattr(script, "attributes", {}).get("body") or "")


def check_widgets(page: str, scripts: list[Any]) -> None:
    """A warning for a widget that would stay empty on the page."""
    for script in scripts:
        if getattr(script, "attributes", {}).get("type") != STATE:
            continue
        modules = {
            one["model_module"] for one in json.loads(_body(script))["state"].values()
        }
        if modules - DRAWN:
            logger.warning(
                "%s has widgets of %s, which the page cannot draw: use those of "
                "specdec_lib.widgets, or another anywidget",
                page,
                ", ".join(sorted(modules - DRAWN)),
            )


def drop_foreign(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Drop the live-code scripts and stylesheets that come from another server."""
    scripts = context.get("script_files", [])
    check_widgets(page, scripts)
    context["script_files"] = [
        script
        for script in scripts
        if "thebe" not in _address(script) and "thebe" not in _body(script)
    ]
    context["css_files"] = [
        sheet
        for sheet in context.get("css_files", [])
        if not _address(sheet).startswith(("http:", "https:", "//"))
        and "thebe" not in _address(sheet)
    ]
    context["without_foreign"] = lambda head: FOREIGN.sub("", head)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", choose_source)
    app.connect("html-page-context", drop_foreign, priority=999)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
