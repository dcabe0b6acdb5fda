"""Widgets stored in the chapters carry the scripts that the library has now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdec_lib.widgets import SpeedupExplorer
from specdec_lib.widgets.decoding import LiveDecoding
from specdec_lib.widgets.exhibits import Gallery
from specdec_lib.widgets.figures import Figures
from specdec_lib.widgets.texts import Texts

ROOT = Path(__file__).resolve().parents[2]
STATE = "application/vnd.jupyter.widget-state+json"
SCRIPTS = {
    f"{kind.__module__}.{kind.__name__}": (kind._esm, kind._css)
    for kind in (Figures, Gallery, LiveDecoding, SpeedupExplorer, Texts)
}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_scripts_are_those_of_the_library(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    stored = notebook["metadata"].get("widgets", {}).get(STATE, {}).get("state", {})
    for model in stored.values():
        kind = model["state"].get("_anywidget_id")
        if kind in SCRIPTS:
            same = (model["state"]["_esm"], model["state"]["_css"]) == SCRIPTS[kind]
            assert same, (
                f"an older {kind}: run `make notebooks NB=notebooks/{path.name}`"
            )
