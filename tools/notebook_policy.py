"""What a chapter must keep to, beyond running: the rules of CONTRIBUTING.md.

    python tools/notebook_policy.py notebooks/*.ipynb

nbval compares outputs; it passes a notebook whose outputs were stripped, and it never
looks at pictures or prose. These rules look at the rest.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import glossary
from notebook_needs import needs_problems

MAX_COLUMNS = 72
MAX_CODE_CELLS = 30
MAX_CODE_LINES = 20
MAX_WORDS = 2700
MIN_ALT = 40
EXERCISES = range(3, 7)
HEAD = ["Needs", "Builds", "Time"]
REASONS = {"timing", "widget"}
IGNORE = "nbval-ignore-output"
FORBIDDEN_TAGS = {"nbval-skip", "raises-exception", "nbval-raises-exception"}
VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
PICTURES = ("image/png", "image/jpeg", "image/svg+xml")

ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{7,}\b")
MACHINE = re.compile(
    r"(?<![\w.])/(?:home|Users|root|tmp|work|var/folders|opt|usr|private)/\w"
    r"|[A-Z]:\\\\?Users|site-packages"
)
NUMBER = re.compile(r"(?<![\w.])(?:\d+)?\.\d+(?:[eE][-+]?\d+)?(?![\w]|\.\d)")
# Numbers that name a place or a version, not a measurement.
NAMES_A_PLACE = re.compile(
    r"(?:Python|NumPy|version|BY|[Ss]ections?|[Ee]quations?|[Ff]igures?|[Tt]ables?"
    r"|[Cc]hapters?|[Tt]heorems?|§)\s*$"
)
EXEMPT = re.compile(r"<!--\s*(?:quoted|given):\s*\S[^>]*-->")
CITED = re.compile(r"\{cite(?::\w+)?\}`")
Notebook = dict[str, Any]
Cell = dict[str, Any]


def text_of(value: str | list[str]) -> str:
    """A notebook's text field, which may be stored as a list of lines."""
    return value if isinstance(value, str) else "".join(value)


def code_cells(notebook: Notebook) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def tags(cell: Cell) -> set[str]:
    return set(cell["metadata"].get("tags", []))


def output_texts(cell: Cell) -> Iterator[str]:
    """Every stored text of a cell's outputs."""
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield text_of(output["text"])
        for kind, data in output.get("data", {}).items():
            if kind.startswith("text/") or kind == "image/svg+xml":
                yield text_of(data)


def outside_solutions(notebook: Notebook) -> list[Cell]:
    """The cells that a reader sees without opening a solution."""
    seen, hidden = [], False
    for cell in notebook["cells"]:
        source = text_of(cell["source"]) if cell["cell_type"] == "markdown" else ""
        opens = source.rfind("{solution-start}")
        closes = source.rfind("{solution-end}")
        if not hidden and opens < 0:
            seen.append(cell)
        if opens != closes:  # the last mark of the cell decides for what follows
            hidden = opens > closes
    return seen


def prose(source: str) -> str:
    """Markdown without code, comments, link targets and directive marks."""
    source = re.sub(r"^(`{3,}|~{3,})\{code.*?^\1", " ", source, flags=re.S | re.M)
    source = re.sub(r"^(`{3,})(?!\{)\w*\n.*?^\1", " ", source, flags=re.S | re.M)
    source = re.sub(r"<!--.*?-->", " ", source, flags=re.S)
    source = re.sub(r"^[`:~]{3,}.*$", " ", source, flags=re.M)
    source = re.sub(r"^:[\w-]+:.*$", " ", source, flags=re.M)
    source = re.sub(r"\{[\w:-]+\}`[^`]*`", " ", source)
    source = re.sub(r"`[^`\n]*`", " ", source)
    source = re.sub(r"\]\([^)]*\)", "]", source)
    source = re.sub(r"https?://\S+", " ", source)
    return re.sub(r"<[^>\n]+>", " ", source)


def word_count(source: str) -> int:
    """Words of prose; a formula counts as one."""
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", " formula ", prose(source), flags=re.S)
    return len(re.findall(r"[^\W\d_][\w'-]*", text))


