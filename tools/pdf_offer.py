"""The book on paper, as the site offers it: where it was printed from these pages.

`build_pdf.py` prints the site into _build/pdf. Pages that offer it hold a mark; where
the print is of the pages as they are, it is put beside them, and a paragraph stands in
place of the mark.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "_build" / "pdf"
NAME = "speculative-decoding.pdf"
STAMP = "printed-from.json"
INSIDE = "pdf"  # the folder of the site
INPUTS = ("tools/build_pdf.py", "tools/paper/*.*", "CITATION.cff")
MARK = "<!-- the book on paper -->"
OFFER = re.compile(rf'{re.escape(MARK)}(?:<p class="sd-pdf">.*?</p>)?', re.DOTALL)
ARTICLE = re.compile(r'<article class="bd-article">(.*)</article>', re.DOTALL)
BAR = re.compile(r'<div class="sd-run" .*?</div>', re.DOTALL)


def digest(site: Path) -> str:
    """A digest of what is printed: the pages' own text, without what changes with the
    ways in which they are offered, and how they are printed."""
    whole = hashlib.sha256()
    for folder in ("book", "notebooks"):
        for path in sorted((site / folder).rglob("*.html")):
            found = ARTICLE.search(path.read_text(encoding="utf-8"))
            text = BAR.sub("", OFFER.sub("", found[1] if found else ""))
            whole.update(path.relative_to(site).as_posix().encode() + b"\0")
            whole.update(hashlib.sha256(text.encode()).digest())
    for path in sorted((site / "_static").glob("*.css")):
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    for pattern in INPUTS:
        for path in sorted(ROOT.glob(pattern)):
            whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def printed() -> dict[str, Any]:
    """What is known of the print; nothing where there is none."""
    if not (FOLDER / NAME).exists():
        return {}
    try:
        found: dict[str, Any] = json.loads((FOLDER / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def said(facts: dict[str, Any], up: str) -> str:
    """The paragraph that offers the print; `up` leads to the site's first folder."""
    address = html.escape(f"{up}{INSIDE}/{NAME}")
    return (
        f'<p class="sd-pdf"><strong>On paper.</strong> <a href="{address}">The whole '
        f"book as a PDF</a>: {facts['pages']} pages of A4, "
        f"{facts['bytes'] / 1e6:.0f} MB, solutions and library "
        "reference included. Figures stand as they do before their sliders are moved. "
        "<code>make pdf</code> printed it in "
        f"{facts['seconds']} seconds.</p>"
    )


def put_in(site: Path) -> bool:
    """Put the print into a site, where it is of its pages, and offer it there.

    A line says where it is of other pages. Returns whether it is offered.
    """
    facts = printed()
    current = bool(facts) and facts["digest"] == digest(site)
    folder = site / INSIDE
    if folder.exists():
        shutil.rmtree(folder)
    if current:
        folder.mkdir()
        shutil.copy2(FOLDER / NAME, folder / NAME)
    elif facts:
        print("_build/pdf is of other pages and is left out: `make pdf` renews it.")
    instead = MARK + (said(facts, "../") if current else "")
    for path in site.glob("book/*.html"):
        text = path.read_text(encoding="utf-8")
        changed = OFFER.sub(lambda _: instead, text)
        if changed != text:
            path.write_text(changed, encoding="utf-8")
    return current
