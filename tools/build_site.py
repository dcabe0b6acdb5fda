"""Build the book strictly into _build/html: any warning is a failure.

The build is clean each time (`--all`): assets that changed are not copied otherwise.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import live_chapters
import pdf_offer

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "_build"
SITE = BUILD / "html"
# Jupyter Book's own front page leads on, but says nothing to whoever is not led on.
FRONT = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta name="description" content="{description}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url={first}">
<link rel="icon" href="_static/favicon.svg">
</head>
<body><main><h1>{title}</h1><p><a href="{first}">To the first page</a></p></main></body>
</html>
"""


def write_front(site: Path) -> None:
    """A front page that leads on to the first page, and says what that page says."""
    index = site / "index.html"
    (first,) = re.findall(r"url=([^\"]+)", index.read_text(encoding="utf-8"))
    page = (site / first).read_text(encoding="utf-8")
    (title,) = re.findall(r"<title>(.*?)</title>", page)
    (description,) = re.findall(r'<meta name="description" content="(.*?)"', page)
    front = FRONT.format(title=title, description=description, first=first)
    index.write_text(front, encoding="utf-8")


def take_in_lite(built: Path) -> None:
    """Put JupyterLite beside the pages, where it fits them; a line where it does not.

    The pages have buttons for it in the same case: see sphinx_ext/live.py.
    """
    if live_chapters.is_current():
        # Linked, not copied, where the disk allows it.
        shutil.copytree(live_chapters.LITE, built / "lite", copy_function=link_or_copy)
    elif live_chapters.LITE.exists():
        print("_build/lite is of other files and is left out: `make lite` renews it.")


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def main() -> int:
    # Built aside and then put in place whole: neither an old page of a renamed chapter
    # nor a second build at the same time gets into it.
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=BUILD) as folder:
        command = [
            str(Path(sys.executable).with_name("jupyter-book")),
            *("build", "-n", "-W", "--keep-going", "--all"),
            *("--path-output", folder, "."),
        ]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=dict(os.environ, PYTHONWARNINGS="ignore", NO_COLOR="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        built = Path(folder) / "_build" / "html"
        complete = (built / "index.html").exists()
        if complete:
            write_front(built)
            take_in_lite(built)
            pdf_offer.put_in(built)
            if SITE.exists():
                SITE.rename(Path(folder) / "old")
            built.rename(SITE)
    messages = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    (BUILD / "build.log").write_text(messages, encoding="utf-8")
    if done.returncode == 0 and complete:
        print("Built: _build/html/index.html")
        return 0
    lines = messages.splitlines()
    telling = [line for line in lines if "WARNING:" in line or "ERROR:" in line]
    print("\n".join(telling or lines[-40:]), file=sys.stderr)
    print(
        "\nThe book did not build as it should: mend the lines above (each names its\n"
        "file and line), then type the command again. All messages: _build/build.log",
        file=sys.stderr,
    )
    return done.returncode or 1


if __name__ == "__main__":
    sys.exit(main())