def numbers(text: str) -> set[Decimal]:
    """The decimal numbers of a text, without sign."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.replace("{,}", ","))
    return {Decimal(match) for match in NUMBER.findall(text)}


def printed_numbers(notebook: Notebook) -> set[Decimal]:
    """The numbers that a chapter printed or wrote in its code."""
    found: set[Decimal] = set()
    for cell in code_cells(notebook):
        for text in [*output_texts(cell), text_of(cell["source"])]:
            found |= numbers(re.sub(r"(\.\d+)[eE]", r"\1 e", text)) | numbers(text)
    return found


def unprinted(notebook: Notebook) -> Iterator[tuple[int, str]]:
    """Decimals of the prose that the chapter never printed, with their cells."""
    printed = printed_numbers(notebook)
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "markdown":
            continue
        for block in re.split(r"\n\s*\n", text_of(cell["source"])):
            if EXEMPT.search(block):
                continue
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`*(\[])", block):
                if CITED.search(sentence):
                    continue
                text = prose(sentence).replace("{,}", "")
                text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
                for match in NUMBER.finditer(text):
                    if NAMES_A_PLACE.search(text[: match.start()]):
                        continue
                    value = Decimal(match[0])
                    percent = re.match(r"\s*(?:\\?%|per cent)", text[match.end() :])
                    if value in printed or (percent and value / 100 in printed):
                        continue
                    yield index, match[0]


def parsed(source: str) -> ast.Module | None:
    """The cell's syntax tree, magics left out; None where it does not parse."""
    lines = ["pass" if line.startswith("%") else line for line in source.split("\n")]
    try:
        return ast.parse("\n".join(lines))
    except SyntaxError:
        return None


def unseeded(source: str) -> Iterator[str]:
    """Calls that draw at random without a seed on the page."""
    tree = parsed(source)
    if tree is None:
        yield "does not parse as Python"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(a.name == "random" for a in node.names):
            yield "`import random`: draw with a SeededRandom"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = node.args or node.keywords
        if name.endswith(("SeededRandom", "default_rng")) and not given:
            yield f"`{name}()` without a seed"
        if re.search(r"\b(?:np|numpy)\.random\.(?!default_rng|Generator|PCG64)", name):
            yield f"`{name}` uses the global random state"
        if name in {
            f"{base}.{f}"
            for base in ("sd", "specdec_lib")
            for f in ("generate", "stream")
        }:
            keywords = {keyword.arg for keyword in node.keywords}
            text = ast.unparse(node).lower()
            calm = re.search(r"temperature=0(?:\.0)?\b|greedy", text)
            if not keywords & {"seed", "rng", None} and not calm:
                yield f"`{name}` without seed= or rng="


def picture_problems(cell: Cell, names: set[str]) -> Iterator[str]:
    options = cell["metadata"].get("mystnb", {})
    figure = options.get("figure", {})
    pictures = [
        output
        for output in cell["outputs"]
        if any(kind in output.get("data", {}) for kind in PICTURES)
    ]
    if len(pictures) > 1:
        yield "shows more than one picture: one figure, one cell"
    if pictures:
        alt = options.get("image", {}).get("alt", "")
        if len(alt) < MIN_ALT:
            yield f"a picture needs mystnb.image.alt of at least {MIN_ALT} characters"
        for key in ("name", "caption"):
            if not figure.get(key):
                yield f"a picture needs mystnb.figure.{key}"
    if figure.get("name"):
        if figure["name"] in names:
            yield f"figure name {figure['name']!r} is taken"
        names.add(figure["name"])
    for text in output_texts(cell):
        for mark in re.findall(r"<svg\b[^>]*>", text):
            if text.lstrip().startswith(("<?xml", "<svg")) and pictures:
                continue
            if "aria-label" not in mark or 'role="img"' not in mark:
                yield 'an SVG in HTML needs role="img" and an aria-label'
        for mark in re.findall(r"<img\b[^>]*>", text):
            if not re.search(r'\balt="[^"]+"', mark):
                yield "an <img> needs alt text"


