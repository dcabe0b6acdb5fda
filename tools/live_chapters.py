"""Which chapters run in the browser, and what a run of each was measured to take.

A chapter that the browser cannot run is named in `_config.yml` (`live_elsewhere`), with
what it needs instead. What was measured is kept in book/live_runs.json, which
tools/live_runs.py writes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
LITE = ROOT / "_build" / "lite"  # what `make lite` builds; build_site.py takes it in
STAMP = "built-from.json"
RUNS = ROOT / "book" / "live_runs.json"
INPUTS = (
    "pyproject.toml",
    "requirements-lite.txt",
    "tools/build_lite.py",
    "tools/live_chapters.py",
    "tools/pyodide_files.py",
    "specdec_lib/**/*",
    "notebooks/*.ipynb",
)


def chapters(root: Path = ROOT) -> list[str]:
    """All chapters, as `notebooks/01_counting_words`."""
    return [
        path.relative_to(root).with_suffix("").as_posix()
        for path in sorted((root / "notebooks").glob("*.ipynb"))
    ]


def elsewhere(root: Path = ROOT) -> dict[str, str]:
    """Chapters that the browser cannot run, and what each needs instead."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    found: dict[str, str] = config["sphinx"]["config"]["live_elsewhere"]
    unknown = set(found) - set(chapters(root))
    if unknown:
        raise ValueError(f"live_elsewhere names no chapter: {sorted(unknown)}")
    return found


def repository(root: Path = ROOT) -> tuple[str, str] | None:
    """Address and branch of the public repository, where `_config.yml` has them."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    found = config.get("repository") or {}
    if not found.get("url"):
        return None
    address = str(found["url"]).rstrip("/").removesuffix(".git")
    return address, str(found.get("branch") or "main")


def live(root: Path = ROOT) -> list[str]:
    """The chapters that run in the browser."""
    others = elsewhere(root)
    return [name for name in chapters(root) if name not in others]


def fingerprint(root: Path = ROOT) -> str:
    """A digest of all that JupyterLite is built from."""
    whole = hashlib.sha256(json.dumps(elsewhere(root)).encode())
    for pattern in INPUTS:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                whole.update(path.relative_to(root).as_posix().encode() + b"\0")
                whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def is_current(folder: Path = LITE, root: Path = ROOT) -> bool:
    """Whether `folder` holds JupyterLite as it would be built now."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(stamp["fingerprint"] == fingerprint(root))


def runs() -> dict[str, Any]:
    """What was measured; nothing where it was not."""
    if not RUNS.exists():
        return {}
    found: dict[str, Any] = json.loads(RUNS.read_text(encoding="utf-8"))
    return found
