"""Write the chapters as Colab opens them: with a first cell that fetches the book.

python tools/colab_notebooks.py FOLDER

Colab opens a notebook alone, without the library and the files beside it. So the copies
begin with a cell that fetches both where they are missing; the chapters themselves stay
as they are. The workflow `colab` puts these copies on the branch `colab`, to which the
pages' links lead (sphinx_ext/live.py). The address is that of `_config.yml`.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import live_chapters
from live_chapters import ROOT

# Packages that Colab may lack, by chapter; those of all chapters first.
ALL = ("anywidget", "threadpoolctl")
MODEL = "specdec models get smollm2"
MORE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "13_a_llama_in_numpy": (("[fast]",), (MODEL,)),
    "14_real_speedups": (("[fast]",), (MODEL,)),
    "15_the_same_with_transformers": (("[llm,hf]",), (MODEL,)),
    "16_an_engine_behind_http": (("[load]", "openai"), ()),
    "17_measuring_at_scale": (("[scale,track]", "psutil"), ()),
}


def first_cell(name: str, address: str, branch: str) -> str:
    """The cell that fetches the book where its library is missing."""
    packages, commands = MORE.get(name, ((), ()))
    extra = "".join(package for package in packages if package.startswith("["))
    named = [package for package in packages if not package.startswith("[")]
    lines = [
        "# In Colab: fetches the book, and installs its library.",
        "from importlib.util import find_spec",
        'if find_spec("specdec_lib") is None:',
        f"    !git clone --quiet --depth 1 --branch {branch} \\",
        f"        {address} book",
        f'    %pip install --quiet "./book{extra}" \\',
        f"        {' '.join([*ALL, *named])}",
        "    %cd -q book/notebooks",
        *(f"    !{command}" for command in commands),
        'if "google.colab" in str(get_ipython()):',
        "    from google.colab import output",
        "    output.enable_custom_widget_manager()",
    ]
    return "\n".join(lines)


def for_colab(
    notebook: dict[str, Any], name: str, address: str, branch: str
) -> dict[str, Any]:
    """A copy with that cell in front."""
    changed = copy.deepcopy(notebook)
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "id": "fetch-the-book",
        "metadata": {},
        "outputs": [],
        "source": first_cell(name, address, branch).splitlines(keepends=True),
    }
    changed["cells"].insert(0, cell)
    return changed


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    known = live_chapters.repository()
    if known is None:
        print("_config.yml names no repository: nothing is written.", file=sys.stderr)
        return 1
    folder = Path(sys.argv[1])
    for chapter in live_chapters.chapters():
        source = ROOT / f"{chapter}.ipynb"
        notebook = json.loads(source.read_text(encoding="utf-8"))
        changed = for_colab(notebook, source.stem, *known)
        target = folder / f"{chapter}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(changed, indent=1, ensure_ascii=False)
        target.write_text(text + "\n", encoding="utf-8")
    (folder / "README.md").write_text(
        "The chapters of the book as Colab opens them, written anew from each state\n"
        f"of the branch {known[1]} by tools/colab_notebooks.py.\n",
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
