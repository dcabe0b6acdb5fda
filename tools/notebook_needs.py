"""Modules that a chapter needs beyond requirements.txt, and whether they are here.

A notebook names them in its metadata, and how to get them:

    {"specdec": {"needs": ["torch", "transformers"], "install": "make peers"}}

Where one is missing the notebook is not run; what was stored in it stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

KEYS = {"needs", "install"}


def needs_problems(metadata: dict[str, Any]) -> list[str]:
    """What is wrong with a notebook's "specdec" metadata; empty where it has none."""
    entry = metadata.get("specdec")
    if entry is None:
        return []
    names = entry.get("needs") if isinstance(entry, dict) else None
    good = (
        isinstance(names, list)
        and names
        and all(isinstance(name, str) and name.isidentifier() for name in names)
        and set(entry) == KEYS
        and isinstance(entry["install"], str)
    )
    if good:
        return []
    return [f'specdec must be {{"needs": [modules], "install": how}}, got {entry}']


def missing(metadata: dict[str, Any]) -> list[str]:
    """The modules of a notebook's metadata that are not installed."""
    names = metadata.get("specdec", {}).get("needs", [])
    return [name for name in names if find_spec(name) is None]


def left_out(paths: Iterable[Path]) -> dict[Path, str]:
    """The notebooks that cannot be run here, each with a line that says why."""
    found = {}
    for path in paths:
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        lacking = missing(metadata)
        if lacking:
            how = metadata["specdec"]["install"]
            found[path] = (
                f"{path.name} is not run: no module {', '.join(lacking)} "
                f"(`{how}` installs what it needs)"
            )
    return found
