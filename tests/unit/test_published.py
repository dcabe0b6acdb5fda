"""The branch that is published: the book, previews of requests, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import published as tool
import pytest
from published import Asked, Refused

HOME = "https://github.com/a/book"


def git(folder: Path, *arguments: str) -> str:
    who = {
        f"GIT_{role}_{what}": "a@b"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", "-C", folder, *arguments],
        env=os.environ | who,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout, and the repository that it was made from."""
    git(tmp_path, "init", "--quiet", "--bare", "origin")
    git(tmp_path, "clone", "--quiet", "origin", "clone")
    folder = tmp_path / "clone"
    (folder / "README.md").write_text("main")
    (folder / ".gitignore").write_text("*.html\n*.js\n")
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "exclude").write_text("b\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "All")
    git(folder, "push", "--quiet", "origin", "HEAD:main")
    return folder


def pages(folder: Path, text: str = "book", **more: str) -> Path:
    """Built pages."""
    for name, content in {"index.html": f"<head><p>{text}", **more}.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    return folder


def kept(clone: Path) -> dict[str, str]:
    """The files of the branch, as somebody else would fetch them."""
    origin = clone.parent / "origin"
    names = git(origin, "ls-tree", "-r", "--name-only", "pages").splitlines()
    return {name: git(origin, "show", f"pages:{name}") for name in names}


def put(clone: Path, source: Path, number: int = 0) -> bool:
    if number:
        return tool.change(lambda b: tool.put_preview(b, number, source), "x", clone)
    return tool.change(lambda b: tool.put_book(b, source), "x", clone)


def remove(clone: Path, number: int) -> bool:
    return tool.change(lambda b: tool.remove_preview(b, number), "x", clone)


def test_the_book_and_previews_live_beside_each_other(
    clone: Path, tmp_path: Path
) -> None:
    assert put(clone, pages(tmp_path / "one", "old", a__gone="x"))
    assert put(clone, pages(tmp_path / "seven", "seven", a__b="x"), 7)
    assert put(clone, pages(tmp_path / "eight", "eight"), 8)
    assert put(clone, pages(tmp_path / "two", "new", a__js="x"))
    found = kept(clone)
    assert set(found) == {
        "index.html",
        "a/js",
        "preview/pr-7/index.html",
        "preview/pr-7/a/b",
        "preview/pr-8/index.html",
    }
    assert found["index.html"] == "<head><p>new"
    assert put(clone, pages(tmp_path / "again", "seven again"), 7)
    assert remove(clone, 8)
    found = kept(clone)
    assert set(found) == {"index.html", "a/js", "preview/pr-7/index.html"}
    assert found["preview/pr-7/index.html"].endswith("<p>seven again")


def test_previews_are_hidden_from_search_engines_and_the_book_is_not(
    clone: Path, tmp_path: Path
) -> None:
    source = pages(tmp_path / "one")
    (source / "odd.html").write_bytes(b"<html><head lang='x'>\xff</head><head>")
    put(clone, source)
    put(clone, source, 3)
    found = kept(clone)
    assert "noindex" not in found["index.html"]
    assert found["preview/pr-3/index.html"].startswith(
        '<head><meta name="robots" content="noindex">'
    )
    assert source.joinpath("odd.html").read_bytes().count(b"noindex") == 0
    raw = subprocess.run(
        ["git", "-C", clone.parent / "origin", "show", "pages:preview/pr-3/odd.html"],
        capture_output=True,
        check=True,
    ).stdout
    assert raw == (
        b'<html><head lang=\'x\'><meta name="robots" content="noindex">\xff'
        b"</head><head>"
    )


def test_the_branch_has_one_commit_and_the_checkout_is_left_alone(
    clone: Path, tmp_path: Path
) -> None:
    before = git(clone, "rev-parse", "HEAD")
    for number in (1, 2, 3):
        put(clone, pages(tmp_path / str(number), str(number)), number)
    assert git(clone.parent / "origin", "rev-list", "--count", "pages") == "1"
    assert git(clone, "rev-parse", "HEAD") == before
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "ls-files") == ".gitignore\nREADME.md"


