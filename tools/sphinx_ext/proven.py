"""Puts what the tests counted in place of the marks `{{ proof_… }}` of a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def substitute(app: Sphinx, config: Config) -> None:
    from proof_page import values

    config.myst_substitutions = {**config.myst_substitutions, **values()}


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", substitute)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
