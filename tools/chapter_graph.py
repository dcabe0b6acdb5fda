"""Which chapter needs which, and what comes next.

    python tools/chapter_graph.py            the graph, and what is wrong with it

Three places say it: the head and the end of each chapter, the table of `book/map.md`,
and the picture above that table. They must agree, and no chapter may need a later one.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from notebook_policy import head_rows, next_paragraphs, text_of

ROOT = Path(__file__).resolve().parents[1]
MAP, PICTURE, CONTENTS = "book/map.md", "book/images/map.svg", "_toc.yml"
NOTEBOOK = re.compile(r"\]\((?:[^)#\s]*/)?([\w-]+)\.ipynb(?:#[\w-]+)?\)")
SVG = "{http://www.w3.org/2000/svg}"
NEAR = 6.0  # how far the end of an arrow may be from its box


@dataclass(frozen=True)
class Chapter:
    """``needs``: the names of the chapters that its head links to. ``then``: the links
    of the paragraph "Next", pages included."""

    name: str
    number: str  # as in the map: 1, 2, ..; A, B, .. for appendices
    title: str
    needs: tuple[str, ...]
    then: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One chapter in the table of the map."""

    number: str
    name: str
    title: str
    needs: tuple[str, ...]  # numbers


def chapters(root: Path = ROOT) -> list[Chapter]:
    """In the order of the table of contents."""
    contents = (root / CONTENTS).read_text(encoding="utf-8")
    found = []
    for name in re.findall(r"file: notebooks/([\w-]+)", contents):
        path = root / "notebooks" / f"{name}.ipynb"
        notebook = json.loads(path.read_text(encoding="utf-8"))
        first = text_of(notebook["cells"][0]["source"])
        heading = re.search(r"^# (.+)$", first, re.M)
        after = " ".join(next_paragraphs(notebook))
        links = re.findall(r"\]\(([^)\s]+)\)", after)
        number = name.split("_")[0]
        found.append(
            Chapter(
                name=name,
                number=str(int(number)) if number.isdigit() else number.upper(),
                title=heading[1].strip() if heading else "",
                needs=tuple(
                    dict.fromkeys(NOTEBOOK.findall(head_rows(first).get("Needs", "")))
                ),
                then=tuple(Path(link.split("#")[0]).name for link in links),
            )
        )
    return found


def map_rows(root: Path = ROOT) -> list[Row]:
    """The rows of the first table that name a chapter."""
    page = (root / MAP).read_text(encoding="utf-8")
    found = []
    for line in page.split("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        link = re.match(
            r"\[(.+)\]\(\S*/([\w-]+)\.ipynb\)$", cells[min(1, len(cells) - 1)]
        )
        if line.startswith("|") and len(cells) == 5 and link:
            numbers = re.findall(r"\b(?:\d+|[A-Z](?=,|$))", cells[3])
            found.append(Row(cells[0], link[2], link[1], tuple(numbers)))
    return found


def arrows(root: Path = ROOT) -> list[tuple[str, str]]:
    """(from, to) of each arrow of the picture, by the numbers in its boxes."""
    boxes: list[tuple[float, float, float, float]] = []
    numbers: list[str] = []
    lines = []
    for element in ET.parse(root / PICTURE).getroot():
        if element.tag == f"{SVG}rect" and element.get("stroke"):
            x, y, width, height = (
                float(element.get(key, "nan")) for key in ("x", "y", "width", "height")
            )
            boxes.append((x, y, x + width, y + height))
        elif element.tag == f"{SVG}text" and element.get("font-weight") == "bold":
            numbers.append(element.text or "")
        elif element.tag == f"{SVG}line":
            ends = [float(element.get(key, "nan")) for key in ("x1", "y1", "x2", "y2")]
            lines.append(ends)
        elif element.tag == f"{SVG}path" and element.get("marker-end"):
            points = [float(x) for x in re.findall(r"-?[\d.]+", element.get("d", ""))]
            lines.append(points[:2] + points[-2:])
    if len(boxes) != len(numbers):
        raise ValueError(f"{PICTURE}: {len(boxes)} boxes and {len(numbers)} numbers")

    def box_at(x: float, y: float) -> str:
        def distance(box: tuple[float, float, float, float]) -> float:
            return max(box[0] - x, x - box[2], box[1] - y, y - box[3], 0.0)

        nearest = min(range(len(boxes)), key=lambda i: distance(boxes[i]))
        if not distance(boxes[nearest]) <= NEAR:
            raise ValueError(f"{PICTURE}: an arrow ends at ({x:g}, {y:g}), in no box")
        return numbers[nearest]

    return [(box_at(*ends[:2]), box_at(*ends[2:])) for ends in lines]


def graph_problems(root: Path = ROOT) -> list[str]:
    """Where the chapters, the table and the picture do not agree."""
    found = []
    book, rows = chapters(root), map_rows(root)
    if [row.name for row in rows] != [chapter.name for chapter in book]:
        found.append(
            f"{MAP}: its table must have the chapters of {CONTENTS}, in that order"
        )
    in_map = {row.name: row for row in rows}
    number_of = {chapter.name: chapter.number for chapter in book}
    for i, chapter in enumerate(book):
        place = f"notebooks/{chapter.name}.ipynb"
        earlier = [each.name for each in book[:i]]
        found += [
            f"{place}: needs {need}, which does not come before it"
            for need in chapter.needs
            if need not in earlier
        ]
        row = in_map.get(chapter.name)
        if row is not None:
            if row.number != chapter.number:
                found.append(f"{MAP}: {chapter.name} must have number {chapter.number}")
            if row.title != re.sub(r"^Appendix \w: ", "", chapter.title):
                found.append(f"{MAP}: {row.title!r} is titled {chapter.title!r}")
            needed = {number_of.get(need, need) for need in chapter.needs}
            if set(row.needs) != needed:
                found.append(
                    f"{MAP}: chapter {chapter.number} needs {_listed(row.needs)} there "
                    f"and {_listed(needed)} by its own head"
                )
        then = f"{book[i + 1].name}.ipynb" if i + 1 < len(book) else Path(MAP).name
        if chapter.then[:1] != (then,):
            found.append(f"{place}: the first link of its Next must be to {then}")
    needs = {row.number: row.needs for row in rows}
    drawn = arrows(root)
    reached = {end for _, end in drawn}
    found += [
        f"{PICTURE}: an arrow leads from {start} to {end}, which does not need it"
        for start, end in drawn
        if start not in needs.get(end, ())
    ]
    found += [
        f"{PICTURE}: no arrow leads to {row.number}"
        for row in rows
        if row.needs and row.number.isdigit() and row.number not in reached
    ]
    return found


def _listed(numbers: Iterable[str]) -> str:
    return ", ".join(sorted(numbers, key=lambda n: (len(n), n))) or "nothing"


def main() -> int:
    for chapter in chapters():
        print(f"{chapter.number:>2} {chapter.title:32} needs", *chapter.needs)
    found = graph_problems()
    print(*found, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
