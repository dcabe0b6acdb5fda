"""Addresses outside of the book are asked politely, and what is gone is told."""

from __future__ import annotations

import datetime
import http.server
import re
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import external_links as tool
import pytest
from external_links import Answer, Found, Manners

QUICK = Manners(pause=0.05, tries=2, wait=0.05, timeout=1.0)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, float]] = []
        self.agents: set[str] = set()
        self.over = threading.Event()

    def of(self, path: str) -> list[str]:
        """The methods by which a path was asked, in order."""
        return [method for method, asked, _ in self.asked if asked == path]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def say(self, code: int, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": "0", "Connection": "close"}.items():
            headers.setdefault(name.replace("-", "_"), value)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def do_HEAD(self) -> None:
        self.answer(head=True)

    def do_GET(self) -> None:
        self.answer(head=False)

    def answer(self, *, head: bool) -> None:
        self.server.agents.add(self.headers["User-Agent"])
        self.server.asked.append((self.command, self.path, time.monotonic()))
        path = self.path
        first = len(self.server.of(path)) <= 2  # its HEAD and its GET
        if path.startswith("/ok"):
            self.say(200)
        elif path == "/moved":
            self.say(301, Location="/ok")
        elif path == "/away":
            self.say(302, Location="/ok")
        elif path == "/moved-and-gone":
            self.say(301, Location="/gone")
        elif path == "/round":
            self.say(302, Location="/round")
        elif path == "/broken":
            self.say(500)
        elif path == "/flaky":
            self.say(503 if first else 200)
        elif path == "/busy":
            self.say(429 if first else 200, Retry_After="1")
        elif path == "/refuses-head":
            self.say(405 if head else 200)
        elif path == "/refuses":
            self.say(403)
        elif path == "/hangs" or (path == "/head-hangs" and head):
            self.server.over.wait(20)
        elif path == "/hangs-up" and head:
            self.close_connection = True
        elif path == "/endless" and head:
            self.say(404)
        elif path == "/endless":
            self.say(200, Content_Length=str(10**12))
            while not self.server.over.wait(0.01):
                self.wfile.write(b"x" * 1000)
        elif path in ("/head-hangs", "/hangs-up"):
            self.say(200)
        else:
            self.say(404)


@pytest.fixture
def server() -> Iterator[Any]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    host = f"http://127.0.0.1:{made.server_address[1]}"
    yield SimpleNamespace(made=made, host=host, of=made.of)
    made.over.set()
    made.shutdown()
    made.server_close()


def answer(server: Any, path: str, manners: Manners = QUICK) -> Answer:
    link = server.host + path
    return tool.ask_all({link: ["a.html"]}, {}, manners).answers[link]


@pytest.mark.parametrize("path", ("/ok", "/away", "/refuses-head", "/hangs-up"))
def test_what_is_there(server: Any, path: str) -> None:
    assert answer(server, path) == Answer()


def test_an_endless_answer_is_not_read(server: Any) -> None:
    start = time.monotonic()
    assert answer(server, "/endless") == Answer()
    assert server.of("/endless") == ["HEAD", "GET"]
    assert time.monotonic() - start < 10


def test_a_head_that_hangs_is_followed_by_a_get(server: Any) -> None:
    assert answer(server, "/head-hangs") == Answer()
    assert server.of("/head-hangs") == ["HEAD", "GET"]


def test_what_moved_is_told_but_no_fault(server: Any) -> None:
    assert answer(server, "/moved") == Answer(moved=f"{server.host}/ok")


@pytest.mark.parametrize(
    "path, fault",
    [
        ("/gone", "404 Not Found"),
        ("/moved-and-gone", "404 Not Found"),
        ("/refuses", "403 Forbidden"),
    ],
)
def test_what_is_gone_is_not_asked_again(server: Any, path: str, fault: str) -> None:
    assert answer(server, path).fault == fault
    assert server.of(path) == ["HEAD", "GET"]


def test_a_circle_is_a_fault(server: Any) -> None:
    assert "circle" in answer(server, "/round").fault
    assert len(server.of("/round")) <= 60


def test_a_passing_fault_is_asked_again(server: Any) -> None:
    assert answer(server, "/flaky") == Answer()
    assert server.of("/flaky") == ["HEAD", "GET", "HEAD"]


def test_a_lasting_one_is_told(server: Any) -> None:
    assert answer(server, "/broken").fault == "500 Internal Server Error"
    assert server.of("/broken") == ["HEAD", "GET"] * QUICK.tries


def test_what_hangs_is_given_up(server: Any) -> None:
    start = time.monotonic()
    found = answer(server, "/hangs")
    assert found == Answer("no answer within 1 s", reached=False)
    assert time.monotonic() - start < 15
    assert server.of("/hangs") == ["HEAD", "GET"] * QUICK.tries


def test_a_host_that_asks_for_time_gets_it(server: Any) -> None:
    assert answer(server, "/busy") == Answer()
    times = [when for _, path, when in server.made.asked if path == "/busy"]
    assert times[2] - times[1] >= 1.0


def test_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        link = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    found = tool.ask_all({link: ["a.html"]}, {}, QUICK)
    assert found.answers[link].fault.startswith("cannot be asked: ")
    assert found.nothing_reached


@pytest.mark.parametrize("link", ("http://[half", "https://a.example:x/"))
def test_no_address_at_all(link: str, tmp_path: Path) -> None:
    places = tool.collect(book(tmp_path, f'<a href="{link}">x</a>'), tmp_path)
    assert list(places) == [link]
    (found,) = tool.ask_all(places, {"b": "c"}, QUICK).answers.values()
    assert found.fault.startswith("cannot be asked: ")


def test_a_host_is_asked_one_question_at_a_time(server: Any) -> None:
    links = {f"{server.host}/ok{n}": ["a.html"] for n in range(4)}
    tool.ask_all(links, {}, Manners(pause=0.3, tries=1))
    times = sorted(when for _, _, when in server.made.asked)
    assert len(times) == 4
    assert all(later - sooner >= 0.29 for sooner, later in pairwise(times))
    (agent,) = server.made.agents
    assert agent.startswith("specdec-book-links/")


def test_hosts_that_are_left_out(server: Any) -> None:
    hosts = {"example.org": "refuses programs"}
    links = {"https://www.example.org/x": ["a.html"], f"{server.host}/ok": ["a.html"]}
    found = tool.ask_all(links, hosts, QUICK)
    assert found.not_asked == {"https://www.example.org/x": "refuses programs"}
    assert list(found.answers) == [f"{server.host}/ok"]
    assert tool.reason_not_to_ask("https://notexample.org/", hosts) is None


def test_the_list_has_a_reason_for_each(tmp_path: Path) -> None:
    assert all(tool.allowed().values())
    path = tmp_path / "list.toml"
    for text in ('[[host]]\nname = "a"', '[[host]]\nname = "a"\nreason = " "'):
        path.write_text(text)
        with pytest.raises(ValueError, match="a name and a reason"):
            tool.allowed(path)


def book(folder: Path, links: str) -> Path:
    site = folder / "html"
    (site / "_static").mkdir(parents=True)
    (site / "index.html").write_text(links, encoding="utf-8")
    return site


def test_links_are_collected_with_their_places(tmp_path: Path) -> None:
    site = book(
        tmp_path,
        '<a href="https://a.example/x?y=1#part">x</a><a href="b.html">x</a>'
        '<a href="HTTPS://b.example/">x</a><a href="mailto:a@b.c">x</a>'
        "<code>https://c.example/</code>",
    )
    (site / "b.html").write_text('<a href="https://a.example/x?y=1">x</a>')
    (site / "_static" / "d.html").write_text('<a href="https://d.example/">x</a>')
    (tmp_path / "README.md").write_text("[x](https://e.example/y) <http://f.example>")
    assert tool.collect(site, tmp_path) == {
        "HTTPS://b.example/": ["index.html"],
        "http://f.example": ["README.md"],
        "https://a.example/x?y=1": ["b.html", "index.html"],
        "https://e.example/y": ["README.md"],
    }


def test_the_report_names_faults_and_places() -> None:
    found = Found(
        answers={
            "https://a.example/|": Answer("404 Not Found"),
            "https://b.example/": Answer(moved="https://c.example/"),
            "https://d.example/": Answer(),
        },
        places={
            "https://a.example/|": ["book/map.html", "README.md"],
            "https://b.example/": ["index.html"],
            "https://d.example/": ["index.html"],
        },
        not_asked={"http://localhost:1": "the reader's own machine"},
    )
    text = tool.report(found, datetime.datetime(2026, 11, 30, 4, 5))
    assert text.startswith(
        "3 addresses on 3 hosts were asked on 2026-11-30 04:05 (UTC)"
    )
    assert "1 did not answer as they should." in text
    assert (
        "| <https://a.example/%7C> | 404 Not Found | `book/map.html`, `README.md` |"
    ) in text
    assert "| <https://b.example/> | <https://c.example/> | `index.html` |" in text
    assert "| <http://localhost:1> | the reader's own machine |" in text
    assert not re.search(r"d\.example", text)
    found.answers.pop("https://a.example/|")
    assert "None did not answer" in tool.report(found, datetime.datetime(2026, 1, 1))


def test_the_command_says_by_its_status_how_it_is(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.md"
    monkeypatch.setattr(tool, "SITE", tmp_path / "html")
    monkeypatch.setattr(tool, "allowed", dict)
    monkeypatch.setattr(tool, "Manners", lambda: QUICK)
    assert tool.main(["--report", str(target)]) == 2  # no pages
    site = book(tmp_path, f'<a href="{server.host}/ok">x</a>')
    places = tool.collect(site, tmp_path)
    monkeypatch.setattr(tool, "collect", lambda: places)
    assert tool.main(["--report", str(target)]) == 0
    assert "None did not answer" in target.read_text()
    places[f"{server.host}/gone"] = ["index.html"]
    assert tool.main(["--report", str(target)]) == 1
    assert "404 Not Found" in target.read_text()
    target.unlink()
    places.clear()
    places["http://127.0.0.1:9/"] = ["index.html"]  # nobody listens: no network
    assert tool.main(["--report", str(target)]) == 2
    assert not target.exists()
