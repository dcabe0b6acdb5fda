"""Every chapter keeps to the policy, and the policy catches what it should."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import glossary
import nbformat
import pytest
from execute_notebooks import execute, normalise
from notebook_policy import numbers, outside_solutions, problems, prose, word_count

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
Notebook = dict[str, Any]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_keeps_to_the_policy(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    found = problems(notebook)
    assert not found, "\n" + "\n".join(found)


def test_every_chapter_is_in_the_table_of_contents() -> None:
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    for path in CHAPTERS:
        assert f"notebooks/{path.stem}" in toc


def test_figure_names_are_unique_in_the_book() -> None:
    owners: dict[str, str] = {}
    for path in CHAPTERS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            name = cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")
            if name:
                assert name not in owners, f"{name}: {owners[name]} and {path.name}"
                owners[name] = path.name


def test_reasons_why_a_word_has_no_entry_are_needed() -> None:
    sources = (
        "".join(cell["source"])
        for path in CHAPTERS
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    )
    bold = {w.casefold() for source in sources for w in glossary.in_bold(source)}
    entries = {form.casefold() for form in glossary.terms().term_of}
    reasons = set(glossary.explained_otherwise())
    assert reasons - bold == set()
    assert reasons & entries == set()


def test_words_in_bold_are_told_from_stresses() -> None:
    source = (
        "| **Time** | a |\n\n**One term**, **{term}`Two <two>`** and **{term}`three`**;"
        " **this is stressed**. **A heading.** $a **b** c$ *no*"
    )
    assert list(glossary.in_bold(source)) == ["One term", "Two", "three", "b"]


# -- The policy itself -------------------------------------------------------

EXERCISE = """\
```{{exercise}}
:label: ex-{n}
Why?
```

```{{solution}} ex-{n}
:class: dropdown
Because.
```
"""

HEAD = """\
# Title

| | |
|---|---|
| **Needs** | nothing |
| **Builds** | a rate |
| **Time** | a minute |

"""
END = """

**Next:** [chapter 2](02_b.ipynb) goes on.

