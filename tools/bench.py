"""Run all benchmarks and write a report: `make bench`.

    python tools/bench.py [--quick]

First `specdec bench`, plain and speculative decoding over drafts and lengths, then the
modules of bench/. Prints tables and writes bench-report/: report.md, rows.csv,
growth.png, and bench.csv, bench.png, bench.svg of the first. Figures depend on the
machine, which the report names; nothing fails here for being slow. What does is the
gate: `specdec bench --gate bench/baseline.json`.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from specdec_lib import plots
from specdec_lib.bench import describe, machine

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "bench-report"
Row = dict[str, Any]


def benchmarks() -> list[Any]:
    """The modules of bench/, in order."""
    modules = []
    for path in sorted((ROOT / "bench").glob("bench_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        modules.append(module)
    return modules


def speeds(quick: bool) -> list[str]:
    """Run `specdec bench`; its lines for the report."""
    options = ["--repeats", "2", "--prompts", "4"] if quick else []
    table = subprocess.run(
        [*(sys.executable, "-m", "specdec_lib", "bench", "-o", str(REPORT)), *options],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    print(table, flush=True)
    title = "## Plain and speculative decoding"
    return [title, "", "```", table.rstrip(), "```", "", "![speeds](bench.png)", ""]


def shown(row: Row) -> tuple[str, str, str, str]:
    """What, value, unit and target, as text."""
    value = row["value"]
    if value != value:  # a peer that is not installed
        number = "-"
    else:
        number = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    least = f" (least {row['least']:.1f})" if "least" in row else ""
    return row["what"].rstrip(), number, row["unit"] + least, row["target"]


def growth(rows: list[Row]) -> plt.Figure:
    """How the figures that depend on the size of the text grow with it."""
    series: dict[str, list[tuple[int, float, str]]] = {}
    for row in rows:
        if row.get("tokens"):
            name = re.sub(r",? \S+ tokens$", "", row["what"].strip())
            point = (row["tokens"], row["value"], row["unit"])
            series.setdefault(name, []).append(point)
    fig, axes = plt.subplots(1, max(1, len(series)), squeeze=False)
    fig.set_size_inches(3.2 * max(1, len(series)), 3.0)
    for ax, (name, points) in zip(axes[0], series.items(), strict=False):
        sizes, values, units = zip(*sorted(points), strict=True)
        ax.plot(sizes, values, "o-", color=plots.OTHER)
        ax.set(xscale="log", xlabel=f"{name}\ntokens in the text", ylabel=units[0])
        ax.set_ylim(0, 1.2 * max(values))
    return fig


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller and fewer")
    quick = parser.parse_args().quick
    plots.use_style()
    REPORT.mkdir(exist_ok=True)
    lines = ["# Benchmarks", "", describe(machine()), "", *speeds(quick)]
    everything: list[Row] = []
    for module in benchmarks():
        title = (module.__doc__ or module.__name__).splitlines()[0]
        print(f"\n{title}", flush=True)
        rows = module.run(quick=quick)
        everything += rows
        lines += [f"## {title}", "", "| | | | target |", "|---|---:|---|---|"]
        for row in rows:
            what, value, unit, target = shown(row)
            print(f"{what:<56}{value:>12} {unit:<24}{target}", flush=True)
            lines.append(f"| {what.strip()} | {value} | {unit} | {target} |")
        lines.append("")
    if importlib.util.find_spec("kenlm") is None:
        note = "KenLM is not installed; `.venv/bin/pip install kenlm` adds it."
        print(f"\n{note}")
        lines += [note, ""]
    lines += ["## Growth with the text", "", "![growth](growth.png)", ""]
    (REPORT / "report.md").write_text("\n".join(lines), encoding="utf-8")
    with open(REPORT / "rows.csv", "w", encoding="utf-8", newline="") as file:
        fields = ["what", "value", "least", "unit", "target", "tokens"]
        writer = csv.DictWriter(file, fields, restval="")
        writer.writeheader()
        writer.writerows(everything)
    fig = growth(everything)
    fig.savefig(REPORT / "growth.png")
    plt.close(fig)
    print(f"\nReport: {REPORT.relative_to(ROOT)}/report.md")


if __name__ == "__main__":
    main()
