"""Which edition of the book this is: its version, and the commit of these files.

python tools/edition.py     as the footer of the pages says it
"""

from __future__ import annotations

import datetime
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What is measured anew before the book is published: no change of the book.
MEASURED = ("book/status.json",)


@dataclass(frozen=True)
class Edition:
    """What a build is made from.

    version
        of the library and the book.
    commit
        all digits of the commit; empty where the files are in no repository of git.
    date
        the day of the commit (in UTC), as in 2026-11-30; empty without a commit.
    changed
        whether files differ from that commit.
    """

    version: str
    commit: str = ""
    date: str = ""
    changed: bool = False

    @property
    def short(self) -> str:
        """The first digits of the commit."""
        return self.commit[:10]

    @property
    def state(self) -> str:
        """The commit as it is named in a table: short, and whether files changed."""
        return self.short + (" with changes" if self.changed else "")

    def __str__(self) -> str:
        if not self.commit:
            return f"Version {self.version}"
        return f"Version {self.version}, commit {self.state} of {self.date}"


def version(root: Path = ROOT) -> str:
    """The version, from the one place where it is written."""
    text = (root / "specdec_lib" / "__init__.py").read_text(encoding="utf-8")
    found = re.findall(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if len(found) != 1:
        raise ValueError("specdec_lib/__init__.py must have one line __version__ = …")
    return str(found[0])


def git(root: Path, *arguments: str) -> str | None:
    """What git answers; None where it cannot answer."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def edition(root: Path = ROOT) -> Edition:
    """The edition of the files under ``root``."""
    number = version(root)
    top = git(root, "rev-parse", "--show-toplevel")
    # The book unpacked inside some other repository is not of that one's commit.
    if not top or Path(top).resolve() != root.resolve():
        return Edition(number)
    head = git(root, "log", "-1", "--format=%H %ct")
    if not head:
        return Edition(number)
    commit, seconds = head.split()
    day = datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).date()
    others = (f":(exclude){name}" for name in MEASURED)
    status = git(
        *(root, "status", "--porcelain", "--untracked-files=no", "--", ".", *others)
    )
    return Edition(number, commit, day.isoformat(), changed=bool(status))


if __name__ == "__main__":
    print(edition())
