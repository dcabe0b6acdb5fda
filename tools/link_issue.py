"""Keep one issue about links that lead nowhere: opened, brought up to date, closed.

python tools/link_issue.py CODE REPORT    what tools/external_links.py said and wrote

With CODE 1 the open issue gets the new report, or one is opened; with 0 it is closed;
with 2 nothing could be asked, and this fails. Does nothing but print the report where
`_config.yml` does not name the repository that it runs in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from published import Refused, gh, gh_text, is_home

TITLE = "External links that do not answer"
NONE_LEFT = "All links of the book answer again."


def open_issue() -> int | None:
    """The number of the issue that is open, by its title; the oldest of several."""
    issues = gh(
        *("issue", "list", "--state", "open", "--limit", "1000"),
        *("--json", "number,title"),
    )
    return min((i["number"] for i in issues if i["title"] == TITLE), default=None)


def keep(code: int, report: Path) -> str:
    """Do what has to be done; returns what was done, in words."""
    number = open_issue()
    if code == 0:
        if number is None:
            return "All links answer, and no issue says otherwise."
        gh_text("issue", "close", str(number), "--comment", NONE_LEFT)
        return f"Issue {number} is closed: all links answer."
    if number is None:
        gh_text("issue", "create", "--title", TITLE, "--body-file", str(report))
        return "An issue was opened."
    gh_text("issue", "edit", str(number), "--body-file", str(report))
    return f"Issue {number} has the new report."


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 2 or given[0] not in ("0", "1", "2"):
        print(__doc__)
        return 2
    code, report = int(given[0]), Path(given[1]).resolve()
    if code == 2:
        print("The links could not be asked: no issue is touched.", file=sys.stderr)
        return 1
    server = os.environ.get("GITHUB_SERVER_URL", "")
    if not is_home(f"{server}/{os.environ.get('GITHUB_REPOSITORY', '')}"):
        print("_config.yml does not name this repository: no issue is touched.")
        return 0
    try:
        print(keep(code, report))
    except Refused as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
