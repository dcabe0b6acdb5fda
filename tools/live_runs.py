"""Run the chapters in the browser and keep what it took in book/live_runs.json.

python tools/live_runs.py [CHAPTER …]     all, or those named (05_exact_sampling)

Needs `make lite`. A chapter that fails is left out of the file, and the command fails.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import live_chapters
from browser import launch
from build_status import processor
from live_chapters import ROOT, RUNS
from live_page import LivePage
from serve import make_server

LIMIT = 900  # seconds for one chapter


def title(chapter: str) -> str:
    cells = json.loads((ROOT / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).splitlines()[0].lstrip("# ")


def measure(browser: Any, address: str, chapter: str) -> dict[str, Any]:
    """Run one chapter to its end and move its sliders; what it took."""
    page = LivePage(browser, address, chapter)
    try:
        page.run_all(LIMIT)
        sliders = page.move_sliders()
        page.check_quiet()
    finally:
        page.close()
    return {
        "title": title(f"notebooks/{chapter}"),
        "first_output": round(page.first_output, 1),
        "whole": round(page.whole, 1),
        "memory": round(page.memory),
        "megabytes": round(page.megabytes, 1),
        "sliders": sliders,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER")
    arguments = parser.parse_args()
    if not live_chapters.is_current():
        print("_build/lite is missing or of other files: `make lite`", file=sys.stderr)
        return 1
    names = [Path(name).name for name in live_chapters.live()]
    chosen = arguments.chapters or names
    if unknown := set(chosen) - set(names):
        parser.error(f"not among the chapters that run in a browser: {sorted(unknown)}")
    server = make_server(0, live_chapters.LITE.parent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    kept = live_chapters.runs().get("chapters", {})
    failed = []
    with sync_playwright() as playwright:
        for name in chosen:
            kept.pop(f"notebooks/{name}", None)
            browser = launch(playwright)  # a new one: no file is there from before
            version = f"Chromium {browser.version}"
            try:
                found = measure(browser, address, name)
            except Exception as error:
                failed.append(name)
                print(f"{name}: {error}", file=sys.stderr, flush=True)
            else:
                kept[f"notebooks/{name}"] = found
                print(f"{name}: {found}", flush=True)
            finally:
                browser.close()
            record = {
                "browser": version,
                "machine": f"{processor()}, {os.cpu_count()} cores",
                "date": datetime.date.today().isoformat(),
                "chapters": dict(sorted(kept.items())),
            }
            RUNS.write_text(
                json.dumps(record, indent=1, ensure_ascii=False) + "\n",
                encoding="utf-8",
            )
    server.shutdown()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
