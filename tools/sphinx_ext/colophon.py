"""The footer of every page says which edition it is: version, commit and its day.

The commit leads to the repository where `_config.yml` names one. Pages that were built
of a tree with changes say so; those built outside of git have their version alone.
"""

from __future__ import annotations

import html
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import live_chapters
from edition import Edition, edition

MARK = "[edition]"  # in `extra_footer` of `_config.yml`


def line(found: Edition, repository: str | None) -> str:
    """What the footer says, as HTML."""
    text = f"Version {html.escape(found.version)}"
    if not found.commit:
        return text
    commit = f"<code>{found.short}</code>"
    if repository:
        address = html.escape(f"{repository}/commit/{found.commit}")
        commit = f'<a href="{address}">{commit}</a>'
    text += f', commit {commit} of <time datetime="{found.date}">{found.date}</time>'
    return text + (", with changes" if found.changed else "")


def fill(app: Sphinx, config: Config) -> None:
    root = Path(app.confdir)
    known = live_chapters.repository(root)
    options = config.html_theme_options
    footer = options.get("extra_footer", "")
    if MARK not in footer:
        raise ValueError(f"extra_footer in _config.yml lacks the mark {MARK}")
    said = line(edition(root), known and known[0])
    options["extra_footer"] = footer.replace(MARK, said)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
