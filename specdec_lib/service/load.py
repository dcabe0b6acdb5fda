"""Load for the service, and whether every answer is the right one.

    python -m specdec_lib.service.load --clients 1,4,16,64 --seconds 10

starts ``specdec serve`` with the book's models on a port of its own (``--url`` and
``--pid`` take one that runs), and lets so many clients ask one request after the other
for so long. Each answer is compared with that of the library for the same request with
the same seed, worked out beforehand, and its id with the one that was sent: nothing
may be lost, and nothing mixed up. Where the service is busy (429), a client waits as
long as it is told to, and asks again.

The table has the answers and new tokens a second, the times of a request to its last
byte without those waits, and the memory of the server's process. Generator and server
share the machine; on few cores the generator is part of what is measured.

Needs httpx and psutil: ``pip install specdec_lib[load]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

try:
    import httpx
    import psutil  # type: ignore[import-untyped,unused-ignore]
except ImportError as error:
    missing = f"this needs {error.name}: pip install 'specdec_lib[load]'"
    if __name__ == "__main__":
        print(f"load: error: {missing}", file=sys.stderr)
        raise SystemExit(2) from None
    raise ImportError(missing, name=error.name) from error

from ..engine import Completion, Engine
from ..files import write_atomically
from ..pair import book_pair
from ..sampling import Sampler

CLIENTS = (1, 4, 16, 64)
PROMPTS = ("The harbour", "Once", "", "She said", "A long way off", "The 🙂 sea", "In")
STARTING = 60.0  # seconds that a server may take to be ready
LONGEST = 60.0  # seconds that one answer may take
SAMPLES = 0.25  # seconds between two looks at the memory


@dataclass(frozen=True)
class Known:
    """A request and its only right answer."""

    body: dict[str, Any]  # what is sent, as JSON
    answer: Completion


@dataclass
class Level:
    """What one number of clients brought."""

    clients: int
    seconds: float = 0.0  # from the first request to the last answer
    times: list[float] = field(default_factory=list)  # of each answer
    tokens: int = 0  # of all answers
    waits: int = 0  # answers 429
    lost: list[str] = field(default_factory=list)  # no answer, or none of status 200
    wrong: list[str] = field(default_factory=list)  # another text, another id
    memory: list[float] = field(default_factory=list)  # bytes, in time

    @property
    def growth(self) -> float:
        """Bytes by which the memory grew from the second quarter of the time to the
        last, by medians; the first quarter fills caches."""
        quarter = len(self.memory) // 4
        if not quarter:
            return 0.0
        before, after = self.memory[quarter : 2 * quarter], self.memory[-quarter:]
        return _quantile(after, 0.5) - _quantile(before, 0.5)

    def row(self) -> list[str]:
        """Its figures as text, a column each of :func:`table`."""
        per_second = len(self.times) / self.seconds
        return [
            str(self.clients),
            str(len(self.times)),
            f"{per_second:.1f}",
            f"{self.tokens / self.seconds:.0f}",
            f"{1000 * _quantile(self.times, 0.5):.1f}",
            f"{1000 * _quantile(self.times, 0.99):.1f}",
            str(self.waits),
            str(len(self.lost)),
            str(len(self.wrong)),
            f"{max(self.memory, default=math.nan) / 1e6:.0f}",
            f"{self.growth / 1e6:+.1f}",
        ]


HEADS = (
    *("clients", "answers", "a second", "tokens/s", "p50 ms", "p99 ms"),
    *("429s", "lost", "wrong", "MB", "growth MB"),
)


def known_requests(engine: Engine, number: int = 64) -> list[Known]:
    """``number`` requests of many kinds, streamed or not, and the library's answers."""
    found = []
    for i in range(number):
        body: dict[str, Any] = {
            "prompt": PROMPTS[i % len(PROMPTS)],
            "seed": i,
            "k": (4, 1, 2, 8, 0)[i % 5],
            "max_new_tokens": 8 + 8 * (i % 4),
            "temperature": (1.0, 0.0, 0.7)[i % 3],
            "stream": i % 4 == 3,
        }
        answer = engine.complete(
            body["prompt"],
            max_new_tokens=body["max_new_tokens"],
            k=body["k"],
            sampler=Sampler(body["temperature"]),
            seed=i,
        )
        found.append(Known(body, answer))
    return found


async def load(
    url: str,
    known: Sequence[Known],
    clients: int,
    seconds: float,
    memory: Callable[[], float] | None = None,
) -> Level:
    """``clients`` ask the service at ``url`` for ``seconds``, then wait for what they
    have asked; every client asks at least once. ``memory`` tells the server's bytes."""
    level, numbers = Level(clients), count()
    started = time.perf_counter()
    end = started + seconds

    async def client(http: httpx.AsyncClient) -> None:
        first = True
        while first or time.perf_counter() < end:
            first = False
            number = next(numbers)
            await _ask(http, known[number % len(known)], f"load-{number}", level)

    async def watch() -> None:
        while memory is not None:
            level.memory.append(memory())
            await asyncio.sleep(SAMPLES)

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(
        base_url=url, limits=limits, timeout=LONGEST, trust_env=False
    ) as http:
        watching = asyncio.create_task(watch())
        await asyncio.gather(*(client(http) for _ in range(clients)))
        watching.cancel()
    level.seconds = time.perf_counter() - started
    return level


