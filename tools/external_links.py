"""Ask every address outside of the book that its pages lead to, to see what is gone.

    python tools/external_links.py [--report FILE]

Reads the built pages (`make html`) and the Markdown files beside them. An address is
asked by HEAD, and by GET where that is not answered with success; what may be a passing
fault is asked three times. A host is asked one question at a time, with a pause, and
those of `tools/external_links.toml` not at all. The report is Markdown.

Exit status: 0 where all are there, 1 where some are not, 2 where nothing could be
asked: no pages, or no network.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import httpx
from bs4 import BeautifulSoup
from edition import edition
from serve import SITE

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = Path(__file__).with_suffix(".toml")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
IN_MARKDOWN = re.compile(r"\]\((https?://[^)\s]+)\)|<(https?://[^>\s]+)>")
NO_PAGES = ("_static", "_sources", "lite", "preview")
PASSING = {408, 425, 429, 500, 502, 503, 504}
LONGEST_WAIT = 60.0  # seconds, whatever a host asks for


@dataclass(frozen=True)
class Manners:
    """How hosts are asked.

    pause
        seconds between two questions to the same host.
    tries
        how often an address is asked that does not answer, or with a passing fault.
    wait
        seconds before the second try; twice as long before each further one.
    timeout
        seconds for a connection, and for each part of an answer.
    hosts
        how many hosts are asked at the same time.
    """

    pause: float = 1.0
    tries: int = 3
    wait: float = 5.0
    timeout: float = 20.0
    hosts: int = 8


@dataclass
class Answer:
    """What became of one address.

    fault
        what is wrong, in words; empty where it is there.
    moved
        where it leads for good, by redirects that are permanent; else empty.
    reached
        whether any server answered at all.
    """

    fault: str = ""
    moved: str = ""
    reached: bool = True


@dataclass
class Found:
    """All that was asked, and what was not."""

    answers: dict[str, Answer] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    not_asked: dict[str, str] = field(default_factory=dict)  # address: reason

    @property
    def faults(self) -> dict[str, Answer]:
        return {link: a for link, a in self.answers.items() if a.fault}

    @property
    def nothing_reached(self) -> bool:
        return bool(self.answers) and not any(a.reached for a in self.answers.values())


def plain(link: str) -> str:
    """An address without what only the browser reads."""
    try:
        return urldefrag(link.strip()).url
    except ValueError:  # no address at all: it will be told as that
        return link


def host_of(link: str) -> str:
    """The host of an address, with its port; empty where it has none."""
    try:
        return urlsplit(link).netloc
    except ValueError:
        return ""


def collect(site: Path = SITE, root: Path = ROOT) -> dict[str, list[str]]:
    """Every address outside, and the pages that lead there."""
    places: dict[str, set[str]] = {}
    for page in sorted(site.rglob("*.html")):
        inside = page.relative_to(site)
        if inside.parts[0] in NO_PAGES:
            continue
        soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        for tag in soup.find_all("a", href=re.compile(r"^https?://", re.IGNORECASE)):
            places.setdefault(plain(str(tag["href"])), set()).add(inside.as_posix())
    for name in FILES:
        if (root / name).exists():
            text = (root / name).read_text(encoding="utf-8")
            for groups in IN_MARKDOWN.findall(text):
                places.setdefault(plain(next(filter(None, groups))), set()).add(name)
    return {link: sorted(pages) for link, pages in sorted(places.items())}


def allowed(path: Path = ALLOWED) -> dict[str, str]:
    """The hosts that are not asked, and why."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("host", [])
    for entry in entries:
        if set(entry) != {"name", "reason"} or not all(map(str.strip, entry.values())):
            raise ValueError(
                f"{path.name}: a host has a name and a reason, not {entry}"
            )
    return {entry["name"]: entry["reason"] for entry in entries}


def reason_not_to_ask(link: str, hosts: Mapping[str, str]) -> str | None:
    """Why an address is not asked; None where it is."""
    host = host_of(link).rpartition("@")[2].partition(":")[0].lower()
    for name, reason in hosts.items():
        if host == name or host.endswith(f".{name}"):
            return reason
    return None


def seconds_asked_for(response: httpx.Response) -> float:
    """How long a host wants not to be asked; 0 where it does not say so in seconds."""
    said = response.headers.get("retry-after", "")
    return min(float(said), LONGEST_WAIT) if said.isdigit() else 0.0