def cell_problems(cell: Cell, names: set[str]) -> Iterator[str]:
    """What is wrong with one code cell and its outputs."""
    source = text_of(cell["source"])
    lines = source.split("\n")
    if not source.strip():
        yield "is empty"
    for line in lines:
        if len(line) > MAX_COLUMNS:
            yield f"a line of {len(line)} columns, at most {MAX_COLUMNS}: {line[:40]}…"
        if line.startswith("!"):
            yield "runs a shell command"
    if len([line for line in lines if line.strip()]) > MAX_CODE_LINES:
        yield f"more than {MAX_CODE_LINES} lines"
    if source.rstrip().endswith(";"):
        yield "ends in a semicolon: end with `_ = …` or `plt.show()`"
    if "NBVAL" in source:
        yield "an NBVAL comment: use tags"
    yield from unseeded(source)
    for output in cell["outputs"]:
        if output["output_type"] == "error":
            yield f"a stored error: {output.get('ename')}"
        if output.get("name") == "stderr":
            yield f"stored stderr: {text_of(output['text'])[:60]!r}"
    for text in output_texts(cell):
        if ADDRESS.search(text):
            yield f"a memory address in the output: {ADDRESS.search(text)[0]}"
    for text in [source, *output_texts(cell)]:
        if MACHINE.search(text):
            yield f"a path of one machine: {MACHINE.search(text)[0]}…"
    yield from picture_problems(cell, names)
    extra = set(cell["metadata"]) - {"tags", "mystnb", "jupyter"}
    if extra:
        yield f"metadata {sorted(extra)}: run `make notebooks`, which drops it"


def tag_problems(cells: list[Cell]) -> Iterator[tuple[int, str]]:
    """Ignored outputs need a reason, and a check of what must hold of them."""
    for index, cell in enumerate(cells):
        bad = tags(cell) & FORBIDDEN_TAGS
        if bad:
            yield index, f"tag {sorted(bad)} is not allowed"
        if IGNORE not in tags(cell):
            continue
        if not tags(cell) & REASONS:
            yield index, f"tag {IGNORE} needs its reason as a tag: timing or widget"
        after = next((c for c in cells[index + 1 :] if IGNORE not in tags(c)), None)
        if after is None or not re.search(
            r"^\s*assert\b", text_of(after["source"]), re.M
        ):
            yield index, "an ignored output must be followed by a cell that asserts"


def head_rows(source: str) -> dict[str, str]:
    """The table below the title: what a chapter needs and builds, and its time."""
    return dict(re.findall(r"^\| *\*\*(\w[\w ]*)\*\* *\| *(.*?) *\|$", source, re.M))


def next_paragraphs(notebook: Notebook) -> list[str]:
    """Those that say what comes next."""
    return [
        block
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
        for block in re.split(r"\n\s*\n", text_of(cell["source"]))
        if block.startswith("**Next:** ")
    ]


