"""One issue says which links lead nowhere, and is closed when none does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import link_issue as tool
import pytest

HOME = "https://github.com/a/book"


class GitHub:
    """A `gh` that keeps issues in a file, as far as the tool uses it."""

    PROGRAM = """#!/usr/bin/env python3
import json, sys
path = {path!r}
issues = json.load(open(path))
kind, verb, *rest = sys.argv[1:]
assert kind == "issue"
option = lambda name: rest[rest.index(name) + 1]
if verb == "list":
    assert option("--state") == "open"
    print(json.dumps([i for i in issues if i["state"] == "open"]))
elif verb == "create":
    issues.append({{"number": len(issues) + 1, "state": "open",
                    "title": option("--title"),
                    "body": open(option("--body-file")).read()}})
else:
    (issue,) = (i for i in issues if str(i["number"]) == rest[0])
    if verb == "edit":
        issue["body"] = open(option("--body-file")).read()
    elif verb == "close":
        issue |= {{"state": "closed", "said": option("--comment")}}
    else:
        sys.exit("unknown: " + verb)
json.dump(issues, open(path, "w"))
"""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "issues.json"
        self.path.write_text("[]")
        program = folder / "gh"
        program.write_text(self.PROGRAM.format(path=str(self.path)))
        program.chmod(0o755)

    @property
    def issues(self) -> list[dict[str, Any]]:
        return json.loads(self.path.read_text())


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitHub:
    monkeypatch.setattr("live_chapters.repository", lambda: (HOME, "main"))
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/book")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return GitHub(tmp_path)


def run(folder: Path, code: int, text: str = "report") -> int:
    (folder / "links.md").write_text(text)
    return tool.main([str(code), str(folder / "links.md")])


def test_one_issue_is_opened_kept_and_closed(github: GitHub, tmp_path: Path) -> None:
    assert run(tmp_path, 0) == 0
    assert github.issues == []
    assert run(tmp_path, 1, "two are gone") == 0
    assert run(tmp_path, 1, "three are gone") == 0
    (issue,) = github.issues
    assert (issue["title"], issue["state"]) == (tool.TITLE, "open")
    assert issue["body"] == "three are gone"
    assert run(tmp_path, 0) == 0
    (issue,) = github.issues
    assert issue["state"] == "closed"
    assert "answer again" in issue["said"]
    assert run(tmp_path, 1, "one is gone") == 0
    assert [i["state"] for i in github.issues] == ["closed", "open"]


def test_other_issues_are_left_alone(github: GitHub, tmp_path: Path) -> None:
    other = {"number": 1, "state": "open", "title": "A typo", "body": "here"}
    github.path.write_text(json.dumps([other]))
    run(tmp_path, 0)
    run(tmp_path, 1)
    assert github.issues[0] == other
    assert github.issues[1]["title"] == tool.TITLE


def test_where_nothing_could_be_asked_it_fails(github: GitHub, tmp_path: Path) -> None:
    run(tmp_path, 1)
    assert run(tmp_path, 2) == 1
    assert github.issues[0]["state"] == "open"


@pytest.mark.parametrize("known", (None, ("https://github.com/b/book", "main")))
def test_elsewhere_no_issue_is_touched(
    github: GitHub, tmp_path: Path, known: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("live_chapters.repository", lambda: known)
    assert run(tmp_path, 1) == 0
    assert github.issues == []


def test_an_error_of_github_is_told(
    github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gh").write_text("#!/bin/sh\necho no rights >&2\nexit 1\n")
    assert run(tmp_path, 1) == 1
    assert "`gh issue list`: no rights" in capsys.readouterr().err


@pytest.mark.parametrize("given", ([], ["3", "x"], ["1"]))
def test_what_is_asked_for_wrongly(given: list[str]) -> None:
    assert tool.main(given) == 2
