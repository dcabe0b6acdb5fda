"""The footer of the pages names the edition that they were built from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import edition as tool
import pytest
from edition import Edition, edition

ROOT = Path(__file__).resolve().parents[2]
WHEN = "1700000000 +0000"  # 2023-11-14 in UTC


def git(folder: Path, *arguments: str) -> str:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")}  # fmt: skip
    dates = {"GIT_AUTHOR_DATE": WHEN, "GIT_COMMITTER_DATE": WHEN}
    done = subprocess.run(
        ["git", "-C", folder, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | identity | dates,
    )
    return done.stdout.strip()


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of two files, outside of git."""
    folder = tmp_path / "book of two"
    for name, text in (
        ("specdec_lib/__init__.py", 'a = 1\n__version__ = "4.5.6"\n'),
        ("book/status.json", "{}\n"),
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def committed(book: Path) -> str:
    git(book, "init", "--quiet")
    git(book, "add", ".")
    git(book, "commit", "--quiet", "--message", "All of it")
    return git(book, "rev-parse", "HEAD")


def test_a_commit_is_named_with_its_day(book: Path, committed: str) -> None:
    found = edition(book)
    assert found == Edition("4.5.6", committed, "2023-11-14")
    assert str(found) == f"Version 4.5.6, commit {committed[:10]} of 2023-11-14"


def test_changes_are_told_but_not_those_of_what_is_measured(
    book: Path, committed: str
) -> None:
    (book / "new.txt").write_text("not of the book until it is added")
    (book / "book/status.json").write_text("{1}")
    assert not edition(book).changed
    with (book / "specdec_lib/__init__.py").open("a") as file:
        file.write("b = 2\n")
    found = edition(book)
    assert found.changed
    assert found.state == f"{committed[:10]} with changes"
    git(book, "add", ".")
    assert edition(book).changed  # also where they wait for a commit


def test_without_git_the_version_stands_alone(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert edition(book) == Edition("4.5.6")
    assert str(edition(book)) == "Version 4.5.6"
    monkeypatch.setenv("PATH", "")  # no program git
    assert edition(book) == Edition("4.5.6")


def test_a_repository_around_the_book_is_not_its_own(book: Path) -> None:
    git(book.parent, "init", "--quiet")
    git(book.parent, "commit", "--quiet", "--allow-empty", "--message", "Other")
    assert edition(book).commit == ""


def test_a_repository_without_a_commit(book: Path) -> None:
    git(book, "init", "--quiet")
    assert edition(book) == Edition("4.5.6")


def test_a_version_that_is_not_there_is_an_error(book: Path) -> None:
    (book / "specdec_lib/__init__.py").write_text("")
    with pytest.raises(ValueError, match="one line __version__"):
        edition(book)


def test_the_version_is_that_of_the_library() -> None:
    import specdec_lib

    assert tool.version() == specdec_lib.__version__
    said = subprocess.run(
        [sys.executable, ROOT / "tools/edition.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith(f"Version {specdec_lib.__version__}")


@pytest.fixture
def footer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "sphinx_ext"))
    from colophon import line

    return line


def test_the_footer_links_the_commit_where_there_is_a_repository(footer) -> None:
    found = Edition("1.2.0", "0123456789abcdef", "2026-11-30")
    day = '<time datetime="2026-11-30">2026-11-30</time>'
    assert footer(found, None) == (
        f"Version 1.2.0, commit <code>0123456789</code> of {day}"
    )
    linked = footer(found, "https://github.com/a/b")
    assert 'href="https://github.com/a/b/commit/0123456789abcdef"' in linked


def test_the_footer_tells_changes_and_copes_without_a_commit(footer) -> None:
    changed = Edition("1.2.0", "0123456789abcdef", "2026-11-30", changed=True)
    assert footer(changed, None).endswith(", with changes")
    assert footer(Edition("1.2.0"), "https://github.com/a/b") == "Version 1.2.0"