def frame_problems(notebook: Notebook) -> Iterator[str]:
    """How a chapter opens and closes: tools/chapter_graph.py looks at the links."""
    first = text_of(notebook["cells"][0]["source"]) if notebook["cells"] else ""
    rows = head_rows(first)
    if list(rows) != HEAD or not all(rows.values()):
        yield (
            "the first cell must have a table with the rows "
            f"{', '.join(f'**{row}**' for row in HEAD)}"
        )
    after = next_paragraphs(notebook)
    if len(after) != 1 or "](" not in after[0]:
        yield "expected one paragraph that begins with **Next:** and has a link"
        return
    text = "\n\n".join(
        text_of(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
    )
    if not re.match(r"\s*^## Exercises$", text.split(after[0])[1], re.M):
        yield "**Next:** must stand right before `## Exercises`"


def exercise_problems(markdown: str) -> Iterator[str]:
    blocks = re.findall(
        r"^[`:]{3,}\{exercise(?:-start)?\}[^\n]*\n(.*?)^[`:]{3,}\s*$",
        markdown,
        re.M | re.S,
    )
    labels = [m[1] for b in blocks if (m := re.search(r"^:label:\s*(\S+)", b, re.M))]
    if len(blocks) not in EXERCISES:
        yield f"{len(blocks)} exercises, expected {EXERCISES[0]} to {EXERCISES[-1]}"
    if len(labels) != len(blocks):
        yield "every exercise needs a :label:"
    for label in labels:
        start = r"\{solution(?:-start)?\}\s+" + re.escape(label)
        if not re.search(start + r"\s*\n\s*:class: dropdown", markdown):
            yield f"exercise {label!r} has no solution with `:class: dropdown`"
    if markdown.count("{solution-start}") != markdown.count("{solution-end}"):
        yield "a solution-start without its solution-end"


def bold_problems(sources: list[str]) -> Iterator[str]:
    """Words that a chapter introduces in bold, and that the glossary lacks."""
    known = {form.casefold() for form in glossary.terms().term_of}
    known |= set(glossary.explained_otherwise())
    for source in sources:
        for words in glossary.in_bold(source):
            if words.casefold() not in known:
                yield (
                    f"prose: **{words}** is in bold and not in the glossary: write an "
                    "entry, or a reason under [in_bold] in book/terms.toml"
                )


def problems(notebook: Notebook, *, chapter: bool = True) -> list[str]:
    """All that is wrong with a notebook, each as `where: what`; empty when sound.

    With `chapter=False` the rules of a whole chapter (exercises, title) are left out.
    """
    found: list[str] = []
    cells = code_cells(notebook)
    names: set[str] = set()

    counts = [cell["execution_count"] for cell in cells]
    if counts != list(range(1, len(cells) + 1)):
        found.append(
            "notebook: outputs are not those of one clean run (cells are numbered "
            f"{counts}): run `make notebooks`"
        )
    if cells and not any(cell["outputs"] for cell in cells):
        found.append("notebook: no stored output at all: run `make notebooks`")
    kernel = notebook["metadata"].get("kernelspec", {}).get("name")
    if kernel != "python3":
        found.append(f"notebook: kernel {kernel!r}, expected 'python3'")
    known = {"kernelspec", "language_info", "widgets", "specdec"}
    if set(notebook["metadata"]) - known:
        found.append("notebook: metadata of an editor: run `make notebooks`")
    found += [f"notebook: {p}" for p in needs_problems(notebook["metadata"])]
    ids = [cell.get("id") for cell in notebook["cells"]]
    if None in ids or len(set(ids)) < len(ids):
        found.append("notebook: every cell needs an id of its own")

    for number, cell in enumerate(cells, start=1):
        found += [f"code cell {number}: {text}" for text in cell_problems(cell, names)]
    found += [f"code cell {i + 1}: {text}" for i, text in tag_problems(cells)]

    state = notebook["metadata"].get("widgets", {}).get(STATE, {}).get("state", {})
    for number, cell in enumerate(cells, start=1):
        for output in cell["outputs"]:
            view = output.get("data", {}).get(VIEW)
            if view and view["model_id"] not in state:
                found.append(f"code cell {number}: a widget without its stored state")

    seen = outside_solutions(notebook)
    shown = len([cell for cell in seen if cell["cell_type"] == "code"])
    if shown > MAX_CODE_CELLS:
        found.append(f"notebook: {shown} code cells, at most {MAX_CODE_CELLS}")
    words = sum(
        word_count(text_of(cell["source"]))
        for cell in seen
        if cell["cell_type"] == "markdown"
    )
    if words > MAX_WORDS:
        found.append(f"notebook: {words} words of prose, at most {MAX_WORDS}")

    sources = [
        text_of(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
    ]
    for index, text in unprinted(notebook):
        found.append(
            f"cell {index + 1} (Markdown): {text} is in no stored output; print it, or "
            "mark the paragraph with <!-- quoted: source --> or <!-- given: why -->"
        )
    for source in sources:
        if MACHINE.search(prose(source)):
            found.append(f"prose: a path of one machine: {MACHINE.search(source)[0]}…")
        for alt in re.findall(r"!\[([^\]]*)\]\(", source):
            if len(alt) < MIN_ALT:
                found.append(f"prose: an image needs alt text, not {alt!r}")
    found += bold_problems(sources)
    if chapter:
        headings = re.findall(
            r"^# \S.*$",
            re.sub(r"^```.*?^```", "", "\n".join(sources), flags=re.S | re.M),
            re.M,
        )
        first = notebook["cells"][0] if notebook["cells"] else None
        if (
            first is None
            or first["cell_type"] != "markdown"
            or not re.match(r"(?:\([\w-]+\)=\n)?# ", text_of(first["source"]))
        ):
            found.append("notebook: the first cell must be the title, `# …`")
        if len(headings) != 1:
            found.append(f"notebook: {len(headings)} titles (`# …`), expected one")
        found += [f"notebook: {p}" for p in frame_problems(notebook)]
        found += [f"notebook: {p}" for p in exercise_problems("\n\n".join(sources))]
    return found


def main(arguments: list[str]) -> int:
    failed = 0
    for argument in arguments:
        notebook = json.loads(Path(argument).read_text(encoding="utf-8"))
        for problem in problems(notebook):
            failed += 1
            print(f"{argument}: {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
