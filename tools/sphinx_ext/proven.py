"""Puts what the tests counted and recorded in place of the marks of two pages.

`{{ proof_… }}` are of `book/proof.md`, `{{ status_… }}` of `book/status.md`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def substitute(app: Sphinx, config: Config) -> None:
    import proof_page
    import status_page

    config.myst_substitutions = {
        **config.myst_substitutions,
        **proof_page.values(),
        **status_page.values(),
    }


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", substitute)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