async def _ask(http: httpx.AsyncClient, known: Known, name: str, level: Level) -> None:
    """One request, until it is answered."""
    headers = {"x-request-id": name}
    given_up = time.perf_counter() + LONGEST
    while True:
        asked = time.perf_counter()
        try:
            answer = await http.post("/generate", json=known.body, headers=headers)
        except httpx.HTTPError as error:
            level.lost.append(f"{name}: {error!r}")
            return
        now = time.perf_counter()
        if answer.status_code != 429 or now > given_up:
            break
        level.waits += 1
        await asyncio.sleep(float(answer.headers["retry-after"]))
    if answer.status_code != 200:
        level.lost.append(f"{name}: {answer.status_code} {answer.text[:200]}")
        return
    text, summary = _read(answer.text, known.body["stream"])
    right = known.answer
    found = (text, summary["new_tokens"], summary["target_calls"], summary["accepted"])
    metrics = right.metrics
    expected = (
        right.text,
        len(right.tokens),
        metrics.target_calls,
        metrics.accepted,
    )
    ids = (summary["id"], answer.headers["x-request-id"])
    if found != expected or ids != (name, name):
        level.wrong.append(f"{name}: {found} {ids} instead of {expected}")
        return
    level.times.append(now - asked)
    level.tokens += len(right.tokens)


def _read(body: str, stream: bool) -> tuple[str, dict[str, Any]]:
    """The text and the summary of an answer."""
    if not stream:
        whole = json.loads(body)
        return whole["text"], whole
    *pieces, last = (
        json.loads(line.removeprefix("data: "))
        for line in body.splitlines()
        if line.startswith("data: ")
    )
    return "".join(piece.get("text", "") for piece in pieces), last


@contextmanager
def server(*flags: str) -> Iterator[tuple[str, int]]:
    """``specdec serve`` with these ``flags`` as a process: its address and its id.

    Its log is dropped.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "specdec_lib", "serve", "--port", str(port)]
    running = subprocess.Popen(
        [*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(url, running)
        yield url, running.pid
    finally:
        running.terminate()
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _wait_until_ready(url: str, running: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + STARTING
    while time.monotonic() < end:
        if running.poll() is not None:
            raise OSError(f"specdec serve ended with {running.returncode}")
        try:
            if httpx.get(url + "/ready", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise OSError(f"specdec serve was not ready in {STARTING} s")


def table(levels: Sequence[Level]) -> str:
    """All ``levels`` in lines of text, a column for each figure."""
    rows = [list(HEADS), *(level.row() for level in levels)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` of all do not exceed."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command of this module; ``arguments`` None: those of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_lib.service.load",
        description="Load for specdec serve: throughput and times by the number of "
        "clients, and whether each answer is the right one.",
    )
    parser.add_argument(
        "--clients", default="1,4,16,64", help="how many at once (1,4,16,64)"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for each of these (10)"
    )
    parser.add_argument(
        "--url", help="a service of the book's models that runs (one is started)"
    )
    parser.add_argument("--pid", type=int, help="its process, to watch its memory")
    parser.add_argument(
        "--flags", default="", help='for the one that is started, as "--queue 128"'
    )
    parser.add_argument("--json", help="write the figures to this file too")
    options = parser.parse_args(arguments)
    pair = book_pair()
    known = known_requests(Engine(pair.target, pair.tokenizer, pair.draft))
    if options.url is None:
        with server(*options.flags.split()) as (url, pid):
            levels = _levels(options, url, pid, known)
    else:
        levels = _levels(options, options.url, options.pid, known)
    print(table(levels))
    for level in levels:
        for fault in (level.lost + level.wrong)[:5]:
            print(fault, file=sys.stderr)
    if options.json is not None:
        heads = [head.replace(" ", "_") for head in HEADS]
        rows = [
            dict(zip(heads, map(float, each.row()), strict=True)) for each in levels
        ]
        content = json.dumps(rows, indent=1).encode()
        write_atomically(options.json, lambda file: file.write(content))
    return 1 if any(level.lost or level.wrong for level in levels) else 0


def _levels(
    options: argparse.Namespace, url: str, pid: int | None, known: Sequence[Known]
) -> list[Level]:
    memory = None
    if pid is not None:
        process = psutil.Process(pid)

        def memory() -> float:
            return float(process.memory_info().rss)

    return [
        asyncio.run(load(url, known, int(each), options.seconds, memory))
        for each in options.clients.split(",")
    ]


if __name__ == "__main__":
    sys.exit(main())
