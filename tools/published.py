"""The branch `pages`: what is published, the book and previews of requested changes.

    python tools/published.py which                what a workflow's event asks for
    python tools/published.py book FOLDER          put the built book there
    python tools/published.py preview N FOLDER     put the pages of request N there
    python tools/published.py remove N             take those away

The branch has the book at its top, and the pages of a pull request under
`preview/pr-N`. It has one commit, made anew each time, so that old pages do not weigh
on the repository. `.github/workflows/deploy.yml` publishes the branch as it is.

Pages of a request were made by code that nobody may have read yet. They are only
copied: plain files, none that are hidden, no links, no more than fit. A request from a
fork is shown only once somebody who may do so gives it the label `preview`, and then
the pages of the commit that they saw.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import live_chapters

ROOT = Path(__file__).resolve().parents[1]
BRANCH = "pages"
PREVIEWS = "preview"
LABEL = "preview"
TESTS = "test.yml"  # the workflow whose runs have the pages of a request
MOST_FILES, MOST_BYTES = 20_000, 300_000_000  # of one book
ALL_BYTES = 950_000_000  # GitHub Pages takes a gigabyte
TRIES = 5
NOT_FOUND = b'<meta name="robots" content="noindex">'  # by search engines


class Refused(Exception):
    """Something that is not published, with the reason."""


@dataclass(frozen=True)
class Asked:
    """What an event asks for.

    action
        "preview", "remove" or "nothing".
    number
        of the pull request.
    run
        of the tests, which has the pages.
    why
        for whoever reads the log.
    """

    action: str
    number: int = 0
    run: int = 0
    why: str = ""


def gh_text(*arguments: str) -> str:
    """The answer of GitHub's command line tool; Refused where it has none."""
    command = ["gh", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        called = " ".join(command[:3])
        raise Refused(f"`{called}`: {done.stderr.strip()}")
    return done.stdout


def gh(*arguments: str) -> Any:
    """The same, where it is JSON."""
    return json.loads(gh_text(*arguments))


def is_home(address: str) -> bool:
    """Whether a repository is the one that `_config.yml` names."""
    known = live_chapters.repository()
    return known is not None and known[0].lower() == address.rstrip("/").lower()


def passed_run(commit: str) -> int | None:
    """The last run of the tests that a commit of a request passed."""
    found = gh(
        *("run", "list", "--workflow", TESTS, "--commit", commit),
        *("--event", "pull_request", "--status", "success"),
        *("--limit", "1", "--json", "databaseId"),
    )
    return int(found[0]["databaseId"]) if found else None


def of_tests(run: Mapping[str, Any]) -> Asked:
    """The tests of a request are done: which one it is, and whether it is shown."""
    if run["event"] != "pull_request" or run["conclusion"] != "success":
        return Asked("nothing", why="not the passed tests of a request")
    # Not what the run says of itself, but the open requests whose last commit it is.
    requests = gh(
        *("pr", "list", "--state", "open", "--limit", "1000"),
        *("--json", "number,headRefOid,isCrossRepository"),
    )
    for request in requests:
        if request["headRefOid"] == run["head_sha"]:
            if request["isCrossRepository"]:
                why = f"request {request['number']} is from a fork: label it {LABEL}"
                return Asked("nothing", why=why)
            return Asked("preview", request["number"], run["id"])
    return Asked("nothing", why="no open request ends in this commit")


def of_request(event: Mapping[str, Any]) -> Asked:
    """A request was closed, or got a label."""
    request = event["pull_request"]
    if event["action"] == "closed":
        return Asked("remove", request["number"])
    if event["action"] != "labeled" or event["label"]["name"] != LABEL:
        return Asked("nothing", why=f"not the label {LABEL}")
    run = passed_run(request["head"]["sha"])
    if run is None:
        why = f"its tests have not passed (yet): then take {LABEL} off and on again"
        return Asked("nothing", why=why)
    return Asked("preview", request["number"], run)


def which(name: str, event: Mapping[str, Any]) -> Asked:
    """What an event asks for."""
    if not is_home(event["repository"]["html_url"]):
        return Asked("nothing", why="_config.yml does not name this repository")
    if name == "workflow_run":
        return of_tests(event["workflow_run"])
    if name == "pull_request_target":
        return of_request(event)
    if name in ("push", "schedule", "workflow_dispatch"):
        return Asked("book")
    return Asked("nothing", why=f"nothing is published on {name}")


def files_of(source: Path) -> list[Path]:
    """The files of built pages, but hidden ones; Refused where there are links."""
    if not (source / "index.html").is_file():
        raise Refused(f"{source} has no index.html: these are no built pages")
    files, size = [], 0
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise Refused(f"{inside} is a link, or no file: nothing is published")
        if path.is_file() and not any(part.startswith(".") for part in inside.parts):
            files.append(path)
            size += path.stat().st_size
        if len(files) > MOST_FILES or size > MOST_BYTES:
            raise Refused(f"more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes")
    return files


def copy(source: Path, target: Path) -> None:
    """Copy built pages, and nothing else."""
    for path in files_of(source):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def put_book(branch: Path, source: Path) -> None:
    """The built book in place of the one before; previews stay."""
    if (source / PREVIEWS).exists():
        raise Refused(f"the book itself has a folder {PREVIEWS}")
    files_of(source)
    for path in branch.iterdir():
        if path.name == PREVIEWS:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    copy(source, branch)


def put_preview(branch: Path, number: int, source: Path) -> None:
    """The pages of a request in place of its earlier ones; search engines pass by."""
    target = branch / PREVIEWS / f"pr-{number}"
    files_of(source)
    shutil.rmtree(target, ignore_errors=True)
    copy(source, target)
    for page in target.rglob("*.html"):
        text = page.read_bytes()
        page.write_bytes(
            re.sub(rb"<head\b[^>]*>", rb"\g<0>" + NOT_FOUND, text, count=1)
        )


def remove_preview(branch: Path, number: int) -> None:
    """Take the pages of a request away, where there are any."""
    shutil.rmtree(branch / PREVIEWS / f"pr-{number}", ignore_errors=True)


def git(
    *arguments: str, root: Path, check: bool = True, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run git in the checkout, with more in its environment."""
    return subprocess.run(
        ["git", *arguments],
        cwd=root,
        env=os.environ | {"LC_ALL": "C"} | more,
        capture_output=True,
        text=True,
        check=check,
    )


def change(edit: Callable[[Path], None], said: str, root: Path = ROOT) -> bool:
    """Change the branch, and push it; whether there was anything to change.

    Where somebody else pushes it in between, it is all done again.
    """
    for _ in range(TRIES):
        fetched = git(
            *("fetch", "--quiet", "--depth", "1", "origin", BRANCH),
            root=root,
            check=False,
        )
        if fetched.returncode and "couldn't find remote ref" not in fetched.stderr:
            raise Refused(f"the branch cannot be fetched: {fetched.stderr.strip()}")
        old = (
            ""
            if fetched.returncode
            else git("rev-parse", "FETCH_HEAD", root=root).stdout.strip()
        )
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name, "pages")
            folder.mkdir()
            tree = {"GIT_INDEX_FILE": f"{name}/index", "GIT_WORK_TREE": str(folder)}
            if old:
                git("read-tree", old, root=root, **tree)
                git("checkout-index", "--all", root=root, **tree)
            edit(folder)
            size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
            if size > ALL_BYTES:
                raise Refused(
                    f"{size:,} bytes in all, of {ALL_BYTES:,} that can be published: "
                    "close requests, or remove their previews"
                )
            git("add", "--all", "--force", ".", root=root, **tree)
            written = git("write-tree", root=root, **tree).stdout.strip()
        if (
            old
            and git("rev-parse", f"{old}^{{tree}}", root=root).stdout.strip() == written
        ):
            return False
        who = {
            f"GIT_{role}_{what}": text
            for role in ("AUTHOR", "COMMITTER")
            for what, text in (("NAME", "pages"), ("EMAIL", "pages@localhost"))
        }
        new = git("commit-tree", written, "-m", said, root=root, **who).stdout.strip()
        pushed = git(
            *("push", "--quiet", f"--force-with-lease=refs/heads/{BRANCH}:{old}"),
            *("origin", f"{new}:refs/heads/{BRANCH}"),
            root=root,
            check=False,
        )
        if pushed.returncode == 0:
            return True
        if "stale info" not in pushed.stderr and "rejected" not in pushed.stderr:
            break
    raise Refused(f"the branch cannot be pushed: {pushed.stderr.strip()}")


def commit(root: Path = ROOT) -> str:
    return git("rev-parse", "--short=10", "HEAD", root=root).stdout.strip()


def tell(asked: Asked) -> None:
    """As the outputs of a step; the reason goes into the log."""
    print(f"action={asked.action}\nnumber={asked.number}\nrun={asked.run}")
    if asked.why:
        print(f"Nothing is done: {asked.why}.", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        match given:
            case ["which"]:
                path = Path(os.environ["GITHUB_EVENT_PATH"])
                event = json.loads(path.read_text(encoding="utf-8"))
                tell(which(os.environ["GITHUB_EVENT_NAME"], event))
            case ["book", folder]:
                source = Path(folder)
                change(lambda b: put_book(b, source), f"The book of {commit()}")
            case ["preview", number, folder] if number.isdecimal():
                source = Path(folder)
                said = f"A preview of request {number}"
                change(lambda b: put_preview(b, int(number), source), said)
            case ["remove", number] if number.isdecimal():
                said = f"Without the preview of request {number}"
                change(lambda b: remove_preview(b, int(number)), said)
            case _:
                print(__doc__)
                return 2
    except Refused as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