def test_nothing_is_pushed_where_nothing_changes(clone: Path, tmp_path: Path) -> None:
    source = pages(tmp_path / "one")
    assert put(clone, source)
    was = git(clone.parent / "origin", "rev-parse", "pages")
    assert not put(clone, source)
    assert not remove(clone, 99)
    assert git(clone.parent / "origin", "rev-parse", "pages") == was


def test_what_others_push_in_between_is_not_lost(clone: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--branch", "main", "origin", "other")
    seen: list[str] = []

    def edit(branch: Path) -> None:
        if not seen:
            put(tmp_path / "other", pages(tmp_path / "one", "other"), 1)
        seen.append("x")
        tool.put_preview(branch, 2, pages(tmp_path / "two", "mine"))

    assert tool.change(edit, "x", clone)
    assert len(seen) == 2
    assert set(kept(clone)) == {"preview/pr-1/index.html", "preview/pr-2/index.html"}


def test_a_branch_that_may_not_be_pushed_is_told(clone: Path, tmp_path: Path) -> None:
    hook = clone.parent / "origin" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(Refused, match="cannot be pushed"):
        put(clone, pages(tmp_path / "one"))
    git(clone, "remote", "set-url", "origin", str(tmp_path / "nowhere"))
    with pytest.raises(Refused, match="cannot be fetched"):
        put(clone, pages(tmp_path / "one"))


@pytest.mark.parametrize("kind", ("file", "folder", "out", "loose", "pipe"))
def test_links_are_refused(kind: str, tmp_path: Path) -> None:
    source = pages(tmp_path / "one", a__b="x")
    secret = tmp_path / "secret"
    secret.write_text("token")
    if kind == "pipe":
        os.mkfifo(source / "x")
    else:
        target = {"file": "index.html", "folder": "a", "out": secret, "loose": "no"}
        (source / "x").symlink_to(target[kind])
    branch = tmp_path / "branch"
    branch.mkdir()
    for edit in (
        lambda: tool.put_preview(branch, 1, source),
        lambda: tool.put_book(branch, source),
    ):
        with pytest.raises(Refused, match="x is a link"):
            edit()
    assert list(branch.iterdir()) == []


def test_hidden_files_are_left_out(tmp_path: Path) -> None:
    source = pages(tmp_path / "one")
    for name in (".git/config", "a/.git/hooks/x", ".buildinfo", "a/b.txt"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")
    branch = tmp_path / "branch"
    tool.put_preview(branch, 1, source)
    files = {p.name for p in branch.rglob("*") if p.is_file()}
    assert files == {"index.html", "b.txt"}


def test_too_much_is_refused(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pages(tmp_path / "one", a__b="x")
    for name, most in (("MOST_FILES", 1), ("MOST_BYTES", 12), ("ALL_BYTES", 12)):
        with monkeypatch.context() as patch:
            patch.setattr(tool, name, most)
            with pytest.raises(Refused, match="more than|in all"):
                put(clone, source, 1)
    assert put(clone, source, 1)


def test_what_is_no_book_is_refused(tmp_path: Path) -> None:
    branch, empty = tmp_path / "branch", tmp_path / "empty"
    branch.mkdir()
    empty.mkdir()
    pages(branch, "published")
    with pytest.raises(Refused, match=r"no index\.html"):
        tool.put_book(branch, empty)
    with pytest.raises(Refused, match="itself has a folder preview"):
        tool.put_book(branch, pages(tmp_path / "odd", preview__x="x"))
    assert (branch / "index.html").read_text() == "<head><p>published"


# What GitHub says happened, as far as it is read.
REPOSITORY = {"repository": {"html_url": HOME}}


def run_event(**changes: Any) -> dict[str, Any]:
    run = {"id": 55, "event": "pull_request", "conclusion": "success", "head_sha": "c1"}
    return {"workflow_run": run | changes, **REPOSITORY}


def request_event(action: str, label: str = "preview") -> dict[str, Any]:
    request = {"number": 7, "head": {"sha": "c1"}}
    return {"action": action, "pull_request": request, "label": {"name": label},
            **REPOSITORY}  # fmt: skip


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A `gh` that answers what a test wants, and a repository that has an address."""
    monkeypatch.setattr("live_chapters.repository", lambda: (HOME, "main"))
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\necho "$@" >> "$0.asked"\ncat "$0.$1" 2>/dev/null || '
        "{ echo no access >&2; exit 1; }\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    class GitHub:
        def has(self, *requests: dict[str, Any]) -> None:
            Path(f"{program}.pr").write_text(json.dumps(requests))

        def passed(self, *runs: int) -> None:
            text = json.dumps([{"databaseId": run} for run in runs])
            Path(f"{program}.run").write_text(text)

        @property
        def asked(self) -> str:
            path = Path(f"{program}.asked")
            return path.read_text() if path.exists() else ""

    return GitHub()


def request(number: int, commit: str, *, fork: bool = False) -> dict[str, Any]:
    return {"number": number, "headRefOid": commit, "isCrossRepository": fork}


def test_a_tested_request_of_the_repository_is_shown(github: Any) -> None:
    github.has(request(6, "c0"), request(7, "c1"))
    assert tool.which("workflow_run", run_event()) == Asked("preview", 7, 55)


def test_one_from_a_fork_waits_for_its_label(github: Any) -> None:
    github.has(request(7, "c1", fork=True))
    found = tool.which("workflow_run", run_event())
    assert found.action == "nothing"
    assert "request 7 is from a fork" in found.why
    github.passed(56)
    found = tool.which("pull_request_target", request_event("labeled"))
    assert found == Asked("preview", 7, 56)
    assert "--commit c1 --event pull_request --status success" in github.asked


@pytest.mark.parametrize(
    "event",
    [
        run_event(conclusion="failure"),
        run_event(conclusion="cancelled"),
        run_event(event="push"),
        run_event(head_sha="c2"),
    ],
)
def test_what_is_not_shown(github: Any, event: dict[str, Any]) -> None:
    github.has(request(7, "c1"))
    found = tool.which("workflow_run", event)
    assert found.action == "nothing"
    assert found.why


def test_other_labels_and_tests_that_have_not_passed(github: Any) -> None:
    github.passed()
    for event in (request_event("labeled", "typo"), request_event("labeled")):
        found = tool.which("pull_request_target", event)
        assert found.action == "nothing"
        assert found.why


def test_a_closed_request_is_taken_away(github: Any) -> None:
    found = tool.which("pull_request_target", request_event("closed"))
    assert found == Asked("remove", 7)
    assert github.asked == ""


@pytest.mark.parametrize("name", ("push", "schedule", "workflow_dispatch"))
def test_the_book_is_published(github: Any, name: str) -> None:
    assert tool.which(name, REPOSITORY) == Asked("book")
    assert tool.which("issue_comment", REPOSITORY).action == "nothing"


@pytest.mark.parametrize("known", (None, ("https://github.com/b/book", "main")))
def test_elsewhere_nothing_is_done(
    github: Any, known: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a fork, and before the repository has an address."""
    monkeypatch.setattr("live_chapters.repository", lambda: known)
    for name, event in (
        ("push", REPOSITORY),
        ("workflow_run", run_event()),
        ("pull_request_target", request_event("closed")),
    ):
        found = tool.which(name, event)
        assert found.action == "nothing"
        assert "does not name this repository" in found.why
    assert github.asked == ""


def test_the_outputs_of_a_step(
    github: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps(run_event()))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
    monkeypatch.setenv("GITHUB_EVENT_NAME", "workflow_run")
    assert tool.main(["which"]) == 1
    assert "`gh pr list`: no access" in capsys.readouterr().err
    github.has(request(7, "c1"))
    assert tool.main(["which"]) == 0
    assert capsys.readouterr().out == "action=preview\nnumber=7\nrun=55\n"


def test_the_command(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    change, made = tool.change, []

    def here(edit: Any, said: str) -> bool:
        made.append(said)
        return change(edit, said, clone)

    monkeypatch.setattr(tool, "change", here)
    source = str(pages(tmp_path / "one"))
    assert tool.main(["book", source]) == 0
    assert tool.main(["preview", "12", source]) == 0
    assert set(kept(clone)) == {"index.html", "preview/pr-12/index.html"}
    assert tool.main(["remove", "12"]) == 0
    assert set(kept(clone)) == {"index.html"}
    assert "request 12" in made[1]
    assert tool.main(["preview", "12", str(tmp_path)]) == 1
    for wrong in ([], ["preview", "../x", source], ["remove"], ["remove", "-1"]):
        assert tool.main(wrong) == 2
