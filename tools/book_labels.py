"""The labels of the book, and the references to them.

    python tools/book_labels.py            every label, and how often it is referred to

A label belongs to a numbered formula (``$$ … $$ (eq-…)``), to a theorem or its like
(``{prf:theorem}``), to a figure or a table. They stand in the chapters and in the pages
under ``book``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notebook_policy import text_of

ROOT = Path(__file__).resolve().parents[1]
FORMULA, FIGURE = "formula", "figure"
# Of all others it is `prf:ref`.
ROLES = {FORMULA: "eq", FIGURE: "numref", "table": "numref", "list-table": "numref"}

DISPLAY = re.compile(r"^\$\$(.*?)\$\$ *(?:\(([\w-]+)\))? *$", re.M | re.S)
DIRECTIVE = re.compile(
    r"^(`{3,}|:{3,})\{(prf:\w+|figure|table|list-table)\} *([^\n]*)\n(.*?)^\1 *$",
    re.M | re.S,
)
OPTION = re.compile(r"^:(label|name): *(\S+) *\n?", re.M)
REFERENCE = re.compile(r"\{(eq|numref|ref|prf:ref)\}`(?:[^`<]*<)?([\w-]+)>?`")
COMMENT = re.compile(r"<!--.*?-->", re.S)
SOLUTION = re.compile(
    r"^(`{3,})\{solution-start\}.*?^\1\{solution-end\}\s*^\1 *$"
    r"|^(`{3,})\{solution\}.*?^\2 *$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Label:
    """``reads``: the formula's LaTeX, the theorem's text, or the figure's caption."""

    name: str
    kind: str  # FORMULA, FIGURE, or the name of a theorem's kind
    place: str
    reads: str

    @property
    def role(self) -> str:
        return ROLES.get(self.kind, "prf:ref")


@dataclass(frozen=True)
class Reference:
    role: str
    name: str
    place: str


def cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a chapter; a page counts as one of them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return list(json.loads(text)["cells"])
    return [{"cell_type": "markdown", "metadata": {}, "source": text}]


def sources(root: Path = ROOT) -> list[Path]:
    """Chapters first, then pages."""
    pages = sorted((root / "book").rglob("*.md"))
    pages = [page for page in pages if "assets" not in page.relative_to(root).parts]
    return [*sorted((root / "notebooks").glob("*.ipynb")), *pages]


def squeezed(text: str) -> str:
    """Without blanks at the ends of lines, and without empty lines."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def labels_of(path: Path, place: str) -> Iterator[Label]:
    for cell in cells(path):
        text = COMMENT.sub("", text_of(cell["source"]))
        if cell["cell_type"] == "code":
            figure = cell["metadata"].get("mystnb", {}).get("figure", {})
            if figure.get("name"):
                yield Label(figure["name"], FIGURE, place, figure.get("caption", ""))
            continue
        if cell["cell_type"] != "markdown":
            continue
        for latex, name in DISPLAY.findall(text):
            if name:
                yield Label(name, FORMULA, place, squeezed(latex))
        for _, directive, title, body in DIRECTIVE.findall(text):
            named = OPTION.search(body)
            if named:
                kind = directive.removeprefix("prf:")
                said = f"{title}\n{OPTION.sub('', body)}"
                yield Label(named[2], kind, place, squeezed(said))


def labels(root: Path = ROOT) -> dict[str, Label]:
    """All labels by name; ValueError where two have the same."""
    found: dict[str, Label] = {}
    for path in sources(root):
        for label in labels_of(path, path.relative_to(root).as_posix()):
            if label.name in found:
                both = f"{found[label.name].place} and {label.place}"
                raise ValueError(f"label {label.name} is given twice: {both}")
            found[label.name] = label
    return found


def statements(root: Path = ROOT) -> dict[str, Label]:
    """The labels of what can be true or false: no figures and no tables."""
    found = labels(root)
    return {name: each for name, each in found.items() if each.role != "numref"}


def references(root: Path = ROOT) -> list[Reference]:
    """Those in the prose that everybody sees: not in captions, not in solutions."""
    found = []
    for path in sources(root):
        place = path.relative_to(root).as_posix()
        prose = "\n\n".join(
            text_of(cell["source"])
            for cell in cells(path)
            if cell["cell_type"] == "markdown"
        )
        seen = SOLUTION.sub("", COMMENT.sub("", prose))
        found += [Reference(*each, place) for each in REFERENCE.findall(seen)]
    return found


def reference_problems(root: Path = ROOT) -> list[str]:
    """Labels that no sentence refers to, and references of the wrong kind."""
    all_labels, seen = labels(root), references(root)
    problems = []
    for label in all_labels.values():
        mine = [each for each in seen if each.name == label.name]
        if not any(each.role == label.role for each in mine):
            problems.append(
                f"{label.place}: nothing refers to the {label.kind} {label.name}; "
                f"say {{{label.role}}}`{label.name}` where the text speaks about it"
            )
        problems += [
            f"{each.place}: {{{each.role}}}`{label.name}` must be {{{label.role}}}"
            for each in mine
            if each.role != label.role
        ]
    return problems


def main() -> None:
    seen = references()
    for label in labels().values():
        n = sum(each.name == label.name for each in seen)
        print(f"{label.name:24} {label.kind:12} {n:3}  {label.place}")


if __name__ == "__main__":
    main()
