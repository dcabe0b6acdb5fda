"""The printed book, as a library reads it that had no part in printing it."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pdf_offer
import pypdfium2
import pypdfium2.raw as pdfium


@dataclass
class Glyphs:
    """The characters of a page, in points from its left and lower edge."""

    text: str
    boxes: list[tuple[float, float, float, float]]  # left, bottom, right, top

    def between(self, upper: float, lower: float) -> str:
        """What is written between two heights: the middle of a letter counts."""
        return "".join(
            sign
            for sign, (_, bottom, _, top) in zip(self.text, self.boxes, strict=True)
            if lower < (bottom + top) / 2 < upper
        )

    @cached_property
    def body(self) -> str:
        """The signs of the text, without the running title and the page number."""
        return bare(self.between(HEAD, FOOT))


def bare(text: str) -> str:
    """The signs of a text without spaces and hyphens, and without second ways to write
    one sign: a line that ends in a hyphen is read in several ways."""
    return re.sub(
        r"[\s\u200b\u00ad\ufffd\ufffe\x02\u2010-]",
        "",
        unicodedata.normalize("NFKC", text),
    )


# Points from the lower edge of the paper: the page number stands below, the running
# title above.
FOOT, HEAD = 48, 782


class Print:
    """The printed book."""

    def __init__(self) -> None:
        path = pdf_offer.FOLDER / pdf_offer.NAME
        self.bytes = path.read_bytes()
        self.pdf = pypdfium2.PdfDocument(self.bytes)
        self.facts: dict[str, Any] = json.loads(
            (path.parent / pdf_offer.STAMP).read_text(encoding="utf-8")
        )

    @cached_property
    def pages(self) -> list[Glyphs]:
        found = []
        for page in self.pdf:
            text_page = page.get_textpage()
            count = text_page.count_chars()
            signs, boxes = [], []
            for index in range(count):
                sign = chr(pdfium.FPDFText_GetUnicode(text_page.raw, index) or 0xFFFD)
                if sign.isspace():
                    signs.append(" ")
                    boxes.append((0.0, 0.0, 0.0, 0.0))
                    continue
                signs.append(sign)
                boxes.append(text_page.get_charbox(index))
            found.append(Glyphs("".join(signs), boxes))
            text_page.close()
            page.close()
        return found