def request(client: httpx.Client, link: str) -> httpx.Response:
    """The answer to HEAD, or to GET where HEAD has no success; without its body."""
    try:
        response = client.head(link)
        if response.is_success:
            return response
    except (httpx.RemoteProtocolError, httpx.ReadTimeout):
        pass  # some servers hang up on it, or never answer it
    with client.stream("GET", link) as response:
        return response


def judged(response: httpx.Response, link: str) -> Answer:
    """What an answer says of an address."""
    if not response.is_success:
        return Answer(f"{response.status_code} {response.reason_phrase}".strip())
    steps = [step.status_code for step in response.history]
    if steps and set(steps) <= {301, 308}:
        return Answer(moved=str(response.url))
    return Answer()


def ask(
    client: httpx.Client,
    link: str,
    manners: Manners,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """Whether an address is there."""
    answer = Answer()
    for attempt in range(manners.tries):
        wait = manners.wait * 2**attempt
        try:
            response = request(client, link)
        except httpx.TooManyRedirects:
            return Answer("redirects that lead round in a circle")
        except httpx.TimeoutException:
            answer = Answer(f"no answer within {manners.timeout:.0f} s", reached=False)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = str(error) or type(error).__name__
            answer = Answer(f"cannot be asked: {said}", reached=False)
            if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
                return answer
        else:
            answer = judged(response, link)
            if response.status_code not in PASSING:
                return answer
            wait = max(wait, seconds_asked_for(response))
        if attempt + 1 < manners.tries:
            sleep(wait)
    return answer


def ask_all(
    places: Mapping[str, list[str]],
    hosts: Mapping[str, str],
    manners: Manners | None = None,
) -> Found:
    """Ask all addresses but those of some hosts."""
    manners = manners or Manners()
    found = Found(places=dict(places))
    by_host: dict[str, list[str]] = {}
    for link in places:
        reason = reason_not_to_ask(link, hosts)
        if reason is not None:
            found.not_asked[link] = reason
        else:
            by_host.setdefault(host_of(link), []).append(link)
    agent = f"specdec-book-links/{edition().version} (checks the links of a book)"

    def ask_host(links: Sequence[str]) -> list[tuple[str, Answer]]:
        answers = []
        with httpx.Client(
            headers={"User-Agent": agent, "Accept": "text/html,*/*"},
            follow_redirects=True,
            timeout=manners.timeout,
        ) as client:
            for n, link in enumerate(links):
                if n:
                    time.sleep(manners.pause)
                answers.append((link, ask(client, link, manners)))
        return answers

    with ThreadPoolExecutor(manners.hosts) as pool:
        for answers in pool.map(ask_host, by_host.values()):
            found.answers.update(answers)
    return found


def rows(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    cells = [heads, ["---"] * len(heads), *lines]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "%7C") for cell in line) + " |"
        for line in cells
    )


def report(found: Found, when: datetime.datetime) -> str:
    """What was found, as Markdown."""
    faults = found.faults
    hosts = {host_of(link) for link in found.answers}
    parts = [
        f"{len(found.answers)} addresses on {len(hosts)} hosts were asked on "
        f"{when:%Y-%m-%d %H:%M} (UTC), for {edition()}. "
        f"{len(faults) or 'None'} did not answer as they should.",
    ]
    where = {
        link: ", ".join(f"`{page}`" for page in pages)
        for link, pages in found.places.items()
    }
    if faults:
        lines = [(f"<{link}>", a.fault, where[link]) for link, a in faults.items()]
        parts += ["## Not there", rows(("Address", "Answer", "On the page"), lines)]
        parts.append(
            "Mend or remove the links. A host that refuses programs, and not readers, "
            "goes into `tools/external_links.toml`, with its reason."
        )
    moved = {link: a.moved for link, a in found.answers.items() if a.moved}
    if moved:
        lines = [(f"<{link}>", f"<{to}>", where[link]) for link, to in moved.items()]
        parts += [
            "## Moved for good, and found there",
            rows(("Address", "Now at", "On the page"), lines),
        ]
    if found.not_asked:
        lines = [(f"<{link}>", reason) for link, reason in found.not_asked.items()]
        parts += ["## Not asked", rows(("Address", "Reason"), lines)]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write it there too"
    )
    chosen = parser.parse_args(arguments)
    if not (SITE / "index.html").exists():
        print("There is no built book: `make html`.", file=sys.stderr)
        return 2
    found = ask_all(collect(), allowed())
    text = report(found, datetime.datetime.now(datetime.UTC))
    print(text)
    if found.nothing_reached:
        print("No address answered at all: is there a network?", file=sys.stderr)
        return 2
    if chosen.report:
        chosen.report.write_text(text, encoding="utf-8")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
