"""Find a Chromium or Chrome and start it, for the site's tests and for screenshots."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/usr/lib/chromium/chromium",
    "/snap/bin/chromium",
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOW_TO_INSTALL = """\
No Chromium or Chrome was found, and Playwright could not fetch one.
The tests of the pages need a browser. Install one:
    Debian, Ubuntu   apt-get install chromium        (as root)
    Fedora           dnf install chromium            (as root)
    macOS            brew install --cask chromium    or Google Chrome
or name one that is already there:
    CHROMIUM=/path/to/chrome make test"""


class NoBrowser(RuntimeError):
    """No browser can be started; the message says what to install."""


def candidates() -> Iterator[str]:
    """Browsers that may be started, the one named by CHROMIUM first."""
    named = os.environ.get("CHROMIUM")
    if named:
        if not shutil.which(named):
            raise NoBrowser(f"CHROMIUM={named} is not a program that can be run")
        yield named
        return
    for name in NAMES:
        found = shutil.which(name)
        if found:
            yield found
    for place in PLACES:
        if Path(place).exists():
            yield place


def launch(playwright: Any) -> Any:
    """A headless browser: the system's, or Playwright's own, fetched if need be."""
    failures = []
    for path in candidates():
        try:
            return playwright.chromium.launch(executable_path=path, args=FLAGS)
        except Exception as error:
            failures.append(f"{path}: {str(error).splitlines()[0]}")
    for attempt in ("as it is", "fetched"):
        try:
            if attempt == "fetched":
                subprocess.run(
                    [sys.executable, "-m", "playwright", "install", "chromium"],
                    check=True,
                    capture_output=True,
                    timeout=300,
                )
            return playwright.chromium.launch(args=FLAGS)
        except Exception:
            continue
    raise NoBrowser("\n".join([HOW_TO_INSTALL, *failures]))
