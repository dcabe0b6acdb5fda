"""The picture on the welcome page: a few real rounds of the book's pair.

    python tools/welcome_picture.py          print the picture, an SVG
    python tools/welcome_picture.py --write  store it beside the page

A test compares the stored picture with what this makes.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

import specdec_lib as sd
from specdec_lib.pair import book_pair
from specdec_lib.plots import ACCEPTED, NEUTRAL, REJECTED, TARGET

PATH = Path(__file__).resolve().parents[1] / "book" / "images" / "rounds.svg"
PROMPT, TOKENS, K = "The lighthouse", 18, 4
LETTER, HEIGHT, ROW, LEFT = 9.0, 30, 44, 84
INK = "#222222"


def picture() -> tuple[str, str]:
    """The SVG, and its description in words."""
    pair = book_pair()
    greedy = sd.Sampler(temperature=0)
    generation = sd.generate(
        pair.target,
        [pair.tokenizer.bos_id, *pair.tokenizer.encode(PROMPT)],
        draft=sd.ModelDraft(pair.draft, greedy),
        k=K,
        max_new_tokens=TOKENS,
        sampler=greedy,
    )
    parts: list[str] = []
    y = 62.0
    for number, each in enumerate(generation.rounds, 1):
        parts.append(_text(14, y + 20, f"call {number}", NEUTRAL))
        x: float = LEFT
        pieces = pair.tokenizer.pieces(each.drafted)
        for i, piece in enumerate(pieces):
            kind = "kept" if i < each.accepted else "wrong"
            if i > each.accepted:
                kind = "unread"
            x = _box(parts, x, y, piece, kind)
        if len(each.emitted) > each.accepted:
            (piece,) = pair.tokenizer.pieces(each.emitted[-1:])
            x = _box(parts, x + 14, y, piece, "target")
        count = len(each.emitted)
        parts.append(_text(444, y + 20, f"+{count} token{'s' * (count > 1)}", INK))
        y += ROW
    calls, tokens = len(generation.rounds), len(generation.tokens)
    total = f"{tokens} tokens in {calls} calls of the target"
    words = (
        f"After the prompt “{PROMPT}”, {total}: in each row up to {K} guesses of the "
        "draft, the ones that the target confirms kept, the first wrong one and those "
        "after it thrown away, then one token of the target's own."
    )
    parts.append(_text(14, y + 22, f"{total}; one at a time it takes {tokens}.", INK))
    head = [_text(14, 24, f"“{PROMPT}” is continued with", INK)]
    legend = [
        (14, "guess kept ✓", "kept"),
        (134, "guess wrong ✗", "wrong"),
        (262, "guess not judged", "unread"),
        (404, "target's own", "target"),
    ]
    for x, label, kind in legend:
        head.append(_frame(x, 37, 14, 14, kind) + _text(x + 20, 49, label, INK, 13))
    height = int(y + 40)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 540 {height}" '
        f'width="540" role="img" font-family="DejaVu Sans Mono, Menlo, Consolas, '
        f'monospace" font-size="14">\n<title>{escape(words)}</title>\n'
        f'<rect width="540" height="{height}" rx="8" fill="#ffffff"/>\n'
        + "\n".join(head + parts)
        + "\n</svg>\n"
    )
    return svg, words


def _text(x: float, y: float, text: str, colour: str, size: int = 14) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size}" '
        f'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">{escape(text)}</text>'
    )


EDGES = {"kept": ACCEPTED, "wrong": REJECTED, "unread": "#999999", "target": TARGET}
FILLS = {"kept": "#e3f4ee", "target": TARGET}
INKS = {"target": "#ffffff", "unread": "#767676"}


def _frame(x: float, y: float, width: float, height: float, kind: str) -> str:
    dash = ' stroke-dasharray="4 3"' if kind in ("wrong", "unread") else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
        f'fill="{FILLS.get(kind, "#ffffff")}" stroke="{EDGES[kind]}" '
        f'stroke-width="1.6"{dash}/>'
    )


def _box(parts: list[str], x: float, y: float, piece: str, kind: str) -> float:
    """One token in a box; returns where the next one begins."""
    shown = piece.replace("\n", "⏎").replace(" ", "␣")
    shown += {"kept": " ✓", "wrong": " ✗"}.get(kind, "")
    width = LETTER * len(shown) + 14
    parts.append(
        _frame(x, y, width, HEIGHT, kind)
        + f'<text x="{x + 7:g}" y="{y + 20:g}" fill="{INKS.get(kind, INK)}" '
        f'xml:space="preserve">{escape(shown)}</text>'
    )
    return x + width + 8


def main() -> None:
    svg, words = picture()
    if "--write" in sys.argv:
        PATH.parent.mkdir(exist_ok=True)
        PATH.write_text(svg, encoding="utf-8")
        print(words)
    else:
        print(svg)


if __name__ == "__main__":
    main()
