"""Small faults of text files: conflict marks, trailing blanks, a missing last newline.

Without FILE, all files that git tracks are looked at.

    python tools/check_text.py [FILE...]
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFLICT = re.compile(rb"^(?:<{7}|>{7}|\|{7})(?: |$)", re.M)
# Notebooks are JSON with stored outputs; Markdown may end a line in two blanks.
BLANKS_MEAN_NOTHING = {".py", ".sh", ".toml", ".yml", ".yaml", ".css", ".js", ".txt"}
LARGEST = 3_000_000


def faults(path: Path) -> list[str]:
    """What is wrong with one file."""
    data = path.read_bytes()
    found = []
    if len(data) > LARGEST:
        found.append(f"{len(data):,} bytes, at most {LARGEST:,}")
    if b"\0" in data:
        return found
    if CONFLICT.search(data):
        found.append("a conflict mark")
    if b"\r\n" in data:
        found.append("lines that end in CR LF")
    if data and not data.endswith(b"\n"):
        found.append("no newline at the end")
    if data.endswith(b"\n\n"):
        found.append("empty lines at the end")
    if path.suffix in BLANKS_MEAN_NOTHING and re.search(rb"[ \t]+$", data, re.M):
        found.append("blanks at the end of a line")
    return found


def tracked() -> list[Path]:
    """The files that git tracks; none outside a checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    ).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name]


def main(arguments: list[str]) -> int:
    paths = [Path(argument) for argument in arguments] or tracked()
    failed = False
    for path in paths:
        if path.is_file():
            for fault in faults(path):
                failed = True
                print(f"{path}: {fault}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