## Exercises
"""


def output(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def code(number: int, source: str, *outputs: dict[str, Any], **metadata: Any) -> Any:
    return {
        "cell_type": "code",
        "id": f"code-{number}",
        "execution_count": number,
        "metadata": metadata,
        "source": source,
        "outputs": list(outputs),
    }


def markdown(number: int, source: str) -> dict[str, Any]:
    return {
        "cell_type": "markdown",
        "id": f"text-{number}",
        "metadata": {},
        "source": source,
    }


def picture() -> dict[str, Any]:
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": {"image/png": "AAAA", "text/plain": "<Figure>"},
    }


def figure_metadata() -> dict[str, Any]:
    return {
        "image": {"alt": "Bars of heights one half, one third and one sixth, falling"},
        "figure": {"name": "fig-bars", "caption": "Three bars."},
    }


@pytest.fixture
def sound() -> Notebook:
    """A notebook with nothing wrong in it."""
    cells = [
        markdown(1, HEAD + "The rate is 0.731, or 73.1 %, at $T = 0.5$."),
        code(1, "print(0.5)", output("rate 0.7310\n")),
        code(2, "plt.show()", picture(), mystnb=figure_metadata()),
        code(
            3,
            "clock()",
            output("0.123 s"),
            tags=["nbval-ignore-output", "timing"],
        ),
        code(4, "assert slow > fast"),
        markdown(2, "{cite:t}`a2023` report 9.99. <!-- x --> It is so."),
        markdown(3, "It was 8.88 there. <!-- quoted: their table -->" + END),
        *(markdown(10 + n, EXERCISE.format(n=n)) for n in range(3)),
    ]
    return {
        "cells": cells,
        "metadata": {"kernelspec": {"name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def test_a_sound_notebook_passes(sound: Notebook) -> None:
    assert problems(sound) == []


def change_source(cell: int, source: str) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        notebook["cells"][cell]["source"] = source

    return change


def add_output(cell: int, **fields: Any) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        notebook["cells"][cell]["outputs"].append(fields)

    return change


def strip(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None


def set_in(cell: int, *path: str, value: Any) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        place = notebook["cells"][cell]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def many_cells(notebook: Notebook) -> None:
    notebook["cells"] += [code(n, "x = 1") for n in range(5, 40)]


def drop_figure(notebook: Notebook) -> None:
    del notebook["cells"][2]["metadata"]["mystnb"]


def lost_widget(notebook: Notebook) -> None:
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "a" * 32}}
    notebook["cells"][1]["outputs"].append(
        {"output_type": "display_data", "metadata": {}, "data": view}
    )


FAULTS: dict[str, tuple[Callable[[Notebook], None], str]] = {
    "no entry": (
        change_source(0, "# A title\n\nThis is a **new term**, no {term}`token`."),
        "**new term** is in bold and not in the glossary",
    ),
    "stripped": (strip, "one clean run"),
    "out of order": (set_in(1, "execution_count", value=7), "one clean run"),
    "stored error": (
        add_output(1, output_type="error", ename="ValueError"),
        "stored error",
    ),
    "stderr": (
        add_output(1, output_type="stream", name="stderr", text="careful"),
        "stderr",
    ),
    "address": (
        add_output(1, output_type="stream", name="stdout", text="at 0x7f9e906320d0"),
        "memory address",
    ),
    "no metadata on a figure": (drop_figure, "image.alt"),
    "short alt text": (
        set_in(2, "metadata", "mystnb", "image", "alt", value="bars"),
        "image.alt",
    ),
    "no caption": (
        set_in(2, "metadata", "mystnb", "figure", "caption", value=""),
        "figure.caption",
    ),
    "two pictures": (add_output(2, **picture()), "more than one picture"),
    "bare svg": (
        add_output(
            1,
            output_type="display_data",
            metadata={},
            data={"text/html": "<div><svg width='3'></svg></div>"},
        ),
        "aria-label",
    ),
    "long line": (change_source(1, "x = " + "1" * 80), "columns"),
    "long cell": (change_source(1, "x = 1\n" * 40), "lines"),
    "semicolon": (change_source(1, "x = 0.5;"), "semicolon"),
    "empty cell": (change_source(4, "  "), "is empty"),
    "shell": (change_source(4, "!ls\nassert 1"), "shell"),
    "many cells": (many_cells, "code cells, at most"),
    "many words": (change_source(5, "word " * 3000), "words of prose"),
    "no reason": (
        set_in(3, "metadata", "tags", value=["nbval-ignore-output"]),
        "needs its reason",
    ),
    "ignored and unchecked": (change_source(4, "x = 1"), "asserts"),
    "skipped cell": (
        set_in(1, "metadata", "tags", value=["nbval-skip"]),
        "not allowed",
    ),
    "NBVAL comment": (change_source(4, "# NBVAL_SKIP\nassert 1"), "NBVAL"),
    "stale number": (change_source(0, HEAD + "The rate is 0.732."), "0.732"),
    "stale number in a formula": (
        change_source(0, HEAD + "$\\alpha = 0.99$"),
        "0.99",
    ),
    "stale percent": (change_source(0, HEAD + "About 73.2 %."), "73.2"),
    "stale number beside a citation": (
        change_source(5, "{cite:t}`a2023` say so. We find 9.99 here."),
        "9.99",
    ),
    "mark without a reason": (
        change_source(6, "It was 8.88. <!-- quoted: -->" + END),
        "8.88",
    ),
    "global seed": (change_source(4, "assert np.random.seed(1)"), "global random"),
    "generator without seed": (
        change_source(4, "assert np.random.default_rng()"),
        "without a seed",
    ),
    "source without seed": (change_source(4, "assert sd.SeededRandom()"), "seed"),
    "sampling without seed": (
        change_source(4, "assert sd.generate(model, [1], max_new_tokens=3)"),
        "without seed",
    ),
    "random module": (change_source(4, "import random\nassert 1"), "import random"),
    "broken syntax": (change_source(4, "assert ("), "does not parse"),
    "machine path": (change_source(4, "assert '/home/ann/x'"), "path of one machine"),
    "machine path in output": (
        add_output(1, output_type="stream", name="stdout", text="/tmp/abc/file"),
        "path of one machine",
    ),
    "widget without state": (lost_widget, "stored state"),
    "editor's metadata": (
        set_in(1, "metadata", "execution", value={"iopub": "2026"}),
        "metadata",
    ),
    "no title": (change_source(0, HEAD[7:]), "title"),
    "two titles": (change_source(5, "# Another\n\n{cite}`a`"), "titles"),
    "no solution": (
        change_source(7, "```{exercise}\n:label: ex-9\nWhy?\n```"),
        "no solution",
    ),
    "too few exercises": (change_source(7, "None."), "2 exercises"),
    "image without alt": (change_source(6, "![](a.png)" + END), "alt text"),
    "no head": (change_source(0, "# Title\n\n0.731 here."), "rows **Needs**"),
    "an old row in the head": (
        change_source(0, HEAD.replace("Needs", "You need")),
        "rows **Needs**",
    ),
    "an empty row in the head": (
        change_source(0, HEAD.replace("nothing", "")),
        "rows **Needs**",
    ),
    "nothing next": (
        change_source(6, "It was so.\n\n## Exercises"),
        "begins with **Next:**",
    ),
    "two things next": (change_source(5, END.split("##")[0]), "begins with **Next:**"),
    "next without a link": (
        change_source(6, END.replace("[chapter 2](02_b.ipynb)", "chapter 2")),
        "has a link",
    ),
    "next too early": (
        change_source(6, END.replace("\n## Ex", "\nMore.\n\n## Ex")),
        "right before",
    ),
    "next without exercises": (
        change_source(6, END.replace("## Exercises", "## Ends")),
        "right before",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(sound: Notebook, fault: str) -> None:
    change, words = FAULTS[fault]
    broken = copy.deepcopy(sound)
    change(broken)
    assert broken != sound
    assert any(words in problem for problem in problems(broken)), problems(broken)


def test_greedy_generation_needs_no_seed(sound: Notebook) -> None:
    sound["cells"][4]["source"] = (
        "greedy = sd.Sampler(temperature=0)\n"
        "assert sd.generate(m, [1], max_new_tokens=3, sampler=greedy)"
    )
    assert problems(sound) == []


def test_numbers_are_read_as_written() -> None:
    found = numbers("1,234.50 and .25, -0.5; 3.1e-4 but not 3.11.7 or v2.0x or 7")
    assert sorted(map(float, found)) == [3.1e-4, 0.25, 0.5, 1234.5]


def test_prose_leaves_out_code_and_links() -> None:
    text = prose("See `x = 1.5`, [a](b/2.5) and\n\n```python\n3.5\n```\nbut 4.5.")
    assert "4.5" in text
    assert not any(number in text for number in ("1.5", "2.5", "3.5"))


def test_a_formula_counts_as_one_word() -> None:
    assert word_count("The sum $a + b + c$ is small.") == 5


@pytest.mark.slow
def test_stored_outputs_do_not_change_from_run_to_run(tmp_path: Path) -> None:
    source = (
        "import ipywidgets\nprint(1)\nprint(2)\nipywidgets.IntSlider(description='k')"
    )

    def run() -> str:
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source)],
            metadata={"kernelspec": {"name": "python3", "display_name": "P"}},
        )
        execute(notebook, tmp_path)
        return nbformat.writes(normalise(notebook, "x.ipynb"))

    first = run()
    assert first == run()
    stored = json.loads(first)
    assert stored["cells"][0]["outputs"][0]["text"] == ["1\n", "2\n"]
    assert "widgets" in stored["metadata"]
    assert problems(stored, chapter=False) == []


def test_one_cell_may_end_a_solution_and_start_the_next() -> None:
    def markdown(source: str) -> Any:
        return {"cell_type": "markdown", "metadata": {}, "source": source}

    start, end = "```{solution-start} ex-1\n```", "```{solution-end}\n```"
    cells = [
        markdown("Seen."),
        markdown(start),
        code(1, "hidden = 1"),
        markdown(f"{end}\n\n{start}"),
        code(2, "hidden = 2"),
        markdown(end),
        code(3, "seen = 3"),
    ]
    seen = outside_solutions({"cells": cells})
    assert seen == [cells[0], cells[6]]
