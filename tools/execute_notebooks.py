"""Run the chapters from a clean kernel and store their outputs in place.

    python tools/execute_notebooks.py                      all of notebooks/
    python tools/execute_notebooks.py notebooks/04*.ipynb  these

What is stored is as stable as the outputs themselves: no times, no version of Python,
cell ids and widget ids that do not change from run to run. A notebook with an error
is left as it was, and so is one that needs modules which are not installed.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from notebook_needs import left_out

ROOT = Path(__file__).resolve().parents[1]
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
WIDGETS = "application/vnd.jupyter.widget-state+json"
CELL_KEYS = {"tags", "mystnb", "jupyter", "slideshow"}


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in place, from a clean kernel whose folder is `folder`."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata.pop("widgets", None)
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=True,
        resources={"metadata": {"path": str(folder)}},
    ).execute()


def normalise(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """The same notebook without what changes from run to run or hand to hand."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    widgets = notebook.metadata.get("widgets")
    needs = notebook.metadata.get("specdec")
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    if needs:
        notebook.metadata["specdec"] = needs
    if widgets and widgets.get(WIDGETS, {}).get("state"):
        notebook.metadata["widgets"] = widgets
    seen: set[str] = set()
    for number, cell in enumerate(notebook.cells, start=1):
        cell.metadata = nbformat.from_dict(
            {key: value for key, value in cell.metadata.items() if key in CELL_KEYS}
        )
        given = cell.get("id", "")
        # An id that somebody chose is kept; a random one gives way to the position.
        if not given or given in seen or re.fullmatch(r"[0-9a-f-]{8,36}", given):
            cell["id"] = f"cell-{number:02d}"
        while cell["id"] in seen:
            cell["id"] += "b"
        seen.add(cell["id"])
        cell.source = cell.source.rstrip()
        if cell.cell_type == "code":
            merge_streams(cell)
    # Widgets are numbered in the order in which they were made.
    made = list(widgets.get(WIDGETS, {}).get("state", {})) if widgets else []
    text = nbformat.writes(notebook)
    for number, model in enumerate(made):
        stable = hashlib.md5(f"{name}/{number}".encode()).hexdigest()
        text = text.replace(model, stable)
    return nbformat.reads(text, as_version=4)


def merge_streams(cell: nbformat.NotebookNode) -> None:
    """Join neighbouring pieces of one stream: where they break is chance."""
    merged: list[nbformat.NotebookNode] = []
    for output in cell.outputs:
        if (
            output.output_type == "stream"
            and merged
            and merged[-1].output_type == "stream"
            and merged[-1].name == output.name
        ):
            merged[-1].text += output.text
        else:
            merged.append(output)
    cell.outputs = merged


def main(arguments: list[str]) -> int:
    paths = [Path(argument).resolve() for argument in arguments] or sorted(
        (ROOT / "notebooks").glob("*.ipynb")
    )
    without = left_out(paths)
    for path in paths:
        if path in without:
            print(without[path])
            continue
        start = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        try:
            execute(notebook, path.parent)
        except CellExecutionError as error:
            print(f"{path.name}: a cell failed; the file is unchanged\n{error}")
            return 1
        nbformat.write(normalise(notebook, path.name), path)
        print(f"{path.name}: {time.perf_counter() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
